"""Loops as functions of the host: the same values as numpy, at every length, and how they run."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tvm
from tvm import te

import tvm_autodiff as ad
from tests.schedule.loop_cases import LOOPS, LoopCase
from tests.schedule.test_slow_kernels import broken
from tvm_autodiff.errors import PlainScheduleWarning
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.graph.kinds.loop import Loop, loop_stage, step_of
from tvm_autodiff.schedule.cpu.contraction import contraction
from tvm_autodiff.schedule.cpu.rules import CPU_RULES
from tvm_autodiff.schedule.declined import Declined
from tvm_autodiff.schedule.kernel import Kernel, Repetition
from tvm_autodiff.schedule.machine import as_target, machine_of
from tvm_autodiff.schedule.rule import Rest

BY_NAME = {case.name: case for case in LOOPS}
EVERY = pytest.mark.parametrize("case", LOOPS, ids=lambda case: case.name)


@pytest.fixture(autouse=True)
def kernels_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops of these tests are small; none is to be one function."""
    monkeypatch.setattr("tvm_autodiff.schedule.cpu.recurrences.small_loop.KERNEL_CALL", -1)
    monkeypatch.setattr("tvm_autodiff.schedule.cpu.recurrences.row_loop.MAX_NODES", -1)
    monkeypatch.setattr("tvm_autodiff.schedule.cpu.recurrences.time_parts.SHORT_LOOP", -1)


def check(function: object, case: LoopCase, length: int, reverse: bool, dtype: str) -> None:
    arrays = case.arrays(length, dtype)
    results = function(*arrays)
    expected = case.expected(arrays, length, reverse)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    for got, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@EVERY
@pytest.mark.parametrize(
    ("length", "reverse"), [(0, False), (1, True), (2, False), (5, True), (5, False)]
)
def test_loops_of_literal_length_agree_with_numpy(
    case: LoopCase, length: int, reverse: bool
) -> None:
    inputs, outputs = case.program(length, reverse)
    check(ad.build(inputs, outputs, cache=False), case, length, reverse, "float64")


@EVERY
def test_loops_of_symbolic_length_agree_with_numpy(case: LoopCase) -> None:
    inputs, outputs = case.program(te.var("steps"), reverse=True)
    function = ad.build(inputs, outputs, cache=False)
    for length in (0, 1, 2, 5):
        check(function, case, length, True, "float64")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(("fibonacci", dtype) for dtype in ("float32", "int32", "int64", "int8")),
        ("before_and_after", "float32"),
    ],
)
def test_loops_of_other_dtypes(name: str, dtype: str) -> None:
    case = BY_NAME[name]
    inputs, outputs = case.program(4, dtype=dtype)
    check(ad.build(inputs, outputs, cache=False), case, 4, False, dtype)


def test_boolean_state() -> None:
    flag, x = te.placeholder((3,), "bool", "flag"), te.placeholder((3,), "bool", "x")
    new = te.compute((3,), lambda i: te.any(flag[2 - i], x[i]), name="new")
    init, xs = te.placeholder((3,), "bool", "init"), te.placeholder((4, 3), "bool", "xs")
    loop = Loop(step_of([flag], [x], [], [new], [flag]), (init,), (xs,), (), 4)
    function = ad.build([init, xs], loop_stage("any_so_far", loop), cache=False)
    state, elements = np.array([True, False, False]), np.zeros((4, 3), bool)
    elements[2, 1] = True
    last, states = function(state, elements)
    expected = []
    for element in elements:
        expected.append(state)
        state = state[::-1] | element
    np.testing.assert_array_equal(states, expected)
    np.testing.assert_array_equal(last, state)


def nested(inner_length: int, outer_length: object) -> tuple[list[te.Tensor], list[te.Tensor]]:
    """``a → a after steps a[::-1] + s*z``, and the sums of what the steps give."""
    a, s, z = (te.placeholder((4,), "float64", name) for name in "asz")
    new = te.compute((4,), lambda i: a[3 - i] + s[i] * z[i], name="new")
    A, X, Z = (
        te.placeholder(shape, "float64", name)
        for shape, name in (((4,), "A"), ((inner_length, 4), "X"), ((4,), "Z"))
    )
    inner = Loop(step_of([a], [s], [z], [new], [new]), (A,), (X,), (Z,), inner_length)
    last, rows = loop_stage("inner", inner)
    k = te.reduce_axis((0, inner_length), "k")
    total = te.compute((4,), lambda i: te.sum(rows[k, i], axis=k), name="total")
    inputs = [
        te.placeholder(shape, "float64", name)
        for shape, name in (((4,), "A0"), ((outer_length, inner_length, 4), "XS"), ((4,), "Z0"))
    ]
    step = step_of([A], [X], [Z], [last], [total])
    outer = Loop(step, (inputs[0],), (inputs[1],), (inputs[2],), outer_length)
    return inputs, loop_stage("outer", outer)


