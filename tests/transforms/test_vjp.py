"""`vjp`: several outputs with a cotangent each, in one sweep, against differences of numpy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph as evaluate
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.graph.graph import Graph

X = np.random.default_rng(0).uniform(0.25, 1.25, (3, 4))
W = np.random.default_rng(1).uniform(0.25, 1.25, (4,))


def tensor(*shape, name="x", dtype="float64"):
    return te.placeholder(shape, dtype, name=name)


def stage(shape, body, name):
    return te.compute(shape, body, name=name)


def rows(x, name="rows"):
    k = te.reduce_axis((0, x.shape[1]), "k")
    return stage((x.shape[0],), lambda i: te.sum(x[i, k] * x[i, k], axis=k), name)


def apart(x, w):
    return [
        stage((4,), lambda i: te.exp(x[2, i]), "y"),
        stage((4,), lambda i: w[3 - i] * w[3 - i], "z"),
    ]


def sharing_a_stage(x, w):
    s = stage((3, 4), lambda i, j: x[i, j] * w[j], "s")
    return [rows(s), stage((4, 3), lambda j, i: te.sin(s[i, j]), "turned")]


def one_reads_the_other(x, w):
    y = stage((3, 4), lambda i, j: te.exp(x[i, j]) * w[j], "y")
    return [y, stage((3,), lambda i: y[i, 0] * y[2 - i, 3], "z")]


def a_chain_of_outputs(x, w):
    a = stage((3, 4), lambda i, j: x[i, j] * x[i, j], "a")
    b = stage((3, 4), lambda i, j: a[i, 3 - j] * w[j], "b")
    return [a, rows(b, "c"), b]


def the_same_twice(x, w):
    y = stage((3,), lambda i: x[i, 1] * w[i], "y")
    return [y, y]


def an_input_itself(x, w):
    return [x, stage((3, 4), lambda i, j: x[i, j] * w[j], "y"), w]


def a_copy_that_is_an_output(x, w):
    turned = topi.transpose(x)
    return [turned, stage((4, 3), lambda j, i: turned[j, i] * turned[j, 2 - i] * w[j], "y")]


def sums_of_two_kinds(x, w):
    """A tuple reduction, both of whose components have a cotangent."""
    both = te.comm_reducer(
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
        lambda s, t: (tirx.const(0, s), tirx.const(0, t)),
        name="both",
    )
    k = te.reduce_axis((0, 4), "k")
    first, second = te.compute(
        (3,), lambda i: both((x[i, k], x[i, k] * x[i, k] * w[k]), axis=k), name="moments"
    )
    return [first, second]


def several_bodies(x, w):
    first, second = te.compute(
        (3, 4), lambda i, j: (x[i, j] * w[j], te.exp(x[i, j]) / w[j]), name="pair"
    )
    return [second, first]


def a_winner_and_its_place(x, w):
    largest = te.comm_reducer(
        lambda a, b: (
            tirx.Select(a[1] >= b[1], a[0], b[0]),
            tirx.Select(a[1] >= b[1], a[1], b[1]),
        ),
        lambda s, t: (tirx.const(-1, s), tirx.min_value(t)),
        name="largest",
    )
    k = te.reduce_axis((0, 4), "k")
    place, value = te.compute((3,), lambda i: largest((k, x[i, k] * w[k]), axis=k), name="winner")
    return [place, value]


def scalars(x, w):
    k = te.reduce_axis((0, 4), "k")
    first = stage((), lambda: te.sum(w[k] * w[k], axis=k), "first")
    return [first, stage((), lambda: first() * x[0, 0], "second")]


@dataclass(frozen=True)
class Case:
    make: Any
    values: Any  #: the outputs in numpy
    without: tuple[int, ...] = field(default=())  #: outputs whose cotangent is None

    def __str__(self) -> str:
        return self.make.__name__ + "".join(f"-no{n}" for n in self.without)


def _chain(x, w):
    a = x * x
    b = a[:, ::-1] * w
    return [a, (b * b).sum(1), b]


def _read(x, w):
    y = np.exp(x) * w
    return [y, y[:, 0] * y[::-1, 3]]


def _winner(x, w):
    return [(x * w).argmax(1), (x * w).max(1)]


CASES = [
    Case(apart, lambda x, w: [np.exp(x[2]), w[::-1] ** 2]),
    Case(sharing_a_stage, lambda x, w: [((x * w) ** 2).sum(1), np.sin(x * w).T]),
    Case(one_reads_the_other, _read),
    Case(one_reads_the_other, _read, (0,)),
    Case(one_reads_the_other, _read, (1,)),
    Case(a_chain_of_outputs, _chain),
    Case(a_chain_of_outputs, _chain, (0, 2)),
    Case(the_same_twice, lambda x, w: [x[:, 1] * w[:3]] * 2),
    Case(an_input_itself, lambda x, w: [x, x * w, w]),
    Case(an_input_itself, lambda x, w: [x, x * w, w], (1,)),
    Case(a_copy_that_is_an_output, lambda x, w: [x.T, x.T * x.T[:, ::-1] * w[:, None]]),
    Case(sums_of_two_kinds, lambda x, w: [x.sum(1), (x * x * w).sum(1)]),
    Case(sums_of_two_kinds, lambda x, w: [x.sum(1), (x * x * w).sum(1)], (0,)),
    Case(several_bodies, lambda x, w: [np.exp(x) / w, x * w]),
    Case(a_winner_and_its_place, _winner, (0,)),
    Case(scalars, lambda x, w: [(w * w).sum(), (w * w).sum() * x[0, 0]]),
    Case(apart, lambda x, w: [np.exp(x[2]), w[::-1] ** 2], (0, 1)),
]


def differences(values, weights):
    """d Σ_o <weights, values> by x and w, with an error of fourth order in the step."""
    points = [X.copy(), W.copy()]

    def weighted():
        pairs = zip(values(*points), weights, strict=True)
        return sum((value * weight).sum() for value, weight in pairs if weight is not None)

    gradients = []
    for array in points:
        gradient = np.zeros(array.shape)
        for place in np.ndindex(array.shape):
            centre = array[place]
            for offset, factor in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
                array[place] = centre + offset * 1e-3
                gradient[place] += factor * weighted() / 12e-3
            array[place] = centre
        gradients.append(gradient)
    return gradients


def cotangents_of(outputs, without, prefix=()):
    """Placeholders for the cotangents, None for some, and random values."""
    rng = np.random.default_rng(2)
    heads, weights = [], []
    for number, output in enumerate(outputs):
        shape = (*prefix, *(int(extent) for extent in output.shape))
        given = number not in without
        heads.append(tensor(*shape, name=f"h{number}") if given else None)
        weights.append(rng.uniform(-1, 1, shape) if given else None)
    return heads, weights


def pairs_of(heads, weights):
    return [(h, v) for h, v in zip(heads, weights, strict=True) if h is not None]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_the_sum_over_the_outputs(case):
    x, w = tensor(3, 4), tensor(4, name="w")
    outputs = case.make(x, w)
    heads, weights = cotangents_of(outputs, case.without)
    result = ad.vjp(outputs, [x, w], heads)
    got = evaluate(list(result), [(x, X), (w, W), *pairs_of(heads, weights)])
    for value, want in zip(got, differences(case.values, weights), strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("case", [CASES[2], CASES[5], CASES[11]], ids=str)
def test_a_prefix_is_a_stack(case):
    x, w = tensor(3, 4), tensor(4, name="w")
    outputs = case.make(x, w)
    heads, weights = cotangents_of(outputs, case.without, (2, 3))
    stacked = evaluate(
        list(ad.vjp(outputs, [x, w], heads)), [(x, X), (w, W), *pairs_of(heads, weights)]
    )
    for row in np.ndindex(2, 3):
        want = differences(case.values, [value[row] for value in weights])
        for many, one in zip(stacked, want, strict=True):
            np.testing.assert_allclose(many[row], one, rtol=1e-8, atol=1e-8)


def test_what_is_shared_is_differentiated_once():
    """One sweep: the shared stage has one adjoint, which both outputs contribute to."""
    x, w = tensor(3, 4), tensor(4, name="w")
    outputs = sharing_a_stage(x, w)
    heads, _ = cotangents_of(outputs, ())
    together = Graph(list(ad.vjp(outputs, [x, w], heads))).ops
    assert [op.name for op in together].count("ds") == 1


def test_an_intermediate_output_that_is_asked_for():
    x, w = tensor(3, 4), tensor(4, name="w")
    y, z = one_reads_the_other(x, w)
    heads, weights = cotangents_of([y, z], ())
    result = ad.vjp([y, z], [y, x], heads)
    dy, dx = evaluate(list(result), [(x, X), (w, W), *pairs_of(heads, weights)])
    at = np.exp(X) * W
    want = weights[0].copy()
    want[:, 0] += weights[1] * at[::-1, 3]
    want[:, 3] += (weights[1] * at[:, 0])[::-1]
    np.testing.assert_allclose(dy, want)
    np.testing.assert_allclose(dx, want * at)


def test_summands_name_the_outputs():
    x, w = tensor(3, 4), tensor(4, name="w")
    y, z = one_reads_the_other(x, w)
    heads, weights = cotangents_of([y, z], ())
    result = ad.vjp([y, z], [x], heads)
    summands = result.adjoint_summands[y]
    assert {consumer.op.name for consumer in summands} == {"y", "z"}
    [own, whole] = evaluate(
        [stage((3, 4), lambda i, j: summands[y][i, j] * 1.0, "own"), result.adjoints[y]],
        [(x, X), (w, W), *pairs_of(heads, weights)],
    )
    np.testing.assert_array_equal(own, weights[0])
    assert not np.allclose(whole, own)


def test_it_is_differentiable_again():
    """The gradient of <vjp, v>: second derivatives of both outputs, by a second vjp."""
    x, w = tensor(3, 4), tensor(4, name="w")
    y, z = one_reads_the_other(x, w)
    heads, weights = cotangents_of([y, z], ())
    first = list(ad.vjp([y, z], [x, w], heads))
    seconds = cotangents_of(first, ())
    again = evaluate(
        list(ad.vjp(first, [x, w], seconds[0])),
        [(x, X), (w, W), *pairs_of(heads, weights), *pairs_of(*seconds)],
    )

    def gradient(x, w):
        y = np.exp(x) * w
        dy = weights[0].copy()
        dy[:, 0] += weights[1] * y[::-1, 3]
        dy[:, 3] += (weights[1] * y[:, 0])[::-1]
        return [dy * y, (dy * np.exp(x)).sum(0)]

    for value, want in zip(again, differences(gradient, seconds[1]), strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-8, atol=1e-8)


def test_custom_rules():
    x, w = tensor(3, 4), tensor(4, name="w")
    y, z = one_reads_the_other(x, w)
    heads, weights = cotangents_of([y, z], ())
    seen = []

    def manual(out, inp, head):
        seen.append(out.op.name)
        return stage((3, 4), lambda i, j: head[i, j] * 2.0, "by_hand")

    def override(out, deps, head):
        seen.append(out.op.name)
        return [stage((4,), lambda i: head[0] * 5.0, "by_hand_too")]

    result = ad.vjp([y, z], [x, w], heads, manual={(y, x): manual}, override={z: ([w], override)})
    dx, dw = evaluate(list(result), [(x, X), (w, W), *pairs_of(heads, weights)])
    np.testing.assert_allclose(dx, 2 * weights[0])
    np.testing.assert_allclose(dw, (weights[0] * np.exp(X)).sum(0) + 5 * weights[1][0])
    assert sorted(seen) == ["y", "z"]


def test_fdiff_applies_to_every_edge():
    x, w = tensor(3, 4), tensor(4, name="w")
    y, z = one_reads_the_other(x, w)
    heads, weights = cotangents_of([y, z], ())
    doubled = lambda out, inp, head: stage(  # noqa: E731
        inp.shape, lambda *i: ad.pullback(out, inp, head)(*i) * 2.0, "twice"
    )
    got = evaluate(
        list(ad.vjp([y, z], [x], heads, fdiff=doubled)),
        [(x, X), (w, W), *pairs_of(heads, weights)],
    )
    at = np.exp(X) * W
    dy = weights[0].copy()
    dy[:, 0] += 2 * weights[1] * at[::-1, 3]
    dy[:, 3] += 2 * (weights[1] * at[:, 0])[::-1]
    np.testing.assert_allclose(got[0], 2 * dy * at)


def test_one_output_is_differentiate():
    x, w = tensor(3, 4), tensor(4, name="w")
    y = rows(x)
    head = tensor(3, name="head")
    one = ad.show(list(ad.vjp(y, x, head)))
    assert one == ad.show(list(ad.differentiate(y, [x], head)))
    assert ad.vjp(y, [x, w], head).adjoints[x].op.name == "dx"


def test_an_input_of_no_output_has_zeros():
    x, w = tensor(3, 4), tensor(4, name="w")
    head = tensor(5, 3, name="head")
    _, dw = ad.vjp([rows(x)], [x, w], [head])
    [values] = evaluate([dw], [])
    np.testing.assert_array_equal(values, np.zeros((5, 4)))


def test_symbolic_sizes():
    n = te.var("n")
    x = tensor(n)
    y = stage((n,), lambda i: x[i] * x[i], "y")
    z = stage((n,), lambda i: y[n - 1 - i] * x[i], "z")
    heads = [tensor(n, name="h"), tensor(n, name="g")]
    [dx] = ad.vjp([y, z], [x], heads)
    at, h, g = (np.random.default_rng(seed).uniform(-1, 1, 5) for seed in range(3))
    dy = h + (g * at)[::-1]
    got = ad.build([x, *heads], dx, cache=False)(at, h, g)
    np.testing.assert_allclose(got, 2 * at * dy + g * (at * at)[::-1])
    assert tensor_key(dx) != tensor_key(x)


def wrong(outputs=None, inputs=None, cotangents=None):
    x, w = tensor(3, 4), tensor(4, name="w")
    y, z = one_reads_the_other(x, w)
    n = stage((3,), lambda i: x[i, 0].astype("int32"), "n")
    names = {"x": x, "w": w, "y": y, "z": z, "n": n, "h": tensor(3, 4, name="h")}
    names |= {"g": tensor(3, name="g"), "g2": tensor(2, 3, name="g2"), "none": None}
    names |= {"narrow": tensor(3, name="narrow", dtype="float32"), "ints": tensor(3, dtype="int32")}
    names |= {"h5": tensor(5, 3, 4, name="h5"), "h2": tensor(2, 3, 4, name="h2")}
    given = [
        [names.get(name, name) for name in value.split()] if isinstance(value, str) else value
        for value in (outputs, inputs, cotangents)
    ]
    return ad.vjp(*given)


WRONG = {
    "too few cotangents": (("y z", "x", "h"), r"2 outputs \(y, z\) and 1 cotangents"),
    "too many cotangents": (("y", "x", "h g"), r"1 outputs \(y\) and 2 cotangents"),
    "shape": (("y z", "x", "h h"), r"cotangents\[1\] h has shape \(3, 4\).*\(3,\) of the output z"),
    "dtype": (("y z", "x", "h narrow"), r"cotangents\[1\] narrow has dtype float32.*z has float64"),
    "prefixes": (("y z", "x", "h5 g2"), r"cotangents\[0\] has the prefix \(5,\).*\[1\] has \(2,\)"),
    "one prefix": (("y z", "x", "h2 g"), r"cotangents\[0\] has the prefix \(2,\).*\[1\] has \(\)"),
    "text": (("y z", "x", "h 3"), r"cotangents\[1\] must be a te.Tensor.*got str"),
    "no sequence": (("y z", "x", 3), "cotangents must be a te.Tensor or a sequence.*got int"),
    "no outputs": (("", "x", ""), "outputs is empty"),
    "output is None": (("y none", "x", "h g"), r"outputs\[1\] must be a te.Tensor.*got NoneType"),
    "inputs is None": (("y z", None, "h g"), "inputs must be a te.Tensor.*got None"),
    "integer input": (("y z", "n", "h g"), "inputs: tensor n has dtype int32"),
    "integer output": (
        ("y n", "x", "h ints"),
        r"outputs\[1\]: tensor n.*cotangents\[1\] must be N",
    ),
    "input twice": (("y z", "x x", "h g"), r"inputs\[1\] is tensor x again"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name):
    arguments, message = WRONG[name]
    with pytest.raises(ad.AutodiffError, match=r"(?s)" + message):
        wrong(*arguments)
