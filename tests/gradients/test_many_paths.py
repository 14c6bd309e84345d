"""Reads that many paths lead to: stages of nested branches, alone and read by other stages.

The expected gradient adds each cotangent up at the element that plain Python picks for it.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.rewrite import tree_size
from tvm_autodiff.graph.stage import bodies

D = "float64"


def branch(condition, then, otherwise):
    """One function of plain numbers and of expressions: both sides are functions."""
    if isinstance(condition, (bool, np.bool_)):
        return then() if condition else otherwise()
    return te.if_then_else(condition, then(), otherwise())


def choice(condition, then, otherwise):
    if isinstance(condition, (bool, np.bool_)):
        return then() if condition else otherwise()
    return tirx.Select(condition, then(), otherwise())


def nested(values, index, pick, low=0):
    """``values[index]`` as a chain of branches."""
    if len(values) == 1:
        return values[0]()
    return pick(index == low, values[0], lambda: nested(values[1:], index, pick, low + 1))


def table(pattern, pick=branch):
    """A matrix whose entries are parameters: a chain of branches over rows and columns."""
    rows = pattern.split("/")

    def body(c, i, j):
        def entry(letter):
            return (lambda: 0.0) if letter == "." else (lambda: c(int(letter)))

        lines = [lambda row=row: nested([*map(entry, row)], j, pick) for row in rows]
        return nested(lines, i, pick)

    return body


def in_halves(depth, low=0):
    """``c[digit of i]`` by a tree of branches on one axis."""

    def body(c, i, j, low=low, depth=depth):
        if depth == 0:
            return c(low % 2)
        middle = low + 2 ** (depth - 1)
        return branch(
            i < middle,
            lambda: in_halves(depth - 1, low)(c, i, j),
            lambda: in_halves(depth - 1, middle)(c, i, j),
        )

    return body


#: name → (shape of the copy, number of parameters, body)
COPIES = {
    "cross": ((3, 3), 2, table("010/101/010")),
    "frame": ((3, 3), 2, table("000/010/000")),
    "all alike": ((3, 3), 1, table("000/000/000")),
    "two alike": ((3, 2), 2, table("01/10/01")),
    "holes": ((3, 4), 2, table("0.0./.1.0/1.1.")),
    "five by five": ((5, 5), 3, table("01210/12021/20102/12021/01210")),
    "select": ((3, 3), 2, table("010/101/010", choice)),
    "row": ((1, 9), 2, table("010011010")),
    "tree": ((16, 2), 2, in_halves(4)),
    "more elements than the copy": ((2, 2), 7, table("06/60")),
}


def picked(body, shape, count):
    """The parameter that each element copies, -1 for none, by plain Python."""
    found = np.full(shape, -1)
    for place in np.ndindex(*shape):
        index = body(lambda k: k, *place)
        found[place] = -1 if isinstance(index, float) else index
    assert found.max() < count
    return found


def copy_of(body, shape, count):
    c = te.placeholder((count,), D, name="c")
    zero = tirx.const(0.0, D)

    def element(i, j):
        result = body(lambda k: c[k], i, j)
        return zero if isinstance(result, float) else result

    return c, te.compute(shape, element, name="w")


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("reader", ["none", "correlation", "scaled", "transposed"])
def test_copies(name, reader):
    shape, count, body = COPIES[name]
    c, w = copy_of(body, shape, count)
    rng = np.random.default_rng(0)
    x = te.placeholder((shape[0] + 3, shape[1] + 2), D, name="x")
    image = rng.uniform(-1, 1, tuple(map(int, x.shape)))
    outs = {"correlation": (4, 3), "transposed": shape[::-1]}.get(reader, shape)
    head = rng.uniform(-1, 1, outs)
    values = [(x, image)]
    if reader == "none":
        out, dw = w, head
    elif reader == "scaled":
        out = te.compute(shape, lambda i, j: w[i, j] * x[i, j] * w[i, j], name="out")
        parameters = rng.uniform(-1, 1, count)
        values.append((c, parameters))
        held = np.append(parameters, 0.0)[picked(body, shape, count)]
        dw = 2 * head * held * image[: shape[0], : shape[1]]
    elif reader == "transposed":
        out = te.compute(outs, lambda i, j: w[j, i] * x[j, i], name="out")
        dw = head.T * image[: shape[0], : shape[1]]
    else:
        a, b = (te.reduce_axis((0, n), name) for n, name in zip(shape, "ab", strict=True))
        out = te.compute(outs, lambda i, j: te.sum(w[a, b] * x[i + a, j + b], axis=[a, b]), "out")
        dw = np.zeros(shape)
        for i, j, p, q in itertools.product(*map(range, (*outs, *shape))):
            dw[p, q] += head[i, j] * image[i + p, j + q]
    want = np.zeros(count + 1)
    np.add.at(want, picked(body, shape, count), dw)
    h = te.placeholder(outs, D, name="head")
    [dc] = ad.differentiate(out, [c], h)
    [got] = evaluate_graph([dc], [*values, (h, head)])
    np.testing.assert_allclose(got, want[:count], rtol=1e-12, atol=1e-12)


def test_conditions_on_two_tensors_of_the_same_indices_are_two():
    """``if a[i] then (if b[i] then x[i])``: what is read decides, not only where."""
    a, b = (te.placeholder((4,), "bool", name=name) for name in "ab")
    x = te.placeholder((4,), D, name="x")
    zero = tirx.const(0.0, D)
    out = te.compute((4,), lambda i: te.if_then_else(a[i], te.if_then_else(b[i], x[i], zero), zero))
    [dx] = ad.differentiate(out, [x], te.compute((4,), lambda i: tirx.const(1.0, D), name="h"))
    flags = np.array([[0, 0, 1, 1], [0, 1, 0, 1]], bool)
    [got] = evaluate_graph([dx], [(a, flags[0]), (b, flags[1])])
    np.testing.assert_array_equal(got, [0, 0, 0, 1])


@pytest.mark.parametrize("first", ["choice", "branch"])
def test_a_choice_does_not_guard_what_a_branch_of_the_same_condition_guards(first):
    """The factor ``b[i - 1]`` may only be read under the branch."""
    b, x = (te.placeholder((4,), D, name=name) for name in "bx")

    def body(i):
        inside, zero = i > 0, tirx.const(0.0, D)
        chosen = tirx.Select(inside, x[i] * 2.0, zero)
        guarded = te.if_then_else(inside, x[i] * b[i - 1], zero)
        return chosen + guarded if first == "choice" else guarded + chosen

    out = te.compute((4,), body, name="out")
    [dx] = ad.differentiate(out, [x], te.compute((4,), lambda i: tirx.const(1.0, D), name="h"))
    assert "if i0 >= 1 then b[i0 - 1]" in ad.show(dx)


@pytest.mark.parametrize("pick", [branch, choice])
@pytest.mark.parametrize("steps", [3, 6, 12])
def test_a_chain_of_choices_by_data(steps, pick):
    """``e = if x > c then sin(e)*1.01 else e``, again and again: 2^steps paths.

    Both sides read the cotangent, so the two contributions of a choice become one.
    """
    x, head = te.placeholder((40,), D, "x"), te.placeholder((40,), D, "head")

    def body(i):
        value = x[i]
        for step in range(steps):
            condition, old = x[i] > 0.1 * step, value
            value = pick(condition, lambda old=old: te.sin(old) * 1.01, lambda old=old: old)
        return value

    y = te.compute((40,), body, name="y")
    [dx] = ad.vjp([y], [x], [head])
    assert tree_size(bodies(dx.op)[0]) < 100 * steps**2
    rng = np.random.default_rng(0)
    values, cotangent = rng.uniform(-1, 1.5, 40), rng.standard_normal(40)
    slope, value = cotangent, values
    for step in range(steps):
        taken = values > 0.1 * step
        slope = np.where(taken, slope * np.cos(value) * 1.01, slope)
        value = np.where(taken, np.sin(value) * 1.01, value)
    [got] = evaluate_graph([dx], [(x, values), (head, cotangent)])
    np.testing.assert_allclose(got, slope, rtol=1e-12)