@pytest.mark.parametrize("inner", [0, 1, 3])
@pytest.mark.parametrize("outer", [1, 4, None])
def test_nested_loops(inner: int, outer: int | None) -> None:
    inputs, outputs = nested(inner, te.var("n") if outer is None else outer)
    function = ad.build(inputs, outputs, cache=False)
    rng = np.random.default_rng(3)
    for length in (0, 1, 4) if outer is None else (outer,):
        a, xs, z = (rng.standard_normal(shape) for shape in ((4,), (length, inner, 4), (4,)))
        last, totals = function(a, xs, z)
        for t in range(length):
            total = np.zeros(4)
            for element in xs[t]:
                a = a[::-1] + element * z
                total += a
            np.testing.assert_allclose(totals[t], total, rtol=1e-12)
        np.testing.assert_allclose(last, a, rtol=1e-12)


@pytest.mark.parametrize(("rows", "threads"), [(7, 1), (24, 2)])
@pytest.mark.parametrize("turned", [False, True])
def test_packed_weights_at_every_length(rows: int, threads: int, turned: bool) -> None:
    """`h → tanh(h w)` with as many states as make panels of the weights."""
    size = 90
    h, w = te.placeholder((rows, size), "float32", "h"), te.placeholder((size, size), name="w")
    k = te.reduce_axis((0, size), "k")
    product = te.compute(
        (rows, size),
        lambda i, j: te.sum(h[i, k] * (w[j, k] if turned else w[k, j]), axis=k),
        name="product",
    )
    new = te.compute((rows, size), lambda i, j: te.tanh(product[i, j]), name="new")
    inputs = [te.placeholder((rows, size), name="first"), te.placeholder((size, size), name="ws")]
    rng = np.random.default_rng(4)
    first = rng.standard_normal((rows, size)).astype("float32")
    weights = (rng.standard_normal((size, size)) / size**0.5).astype("float32")
    for length in (0, 1, 5):
        loop = Loop(step_of([h], [], [w], [new], [new]), (inputs[0],), (), (inputs[1],), length)
        function = ad.build(inputs, loop_stage("cells", loop), num_threads=threads, cache=False)
        state, states = first, []
        for _ in range(length):
            state = np.tanh(state @ (weights.T if turned else weights))
            states.append(state)
        last, stacked = function(first, weights)
        np.testing.assert_allclose(last, state, rtol=2e-4, atol=2e-5)
        expected = np.reshape(states, (length, rows, size))
        np.testing.assert_allclose(stacked, expected, rtol=2e-4, atol=2e-5)
    repeated = Kernel(product.op, repetition=Repetition(5, frozenset({tensor_key(w)})))
    made = contraction(repeated, machine_of(as_target(None), threads))
    packed = [one.kernel.name for one in made if isinstance(one, Rest)]
    assert any("pack" in name for name in packed), "panels pay where several steps read them"


def test_two_loops_in_a_program_and_stages_around_them() -> None:
    inputs, [last, rows] = BY_NAME["recurrent"].program(4)
    more, [again, *_] = BY_NAME["before_and_after"].program(3)
    total = te.compute((3, 4), lambda i, j: last[i, j] + rows[3, i, j] + again[j], name="total")
    function = ad.build([*inputs, *more], [total], cache=False)
    first, second = BY_NAME["recurrent"].arrays(4), BY_NAME["before_and_after"].arrays(3)
    [got] = function(*first, *second)
    [left, stacked] = BY_NAME["recurrent"].expected(first, 4)
    right = BY_NAME["before_and_after"].expected(second, 3)[0]
    np.testing.assert_allclose(got, left + stacked[3] + right, rtol=1e-12)


def test_neither_kernels_nor_code_grow_with_the_length() -> None:
    sizes = []
    for length in (300, 3_000):
        inputs, outputs = BY_NAME["prepared"].program(length)
        function = ad.build(inputs, outputs, cache=False)
        kernels = function.profile(*BY_NAME["prepared"].arrays(length), repeats=1).kernels
        sizes.append((len(kernels), len(function.source())))
    assert sizes[0][0] == sizes[1][0]
    assert abs(sizes[0][1] - sizes[1][1]) < 0.02 * sizes[0][1]


def test_what_reads_no_state_runs_once_and_the_profile_counts_calls() -> None:
    case = BY_NAME["prepared"]
    inputs, outputs = case.program(6)
    function = ad.build(inputs, outputs, cache=False)
    calls = {kernel.name: kernel.calls for kernel in function.profile(*case.arrays(6)).kernels}
    assert calls.pop("squared") == 1
    assert set(calls.values()) == {6}, calls


def test_the_profile_counts_the_calls_of_nested_loops() -> None:
    inputs, outputs = nested(3, 4)
    function = ad.build(inputs, outputs, cache=False)
    arrays = [np.ones(shape) for shape in ((4,), (4, 3, 4), (4,))]
    profile = function.profile(*arrays)
    calls = {kernel.name: kernel.calls for kernel in profile.kernels}
    assert calls["new"] == 12
    assert calls["total"] == 4
    assert "new (12 calls)" in str(profile)


