"""Reductions of any elementwise body with reuse get the register tile that products have."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tests.machines import avx512
from tests.schedule import cases
from tests.schedule.elementwise_bodies import FLOATS, OTHERS, PAIRWISE, streamed
from tests.schedule.test_rules import arrays_for, check, expected, rules_of
from tvm_autodiff import build, differentiate
from tvm_autodiff.schedule.cpu import contraction as rule
from tvm_autodiff.schedule.declined import Cause, Declined
from tvm_autodiff.schedule.fusion.kernels import separate
from tvm_autodiff.schedule.rewrites.normal_form import normal_form

SIZES = [(1, 1, 1), (16, 1, 64), (17, 33, 65), (64, 64, 16), (97, 31, 101)]


@pytest.fixture
def always(monkeypatch):
    """The tile wherever it is legal, whether it pays or not."""
    monkeypatch.setattr(rule, "LAUNCH_CYCLES", 0)
    monkeypatch.setattr(rule, "plain_cycles", lambda nest, machine: float("inf"))
    monkeypatch.setattr(rule, "best_block", lambda member, machine: None)


def tile_of(output, threads=2):
    [kernel] = separate(normal_form([output]))[0]
    return rule.contraction(kernel, avx512(threads))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PAIRWISE)
def test_pairwise(name, size):
    body = PAIRWISE[name]
    inputs, output = body.case(*size)
    arrays = arrays_for(inputs, {})
    np.testing.assert_array_equal(build(inputs, output)(*arrays), body.answer(*arrays))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int64", "int8"])
@pytest.mark.parametrize("name", ["squared", "max-plus", "equal", "hinge"])
def test_dtypes(name, dtype):
    body = PAIRWISE[name]
    inputs, output = body.case(33, 41, 3, dtype)
    arrays = arrays_for(inputs, {})
    got = build(inputs, output)(*arrays)
    assert str(got.dtype) == dtype
    np.testing.assert_array_equal(got, body.answer(*arrays).astype(dtype))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("layout", ["nk,km", "kn,mk", "kn,km"])
@pytest.mark.parametrize("size", [(17, 33, 65), (64, 48, 20)])
def test_layouts(layout, size):
    body = PAIRWISE["squared"]
    inputs, output = body.case(*size, layout=layout)
    arrays = arrays_for(inputs, {})
    assert rules_of(output) == ["contraction"]
    np.testing.assert_array_equal(build(inputs, output)(*arrays), body.answer(*arrays, layout))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [(5, 7, 9), (33, 48, 40)])
@pytest.mark.parametrize("name", FLOATS)
def test_functions(name, size, dtype):
    body = FLOATS[name]
    inputs, output = body.case(*size, dtype)
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal([int(d) for d in t.shape]).astype(dtype) for t in inputs]
    got = build(inputs, output)(*arrays)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(got, body.answer(*arrays), rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("size", [(1, 1, 1), (5, 19, 7), (33, 40, 16)])
@pytest.mark.parametrize("name", OTHERS)
def test_other_forms(name, size):
    inputs, output = OTHERS[name](*size)
    check((inputs, output))


@pytest.mark.parametrize("name", [*PAIRWISE, *FLOATS])
def test_pairs_are_tiled(name):
    """Rows of ten: no rule makes whole vectors along them."""
    assert rules_of({**PAIRWISE, **FLOATS}[name].case(192, 160, 10)[1]) == ["contraction"]


@pytest.mark.parametrize("name", OTHERS)
def test_other_forms_are_tiled(name):
    assert rules_of(OTHERS[name](192, 160, 64)[1]) == ["contraction"]


def nearest(n, m, k, dtype="float32"):
    """The place of the least distance, and the distances."""
    [X, C], D = PAIRWISE["squared"].case(n, m, k, dtype)
    r = cases.axis(m, "m")

    def smaller(left, right):
        first = left[1] <= right[1]
        return tirx.Select(first, left[0], right[0]), tirx.Select(first, left[1], right[1])

    def identity(place, value):
        return tirx.const(-1, place), tvm.te.max_value(value)

    argmin = te.comm_reducer(smaller, identity, name="argmin")
    place, _ = te.compute((n,), lambda i: argmin((r.var, D[i, r]), axis=r), name="best")
    least = te.compute((n,), lambda i: te.min(D[i, r], axis=r), name="least")
    return X, C, D, place, least


def winner(n, m, k, place="int32"):
    """``(max_k x[i, k] + c[j, k], the first such k)``: two accumulators for each result."""
    X, C = cases.placeholder("X", n, k), cases.placeholder("C", m, k)
    r = cases.axis(k)

    def better(left, right):
        first = te.any(left[0] > right[0], te.all(left[0] == right[0], left[1] <= right[1]))
        return tuple(tirx.Select(first, a, b) for a, b in zip(left, right, strict=True))

    argmax = te.comm_reducer(
        better, lambda value, at: (te.min_value(value), te.max_value(at)), name="argmax"
    )
    pair = te.compute(
        (n, m),
        lambda i, j: argmax((X[i, r] + C[j, r], r.var.astype(place)), axis=r),
        name="W",
    )
    return [X, C], list(pair)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("place", ["int32", "int64"])
@pytest.mark.parametrize("size", [(1, 1, 1), (16, 1, 9), (17, 33, 65), (64, 48, 20), (97, 31, 7)])
def test_winners(size, place):
    inputs, outputs = winner(*size, place)
    assert size[:2] == (1, 1) or rules_of(outputs[0])[-1] == "contraction"
    x, c = arrays_for(inputs, {})
    values = x[:, None] + c[None]
    got = build(inputs, outputs)(x, c)
    np.testing.assert_array_equal(got[0], values.max(-1))
    np.testing.assert_array_equal(got[1], values.argmax(-1))


def test_gradients_of_max_plus_are_tiled():
    inputs, D = PAIRWISE["max-plus"].case(96, 80, 40)
    H = cases.placeholder("H", 96, 80)
    outputs = differentiate(D, inputs, H)
    assert "contraction" in rules_of(outputs[0])
    rng = np.random.default_rng(5)
    x, c = (rng.permutation(n * 40).reshape(n, 40).astype("float32") for n in (96, 80))
    h = rng.integers(-3, 4, (96, 80)).astype("float32")
    got = build([*inputs, H], list(outputs))(x, c, h)
    # the first of equal ones has the gradient
    first = (x[:, None] + c[None]).argmax(-1)
    chosen = (np.arange(40) == first[..., None]) * h[..., None]
    np.testing.assert_array_equal(got[0], chosen.sum(1))
    np.testing.assert_array_equal(got[1], chosen.sum(0))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(400, 300, 20), (256, 257, 7)])
def test_nearest_neighbours(size):
    """The place of the nearest row, and the gradients of its distance."""
    X, C, _, place, least = nearest(*size, dtype="float64")
    rng = np.random.default_rng(3)
    x, c, h = (rng.standard_normal(s) for s in ((size[0], size[2]), (size[1], size[2]), size[0]))
    H = cases.placeholder("H", size[0], dtype="float64")
    dX, dC = differentiate(least, [X, C], H)
    function = build([X, C, H], [place, least, dX, dC])
    got = function(x, c, h)
    distances = ((x[:, None] - c[None]) ** 2).sum(-1)
    best = distances.argmin(1)
    np.testing.assert_array_equal(got[0], best)
    np.testing.assert_allclose(got[1], distances.min(1), rtol=1e-12)
    step = 2 * h[:, None] * (x - c[best])
    np.testing.assert_allclose(got[2], step, rtol=1e-12)
    wanted = np.zeros_like(c)
    np.add.at(wanted, best, -step)
    np.testing.assert_allclose(got[3], wanted, rtol=1e-12, atol=1e-12)
    assert "contraction" in str(function.profile(x, c, h))


def test_gradients_of_distances_are_tiled():
    """``Σ_j h[i, j]·2(x[i, k] - c[j, k])`` varies along k by vectors, and reads c again."""
    inputs, D = PAIRWISE["squared"].case(96, 80, 64)
    H = cases.placeholder("H", 96, 80)
    dX, dC = differentiate(D, inputs, H)
    assert rules_of(dX) == rules_of(dC) == ["contraction"]
    arrays = arrays_for([*inputs, H], {})
    x, c, h = arrays
    got = build([*inputs, H], [dX, dC])(*arrays)
    difference = x[:, None] - c[None]
    np.testing.assert_array_equal(got[0], (2 * h[..., None] * difference).sum(1))
    np.testing.assert_array_equal(got[1], -(2 * h[..., None] * difference).sum(0))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("n", [0, 1, 6, 64])
def test_symbolic_rows(n):
    body = PAIRWISE["squared"]
    inputs, output = body.case(te.var("n"), 48, 64)
    arrays = arrays_for(inputs, {"n": n})
    np.testing.assert_array_equal(build(inputs, output)(*arrays), body.answer(*arrays))


@pytest.mark.parametrize("extents", [(0, 8, 8), (8, 0, 8)])
def test_empty_results(extents):
    inputs, output = PAIRWISE["squared"].case(*extents)
    got = build(inputs, output)(*arrays_for(inputs, {}))
    assert got.shape == extents[:2]


def of_one_read(n, k):
    X = cases.placeholder("X", n, k)
    r = cases.axis(k)
    return te.compute((n, n), lambda i, j: te.sum(te.exp(X[i, r]), axis=r), name="R")


def without_reuse(n, k):
    """Every point reads an element of its own."""
    Y, X = cases.placeholder("Y", n, n, k), cases.placeholder("X", n, n, k)
    r = cases.axis(k)
    far = lambda i, j: te.sum(te.abs(X[i, j, r] - Y[i, j, r]), axis=r)  # noqa: E731
    return te.compute((n, n), far, name="R")


def dividing(n, k):
    X, Y = cases.placeholder("X", n, k, dtype="int32"), cases.placeholder("Y", n, k, dtype="int32")
    r = cases.axis(k)
    zero = tirx.const(0, "int32")

    def body(i, j):
        quotient = te.floordiv(X[i, r], Y[j, r])
        return te.sum(te.if_then_else(Y[j, r] > 0, quotient, zero), axis=r)

    return te.compute((n, n), body, name="R")


def called(n, k):
    X, Y = cases.placeholder("X", n, k), cases.placeholder("Y", n, k)
    r = cases.axis(k)

    def body(i, j):
        value = tirx.call_pure_extern("float32", "fdimf", X[i, r], Y[j, r])
        return te.sum(value, axis=r)

    return te.compute((n, n), body, name="R")


DECLINED = [
    (of_one_read(40, 30), "several operands", Cause.OTHER_KIND),
    (without_reuse(40, 30), "no operand is read again", Cause.OTHER_KIND),
    (dividing(40, 30), "divides integers by what may be zero", Cause.CANNOT),
    (called(40, 30), "its body calls call_pure_extern", Cause.OTHER_KIND),
]


@pytest.mark.parametrize(("output", "reason", "cause"), DECLINED, ids=lambda v: "")
def test_reasons(output, reason, cause):
    declined = tile_of(output)
    assert isinstance(declined, Declined)
    assert reason in declined.reason
    assert declined.cause == cause


def test_small_ones_are_left_alone():
    declined = tile_of(PAIRWISE["absolute"].case(30, 3, 64)[1], threads=1)
    assert isinstance(declined, Declined)
    assert declined.cause == Cause.NO_GAIN


@pytest.mark.usefixtures("always")
def test_a_divisor_of_zero_is_never_reached():
    """Padding and guards: whatever is divided by zero is not computed."""
    n, k = 40, 30
    output = dividing(n, k)
    inputs = list(output.op.input_tensors)
    rng = np.random.default_rng(0)
    x, y = rng.integers(-9, 10, (n, k), "int32"), rng.integers(-2, 3, (n, k), "int32")
    arrays = [x if t.op.name == "X" else y for t in inputs]
    wanted = np.where(y[None] > 0, x[:, None] // np.where(y == 0, 1, y)[None], 0).sum(-1)
    np.testing.assert_array_equal(build(inputs, output)(*arrays), wanted)


BINARY = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    te.max,
    te.min,
    lambda a, b: te.abs(a - b),
    lambda a, b: tirx.Select(a > b, a, b + b),
    lambda a, b: te.if_then_else(a <= b, a - b, b),
]
REDUCERS = [te.sum, te.sum, te.max, te.min]


def random_body(seed):
    """A tree over three reads of affine indices, some of them guarded, and its reduction."""
    rng = random.Random(seed)
    shape = [rng.choice((1, 2, 3, 5, 8, 13, 16, 17, 32)) for _ in range(rng.randint(1, 3))]
    reduced = [cases.axis(rng.choice((1, 2, 3, 7, 16)), f"k{n}") for n in range(rng.randint(1, 2))]
    extents = [*shape, *(int(k.dom.extent) for k in reduced)]
    inputs, forms = [], []
    for number in range(rng.choice((2, 2, 3))):
        sizes, form = [], []
        guarded = rng.random() < 0.4
        for _ in range(rng.randint(1, 2)):
            terms = [
                (axis, rng.choice((1, 1, 1, 2, -1)))
                for axis in rng.sample(range(len(extents)), rng.choice((1, 1, 2)))
            ]
            low = sum(min(0, c * (extents[a] - 1)) for a, c in terms)
            high = sum(max(0, c * (extents[a] - 1)) for a, c in terms)
            sizes.append(max(1, high - low + 1 - (rng.randint(0, 3) if guarded else 0)))
            form.append((terms, -low))
        inputs.append(cases.placeholder(f"X{number}", *sizes))
        forms.append((form, guarded))
    outside = rng.random() < 0.5

    def body(*axes):
        loops = [*axes, *(k.var for k in reduced)]
        values, guards = [], []
        for tensor, (form, guarded) in zip(inputs, forms, strict=True):
            indices = [sum((loops[a] * c for a, c in t), start=0) + low for t, low in form]
            value = tensor(*indices)
            if guarded:
                sizes = [int(d) for d in tensor.shape]
                inside = te.all(*(i < s for i, s in zip(indices, sizes, strict=True)))
                if outside:
                    guards.append(inside)
                else:
                    value = te.if_then_else(inside, value, 1.0)
            values.append(value)
        tree = values[0]
        for value in values[1:]:
            tree = rng.choice(BINARY)(tree, value)
        if rng.random() < 0.3:
            tree = rng.choice(BINARY)(tree, values[0])
        reducer = rng.choice(REDUCERS)
        condition = te.all(*guards) if guards else None
        return reducer(tree, axis=reduced, where=condition)

    return inputs, te.compute(shape, body, name="out")


@pytest.mark.slow
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("block", range(4))
def test_random_bodies(block):
    taken = []
    for seed in range(block * 12, block * 12 + 12):
        inputs, output = random_body(seed)
        arrays = arrays_for(inputs, {}, seed)
        got = build(inputs, output)(*arrays)
        want = expected(inputs, output, arrays)
        np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}")
        taken += rules_of(output)
    assert "contraction" in taken


def test_streams_are_left_to_rows():
    """Copies of what is read once cost more than vectors along it."""
    assert rules_of(streamed(8, 32, 256)[1]) == ["rows"]


def test_two_of_the_same_rows_are_not_one_chain():
    """What wants a tile does not run row by row because another one reads the same rows."""
    n, m, k = 192, 160, 64
    X, C = cases.placeholder("X", n, k), cases.placeholder("C", m, k)
    r, s = cases.axis(k), cases.axis(k)
    far = te.compute((n, m), lambda i, j: te.sum(te.abs(X[i, r] - C[j, r]), axis=r), name="far")
    top = te.compute((n, m), lambda i, j: te.max(X[i, s] + C[j, s], axis=s), name="top")
    output = te.compute((n, m), lambda i, j: far[i, j] - top[i, j], name="O")
    assert rules_of(output) == ["contraction", "contraction"]
    arrays = arrays_for([X, C], {})
    x, c = arrays[0][:, None], arrays[1][None]
    wanted = np.abs(x - c).sum(-1) - (x + c).max(-1)
    np.testing.assert_array_equal(build([X, C], output)(*arrays), wanted)
