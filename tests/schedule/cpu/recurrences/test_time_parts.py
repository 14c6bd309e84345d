"""Affine recurrences over few rows, in parts of time: numpy's values one step after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.machines import with_usual_caches

STEPS = 5_000
Step = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A step on scalars, ``(states, inputs) → (states, results)``, and how many of each it has."""

    name: str
    states: int
    inputs: int
    step: Step
    select: bool = False


def averaged(h: Any, x: Any, where: Any) -> Any:
    new = h[0] + 0.25 * (x[0] - h[0])
    return [new], [new]


def gated(h: Any, x: Any, where: Any) -> Any:
    new = x[0] * h[0] + x[1]
    return [new], [h[0], 2.0 * new]


def multiplied(h: Any, x: Any, where: Any) -> Any:
    return [(1.0 + 0.01 * x[0]) * h[0]], [h[0]]


def divided(h: Any, x: Any, where: Any) -> Any:
    new = (h[0] - x[0]) / (1.5 + x[0] * x[0])
    return [new], [new]


def reset(h: Any, x: Any, where: Any) -> Any:
    new = where(x[0] > 1.0, x[1], 0.9 * h[0] + x[1])
    return [new], [new]


def counted(h: Any, x: Any, where: Any) -> Any:
    """A sum of what another state makes, not affine in that one."""
    new = 0.5 * h[0] + x[0]
    return [new, h[1] + new * new], [h[1]]


def forgetful(h: Any, x: Any, where: Any) -> Any:
    """A state that does not depend on itself."""
    return [0.7 * h[0] + x[0], h[0] * x[0]], [h[1]]


def independent(h: Any, x: Any, where: Any) -> Any:
    return [0.5 * h[0] + x[0], -0.8 * h[1] - x[0]], [h[0] * h[1]]


def final_only(h: Any, x: Any, where: Any) -> Any:
    return [0.99 * h[0] + x[0]], []


CASES = [
    Case("averaged", 1, 1, averaged),
    Case("gated", 1, 2, gated),
    Case("multiplied", 1, 1, multiplied),
    Case("divided", 1, 1, divided),
    Case("reset", 1, 2, reset),
    Case("counted", 2, 1, counted),
    Case("forgetful", 2, 1, forgetful),
    Case("independent", 2, 1, independent),
    Case("final_only", 1, 1, final_only),
]


def program(
    case: Case, length: Any, dtype: str = "float64", rows: int = 0, reverse: bool = False
) -> tuple[list[Any], list[Any]]:
    shape = (rows,) if rows else ()
    init = [te.placeholder(shape, dtype, f"init{n}") for n in range(case.states)]
    xs = [te.placeholder((length, *shape), dtype, f"x{n}") for n in range(case.inputs)]

    def step(h: Any, x: Any) -> Any:
        def value(number: int, part: int) -> Any:
            return lambda *i: case.step([t(*i) for t in h], [t(*i) for t in x], te.if_then_else)[
                part
            ][number]

        count = [len(part) for part in case.step([0.0] * case.states, [0.0] * case.inputs, plain)]
        news, ys = (
            [te.compute(shape, value(n, part), name=f"v{part}{n}") for n in range(count[part])]
            for part in (0, 1)
        )
        return news, ys

    carry, ys = ad.scan(step, init, xs, reverse=reverse)
    return [*init, *xs], [*carry, *ys]


def plain(condition: Any, one: Any, other: Any) -> Any:
    return one if condition else other


def expected(case: Case, arrays: list[np.ndarray], reverse: bool = False) -> list[np.ndarray]:
    """The same loop of numpy, in the dtype of the arrays."""
    states, xs = list(arrays[: case.states]), arrays[case.states :]
    length, dtype = len(xs[0]), arrays[0].dtype
    rows = []
    for t in reversed(range(length)) if reverse else range(length):
        states, ys = case.step(states, [x[t] for x in xs], np.where)
        rows.append([np.asarray(y, dtype) for y in ys])
    if reverse:
        rows.reverse()
    count = len(case.step([0.0] * case.states, [0.0] * case.inputs, plain)[1])
    stacked = [np.array([row[n] for row in rows], dtype).reshape(xs[0].shape) for n in range(count)]
    return [*(np.asarray(state, dtype) for state in states), *stacked]