def test_temporaries_of_a_step_are_planned_once() -> None:
    case = BY_NAME["prepared"]
    memory = [
        ad.build(*case.program(length), cache=False).memory().temporaries for length in (5, 500)
    ]
    assert memory[0] == memory[1] > 0


def test_stacked_states_need_no_spare_buffer() -> None:
    inputs, outputs = BY_NAME["recurrent"].program(5)
    product_only = ad.build(inputs, outputs, cache=False).memory().temporaries
    assert product_only <= 3 * 4 * 8


def test_a_loop_is_exported_and_loaded(tmp_path: object) -> None:
    case = BY_NAME["recurrent"]
    inputs, outputs = case.program(5)
    path = tmp_path / "loop.so"
    ad.build(inputs, outputs, cache=False).export(path)
    check(ad.load(path), case, 5, False, "float64")


def test_a_loop_is_kept_in_the_cache(tmp_path: object) -> None:
    case = BY_NAME["recurrent"]
    for _ in range(2):
        inputs, outputs = case.program(5)
        check(ad.build(inputs, outputs, cache=tmp_path), case, 5, False, "float64")
    assert len(list(tmp_path.rglob("*"))) == 1


def test_another_step_of_the_same_shapes_is_another_build(tmp_path: object) -> None:
    def doubled(factor: float) -> LoopCase:
        def in_te(c: object, x: object, k: object) -> object:
            return [te.compute((2,), lambda i: factor * c[0][i], name="new")], []

        return LoopCase("doubled", [(2,)], [(1,)], [], in_te, lambda c, x, k: ([factor * c[0]], []))

    for factor in (2.0, 3.0):
        case = doubled(factor)
        inputs, outputs = case.program(3)
        check(ad.build(inputs, outputs, cache=tmp_path), case, 3, False, "float64")


def counted(name: str) -> tuple[list[te.Tensor], list[te.Tensor]]:
    """A loop whose step is one elementwise stage of some name."""
    h, x = te.placeholder((8,), "float32", "h"), te.placeholder((8,), "float32", "x")
    new = te.compute((8,), lambda i: 0.5 * h[i] + x[i], name=name)
    init, xs = te.placeholder((8,), "float32", "init"), te.placeholder((40, 8), "float32", "xs")
    loop = Loop(step_of([h], [x], [], [new], []), (init,), (xs,), (), 40)
    return [init, xs], loop_stage("counted", loop)


def test_a_kernel_of_a_step_that_tvm_refuses_falls_back_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = (broken, *CPU_RULES)
    monkeypatch.setattr("tvm_autodiff.compile.pipeline.rules_for", lambda machine: rules)
    inputs, outputs = counted("bad")
    with pytest.warns(PlainScheduleWarning, match="stage bad"):
        function = ad.build(inputs, outputs, cache=False)
    [last] = function(np.zeros(8, "float32"), np.ones((40, 8), "float32"))
    np.testing.assert_allclose(last, np.full(8, 2.0), rtol=1e-6)


def test_the_work_of_a_kernel_counts_once_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone a slow stage of 8 elements is not worth a warning; in 10,000 steps it is."""
    rules = (lambda kernel, machine: Declined("none is wanted"), CPU_RULES[-1])
    monkeypatch.setattr("tvm_autodiff.compile.pipeline.rules_for", lambda machine: rules)
    h = te.placeholder((8,), "float32", "h")
    new = te.compute((8,), lambda i: 0.5 * h[i] + 1.0, name="new")
    init = te.placeholder((8,), "float32", "init")
    for length, slow in ((10, False), (10_000, True)):
        loop = Loop(step_of([h], [], [], [new], []), (init,), (), (), length)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ad.build([init], loop_stage("many", loop), cache=False)
        assert bool(caught) == slow


def test_sizes_that_only_an_expression_tells() -> None:
    p = te.var("p")
    h, x = te.placeholder((3,), "float64", "h"), te.placeholder((3,), "float64", "x")
    half = te.compute((3,), lambda i: 0.5 * h[i] + x[i] / (p + 1).astype("float64"), name="half")
    init = te.placeholder((3,), "float64", "init")
    xs = te.placeholder((2 * p + 1, 3), "float64", "xs")
    loop = Loop(step_of([h], [x], [], [half], []), (init,), (xs,), (), 2 * p + 1)
    [last] = ad.build([init, xs], loop_stage("odd", loop), cache=False)(np.ones(3), np.ones((5, 3)))
    expected = 1.0
    for _ in range(5):
        expected = 0.5 * expected + 1.0 / 3.0
    np.testing.assert_allclose(last, np.full(3, expected), rtol=1e-12)


def test_what_lower_gives_is_compiled_by_tvm_alone() -> None:
    case = BY_NAME["before_and_after"]
    inputs, outputs = case.program(5)
    module = ad.lower(inputs, outputs)
    assert [var.name_hint for var in module.get_global_vars()] == ["main"]
    arrays = case.arrays(5)
    expected = case.expected(arrays, 5)
    results = [tvm.runtime.tensor(np.zeros_like(want)) for want in expected]
    tvm.compile(module, target="llvm")["main"](*map(tvm.runtime.tensor, arrays), *results)
    for got, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)
