"""Reads out of bounds: refused where they are certain, and nowhere else.

A line a program. What is refused leaves its tensor at the first point that numpy tries; what is
legal stays inside at every point that is evaluated.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tvm import te, tirx, topi
from tvm.topi import nn

import tvm_autodiff as ad
from tvm_autodiff import OutOfBoundsError
from tvm_autodiff.expr.nodes import node_id
from tvm_autodiff.graph import out_of_bounds


def tensor(*shape, name="x", dtype="float32"):
    return te.placeholder(shape, dtype, name=name)


def axis(low, high, name="k"):
    return te.reduce_axis((low, high), name)


def stage(shape, body, name="y"):
    return te.compute(shape, body, name=name)


x, m = tensor(4), tensor(4, 6, name="m")
table = tensor(5, name="table", dtype="int32")
n = te.var("n")
wide = te.var("w", "int64")
s, t = tensor(n, name="s"), tensor(wide, name="t")
free = te.var("free")


def i32(value):
    return tirx.const(value, "int32")


def summed(body, *axes, shape=(4,)):
    return stage(shape, lambda *i: te.sum(body(*i, *axes), axis=list(axes)))


def flattened(body):
    return stage((2, 3), body)


REFUSED = {
    "one behind": (
        lambda: stage((4,), lambda i: x[i + 1]),
        r"stage y reads x\[i \+ 1\], and the index i \+ 1 of dimension 0 takes the values 1 to 4 "
        "where x has 0 to 3",
    ),
    "one before": (lambda: stage((4,), lambda i: x[i - 1]), "values -1 to 2"),
    "longer": (lambda: stage((5,), lambda i: x[i]), "values 0 to 4"),
    "reversed": (lambda: stage((4,), lambda i: x[4 - i]), "values 1 to 4"),
    "a literal": (lambda: stage((), lambda: x[4]), "values 4 to 4"),
    "a negative literal": (lambda: stage((2,), lambda i: m[i, -1]), "index -1 of dimension 1"),
    "second dimension": (lambda: stage((4, 7), lambda i, j: m[i, j]), "dimension 1 takes"),
    "dimensions exchanged": (lambda: stage((6, 4), lambda i, j: m[i, j]), "dimension 0 takes"),
    "stride": (lambda: stage((3,), lambda i: x[2 * i]), "values 0 to 4"),
    "two axes": (lambda: flattened(lambda i, j: x[3 * i + j]), "values 0 to 5"),
    "two axes with signs": (lambda: flattened(lambda i, j: x[i - j]), "values -2 to 1"),
    "window": (lambda: summed(lambda i, k: x[i + k], axis(0, 2)), "values 0 to 4"),
    "axis that begins elsewhere": (lambda: summed(lambda i, k: m[i, k], axis(2, 7)), "2 to 6"),
    "division": (lambda: stage((10,), lambda i: x[i // 2]), "values 0 to 4"),
    "remainder": (lambda: stage((9,), lambda i: x[i % 5]), "values 0 to 4"),
    "clamp": (lambda: stage((9,), lambda i: x[te.min(i, 4)]), "values 0 to 4"),
    "clamp from below": (lambda: stage((2,), lambda i: x[te.max(i - 5, -1)]), "values -1 to -1"),
    "product of axes": (lambda: flattened(lambda i, j: x[i * 4 + i * j]), "values 0 to 6"),
    "casts": (lambda: stage((5,), lambda i: x[i.astype("int64")]), "values 0 to 4"),
    "int64 extents": (
        lambda: stage((tirx.IntImm("int64", 5),), lambda i: x[i]),
        "values 0 to 4",
    ),
    "in a condition": (
        lambda: stage((4,), lambda i: te.if_then_else(x[i + 1] > 0.0, x[i], 0.0)),
        r"reads x\[i \+ 1\]",
    ),
    "beside a guard": (
        lambda: stage((4,), lambda i: te.if_then_else(i < 3, x[i + 1], 0.0) + x[i + 1]),
        "values 1 to 4",
    ),
    "in a branch that is always taken": (
        lambda: stage((4,), lambda i: te.if_then_else(i >= 0, x[i + 1], 0.0)),
        "values 1 to 4",
    ),
    "a guard that is too wide": (
        lambda: stage((9,), lambda i: te.if_then_else(i < 2, x[i + 3], 0.0)),
        "values 3 to 4",
    ),
    "the other branch": (
        lambda: stage((9,), lambda i: te.if_then_else(i < 4, x[i], x[i - 4])),
        r"reads x\[i - 4\].* values 0 to 4",
    ),
    "nested branches": (
        lambda: stage(
            (9,), lambda i: te.if_then_else(i > 3, te.if_then_else(i % 2 == 0, x[i // 2], 0.0), 0.0)
        ),
        "values 2 to 4",
    ),
    "guards of both dimensions": (
        lambda: stage(
            (4, 9), lambda i, j: te.if_then_else(tirx.all(i > 0, j < 8), m[i, j], 0.0)
        ),
        "dimension 1 takes the values 0 to 7",
    ),
    "a side of a select": (
        lambda: stage((9,), lambda i: tirx.Select(i < 5, x[i], x[0])),
        "values 0 to 4",
    ),
    "a branch of a sum": (
        lambda: summed(lambda i, k: te.if_then_else(i + k < 5, x[i + k], 0.0), axis(0, 4)),
        "values 0 to 4",
    ),
    "in the index of a table": (lambda: stage((6,), lambda i: x[table[i]]), r"table\[i\]"),
    "deep in the graph": (
        lambda: summed(lambda i, k: stage((5,), lambda j: x[j] * 2.0, "deep")[k], axis(0, 5)),
        "stage deep reads x",
    ),
    "symbolic, one behind": (lambda: stage((n,), lambda i: s[i + 1]), "values 1 to n"),
    "symbolic, longer": (lambda: stage((n + 2,), lambda i: s[i]), r"values 0 to n \+ 1"),
    "symbolic, before": (lambda: stage((n,), lambda i: s[i - 1]), "values -1 to n - 2"),
    "symbolic, reversed": (lambda: stage((n,), lambda i: s[n - i]), "values 1 to n"),
    "symbolic, twice as long": (lambda: stage((2 * n,), lambda i: s[i]), "values 0 to"),
    "symbolic, int64": (lambda: stage((wide,), lambda i: t[i + 1]), "values 1 to w"),
    "symbolic, far behind": (
        lambda: summed(
            lambda i, k, j: s[n + k * 1_000_000_000 + j * 700_000_000], axis(0, 3), axis(0, 2, "j")
        ),
        r"values n to int64\(n\) \+ 2700000000",
    ),
    "symbolic, a place": (lambda: stage((), lambda: s[n]), "values n to n"),
}

LEGAL = {
    "guarded": lambda: stage((4,), lambda i: te.if_then_else(i < 3, x[i + 1], 0.0)),
    "guarded elsewhere": lambda: stage((4,), lambda i: te.if_then_else(i > 2, 0.0, x[i + 1])),
    "select": lambda: stage((4,), lambda i: tirx.Select(i < 3, x[i + 1], i32(0).astype("float32"))),
    "a branch that is never taken": lambda: stage(
        (4,), lambda i: te.if_then_else(i > 5, x[i + 9], 0.0)
    ),
    "guards of both dimensions, one of which never holds": lambda: stage(
        (4, 9), lambda i, j: te.if_then_else(tirx.all(i > 5, j < 8), m[i, j], 0.0)
    ),
    "a branch by data": lambda: stage(
        (5,), lambda i: te.if_then_else(table[i] < 2, x[i + 9], 0.0)
    ),
    "a branch by data within one": lambda: stage(
        (5,), lambda i: te.if_then_else(i < 5, te.if_then_else(table[i] < 2, x[i + 9], 0.0), 0.0)
    ),
    "a branch in a remainder": lambda: stage(
        (8,), lambda i: te.if_then_else(i % 2 == 0, x[i // 2], 0.0)
    ),
    "nested guards": lambda: stage(
        (9,), lambda i: te.if_then_else(i < 4, te.if_then_else(i > 0, x[i - 1], 0.0), 0.0)
    ),
    "cut short": lambda: stage(
        (5,), lambda i: te.if_then_else(tirx.all(i < 4, x[i] > 0.0), 1.0, 0.0)
    ),
    "cut short by or": lambda: stage(
        (5,), lambda i: te.if_then_else(tirx.any(i >= 4, x[i] > 0.0), 1.0, 0.0)
    ),
    "where": lambda: stage(
        (4,), lambda i: te.sum(x[i + (k := axis(0, 3))], axis=k, where=i + k < 4)
    ),
    "no points": lambda: stage((0,), lambda i: x[i + 9]),
    "no points of a sum": lambda: summed(lambda i, k: x[i + 9 + k], axis(0, 0)),
    "no points of another axis": lambda: stage((3, 0), lambda i, j: x[i + 9]),
    "ragged": lambda: stage((4,), lambda i: te.sum(x[(k := axis(0, i)) + 1], axis=k)),
    "division": lambda: stage((8,), lambda i: x[i // 2]),
    "remainder": lambda: stage((9,), lambda i: x[i % 4]),
    "remainder of negative numbers": lambda: stage((9,), lambda i: x[(3 - i) % 4]),
    "clamped": lambda: stage((9,), lambda i: x[te.max(te.min(i - 2, 3), 0)]),
    "correlated": lambda: stage((8,), lambda i: x[i // 2 * 2 - i + 1]),
    "correlated axes": lambda: flattened(lambda i, j: x[(3 * i + j) // 2 + (3 * i + j) % 2]),
    "data": lambda: stage((5,), lambda i: x[table[i]]),
    "data and more": lambda: stage((5,), lambda i: x[table[i] + 100]),
    "float index": lambda: stage(
        (8,), lambda i: x[tirx.Cast("int32", te.floor(i.astype("float32") * 0.5))]
    ),
    "wrapping": lambda: stage((8,), lambda i: x[(i * 1103515245 + 12345) % 4]),
    "narrow integers": lambda: stage((300,), lambda i: x[i.astype("uint8").astype("int32") % 4]),
    "zero or one": lambda: stage((9,), lambda i: x[(i - 5).astype("bool").astype("int32") + 2]),
    "zero or one of many": lambda: stage(
        (9,), lambda i: x[(i * 7 - 5).astype("bool").astype("int32") + i // 4]
    ),
    "window": lambda: summed(lambda i, k: m[i, k + 2], axis(0, 4)),
    "negative start": lambda: summed(lambda i, k: m[i, k + 3], axis(-3, 3)),
    "broadcast": lambda: stage((9, 4), lambda i, j: x[j]),
    "symbolic": lambda: stage((n,), lambda i: s[n - 1 - i]),
    "symbolic, shorter": lambda: stage((n - 1,), lambda i: s[i + 1]),
    "symbolic, at most": lambda: stage((te.min(n, 4),), lambda i: s[i] + x[i]),
    "symbolic, constant against size": lambda: stage((4,), lambda i: s[i]),
    "symbolic, size against constant": lambda: stage((n,), lambda i: x[i]),
    "symbolic, two sizes": lambda: stage((wide,), lambda i: s[i]),
    "symbolic, guarded": lambda: stage((n,), lambda i: te.if_then_else(i > 0, s[i - 1], 0.0)),
    "symbolic, halves": lambda: stage((n // 2,), lambda i: s[2 * i + 1]),
    "symbolic, perhaps empty": lambda: stage((n - 5,), lambda i: s[i + 5]),
    "symbolic, maybe no points": lambda: stage((n - 1,), lambda i: x[i + 9]),
    "a variable that no shape tells": lambda: stage((4,), lambda i: x[i + free]),
    "pooling": lambda: nn.pool2d(tensor(1, 1, 5, 5), [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max"),
    "padding": lambda: nn.pad(m, [1, 2], [2, 1]),
    "convolution": lambda: nn.conv2d_nchw(
        tensor(1, 2, 6, 6), tensor(3, 2, 3, 3, name="w"), 2, 1, 1
    ),
    "roll": lambda: topi.strided_slice(m, [3, 5], [0, 0], [-1, -2]),
    "concatenate": lambda: topi.concatenate([x, x], 0),
    "tile": lambda: topi.tile(m, [2, 3]),
    "reshape": lambda: topi.reshape(m, (3, 8)),
}


def inputs_of(output):
    from tvm_autodiff.graph.graph import Graph

    return Graph([output]).placeholders()


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_certain_is_refused(name):
    make, message = REFUSED[name]
    output = make()
    inputs = inputs_of(output)
    for action in (
        lambda: ad.build(inputs, output),
        lambda: ad.lower(inputs, output),
        lambda: ad.differentiate(output, inputs[-1:], None),
        lambda: ad.vjp(output, inputs[-1:], None),
    ):
        with pytest.raises(OutOfBoundsError, match=message) as caught:
            action()
        assert isinstance(caught.value, ad.AutodiffError)
        assert "guard the read" in str(caught.value)


@pytest.mark.parametrize("guarded", [False, True])
def test_indices_of_floats_are_refused(guarded):
    """TVM would round them towards zero."""
    x, t = te.placeholder((8,), name="x"), te.placeholder((5,), name="t")
    read = lambda i: x[t[i] * 2.0]  # noqa: E731
    y = te.compute(
        (5,), lambda i: te.if_then_else(i > 1, read(i), 0.0) if guarded else read(i), name="y"
    )
    message = r"y reads x at t\[i\]\*2.0, which is float32: make an integer"
    for attempt in (lambda: ad.build([x, t], y), lambda: ad.differentiate(y, [x])):
        with pytest.raises(ad.InvalidArgumentError, match=message):
            attempt()
    whole = te.compute((5,), lambda i: x[t[i].astype("int32")], name="whole")
    found = ad.build([x, t], whole, cache=False)(
        np.arange(8, dtype="float32"), np.float32([0.2, 1.7, 2.5, 3, 7])
    )
    np.testing.assert_array_equal(found, [0, 1, 2, 3, 7])


def test_negative_sizes_are_refused():
    def window(x):
        return summed(lambda i, k: x[i + k], axis(0, 3), shape=(x.shape[0] - 2,))

    empty, small = tensor(2), tensor(1)
    assert [int(n) for n in ad.differentiate(window(empty), empty)[0].shape] == [0, 2]
    for action in (
        lambda: ad.build(small, window(small)),
        lambda: ad.differentiate(window(small), small),
        lambda: ad.jit(window)(np.ones(1, "float32")),
    ):
        with pytest.raises(ad.InvalidArgumentError, match=r"y has shape \(-1,\), and a dimension"):
            action()


@pytest.mark.parametrize("name", LEGAL)
def test_what_is_not_certain_is_left_alone(name):
    output = LEGAL[name]()
    floats = [t for t in inputs_of(output) if str(t.dtype) == "float32"]
    head = te.placeholder(output.shape, "float32", name="head")
    assert len(ad.vjp(output, floats, head)) == len(floats)


def test_points_are_tried_without_an_analyzer_where_intervals_bound_them(monkeypatch) -> None:
    def analysed(expr, ranges):
        raise AssertionError(f"{expr} was analysed")

    i, j = te.var("i"), te.var("j")
    box = SimpleNamespace(ranges={node_id(i): (0, 2), node_id(j): (1, 2)})
    monkeypatch.setattr(out_of_bounds, "constant_bounds", analysed)
    found = out_of_bounds._tried([(i * 3 + j) % 4, i < j], box)
    assert found == [((3 * a + b) % 4, a < b) for a in (0, 1) for b in (1, 2)]


@pytest.mark.parametrize("factor", [2**30, 2**31 - 1])
def test_points_are_not_tried_where_a_step_may_leave_its_dtype(factor) -> None:
    i = te.var("i")
    box = SimpleNamespace(ranges={node_id(i): (0, 4)})
    assert out_of_bounds._tried([i * factor // 7], box) is None