def arrays_of(case: Case, length: int, dtype: str = "float64", rows: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    shape = (rows,) if rows else ()
    shapes = [shape] * case.states + [(length, *shape)] * case.inputs
    found = [np.asarray(rng.standard_normal(s), dtype) for s in shapes]
    if case.name == "gated":
        found[1] = np.asarray(rng.uniform(-1.05, 1.05, shapes[1]), dtype)
    return found


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules do not depend on this host."""
    monkeypatch.setattr("tvm_autodiff.compile.pipeline.machine_of", with_usual_caches)


def rules_of(function: Any, arrays: list[np.ndarray]) -> list[str]:
    return [kernel.rule for kernel in function.profile(*arrays, repeats=1).kernels]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_parts_agree_with_numpy(case: Case, reverse: bool) -> None:
    function = ad.build(*program(case, STEPS, reverse=reverse), num_threads=2, cache=False)
    arrays = arrays_of(case, STEPS)
    assert rules_of(function, arrays) == ["time_parts"]
    for got, want in zip(function(*arrays), expected(case, arrays, reverse), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("case", CASES[:6], ids=lambda case: case.name)
def test_any_length(case: Case) -> None:
    function = ad.build(*program(case, te.var("steps")), num_threads=3, cache=False)
    for length in (0, 1, 2, 383, 384, 385, 1_151, 1_152, 2_000, 12_345):
        arrays = arrays_of(case, length)
        rule = "small_loop" if length == 1 else "time_parts"  # a plan of its own for one step
        assert rules_of(function, arrays) == [rule]
        for got, want in zip(function(*arrays), expected(case, arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("case", CASES[:5], ids=lambda case: case.name)
def test_few_rows(case: Case, rows: int) -> None:
    function = ad.build(*program(case, STEPS, "float32", rows), num_threads=2, cache=False)
    arrays = arrays_of(case, STEPS, "float32", rows)
    wide = [array.astype("float64") for array in arrays]
    for got, want in zip(function(*arrays), expected(case, wide), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=1e-4 * max(1.0, np.abs(want).max()))


def test_where_rows_are_many_they_run_side_by_side() -> None:
    function = ad.build(*program(CASES[1], STEPS, "float32", 16), num_threads=1, cache=False)
    assert rules_of(function, arrays_of(CASES[1], STEPS, "float32", 16)) == ["row_loop"]


def test_exact_math_and_few_steps_leave_the_order() -> None:
    for length, exact in ((STEPS, True), (100, False)):
        function = ad.build(
            *program(CASES[0], length), num_threads=2, cache=False, exact_math=exact
        )
        assert rules_of(function, arrays_of(CASES[0], length)) == ["small_loop"]


@pytest.mark.parametrize("circle", [True, False])
def test_states_that_are_not_affine_in_themselves(circle: bool) -> None:
    def step(h: Any, x: Any, where: Any) -> Any:
        if circle:
            return [0.5 * h[1] + x[0], 0.5 * h[0]], [h[0]]
        return [h[0] / (1.0 + h[0] * h[0]) + x[0], 0.5 * h[1]], [h[0]]

    case = Case("other", 2, 1, step)
    function = ad.build(*program(case, STEPS), num_threads=2, cache=False)
    arrays = arrays_of(case, STEPS)
    assert rules_of(function, arrays) == ["small_loop"]
    for got, want in zip(function(*arrays), expected(case, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10)


def linear(length: int, dtype: str = "float32") -> Any:
    """``h' = a·h + b`` as a function of (h, a, b)."""
    function = ad.build(*program(CASES[1], length, dtype), num_threads=2, cache=False)
    assert rules_of(function, arrays_of(CASES[1], length, dtype)) == ["time_parts"]
    return lambda h, a, b: function(*(np.asarray(v, dtype) for v in (h, a, b)))[:2]


def test_a_product_that_overflows_is_not_used() -> None:
    run = linear(STEPS)
    ones = np.ones(STEPS)
    last, states = run(1.0, 3 * ones, -2 * ones)  # stays at its fixed point
    assert last == 1.0
    np.testing.assert_array_equal(states, ones)
    last, states = run(0.0, 3 * ones, 0 * ones)  # infinity times zero
    assert last == 0.0
    np.testing.assert_array_equal(states, 0 * ones)
    last, states = run(1.0, 3 * ones, 0 * ones)
    assert last == np.inf
    np.testing.assert_allclose(states[:50], 3.0 ** np.arange(50), rtol=1e-5)


def test_a_sum_that_overflows_is_not_used() -> None:
    """From zero a part overflows, from the state that it begins with it does not."""
    ones = np.ones(STEPS)
    _, states = linear(STEPS)(-3.3e38, ones, 3e36 * ones)
    want = -3.3e38 + 3e36 * np.arange(STEPS)
    finite = want < 3.3e38
    assert finite.sum() > 200
    np.testing.assert_allclose(states[finite], want[finite], rtol=1e-3, atol=1e35)
    assert np.isinf(states[230:]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_product_that_is_too_small_is_not_used(dtype: str) -> None:
    """The state falls and rises between large and small numbers, of which none is too small; the
    product of the factors is."""
    limits = np.finfo(dtype)
    size = limits.dtype.type(limits.max) ** 0.9
    period = 2 * int(np.log2(float(size)) + np.log2(float(size)) * 0.85)
    length = period * (STEPS // period)
    half = period // 2
    a = np.tile(np.r_[np.full(half, 0.5), np.full(half, 2.0)], length // period)
    last, states = linear(length, dtype)(size, a, np.zeros(length))
    want = size * np.cumprod(np.r_[1.0, a.astype("longdouble")])
    np.testing.assert_allclose(states, want[:-1].astype(dtype), rtol=1e-6)
    np.testing.assert_allclose(last, want[-1].astype(dtype), rtol=1e-6)


def test_a_state_that_fades_to_nothing() -> None:
    last, states = linear(STEPS)(1e30, np.full(STEPS, 0.9), np.zeros(STEPS))
    want = 1e30 * 0.9 ** np.arange(STEPS + 1.0)
    np.testing.assert_allclose(states, want[:-1], rtol=1e-3, atol=1e-36)
    assert abs(last) < 1e-36


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("where", [0, 1_700, STEPS - 1])
def test_what_is_no_number_goes_on_from_where_it_is(value: float, where: int) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0.5, 0.9, STEPS), rng.standard_normal(STEPS)
    b[where] = value
    last, states = linear(STEPS, "float64")(0.5, a, b)
    h, want = 0.5, []
    for t in range(STEPS):
        want.append(h)
        h = a[t] * h + b[t]
    np.testing.assert_allclose(states, want, rtol=1e-9)
    np.testing.assert_allclose(last, h, rtol=1e-9)


@pytest.mark.parametrize("most", [0.7, 1.0, 1.02])
def test_rounding_stays_within_its_bound(most: float) -> None:
    rng = np.random.default_rng(2)
    a = rng.uniform(-most, most, STEPS).astype("float32")
    b = rng.standard_normal(STEPS).astype("float32")
    last, states = linear(STEPS)(0.5, a, b)
    h, size = np.longdouble(0.5), 0.5
    for t in range(STEPS):
        assert abs(states[t] - h) <= (t + 1) * np.finfo("float32").eps * size
        h = np.longdouble(a[t]) * h + np.longdouble(b[t])
        size = abs(float(a[t])) * size + abs(float(b[t]))
    assert abs(last - h) <= (STEPS + 1) * np.finfo("float32").eps * size


def test_a_recurrence_inside_of_a_step() -> None:
    """Each step of the outer loop runs a recurrence over 2,000 numbers."""
    x = te.placeholder((3, 2_000), "float64", "x")
    h0 = te.placeholder((), "float64", "h0")

    def inner(h: Any, x: Any) -> Any:
        new = te.compute((), lambda: 0.5 * h() + x(), name="new")
        return new, new

    def outer(h: Any, row: Any) -> Any:
        return ad.scan(inner, h, row)

    last, ys = ad.scan(outer, h0, x)
    function = ad.build([x, h0], [last, ys], num_threads=2, cache=False)
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal((3, 2_000)), np.array(0.3)]
    assert "time_parts" in rules_of(function, arrays)
    h, want = 0.3, []
    for value in arrays[0].ravel():
        h = 0.5 * h + value
        want.append(h)
    got_last, got = function(*arrays)
    np.testing.assert_allclose(got.ravel(), want, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(got_last, h, rtol=1e-10)


def test_a_step_that_reads_a_tensor_of_any_length() -> None:
    """It is no row of components, as it has a symbolic dimension."""
    n = te.var("n")
    xs, h0 = te.placeholder((n, 3), "float64", "xs"), te.placeholder((3,), "float64", "h0")

    def step(h: Any, x: Any) -> Any:
        return te.compute((3,), lambda i: h[i] * xs[n - 1, i] + x[i], name="new"), None

    last, _ = ad.scan(step, h0, xs)
    function = ad.build([h0, xs], last, cache=False)
    for length in (0, 1, 70):
        given = np.random.default_rng(0).uniform(-1, 1, (length, 3))
        want = np.ones(3)
        for row in given:
            want = want * given[-1] + row
        np.testing.assert_allclose(function(np.ones(3), given), want, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[:5] + CASES[6:8], ids=lambda case: case.name)
def test_gradients_agree_with_jax(case: Case) -> None:
    inputs, outputs = program(case, STEPS)
    ys = outputs[case.states]
    t = te.reduce_axis((0, STEPS), "t")
    loss = te.compute((), lambda: te.sum(ys[t] * ys[t], axis=t), name="loss")
    function = ad.build(inputs, [loss, *ad.differentiate(loss, inputs)], cache=False)
    arrays = arrays_of(case, STEPS)
    assert "time_parts" in rules_of(function, arrays)

    def theirs(*values: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            return case.step(h, x, jnp.where)

        states, xs = list(values[: case.states]), list(values[case.states :])
        return (jax.lax.scan(step, states, xs)[1][0] ** 2).sum()

    with jax.enable_x64(True):
        given = [jnp.asarray(array) for array in arrays]
        value, cotangents = jax.value_and_grad(theirs, tuple(range(len(given))))(*given)
        wanted = [np.asarray(want) for want in (value, *cotangents)]
    for got, want in zip(function(*arrays), wanted, strict=True):
        scale = np.abs(want).max() if np.size(want) else 1.0
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-11 * scale)
