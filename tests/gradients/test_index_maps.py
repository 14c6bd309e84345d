"""Gradients through every kind of index map: one read site, a stage, and finite differences.

Linear maps, remainders and divisions, clamps, triangles and bounds that vary, reads at data, ranges
that do not begin at zero, empty domains; then whole computations that are known to be hard. A case
that the solver leaves dense may say so; its values are right all the same.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tvm import te, tirx, topi
from tvm.topi import nn

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.gradient_case import Case, evaluate
from tvm_autodiff import estimate_cost
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import is_compute, reduction_of


def f(value):
    return tirx.const(value, "float64")


def k(extent, name="k", low=0):
    return te.reduce_axis((low, extent), name)


def reads(shape, *index):
    """out[axes] = x[index(axes)] * x[index(axes)], so that the values matter."""

    def make(x):
        return te.compute(
            shape,
            lambda *axes: x(*(i(*axes) for i in index)) * x(*(i(*axes) for i in index)),
            name="out",
        )

    return make


def ragged(x):
    """out[i] = Σ_{k<=i} x[k]², with a bound that depends on i."""

    def row(i):
        r = te.reduce_axis((0, i + 1), "r")
        return te.sum(x[r] * x[r], axis=r)

    return te.compute(x.shape, row, name="out")


def sums(shape, axes, source, **keywords):
    """out[axes] = Σ_k source(x..., axes, k) over reduce axes made of `axes`: (low, high) each."""

    def make(*tensors):
        reduced = [k(high, f"k{n}", low) for n, (low, high) in enumerate(axes)]
        return te.compute(
            shape,
            lambda *outer: te.sum(source(tensors, *outer, *reduced), axis=reduced, **keywords),
            name="out",
        )

    return make


LINEAR = [
    Case("identity", [(4,)], reads((4,), lambda i: i), 2),
    Case("reversed", [(4,)], reads((4,), lambda i: 3 - i), 2),
    Case("shifted", [(6,)], reads((4,), lambda i: i + 2), 2),
    Case("strided", [(9,)], reads((4,), lambda i: 2 * i + 1), 2),
    Case("strided-backwards", [(9,)], reads((3,), lambda i: 8 - 3 * i)),
    Case("broadcast", [(4,)], reads((3, 4), lambda i, j: j), 2),
    Case("constant", [(4,)], reads((3,), lambda i: tirx.const(2)), 2),
    Case("transposed", [(3, 4)], reads((4, 3), lambda i, j: j, lambda i, j: i), 2),
    Case("diagonal", [(4, 4)], reads((4,), lambda i: i, lambda i: i), 2),
    Case("anti-diagonal", [(4, 4)], reads((4,), lambda i: i, lambda i: 3 - i), 2),
    Case("sheared", [(3, 6)], reads((3, 4), lambda i, j: i, lambda i, j: i + j), 2),
    Case("sum-of-axes", [(6,)], reads((3, 4), lambda i, j: i + j), 2),
    Case("difference-of-axes", [(6,)], reads((3, 4), lambda i, j: i - j + 3), 2),
    Case("two-and-three", [(14,)], reads((3, 4), lambda i, j: 2 * i + 3 * j), 2),
    Case("two-and-four", [(15,)], reads((3, 3), lambda i, j: 2 * i + 4 * j + 1)),
    Case("six-ten-fifteen", [(32,)], reads((2, 2, 2), lambda i, j, m: 6 * i + 10 * j + 15 * m)),
    Case("flat", [(12,)], reads((3, 4), lambda i, j: i * 4 + j), 2),
    Case("flat-overlapping", [(9,)], reads((3, 4), lambda i, j: i * 2 + j), 2),
    Case(
        "unimodular",
        [(7, 11)],
        reads((3, 3), lambda i, j: 2 * i + j, lambda i, j: 3 * i + 2 * j),
    ),
    Case(
        "reduced-two-and-three", [(14,)], sums((3,), [(0, 4)], lambda t, i, k: t[0][2 * i + 3 * k])
    ),
    Case(
        "convolution", [(7,), (3,)], sums((5,), [(0, 3)], lambda t, i, k: t[0][i + k] * t[1][k]), 2
    ),
    Case(
        "convolution-stride-2-dilation-3",
        [(14,), (3,)],
        sums((4,), [(0, 3)], lambda t, i, k: t[0][2 * i + 3 * k] * t[1][k]),
        2,
    ),
    Case(
        "convolution-padded",
        [(5,), (3,)],
        sums(
            (5,),
            [(0, 3)],
            lambda t, i, k: (
                te.if_then_else(te.all(i + k >= 1, i + k < 6), t[0][i + k - 1], f(0)) * t[1][k]
            ),
        ),
        2,
    ),
    Case(
        "axis-from-minus-one",
        [(5,)],
        sums((3,), [(-1, 2)], lambda t, i, k: t[0][i + k + 1] * t[0][i + 1]),
        2,
    ),
    Case("axis-from-three", [(4,)], sums((2,), [(3, 6)], lambda t, i, k: t[0][k - 3 + i])),
    Case("axis-of-one", [(4,)], sums((4,), [(2, 3)], lambda t, i, k: t[0][i] * t[0][k]), 2),
    Case(
        "outer-sum", [(3,), (4,)], sums((), [(0, 3), (0, 4)], lambda t, i, j: t[0][i] * t[1][j]), 2
    ),
    Case("sum-unused-axis", [(3,)], sums((3,), [(0, 4)], lambda t, i, k: t[0][i] * t[0][i]), 2),
]

QUASI_LINEAR = [
    Case("modulo", [(3,)], reads((7,), lambda i: i % 3), 2),
    Case("modulo-of-sum", [(5,)], reads((3, 4), lambda i, j: (i + j) % 5), 2),
    Case("modulo-of-difference", [(5,)], reads((3, 4), lambda i, j: (i - j) % 5)),
    Case("circular", [(5,)], reads((5,), lambda i: (i + 2) % 5), 2),
    Case(
        "circular-sum",
        [(5,), (5,)],
        sums((5,), [(0, 5)], lambda t, i, k: t[0][(i + k) % 5] * t[1][k]),
    ),
    Case("modulo-scaled", [(7,)], reads((7,), lambda i: (3 * i + 1) % 7)),
    Case("modulo-negative", [(5,)], reads((7,), lambda i: (2 - 3 * i) % 5)),
    Case("division", [(3,)], reads((6,), lambda i: i // 2), 2),
    Case("division-shifted", [(4,)], reads((7,), lambda i: (i + 3) // 3)),
    Case("division-negative", [(4,)], reads((6,), lambda i: (5 - i) // 2 + 1)),
    Case("split-axis", [(3, 4)], reads((12,), lambda i: i // 4, lambda i: i % 4), 2),
    Case(
        "split-three",
        [(2, 3, 2)],
        reads((12,), lambda i: i // 6, lambda i: i // 2 % 3, lambda i: i % 2),
    ),
    Case("split-and-swap", [(4, 3)], reads((12,), lambda i: i % 4, lambda i: i // 4)),
    Case("division-of-remainder", [(2,)], reads((9,), lambda i: i % 4 // 2)),
    Case("repeat", [(3,)], reads((3, 2), lambda i, j: (2 * i + j) // 2)),
    Case(
        "transposed-convolution",
        [(4,), (3,)],
        sums(
            (9,),
            [(0, 3)],
            lambda t, i, k: (
                te.if_then_else(
                    te.all((i + k) % 2 == 0, i + k >= 2, i + k < 10), t[0][(i + k - 2) // 2], f(0)
                )
                * t[1][k]
            ),
        ),
        2,
    ),
    Case(
        "truncated-modulo",
        [(3,)],
        reads((7,), lambda i: tirx.truncmod(i, 3)),
    ),
]

BOUNDED = [
    Case(
        "clamped-below",
        [(5,)],
        reads((5,), lambda i: te.max(i - 1, 0)),
    ),
    Case(
        "clamped-above",
        [(5,)],
        reads((5,), lambda i: te.min(i + 2, 4)),
    ),
    Case(
        "clamped",
        [(3,)],
        reads((7,), lambda i: te.min(te.max(i - 2, 0), 2)),
    ),
    Case(
        "reflected",
        [(4,)],
        reads((7,), lambda i: tirx.Select(i < 4, i, 6 - i)),
    ),
    Case("square", [(10,)], reads((4,), lambda i: i * i)),
    Case("product-of-axes", [(7,)], reads((3, 4), lambda i, j: i * j)),
    Case(
        "triangle",
        [(4,)],
        sums((4,), [(0, 4)], lambda t, i, k: te.if_then_else(k <= i, t[0][k] * t[0][k], f(0))),
        2,
    ),
    Case(
        "triangular-solve-row",
        [(4, 4), (4,)],
        sums((4,), [(0, 4)], lambda t, i, k: tirx.Select(k < i, t[0][i, k] * t[1][k], f(0))),
        2,
    ),
    Case(
        "banded",
        [(5, 5), (5,)],
        sums(
            (5,),
            [(0, 5)],
            lambda t, i, k: te.if_then_else(
                te.all(k <= i + 1, i <= k + 1), t[0][i, k] * t[1][k], f(0)
            ),
        ),
    ),
    Case("ragged", [(4,)], ragged, 2),
    Case(
        "guard-between-axes",
        [(4, 4)],
        lambda x: te.compute(
            (4, 4), lambda i, j: te.if_then_else(i < j, x[i, j] * x[j, i], x[i, i]), name="out"
        ),
        2,
    ),
    Case(
        "guard-on-data",
        [(5,)],
        lambda x: te.compute(
            (5,), lambda i: te.if_then_else(x[i] > 0.7, x[i] * x[i], x[4 - i]), name="out"
        ),
    ),
    Case(
        "concatenation",
        [(3,), (4,)],
        lambda a, b: te.compute(
            (7,), lambda i: te.if_then_else(i < 3, a[i] * a[i], b[i - 3]), name="out"
        ),
        2,
    ),
    Case("empty-output", [(3,)], lambda x: te.compute((0,), lambda i: x[i] * x[i], name="out")),
    Case(
        "empty-guard",
        [(3,)],
        lambda x: te.compute((3,), lambda i: te.if_then_else(i > 7, x[i] * x[i], f(1)), name="out"),
    ),
]


REPEATED = np.array([1, 1, 3, 0, 1], "int32")
DATA = [
    Case(
        "repeated-indices",
        [(4, 2), REPEATED],
        lambda table, index: te.compute(
            (5, 2), lambda i, j: table[index[i], j] * table[index[i], j], name="out"
        ),
        2,
    ),
    Case(
        "embedding",
        [(4, 3), REPEATED, (3, 2)],
        lambda table, index, weight: topi.matmul(topi.take(table, index, 0), weight),
    ),
    Case(
        "permutation",
        [(5,), np.array([3, 1, 4, 0, 2], "int32")],
        lambda x, p: te.compute((5,), lambda i: x[p[i]] * x[i], name="out"),
    ),
    Case(
        "shift-by-data",
        [(8,), np.array([2, 0, 3], "int32")],
        lambda x, s: te.compute((3, 4), lambda i, j: x[s[i] + j] * x[j], name="out"),
    ),
    Case(
        "nested-data",
        [(4,), np.array([2, 0, 3, 1], "int32")],
        lambda x, p: te.compute((4,), lambda i: x[p[p[i]]], name="out"),
    ),
    Case(
        "index-of-reduction",
        [(4, 5), np.array([0, 3, 3], "int32")],
        lambda x, p: te.compute(
            (5,), lambda j: te.sum(x[p[(r := k(3))], j] * x[p[r], j], axis=r), name="out"
        ),
        2,
    ),
]


def attention(q, key, v):
    scores = topi.divide(topi.matmul(q, key, False, True), te.const(1.7, "float64"))
    return topi.matmul(nn.softmax(scores), v)


def recurrence(x, w):
    """Three steps of h ← tanh(w h + x[t])."""

    def step(state, t):
        r = k(3)
        product = te.compute((3,), lambda i: te.sum(w[i, r] * state[r], axis=r), name="m")
        return te.compute((3,), lambda i: te.tanh(product[i] + x[t, i]), name=f"h{t}")

    state = te.compute((3,), lambda i: x[0, i], name="h0")
    for t in range(1, 4):
        state = step(state, t)
    return state


def quadratic(x, a):
    i, j = k(3, "i"), k(3, "j")
    return te.compute((), lambda: te.sum(x[i] * a[i, j] * x[j], axis=[i, j]), name="out")


def prefix_products(x):
    r = k(4)
    product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t))
    return te.compute((4,), lambda i: product(tirx.Select(r <= i, x[r], f(1)), axis=r), name="out")


def same_stage_twice(x):
    y = te.compute((4,), lambda i: x[i] * x[i], name="y")
    return te.compute((4,), lambda i: y[i] * y[3 - i] + x[i], name="out")


def two_layers(x, w1, w2):
    return nn.softmax(topi.matmul(topi.tanh(topi.matmul(x, w1)), w2))


COMPUTATIONS = [
    Case("attention", [(3, 2), (4, 2), (4, 2)], attention),
    Case("two-layers", [(2, 3), (3, 4), (4, 2)], two_layers),
    Case("recurrence", [(4, 3), (3, 3)], recurrence),
    Case("quadratic-form", [(3,), (3, 3)], quadratic, 2),
    Case("several-consumers", [(4,)], same_stage_twice, 2),
    Case("prefix-products", [(4,)], prefix_products),
    Case(
        "prefix-sums",
        [(5,)],
        sums((5,), [(0, 5)], lambda t, i, j: tirx.Select(j <= i, t[0][j], f(0))),
    ),
    Case(
        "convolution-2d-order-2",
        [(1, 1, 4, 4), (1, 1, 2, 2)],
        lambda x, w: nn.conv2d_nchw(x, w, 1, 0, 1),
        2,
    ),
    Case(
        "convolution-padded-in-one-axis",
        [(1, 1, 6, 5), (1, 1, 2, 2)],
        lambda x, w: nn.conv2d_nchw(x, w, 2, (0, 1, 0, 1), 3),
    ),
    Case(
        "softmax-cross-entropy",
        [(2, 3), np.array([[1.0, 0, 0], [0, 0, 1]])],
        lambda x, y: topi.negative(topi.sum(topi.multiply(nn.log_softmax(x), y))),
    ),
    Case(
        "variance",
        [(2, 5)],
        lambda x: topi.sum(
            topi.power(
                topi.subtract(x, topi.divide(topi.sum(x, 1, True), te.const(5.0, "float64"))),
                te.const(2.0, "float64"),
            ),
            1,
        ),
    ),
    Case(
        "log-sum-exp",
        [(2, 5)],
        lambda x: topi.add(
            topi.log(topi.sum(topi.exp(topi.subtract(x, topi.max(x, 1, True))), 1, True)),
            topi.max(x, 1, True),
        ),
    ),
    Case(
        "pairwise-distances",
        [(3, 2), (4, 2)],
        lambda a, b: te.compute((3, 4), lambda i, j: te.sqrt(distance(a, b)[i, j]), name="out"),
    ),
    Case(
        "einsum-chain",
        [(2, 3), (3, 2), (2, 2)],
        lambda a, b, c: topi.einsum("ij,jk,kl->il", a, b, c),
    ),
]


def distance(a, b):
    r = k(2)
    return te.compute(
        (3, 4), lambda i, j: te.sum((a[i, r] - b[j, r]) * (a[i, r] - b[j, r]), axis=r), name="d"
    )


CASES = [*LINEAR, *QUASI_LINEAR, *BOUNDED, *DATA, *COMPUTATIONS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_index_map(case):
    case.check()


def test_hessian_of_a_quadratic_form():
    x, a = te.placeholder((3,), "float64", "x"), te.placeholder((3, 3), "float64", "a")
    [gradient] = ad.differentiate(quadratic(x, a), [x])
    [hessian] = ad.differentiate(gradient, [x])
    at = np.random.default_rng(0).standard_normal((3, 3))
    [got] = evaluate([hessian], [(a, at), (x, np.ones(3))])
    np.testing.assert_allclose(got, at + at.T, rtol=1e-14)


def test_repeated_indices_add_up():
    table, index = te.placeholder((4,), "float64", "t"), te.placeholder((5,), "int32", "n")
    out = te.compute((5,), lambda i: table[index[i]], name="out")
    head = te.placeholder((5,), "float64", "head")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ad.DenseSumWarning)
        [adjoint] = ad.differentiate(out, [table], head)
    [got] = evaluate([adjoint], [(index, REPEATED), (head, np.arange(1.0, 6.0))])
    np.testing.assert_array_equal(got, [4, 8, 0, 3])


@pytest.mark.parametrize("size", [0, 4])
@pytest.mark.parametrize("compiled", [False, True], ids=["evaluated", "compiled"])
def test_sums_of_nothing_are_zero(size, compiled):
    """An axis without elements, over a tensor with some or none: zeros, and no derivative."""
    x = te.placeholder((size,), "float64", name="x")
    r = te.reduce_axis((0, 0), "r")
    scale = te.placeholder((2,), "float64", name="scale")
    y = te.compute((2,), lambda i: te.sum(x[r] * x[r] * scale[i], axis=r), name="y")
    z = te.compute((2,), lambda i: y[i] + scale[i], name="z")
    outputs = [y, z, *ad.differentiate(te.compute((2,), lambda i: z[i] * z[i]), [x, scale])]
    values = [(x, np.ones(size)), (scale, np.array([2.0, 3.0]))]
    found = evaluate(outputs, values) if compiled else evaluate_graph(outputs, values)
    expected = [
        np.zeros(2), np.array([2.0, 3.0]), np.zeros((2, size)), np.diag([4.0, 6.0]),
    ]  # fmt: skip
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("count", "groups"), [(96, 8), (96, 3), (64, 4), (30, 5), (12, 12), (7, 1)]
)
def test_exchanged_digits_are_one_read(count, groups):
    """``y[c] = x[c % g * (C/g) + c // g]``, a channel shuffle, has a gradient without a sum."""
    x, head = (te.placeholder((count,), "float64", name=name) for name in ("x", "head"))
    size = count // groups
    y = te.compute((count,), lambda c: x[c % groups * size + c // groups], name="y")
    [gradient] = ad.differentiate(y, [x], head)
    assert estimate_cost(gradient).iterations == count
    assert all(reduction_of(op) is None for op in Graph([gradient]).ops if is_compute(op))
    numbers, places = np.arange(count), np.random.default_rng(0).normal(size=count)
    [got] = evaluate_graph([gradient], [(head, places)], {})
    expected = np.zeros(count)
    expected[numbers % groups * size + numbers // groups] = places
    np.testing.assert_array_equal(got, expected)


#: name → a place by operations on bits, of 64 elements
BITS = {
    "a quotient": lambda i: i >> 1,
    "a remainder": lambda i: i & 7,
    "a multiple": lambda i: ((i << 1) + 1) & 63,
    "exchanged": lambda i: ((i & 7) << 3) + (i >> 3),
    "of negative numbers": lambda i: ((i - 64) >> 1) + 40,
    "remainders of negative numbers": lambda i: (i - 50) & 31,
    "no power of two": lambda i: i & 42,
}


@pytest.mark.parametrize("name", BITS)
def test_places_by_bits(name):
    place = BITS[name]
    x, head = (te.placeholder((64,), "float64", name=name) for name in ("x", "head"))
    y = te.compute((64,), lambda i: x[place(i)], name="y")
    with warnings.catch_warnings():
        if name != "no power of two":
            warnings.simplefilter("error")  # of sums over zeros
        result = ad.differentiate(y, [x], head)
    numbers, heads = np.random.default_rng(0).normal(size=(2, 64))
    values, gradient = ad.build([x, head], [y, *result])(numbers, heads)
    places = place(np.arange(64))
    np.testing.assert_array_equal(values, numbers[places])
    expected = np.zeros(64)
    np.add.at(expected, places, heads)
    np.testing.assert_allclose(gradient, expected, rtol=1e-14)
