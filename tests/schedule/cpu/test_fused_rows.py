"""What a chain does once a row: shared values, reciprocals, merged loops, stores on the way."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from tvm import te

from tests.machines import avx512, with_usual_caches
from tests.schedule import group_cases as cases
from tests.schedule.fusion.test_groups import groups_of
from tvm_autodiff.codegen.passes.in_place import may_share
from tvm_autodiff.compile import build
from tvm_autodiff.schedule.cost import THREAD_CYCLES
from tvm_autodiff.schedule.cpu.loops.common_subexpressions import with_common_subexpressions
from tvm_autodiff.schedule.cpu.rows import fused_rows
from tvm_autodiff.schedule.declined import Declined
from tvm_autodiff.schedule.fusion.row_items import SUM, items_of, nests_of

MACHINE = avx512()


def text_of(outputs, machine=MACHINE):
    [group] = groups_of(outputs)
    [launch] = fused_rows(group, machine)
    return launch.func.script()


def test_an_expensive_value_is_computed_once():
    [group] = groups_of(cases.cross_entropy(16, 64)[1])
    members = with_common_subexpressions(group, MACHINE).members
    exponentials = [m for m in members if m.kernel.name == "exp"]
    assert len(exponentials) == 1
    assert text_of(cases.cross_entropy(16, 64)[1]).count("T.exp(") == 1


def test_a_divisor_of_a_row_becomes_a_reciprocal():
    [group] = groups_of(cases.softmax(16, 64)[1])
    names = [member.kernel.name for member in with_common_subexpressions(group, MACHINE).members]
    assert names.count("reciprocal") == 1
    exact = replace(MACHINE, exact_math=True)
    names = [member.kernel.name for member in with_common_subexpressions(group, exact).members]
    assert "reciprocal" not in names


#: dtype → the largest element of each row: near the smallest and the largest numbers, and between
QUOTIENTS = {
    "float16": [6e-8, 1e-6, 1e-5, 1.0, 1e3, 6e4],
    "bfloat16": [1e-40, 1e-38, 1e-19, 1.0, 1e19, 3e38],
    "float32": [1e-45, 1e-40, 1e-20, 1e-19, 1.0, 1e20, 3e38],
    "float64": [5e-324, 1e-310, 1e-155, 1e-154, 1.0, 1e155, 1.7e308],
}


@pytest.mark.parametrize("dtype", QUOTIENTS)
@pytest.mark.parametrize("exact_math", [False, True])
def test_a_quotient_of_a_row_is_right_at_every_magnitude(dtype, exact_math):
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    peaks = np.array(QUOTIENTS[dtype], "longdouble")
    if not exact_math and dtype != "float16":  # quotients of subnormal numbers are 0/0
        peaks = peaks[peaks > 20 * float(ml_dtypes.finfo(kind).smallest_normal)]
    rows, columns = len(peaks), 64
    x, s = (
        te.placeholder((rows, columns), dtype, name="x"),
        te.placeholder((rows,), dtype, name="s"),
    )
    k = te.reduce_axis((0, columns), "k")
    largest = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="largest")
    y = te.compute((rows, columns), lambda i, j: x[i, j] / largest[i], name="y")
    z = te.compute((rows, columns), lambda i, j: x[i, j] / (largest[i] * s[i]), name="z")
    [group] = groups_of([y, z])
    names = [member.kernel.name for member in with_common_subexpressions(group, MACHINE).members]
    assert names.count("reciprocal") == 2
    values = np.random.default_rng(0).uniform(0.1, 1, (rows, columns)) * peaks[:, None]
    given = values.astype(kind)
    signs = np.where(np.arange(rows) % 2, -1, 1).astype(kind)
    results = build([x, s], [y, z], cache=False, exact_math=exact_math)(given, signs)
    for got, sign in zip(results, (1, signs), strict=True):
        exact = given.astype("longdouble")
        want = exact / (exact.max(axis=1) * np.asarray(sign, "longdouble"))[:, None]
        error = np.abs(got.astype("longdouble") - want)
        assert np.all(error <= 2 * ml_dtypes.finfo(kind).eps * np.abs(want))


@pytest.mark.parametrize("dtype", QUOTIENTS)
def test_quotients_by_zero_infinity_and_nan_stay(dtype):
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    divisors = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 2.0], kind)
    rows = np.zeros((len(divisors), 64), kind)
    rows[:, :6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.0]
    x = te.placeholder(rows.shape, dtype, name="x")
    s = te.placeholder(divisors.shape, dtype, name="s")
    t = te.compute(s.shape, lambda i: te.abs(s[i]) * s[i], name="t")
    y = te.compute(rows.shape, lambda i, j: x[i, j] / t[i], name="y")
    k = te.reduce_axis((0, 64), "k")
    total = te.compute(s.shape, lambda i: te.sum(x[i, k] / t[i], axis=k), name="total")
    got, _ = build([x, s], [y, total], cache=False)(rows, divisors)
    with np.errstate(all="ignore"):
        want = rows.astype("float64") / (np.abs(divisors) * divisors).astype("float64")[:, None]
    np.testing.assert_array_equal(got.astype("float64"), want)
    np.testing.assert_array_equal(np.signbit(got.astype("float64")[:4]), np.signbit(want[:4]))


def test_stages_of_equal_loops_share_a_nest():
    [group] = groups_of(cases.two_maps(8, 64)[1])
    assert len(nests_of(items_of(group, MACHINE))) == 1


def test_a_result_of_a_row_waits_for_its_loop():
    [group] = groups_of(cases.winners(8, 64)[1])
    nests = nests_of(items_of(group, MACHINE))
    names = [{item.op.name for item in nest.items} for nest in nests]
    largest = next(n for n, found in enumerate(names) if "largest" in found)
    below = next(n for n, found in enumerate(names) if "below" in found)
    assert largest < below


def test_height_and_width_are_one_loop():
    # 6x6 makes two vectors of 16 and one of 4, not six of 6
    text = text_of(cases.batch_norm(3, 5, 6)[1])
    assert "T.vectorized(16)" in text
    assert "T.vectorized(6)" not in text


def test_an_axis_of_one_element_takes_no_lanes():
    """A number in a tensor of shape (1,), whose gradient is a sum over rows and columns."""
    inputs, outputs = cases.scaled_error(8, 50)
    [group] = groups_of(outputs)
    sums = [item for item in items_of(group, MACHINE) if item.kind == SUM]
    assert [item.spatial for item in sums] == [(), ()]
    rng = np.random.default_rng(0)
    a, b, t = (rng.integers(-4, 5, [int(n) for n in x.shape]).astype("float32") for x in inputs)
    loss, slope = build(inputs, outputs, cache=False)(a, b, t)
    np.testing.assert_array_equal(loss, ((a * t - b) ** 2).sum())
    np.testing.assert_array_equal(slope, [(2 * (a * t - b) * a).sum()])


def test_conditions_leave_no_branch():
    assert "if_then_else" not in text_of(cases.gates(8, 32)[1])


@pytest.mark.parametrize("threads", [2, 5])
def test_sums_are_kept_for_each_thread(threads, monkeypatch):
    monkeypatch.setattr("tvm_autodiff.schedule.machine.THREAD_CYCLES", 0)
    machine = replace(MACHINE, threads=threads)
    text = text_of(cases.squared_error(64, 32)[1], machine)
    assert f"T.parallel({threads})" in text
    assert f"loss_part = T.alloc_buffer(({threads},))" in text


def test_rows_that_no_cache_holds_are_not_joined():
    A = te.placeholder((4, 2 * THREAD_CYCLES + 1), name="A")
    k = te.reduce_axis((0, 2 * THREAD_CYCLES + 1), "k")
    total = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="total")
    out = te.compute(A.shape, lambda i, j: A[i, j] - total[i], name="out")
    assert groups_of([out, total]) == []


def test_a_new_value_may_take_the_place_of_the_old():
    old = te.placeholder((8, 64), name="old")
    other = te.placeholder((8, 64), name="other")
    step = te.placeholder((8, 64), name="step")
    new = te.compute(old.shape, lambda i, j: old[i, j] - step[i, j], name="new")
    kept = te.compute(old.shape, lambda i, j: other[i, j] * 0.9 + step[i, j], name="kept")
    [group] = groups_of([new, kept])
    [launch] = fused_rows(group, MACHINE)
    params = {
        tensor.op.name: param
        for tensor, param in zip((*launch.inputs, *launch.outputs), launch.func.params, strict=True)
    }
    assert may_share(launch.func, params["old"], params["new"])
    assert may_share(launch.func, params["other"], params["kept"])
    # read for the other result as well
    assert not may_share(launch.func, params["step"], params["new"])


def test_a_row_that_is_read_again_keeps_its_place():
    [group] = groups_of(cases.softmax(8, 64)[1][:1])
    [launch] = fused_rows(group, MACHINE)
    assert not may_share(launch.func, launch.func.params[0], launch.func.params[-1])


@pytest.mark.parametrize(("reducer", "reduced"), [(te.sum, np.sum), (te.max, np.max)])
def test_ranges_that_change_along_a_row_stay_outside(reducer, reduced):
    """``w[i, j] = Σ_{m <= j} s[m, 0]``: elements of a row are reduced over different ranges."""
    s = te.placeholder((3, 3), "float64", name="s")

    def body(i, j):
        m = te.reduce_axis((0, j + 1), "m")
        return reducer(s[m, 0], axis=m)

    w = te.compute((6, 3), body, name="w")
    y = te.compute((6, 3, 3), lambda i, j, k: w[i, j] * 2.0, name="y")
    given = np.array([-3.0, 1.0, 2.0])[:, None] * np.ones((1, 3))
    wanted = np.array([[2 * reduced(given[: j + 1, 0])] for j in range(3)])
    got = build(s, y, cache=False)(given)
    np.testing.assert_array_equal(got, np.broadcast_to(wanted, (6, 3, 3)))


def test_rows_of_a_symbolic_and_a_literal_extent_of_int64(monkeypatch):
    monkeypatch.setattr("tvm_autodiff.compile.pipeline.machine_of", with_usual_caches)
    h, four = te.var("h", "int64"), te.const(4, "int64")
    m = te.reduce_axis((te.const(0, "int64"), h), "m")
    b = te.placeholder((h, four, h), "float64", name="b")
    y = te.compute((h, four), lambda i, j: te.min(b[i, j, m], axis=m), name="y")
    function, given = build(b, y, cache=False), np.arange(36.0).reshape(3, 4, 3)
    np.testing.assert_array_equal(function(given), given.min(2))
    assert [kernel.rule for kernel in function.profile(given).kernels] == ["rows"]


def waves(rows, points, width, function):
    """``y[n, p, c] = x[n, p, c]*function(angle[n, p])`` and ``z[n, p, c] = 2*x[n, p, c]``."""
    x = te.placeholder((rows, points, width), name="x")
    angle = te.placeholder((rows, points), name="angle")
    y = te.compute(x.shape, lambda n, p, c: x[n, p, c] * function(angle[n, p]), name="y")
    z = te.compute(x.shape, lambda n, p, c: x[n, p, c] * 2.0, name="z")
    return [x, angle], [y, z]


#: name → (rows, points, width, the function, whether its values are kept in the row)
REPEATED = {
    "for several elements": (2, 64, 3, te.sin, True),
    "for one element": (2, 64, 1, te.sin, False),
    "cheap": (2, 64, 3, te.sqrt, False),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_value_that_loops_repeat_is_kept(name):
    rows, points, width, function, kept = REPEATED[name]
    inputs, outputs = waves(rows, points, width, function)
    [group] = groups_of(outputs)
    names = [member.kernel.name for member in with_common_subexpressions(group, MACHINE).members]
    assert ("sin" in names) == kept
    rng = np.random.default_rng(0)
    x, angle = (rng.random([int(n) for n in t.shape], "float32") for t in inputs)
    y, _ = build(inputs, outputs, cache=False)(x, angle)
    want = x * (np.sin(angle) if function is te.sin else np.sqrt(angle))[..., None]
    np.testing.assert_allclose(y, want, rtol=1e-5)


def column_sums(images, rows, columns, channels):
    """``s[n, c] = Σ_{i,j} x[n, i, j, c]`` and the sums of squares, as in a norm of channels."""
    x = te.placeholder((images, rows, columns, channels), name="x")

    def total(name, body):
        i, j = te.reduce_axis((0, rows), "i"), te.reduce_axis((0, columns), "j")
        shape = (images, channels)
        return te.compute(shape, lambda n, c: te.sum(body(x[n, i, j, c]), axis=[i, j]), name=name)

    return x, [total("s", lambda v: v), total("q", lambda v: v * v)]


#: channels → whether sums stay in registers for a row of columns (the vectors are of 16 numbers)
CHANNELS = {8: True, 56: True, 60: True, 64: True, 70: False, 512: False}


@pytest.mark.parametrize("channels", CHANNELS)
def test_sums_of_a_row_stay_in_registers(channels):
    x, outputs = column_sums(2, 5, 7, channels)
    [group] = groups_of(outputs)
    text = text_of(outputs, avx512(1))
    assert ("s_part = T.alloc_buffer" in text) == CHANNELS[channels]
    assert group.extents == (5,)
    given = np.random.default_rng(0).integers(-9, 9, [int(n) for n in x.shape]).astype("float32")
    s, q = build(x, outputs, cache=False)(given)
    np.testing.assert_array_equal(s, given.sum((1, 2)))
    np.testing.assert_array_equal(q, (given**2).sum((1, 2)))


def losses(rows, width, function):
    """``function`` of a sum of each row, and the row times it: the gradient of a loss of pairs."""
    x, y = (te.placeholder((rows, width), name=name) for name in "xy")
    k = te.reduce_axis((0, width), "k")
    score = te.compute((rows,), lambda i: te.sum(x[i, k] * y[i, k], axis=k), name="score")
    slope = te.compute((rows,), lambda i: function(score[i]), name="slope")
    return [x, y], [te.compute((rows, width), lambda i, j: slope[i] * y[i, j], name="dx")]


#: name → (rows, their width, the function, threads, whether the kernels are fused)
CHOICES = {
    "a sigmoid for a short row": (4096, 16, te.sigmoid, 1, False),
    "a sigmoid for a long row": (4096, 512, te.sigmoid, 1, True),
    "a square for a short row": (4096, 16, lambda value: value * value, 1, True),
    "few rows": (4, 16, te.sigmoid, 1, True),
    "few rows for the launches of threads": (300, 64, te.sigmoid, 2, True),
}


@pytest.mark.parametrize("name", CHOICES)
def test_functions_of_one_number_are_worth_kernels_apart(name):
    rows, width, function, threads, fused = CHOICES[name]
    [group] = groups_of(losses(rows, width, function)[1])
    found = fused_rows(group, avx512(threads))
    assert isinstance(found, Declined) != fused


@pytest.mark.parametrize("name", CHOICES)
def test_functions_of_one_number_are_worth_kernels_apart_where_the_rows_are_summed(name):
    rows, width, function, threads, _ = CHOICES[name]
    i = te.reduce_axis((0, rows), "i")
    x, k = te.placeholder((rows, width), name="x"), te.reduce_axis((0, width), "k")
    score = te.compute((rows,), lambda i: te.sum(x[i, k], axis=k), name="score")
    loss = te.compute((), lambda: te.sum(function(score[i]), axis=i), name="loss")
    [group] = groups_of([loss])
    found = fused_rows(group, avx512(threads))
    # only the sums would be read again
    apart = rows > 1000 and function is te.sigmoid
    assert isinstance(found, Declined) == apart


#: the number of matrices → whether products with their gradients are one kernel; each of 16 rows
#: adds to sums of 16 columns of each matrix, 64 bytes
MATRICES = {100: True, 200: True, 2000: False}


@pytest.mark.parametrize("count", MATRICES)
def test_rows_that_add_to_more_sums_than_the_cache_holds(count):
    a = te.placeholder((count, 16, 16), name="a")
    v, h = (te.placeholder((count, 16), name=name) for name in "vh")
    i = te.reduce_axis((0, 16), "i")
    outer = te.compute(a.shape, lambda n, j, k: h[n, j] * v[n, k], name="da")
    sums = te.compute((count, 16), lambda n, k: te.sum(h[n, i] * a[n, i, k], axis=i), name="dv")
    [group] = groups_of([outer, sums])
    assert isinstance(fused_rows(group, avx512(1)), Declined) != MATRICES[count]


@pytest.mark.parametrize("shared", [True, False])
def test_work_that_kernels_apart_would_repeat_counts(shared):
    """Functions of one number for each row are no reason where the sums share functions."""
    p, x = te.placeholder((151, 3), "float64", "p"), te.placeholder((151, 11), "float64", "x")

    def total(number):
        k, own = te.reduce_axis((0, 11), "k"), 1.0 if shared else float(number)

        def term(i):
            inner = te.log(te.exp(p[i, 2] * x[i, k] * own) + own)
            return te.sum(te.log(inner + own) * x[i, k] * float(number), axis=k)

        part = te.compute((151,), term, name="part")
        scale = lambda i: te.exp(p[i, 0]) * te.tanh(p[i, 1]) * te.log(p[i, 2])  # noqa: E731
        return te.compute((151,), lambda i: part[i] * scale(i), name=f"y{number}")

    [group] = groups_of([total(number) for number in (1, 2, 3)])
    assert isinstance(fused_rows(group, avx512(1)), Declined) != shared


def taps(points, taps, chooses):
    """The weights of a few taps at each point, and the sum of each image: hats, or the nearest."""
    y, x = (te.placeholder((8, points), name=name) for name in "yx")
    i = te.reduce_axis((0, points), "i")

    def weight(n, j, a, b):
        far = te.abs(y[n, j] - te.floor(y[n, j]) - a.astype("float32"))
        hat = te.max(1.0 - far, 0.0)
        if not chooses:
            return x[n, j] * hat * (b.astype("float32") + 1.0)
        return te.if_then_else(x[n, j] > b.astype("float32"), x[n, j] * hat, y[n, j] * y[n, j])

    weights = te.compute((8, points, taps, taps), weight, name="weights")
    total = te.compute((8,), lambda n: te.sum(x[n, i] * y[n, i], axis=i), name="total")
    return [y, x], [weights, total]


def weights_of(y, x, taps, chooses):
    a, b = np.arange(taps, dtype="float32")[:, None], np.arange(taps, dtype="float32")
    y, x = y[:, :, None, None], x[:, :, None, None]
    hat = np.maximum(1.0 - abs(y - np.floor(y) - a), 0.0)
    return np.where(x > b, x * hat, y * y) if chooses else x * hat * (b + 1.0)


def test_short_loops_after_a_long_one_are_left_to_the_compiler():
    """It writes them out, and interleaves vectors along the long one."""
    text = text_of(taps(64, 2, False)[1])
    assert "l in T.vectorized(2)" not in text
    assert "l in T.vectorized(4)" in text_of(taps(64, 4, False)[1])


def test_kernels_that_are_interleaved_apart_stay_apart():
    [group] = groups_of(taps(64, 2, True)[1])
    found = fused_rows(group, avx512())
    assert isinstance(found, Declined)
    assert "interleaved" in found.reason


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("chooses", [False, True])
def test_short_loops_of_rows(count, chooses):
    inputs, outputs = taps(50, count, chooses)
    rng = np.random.default_rng(0)
    y, x = (rng.uniform(-3, 3, (8, 50)).astype("float32") for _ in "yx")
    weights, total = build(inputs, outputs, cache=False)(y, x)
    np.testing.assert_allclose(weights, weights_of(y, x, count, chooses), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, (x * y).sum(1), rtol=1e-4)
