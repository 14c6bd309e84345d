"""Sums with guards inside, written by hand: equal in value afterwards, and as cheap as can be.

The dense pullback of a read is the definition of a gradient; simplified by this transformation
alone it costs what `differentiate` gives for the same read.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tests.zero_elimination.graph_values import assert_equal_values
from tvm_autodiff import Cost, differentiate, estimate_cost, show, simplify_reductions
from tvm_autodiff.errors import InvalidArgumentError
from tvm_autodiff.expr.build import select
from tvm_autodiff.expr.nodes import as_expr, dtype_of, tensor_key
from tvm_autodiff.graph.stage import axis_range, reduction_of, shape_of
from tvm_autodiff.zero_elimination.passes import reductions
from tvm_autodiff.zero_elimination.passes.reductions import solve_masks

D = "float64"


def tensor(*shape, name="A", dtype=D):
    return te.placeholder(shape, dtype, name=name)


def where(condition, value, otherwise=None):
    value = as_expr(value)
    zero = te.const(0, dtype_of(value)) if otherwise is None else otherwise
    return te.if_then_else(condition, value, zero)


def total(shape, reduce, body, name="S", low=0):
    """``S[...] = Σ body(..., ...)``."""
    inner = [te.reduce_axis((low, low + extent), f"k{n}") for n, extent in enumerate(reduce)]
    return te.compute(
        shape, lambda *axes: te.sum(body(*axes, *(k.var for k in inner)), axis=inner), name=name
    )


A, B, C = tensor(8), tensor(8, name="B"), tensor(8, 8, name="C")
WHOLE = tensor(8, name="I", dtype="int32")


def maximum():
    k = te.reduce_axis((0, 8), "k")
    return te.compute((8,), lambda i: te.max(where(k == i, A[k]), axis=k), name="m")


def with_condition():
    k = te.reduce_axis((0, 8), "k")
    return te.compute((8,), lambda i: te.sum(C[i, k], axis=k, where=k < 2), name="w")


def with_init():
    k = te.reduce_axis((0, 8), "k")
    body = lambda i: te.sum(where(k == i, A[k]), axis=k, init=B[i])  # noqa: E731
    return te.compute((8,), body, name="w")


def with_init_of_one():
    k = te.reduce_axis((0, 1), "k")
    return te.compute((8,), lambda i: te.sum(A[k + i] * 2.0, axis=k, init=B[i]), name="w")


def two_stages():
    first = total((8, 8), (8,), lambda i, j, k: where(k == j, C[i, k]), name="first")
    return total((8,), (8,), lambda i, k: where(k < 2, first[i, k]), name="second")


#: name → (the stage, iterations before, iterations after)
SUMS = {
    "nothing to gain": (lambda: total((8,), (8,), lambda i, k: C[i, k]), 64, 64),
    "equation": (lambda: total((8,), (8,), lambda i, k: where(k == 7 - i, A[k])), 64, 8),
    "equation, the whole": (lambda: total((8,), (8,), lambda i, k: where(k == i, A[k])), 64, 0),
    "equation, dot": (lambda: total((8,), (8,), lambda i, k: where(k == i, A[k]) * B[k]), 64, 8),
    "bool as factor": (
        lambda: total(
            (8,), (8,), lambda i, k: te.const(1.0, D) * (k.equal(7 - i)).astype(D) * A[k]
        ),
        64,
        8,
    ),
    "select": (
        lambda: total((8,), (8,), lambda i, k: select(k.equal(i), A[k] * 2.0, te.const(0.0, D))),
        64,
        8,
    ),
    "zero branch first": (
        lambda: total((8,), (8,), lambda i, k: where(k != 7 - i, te.const(0.0, D), A[k])),
        64,
        8,
    ),
    "inequality": (lambda: total((8,), (8,), lambda i, k: where(k < 3, C[i, k])), 64, 24),
    "both guards of a product": (
        lambda: total((8,), (8,), lambda i, k: where(k < 5, C[i, k]) * where(k > 2, A[k])),
        64,
        16,
    ),
    "guard of a numerator": (
        lambda: total((8,), (8,), lambda i, k: where(k < 2, C[i, k]) / (A[k] * A[k] + 1.0)),
        64,
        16,
    ),
    "not (a or b)": (
        lambda: total(
            (8,), (8,), lambda i, k: where(te.any(k < 3, k > 4), te.const(0.0, D), C[i, k])
        ),
        64,
        16,
    ),
    "redundant guard": (lambda: total((8,), (8,), lambda i, k: where(k >= 0, C[i, k])), 64, 64),
    "band": (
        lambda: total((8,), (8,), lambda i, k: where(te.all(k >= i - 1, k <= i + 1), C[i, k])),
        64,
        24,
    ),
    "triangle": (lambda: total((8,), (8,), lambda i, k: where(k <= i, C[i, k])), 64, 64),
    "never": (lambda: total((8,), (8,), lambda i, k: where(k > 9, C[i, k])), 64, 8),
    "zero": (lambda: total((8,), (8,), lambda i, k: C[i, k] * 0.0), 64, 8),
    "axis of one": (lambda: total((8,), (1, 8), lambda i, m, k: where(k == 2, C[i, k])), 64, 8),
    "axis that starts at 3": (
        lambda: total((8,), (4,), lambda i, k: where(k > 5, C[i, k]), low=3),
        32,
        8,
    ),
    "terms of equal domain": (
        lambda: total((8,), (8,), lambda i, k: where(k < 2, C[i, k]) + where(k < 2, A[k])),
        64,
        16,
    ),
    "terms of equal extents": (
        lambda: total((8,), (8,), lambda i, k: where(k < 2, C[i, k]) + where(k > 5, A[k])),
        64,
        16,
    ),
    "terms of other domains": (
        lambda: total((8,), (8,), lambda i, k: where(k < 2, C[i, k]) + where(k == i, A[k])),
        64,
        24,
    ),
    "difference": (
        lambda: total((8,), (8,), lambda i, k: where(k == 7 - i, C[i, k]) - where(k == i, A[k])),
        64,
        8,
    ),
    "sum as a factor": (
        lambda: total(
            (8,), (8,), lambda i, k: (where(k == 0, C[i, k]) + where(k == i, A[k])) * B[k]
        ),
        64,
        8,
    ),
    "two branches": (
        lambda: total((8,), (8,), lambda i, k: where(k == i, A[k], C[i, k])),
        64,
        64,
    ),
    "common guard of two branches": (
        lambda: total(
            (8,),
            (8,),
            lambda i, k: where(A[i] > 0.0, where(k < 2, A[k]), where(k < 2, B[k] + 1.0)),
        ),
        64,
        16,
    ),
    "guard on data": (
        lambda: total((8,), (8,), lambda i, k: where(A[k] > 0.0, where(k < 2, C[i, k]))),
        64,
        16,
    ),
    "guarded read in a guard": (
        lambda: total(
            (8,), (8,), lambda i, k: where(k < i, where(A[i - k - 1] > 0.0, where(k < 3, B[k])))
        ),
        64,
        24,
    ),
    "inside tanh": (
        lambda: total((8,), (8,), lambda i, k: te.tanh(where(k < 2, C[i, k]))),
        64,
        16,
    ),
    "inside exp": (lambda: total((8,), (8,), lambda i, k: te.exp(where(k < 2, C[i, k]))), 64, 64),
    "integers": (lambda: total((8,), (8,), lambda i, k: where(k == i, WHOLE[k] * 3)), 64, 8),
    "outer equation": (
        lambda: total((8, 8), (8,), lambda i, j, k: where(i == j, C[i, k])),
        512,
        128,
    ),
    "outer inequality": (
        lambda: total((8, 8), (8,), lambda i, j, k: where(i > 5, C[i, k] * A[j])),
        512,
        192,
    ),
    "outer remainder": (
        lambda: total((8, 8), (8,), lambda i, j, k: where(i % 4 == 1, C[i // 4, k] * A[j])),
        512,
        192,
    ),
    "outer and inner": (
        lambda: total((8, 8), (8,), lambda i, j, k: where(te.all(i == j, k <= i, k < 4), C[i, k])),
        512,
        96,
    ),
    "residues": (
        lambda: total((20,), (8, 5), lambda b, i, k: where(2 * i + k == b, A[i] * B[k])),
        800,
        60,
    ),
    "divided": (lambda: total((8,), (64,), lambda i, k: where(k // 8 == i, A[k % 8])), 512, 64),
    "one-hot times a matrix": (
        lambda: total((8, 8), (8,), lambda i, j, k: where(k == WHOLE[i], C[k, j])),
        512,
        64,
    ),
    "one-hot by a factor": (
        lambda: total((8,), (8,), lambda i, k: (WHOLE[i] + 5).equal(k).astype(D) * C[i, k]),
        64,
        8,
    ),
    "data and an equation": (
        lambda: total(
            (8,), (8, 8), lambda i, k, m: where(te.all(k == WHOLE[m], m == 7 - i, k < 4), C[k, m])
        ),
        512,
        8,
    ),
    "data behind what protects it": (
        lambda: total((8,), (8,), lambda i, k: where(k < i, where(k == WHOLE[i - 1], A[k]))),
        64,
        15,
    ),
    "data scattered": (
        lambda: total((8,), (8,), lambda i, k: where(WHOLE[k] == i, A[k])),
        64,
        16,
    ),
    "where=": (with_condition, 64, 16),
    "init=": (with_init, 64, 8),
    "init= and no gain": (with_init_of_one, 8, 8),
    "maximum": (maximum, 64, 8),
    "two stages": (two_stages, 576, 16),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums(name):
    make, before, after = SUMS[name]
    stage = make()
    [simple] = simplify_reductions(stage)
    assert_equal_values([stage], [simple])
    assert (estimate_cost(stage).iterations, estimate_cost(simple).iterations) == (before, after)


def test_bounds_that_vary():
    def body(i):
        k = te.reduce_axis((i // 2, i // 2 + 3), "k")
        return te.sum(where(k == i, A[k]), axis=k)

    [simple] = simplify_reductions(te.compute((8,), body, name="S"))
    assert estimate_cost(simple).iterations == 8
    values = np.arange(1.0, 9.0)
    expected = [values[i] if i // 2 <= i < i // 2 + 3 else 0.0 for i in range(8)]
    np.testing.assert_array_equal(evaluate_graph([simple], {A: values})[0], expected)


#: name → (shape read, output shape, index, reduce extents, iterations at most, by both roads)
READS = {
    "identity": ((5, 4), (5, 4), lambda i, j: (i, j), (), 20),
    "transpose": ((4, 5), (5, 4), lambda i, j: (j, i), (), 20),
    "reversal": ((5,), (5,), lambda i: (4 - i,), (), 5),
    "broadcast": ((4,), (5, 4), lambda i, j: (j,), (), 20),
    "row sums": ((4, 5), (4,), lambda i, k: (i, k), (5,), 20),
    "total": ((4, 5), (), lambda k, m: (k, m), (4, 5), 20),
    "trace": ((6, 6), (), lambda k: (k, k), (6,), 36),
    "diagonal": ((5, 5), (5,), lambda i: (i, i), (), 25),
    "diagonal of sums": ((5, 5, 6), (5,), lambda i, k: (i, i, k), (6,), 150),
    "stride": ((10,), (5,), lambda i: (2 * i,), (), 10),
    "window": ((9,), (7,), lambda i, k: (i + k,), (3,), 27),
    "window, stride 2": ((9,), (4,), lambda i, k: (2 * i + k,), (3,), 18),
    "window, stride 3": ((12,), (4,), lambda i, k: (3 * i + k,), (3,), 12),
    "window, dilation 2": ((11,), (7,), lambda i, k: (i + 2 * k,), (3,), 33),
    "2d window": ((6, 6), (4, 4), lambda i, j, k, m: (i + k, j + m), (3, 3), 324),
    "2d window, stride 2": ((9, 9), (4, 4), lambda i, j, k, m: (2 * i + k, 2 * j + m), (3, 3), 324),
    "skewed": ((24,), (5,), lambda i, k: (2 * i + 3 * k,), (6,), 48),
    "flatten": ((3, 4), (12,), lambda i: (i // 4, i % 4), (), 12),
    "unflatten": ((12,), (3, 4), lambda i, j: (4 * i + j,), (), 12),
    "repeat": ((4,), (12,), lambda i: (i // 3,), (), 12),
    "tile": ((4,), (12,), lambda i: (i % 4,), (), 12),
    "rotation": ((7,), (7, 7), lambda i, j: ((i + j) % 7,), (), 49),
    "two equations": ((9, 13), (5, 5), lambda i, j: (i + j, 2 * i + j), (), 117),
    "one row": ((9, 6), (8, 5), lambda i, j: (2, j), (), 94),
}


def weighted(read, shape, index, reduce):
    """``y[a] = Σ_k 3*x[index(a, k)]*W[k]``, and the value that W and the 3 stand for."""
    weights = te.placeholder(reduce, D, name="W")

    def weight(inner):
        return weights(*inner) * 3.0

    x = te.placeholder(read, D, name="x")
    axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(reduce)]
    inner = [axis.var for axis in axes]

    def body(*outer):
        value = x(*index(*outer, *inner)) * weight(inner)
        return te.sum(value, axis=axes) if axes else value

    return x, te.compute(shape, body, name="y"), weight


def dense_pullback(x, y, weight, index, reduce):
    """``dx[b] = Σ_{a,k} if index(a, k) == b then head[a]*weight(k) else 0``: the definition."""
    head = te.placeholder(y.shape, D, name="head")
    extents = [*shape_of(y), *reduce]

    def body(*axes):
        target, point = axes[: len(x.shape)], axes[len(x.shape) :]
        outer, inner = point[: len(y.shape)], point[len(y.shape) :]
        equations = [place == b for place, b in zip(index(*point), target, strict=True)]
        return where(te.all(*equations), head(*outer) * weight(inner))

    return head, total(x.shape, extents, body, name="dx")


@pytest.mark.parametrize("name", READS)
def test_dense_pullback_becomes_the_gradient(name):
    read, shape, index, reduce, iterations = READS[name]
    x, y, weight = weighted(read, shape, index, reduce)
    head, dense = dense_pullback(x, y, weight, index, reduce)
    [simple] = simplify_reductions(dense)
    [gradient] = differentiate(y, [x], head)
    assert estimate_cost(simple).iterations == estimate_cost(gradient).iterations
    assert estimate_cost(simple).iterations <= iterations
    assert_equal_values([dense, dense], [simple, gradient])


def test_matrix_product():
    left, right = te.placeholder((7, 10), D, name="L"), te.placeholder((10, 9), D, name="R")
    product = total((7, 9), (10,), lambda i, j, k: left[i, k] * right[k, j])
    head = te.placeholder((7, 9), D, name="head")
    dense = total(
        (7, 10),
        (7, 9, 10),
        lambda a, b, i, j, k: where(te.all(i == a, k == b), head[i, j] * right[k, j]),
    )
    [simple] = simplify_reductions([dense])
    assert estimate_cost(dense) == Cost(44100, 44100, 70)
    assert estimate_cost(simple) == estimate_cost(differentiate(product, [left], head)[0])
    assert estimate_cost(simple) == Cost(630, 630, 70)
    assert_equal_values([dense], [simple])


def test_symbolic_extents():
    rows, columns = te.var("n"), te.var("m")
    x = te.placeholder((rows, columns), D, name="x")
    dense = total(
        (rows, columns),
        (rows, columns),
        lambda i, j, k, m: where(te.all(k == i, m == j), x[k, m] * 2.0),
    )
    diagonal = total((rows, rows), (columns,), lambda i, j, k: where(i == j, x[i, k]))
    simple = simplify_reductions([dense, diagonal])
    assert reduction_of(simple[0].op) is None
    sizes = {rows: 5, columns: 3}
    assert [estimate_cost(t, sizes).iterations for t in (dense, diagonal)] == [225, 75]
    assert [estimate_cost(t, sizes).iterations for t in simple] == [15, 25 + 15]
    value = np.random.default_rng(0).normal(size=(5, 3))
    results = [evaluate_graph(pair, {x: value}, sizes) for pair in ([dense, diagonal], simple)]
    for before, after in zip(*results, strict=True):
        np.testing.assert_allclose(after, before)


def test_stages_that_gain_nothing_are_the_same_stages():
    plain = total((8,), (8,), lambda i, k: C[i, k])
    reader = te.compute((8,), lambda i: te.exp(plain[i]), name="reader")
    for before, after in zip(
        [plain, reader, A], simplify_reductions([plain, reader, A]), strict=True
    ):
        assert tensor_key(before) == tensor_key(after)


def test_tuple_reductions_stay():
    k = te.reduce_axis((0, 8), "k")
    both = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] + y[1]),
        lambda a, b: (te.const(0, a), te.const(0, b)),
        name="both",
    )
    pair = te.compute((8,), lambda i: both((where(k == i, A[k]), B[k]), axis=k), name="pair")
    assert tensor_key(simplify_reductions(pair[0])[0]) == tensor_key(pair[0])


def test_result_does_not_depend_on_the_run():
    texts = {show(simplify_reductions(SUMS["terms of other domains"][0]())) for _ in range(2)}
    assert len(texts) == 1


@pytest.mark.parametrize("wrong", [3, [A, "A"], None, {"A": A}])
def test_only_tensors_are_taken(wrong):
    with pytest.raises(InvalidArgumentError, match="te.Tensor"):
        simplify_reductions(wrong)


@st.composite
def guarded_sums(draw):
    """``S[i, j] = Σ_{k,l}`` of one to three guarded terms, added, multiplied, nested."""
    extents = [draw(st.integers(1, 5)) for _ in range(4)]
    size = st.integers(-3, 3)

    def condition():
        factors = [draw(size) for _ in range(4)]
        constant, divisor = draw(st.integers(-6, 6)), draw(st.sampled_from([0, 0, 0, 2, 3]))
        kind = draw(st.sampled_from(["eq", "eq", "lt", "ge", "ne"]))

        def make(axes):
            value = sum((f * v for f, v in zip(factors, axes, strict=True)), te.const(constant))
            if divisor:
                value = te.indexmod(value + 60, divisor) - 1
            zero = te.const(0)
            return {
                "eq": lambda: value.equal(zero),
                "lt": lambda: value < zero,
                "ge": lambda: value >= zero,
                "ne": lambda: te.not_equal(value, zero) if hasattr(te, "not_equal") else value != 0,
            }[kind]()

        return make

    def term(depth):
        form = draw(st.sampled_from(["read", "if", "if", "select", "add", "mul", "else", "bool"]))
        if depth == 0 or form == "read":
            places = [draw(st.sampled_from(range(4))) for _ in range(2)]
            return lambda axes: P[axes[places[0]], axes[places[1]]]
        if form in ("add", "mul"):
            left, right = term(depth - 1), term(depth - 1)
            sign = draw(st.booleans())
            if form == "mul":
                return lambda axes: left(axes) * right(axes)
            return lambda axes: left(axes) + right(axes) if sign else left(axes) - right(axes)
        holds, inner = condition(), term(depth - 1)
        if form == "bool":
            return lambda axes: holds(axes).astype(D) * inner(axes)
        if form == "else":
            other = term(depth - 1)
            return lambda axes: where(holds(axes), as_expr(inner(axes)), as_expr(other(axes)))
        if form == "select":
            return lambda axes: select(holds(axes), as_expr(inner(axes)), te.const(0.0, D))
        return lambda axes: where(holds(axes), inner(axes))

    make = term(3)
    return total(extents[:2], extents[2:], lambda *axes: as_expr(make(axes)))


P = tensor(5, 5, name="P")


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(guarded_sums())
def test_random_sums(stage):
    [simple] = simplify_reductions(stage)
    assert_equal_values([stage], [simple])
    assert estimate_cost(simple).iterations <= estimate_cost(stage).iterations


def test_equations_of_indices_are_solved_before_scheduling():
    """A transposed convolution as it is written: every second place of a window counts."""
    x, w, k = tensor(9, name="x"), tensor(4, name="w"), te.reduce_axis((0, 4), "k")

    def body(i):
        place = i + 1 - k
        inside = te.all(place >= 0, te.indexmod(place + 2, 2) == 0, place < 18)
        return te.sum(where(inside, x[te.max(place // 2, 0)]) * w[k], axis=k)

    y = te.compute((18,), body, name="y")
    [solved] = solve_masks([y])
    assert (estimate_cost(y).iterations, estimate_cost(solved).iterations) == (72, 36)
    assert_equal_values([y], [solved])


def spread(step, value=lambda i: A[i], pad=3):
    """``A`` at every `step`-th place of a tensor of zeros, behind a padding."""
    wide = te.compute((8 * step,), lambda p: where(p % step == 0, value(p // step)), name="wide")
    inside = lambda p: te.all(p >= pad, p < pad + 8 * step)  # noqa: E731
    return te.compute((8 * step + 2 * pad,), lambda p: where(inside(p), wide[p - pad]), name="pad")


#: name → the spread tensor and the taps of a filter, and how many terms are left
SPREAD = {
    "every second place": (spread(2), 6, 3),
    "every third place": (spread(3), 6, 2),
    "taps that the step does not divide": (spread(3), 4, 2),
    "no copy": (spread(2, lambda i: A[i] * 2.0), 6, 6),
    "no zeros": (spread(1), 6, 6),
}


@pytest.mark.parametrize("name", SPREAD)
def test_sums_over_spread_tensors_skip_their_zeros(name):
    wide, taps, terms = SPREAD[name]
    places = shape_of(wide)[0] - taps + 1
    w = tensor(taps, name="w")
    y = total((places,), (taps,), lambda p, k: wide[p + k] * w[k])
    before = estimate_cost(y).iterations - places * taps
    [solved] = solve_masks([y])
    after = estimate_cost(solved).iterations
    assert after - (before if terms == taps else 0) == places * terms
    assert_equal_values([y], [solved])


X, H, N = tensor(40, name="x"), tensor(5, name="h"), te.var("n")
Y = te.placeholder((N,), D, name="y")

#: name → the condition on the place i and what is summed, k < 40, and how many terms are left
BANDS = {
    "a filter over all places": (lambda i, k: te.all(i - k >= 0, i - k < 5), 5),
    "its mirror image": (lambda i, k: te.all(k >= i, k <= i + 4), 5),
    "both sides": (lambda i, k: te.all(k - i <= 2, i - k <= 2), 5),
    "every second place": (lambda i, k: te.all(2 * k >= i, 2 * k < i + 8), 4),
    "one side": (lambda i, k: k <= i, 40),
    "more than half": (lambda i, k: te.all(i - k >= 0, i - k < 25), 40),
    "bounds on the window alone": (lambda i, k: te.all(k >= 3, k < 40), 40),
}


@pytest.mark.parametrize("name", BANDS)
def test_narrow_bands_are_solved_before_scheduling(name):
    condition, terms = BANDS[name]
    tap = lambda i, k: H[te.max(te.min(i - k, 4), 0)]  # noqa: E731
    y = total((40,), (40,), lambda i, k: where(condition(i, k), X[k] * tap(i, k)))
    [solved] = solve_masks([y])
    assert estimate_cost(solved).iterations == 40 * terms
    assert_equal_values([y], [solved])


def test_a_band_of_a_symbolic_sum_is_solved():
    k = te.reduce_axis((0, N), "k")
    body = lambda i: te.sum(where(te.all(i - k >= 0, i - k < 5), Y[k] * H[i - k]), axis=k)  # noqa: E731
    y = te.compute((N,), body, name="b")
    [solved] = solve_masks([y])
    assert [extent for _, extent in map(axis_range, reduction_of(solved.op).axes)] == [5]


def test_the_cases_of_a_condition_are_sought_as_a_whole(monkeypatch):
    """Each of the conjunctions in it would be split anew, and the whole has all of their cases."""
    asked = []
    of_module = reductions.cases_of
    monkeypatch.setattr(
        reductions, "cases_of", lambda *given: asked.append(given) or of_module(*given)
    )
    x, k = te.placeholder((9, 9), name="x"), te.reduce_axis((0, 9), "k")
    pairs = [(0, 1), (1, 3), (2, 5), (3, 2), (4, 7), (5, 6)]

    def body(i):
        apart = [tirx.Not(tirx.all(i == a, k.var == b)) for a, b in pairs]
        return te.sum(te.if_then_else(tirx.all(*apart), x[i, k], 0.0), axis=k)

    y = te.compute((9,), body, name="y")
    solve_masks([y])
    assert sum(len(conditions) == 1 for conditions, _ in asked) == 1
