"""Loops under a plan of checkpoints: a number of states, placed in the best way, or of bytes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.transforms.loops.recurrences import CASES, D, each, times
from tests.transforms.loops.test_segments import everything, recurrence
from tvm_autodiff.graph.kinds.binomial import extra_steps
from tvm_autodiff.graph.loop_plans import loops_back, plan_of
from tvm_autodiff.schedule.cpu.recurrences import small_loop

#: budgets that hold a few states of the tests' recurrences, and all of them
PLANS = (ad.Recursive(1), ad.Recursive(3), "recursive", ad.Budget("1MB"))


def drawn(tensors):
    rng = np.random.default_rng(0)
    return [rng.uniform(-0.5, 0.5, [int(n) for n in t.shape]) for t in tensors]


def assert_same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("length", "plan", "reverse"),
    [
        (0, ad.Recursive(2), False),
        (1, ad.Recursive(1), True),
        (2, "recursive", False),
        (6, ad.Recursive(3), True),
    ],
)
def test_all_derivatives_are_those_of_the_whole_loop(
    length: int, plan: object, reverse: bool
) -> None:
    """Values, gradients, tangents, and the second derivatives of both modes."""
    given, wanted = everything(length, None, reverse)
    values = drawn(given)
    one = evaluate_graph(wanted, list(zip(given, values, strict=True)))
    other, found = everything(length, plan, reverse)
    assert_same(evaluate_graph(found, list(zip(other, values, strict=True))), one)


@pytest.mark.parametrize("name", CASES)
def test_every_recurrence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients, with the plans in turns."""
    case = CASES[name]
    inputs = [te.placeholder(shape, D, name=f"x{n}") for n, shape in enumerate(case.shapes)]
    values = [2 * case.scale * value for value in drawn(inputs)]
    number = list(CASES).index(name)
    scan, results = ad.scan, []
    cotangents = None
    for plan in (None, PLANS[number % len(PLANS)]):
        monkeypatch.setattr(ad, "scan", partial(scan, checkpoint=plan))
        outputs = case.ours(*inputs)
        bars = [te.placeholder(y.shape, D, name="bar") for y in outputs]
        cotangents = cotangents or drawn(bars)
        tensors = [*outputs, *ad.vjp(outputs, inputs, bars)]
        known = list(zip([*inputs, *bars], [*values, *cotangents], strict=True))
        results.append(evaluate_graph(tensors, known))
    assert_same(results[1], results[0])


def long_loop(length, plan, size=4):
    """``s ← s + sin(s·p)``: the gradient of the state and p, and the program's inputs."""
    s0, p = te.placeholder((size,), D, name="s0"), te.placeholder((size,), D, name="p")
    bar = te.placeholder((size,), D, name="bar")

    def move(s, _):
        return each(lambda s, p: s + 0.1 * te.sin(s * p), s, p), None

    last, _ = ad.scan(move, s0, length=length, checkpoint=plan)
    return [s0, p, bar], [last, *ad.vjp(last, [s0, p], bar)]


@pytest.fixture(scope="module")
def whole():
    """The gradient of 10,000 steps, all states stored."""
    inputs, outputs = long_loop(10_000, None)
    values = drawn(inputs)
    return values, ad.build(inputs, outputs, cache=False)(*values)


@pytest.mark.slow
@pytest.mark.parametrize("plan", [ad.Recursive(9), "recursive", "12kB"])
def test_built(plan: object, whole: tuple) -> None:
    """The values of the whole loop, with memory below the budget, and told."""
    values, wanted = whole
    inputs, outputs = long_loop(10_000, plan)
    program = ad.build(inputs, outputs, cache=False)
    assert_same(program(*values), wanted)
    memory = program.memory()
    [told] = memory.loops
    expected = {"recursive": 140}.get(str(plan), getattr(plan, "slots", told.states))
    assert told.states == expected
    assert told.extra_steps == extra_steps(10_000, told.states)
    assert told.state_bytes == 4 * 8
    assert str(told) in str(memory)
    if isinstance(plan, str) and plan.endswith("kB"):
        assert memory.temporaries <= int(plan[:2]) * 1000
        assert told.states > int(plan[:2]) * 1000 // 40 - 250  # what is left is one step's
    else:
        assert memory.temporaries <= (told.states + 8) * 40


@pytest.mark.slow
def test_a_budget_is_not_exceeded_where_steps_are_kernels() -> None:
    """Also with weights that kernels read in another layout, and states that are read in part."""

    def cell(xs, w, u, h0, plan):
        def step(state, x):
            h, total = state
            new = each(lambda a, b: te.tanh(a + b), times(w, h), times(u, x))
            return (new, each(lambda t, n: t + n, total, new)), None

        zero = te.compute(h0.shape, lambda *i: te.const(0, D), name="zero")
        return ad.scan(step, (h0, zero), xs, checkpoint=plan)[0][1]

    shapes = {"xs": (60, 8, 32), "w": (64, 64), "u": (64, 32), "h0": (8, 64)}
    inputs = [te.placeholder(shape, D, name=name) for name, shape in shapes.items()]
    bar = te.placeholder((8, 64), D, name="bar")
    values = drawn([*inputs, bar])
    values[1] *= 0.2  # states stay where they are not chaotic
    results, budget = [], 400_000
    for plan in (None, ad.Budget(budget)):
        y = cell(*inputs, plan)
        gradient = ad.vjp(y, inputs[1:], bar)
        program = ad.build([*inputs, bar], [y, *gradient], cache=False)
        results.append(program(*values))
    assert_same(results[1], results[0])
    memory = program.memory()
    assert memory.temporaries <= budget
    [told] = memory.loops
    assert told.state_bytes == 8 * 64 * 8  # the sum is not kept, since nothing is computed from it
    assert 1 < told.states < 59


@pytest.mark.parametrize("calls", [True, False])
def test_two_loops_back_over_the_same_states(calls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One loop forward serves both, and the first one back leaves its states as they are."""
    if calls:
        monkeypatch.setattr(small_loop, "KERNEL_CALL", 0)

    def step(s, _):
        return each(lambda s: s + te.sin(s), s), s

    s0 = te.placeholder((3,), D, name="s0")
    bars = [te.placeholder((3,), D, name="bar") for _ in range(2)]
    values = drawn([s0, *bars])
    results = []
    for plan in (None, ad.Recursive(4)):
        last, _ = ad.scan(step, s0, length=40, checkpoint=plan)
        gradients = [ad.vjp(last, [s0], bar)[0] for bar in bars]
        program = ad.build([s0, *bars], [last, *gradients], cache=False)
        results.append(program(*values))
    assert_same(results[1], results[0])
    memory = program.memory()
    assert [told.states for told in memory.loops] == [4, 4]
    arrays = [buffer.size for buffer in memory.buffers if buffer.size == 4 * 24]
    assert len(arrays) == 2  # those of the loop forward, and those of one loop back
    kernels = [launch.rule for launch in program.profile(*values, repeats=1).kernels]
    assert kernels.count("loop" if calls else "small_loop") == 3


def test_a_budget_that_holds_everything_stores_everything() -> None:
    temporaries = []
    for plan in (None, "1MB", "12kB"):
        program = ad.build(*long_loop(1000, plan), cache=False)
        temporaries.append(program.memory().temporaries)
        assert len(program.memory().loops) == (plan == "12kB")
    assert temporaries[0] == temporaries[1] > 12_000 >= temporaries[2]


def test_explained() -> None:
    s0, bar = te.placeholder((3,), D, name="s0"), te.placeholder((3,), D, name="bar")

    def twist(s, _):
        return each(te.sin, s), None

    last, _ = ad.scan(twist, s0, length=100, checkpoint=ad.Recursive(5))
    text = ad.differentiate(last, s0, bar).explain()
    assert "backward loop dtwist" in text
    assert "states kept at a time: 5 of 24 bytes each, 120 bytes" in text
    assert f"recomputed steps: {extra_steps(100, 5)} beside 100 backward steps" in text


def test_code_does_not_grow_with_the_length() -> None:
    sizes = [len(ad.show(long_loop(n, ad.Recursive(5))[1])) for n in (1000, 9000)]
    assert sizes[0] == sizes[1]


@pytest.mark.slow
def test_symbolic_length() -> None:
    """In one function, and in one that calls kernels; the kept states lie in one place."""
    length = te.var("n")
    inputs, outputs = recurrence(length, ad.Recursive(3))
    bars = [te.placeholder(t.shape, D, name="bar") for t in outputs]
    gradient = list(ad.vjp(outputs, inputs, bars))
    program = ad.build([*inputs, *bars], [*outputs, *gradient], cache=False)
    for steps in (0, 1, 2, 9):
        given, wanted = everything(steps, None)
        values = drawn(given[:7])
        known = list(zip(given[:7], values, strict=True))
        assert_same(program(*values), evaluate_graph(wanted[:7], known))
    [told] = program.memory(n=50).loops
    assert (told.length, told.extra_steps) == (50, extra_steps(50, 3))
    state = 3 * (3 * 8 + 4)  # of 3 slots: h, and the counter
    steps = 3 * 8  # which states these are
    others = 72 + 48 + 24 + 4 + 4  # two sums that begin at zero, the final carries, a zero
    assert program.memory(n=50).temporaries <= state + steps + others


@pytest.mark.slow
def test_nested() -> None:
    """A loop under a plan in the step of another one, under a plan as well."""

    def outputs(inner, outer, s0, p):
        def small(s, _):
            return each(lambda s, p: s + 0.1 * te.sin(s * p), s, p), None

        def large(s, _):
            new, _ = ad.scan(small, s, length=5, checkpoint=inner)
            return new, new

        return list(ad.scan(large, s0, length=6, checkpoint=outer))

    inputs = [te.placeholder((2,), D, name=name) for name in ("s0", "p")]
    values, results = drawn(inputs), []
    rng = np.random.default_rng(0)
    cotangents = [rng.uniform(-1, 1, shape) for shape in ((2,), (6, 2))]
    plans = [(None, None), (ad.Recursive(2), None), (ad.Recursive(2), ad.Recursive(3))]
    for inner, outer in plans:
        ys = outputs(inner, outer, *inputs)
        bars = [te.placeholder(y.shape, D, name="bar") for y in ys]
        tensors = [*ys, *ad.vjp(ys, inputs, bars)]
        program = ad.build([*inputs, *bars], tensors, cache=False)
        results.append(program(*values, *cotangents))
        told = program.memory().loops
        assert len(told) == (inner is not None) + (outer is not None)
        # no batch of the inner loop over the steps of the outer one
        assert {plan.state_bytes for plan in told} <= {16}
    profile = program.profile(*values, *cotangents, repeats=1)  # which runs kernels alone
    assert profile.kernels
    assert_same(program(*values, *cotangents), results[0])
    for other in results[1:]:
        assert_same(other, results[0])


@pytest.mark.slow
def test_tangents_are_pulled_back() -> None:
    """Reverse over forward mode: the loop over pairs of states and tangents has the plan."""
    s0, p = te.placeholder((3,), D, name="s0"), te.placeholder((3,), D, name="p")
    dots = [te.placeholder((3,), D, name=name) for name in ("ds0", "dp")]
    bar = te.placeholder((3,), D, name="bar")
    values, results = drawn([s0, p, *dots, bar]), []
    for plan in (None, ad.Budget("9kB")):

        def step(s, _):
            return each(lambda s, p: s + te.sin(s * p), s, p), None

        last, _ = ad.scan(step, s0, length=30, checkpoint=plan)
        [pushed] = ad.jvp([last], [s0, p], dots)
        program = ad.build([s0, p, *dots, bar], list(ad.vjp(pushed, [s0, p], bar)), cache=False)
        results.append(program(*values))
    assert_same(results[1], results[0])
    memory = program.memory()
    [told] = memory.loops
    assert told.state_bytes == 2 * 3 * 8
    assert memory.temporaries <= 9000


def test_with_a_checkpoint_in_the_step() -> None:
    def outputs(s0, plan, mark):
        def step(s, _):
            inner = mark(each(lambda s: te.exp(-s), s))
            return each(lambda s, e: s * te.sin(e), s, inner), None

        return ad.scan(step, s0, length=9, checkpoint=plan)[0]

    s0, bar = te.placeholder((2,), D, name="s0"), te.placeholder((2,), D, name="bar")
    values, results = drawn([s0, bar]), []
    for plan, mark in ((None, lambda t: t), (ad.Recursive(2), ad.checkpoint)):
        y = outputs(s0, plan, mark)
        program = ad.build([s0, bar], [y, *ad.vjp(y, [s0], bar)], cache=False)
        results.append(program(*values))
    assert_same(results[1], results[0])


def test_batches_and_jacobians() -> None:
    s0, many = te.placeholder((2,), D, name="s0"), te.placeholder((3, 2), D, name="many")
    bar = te.placeholder((4, 2), D, name="bar")
    values, results = drawn([s0, many, bar]), []
    for plan in (None, ad.Recursive(2)):

        def step(s, _):
            return each(lambda s: s + te.sin(s), s), s

        _, states = ad.scan(step, s0, length=4, checkpoint=plan)
        gradient = ad.vjp(states, [s0], bar)
        tensors = [ad.jacobian(states, s0), *ad.vmap(gradient, {s0: many})]
        results.append(evaluate_graph(tensors, list(zip([s0, many, bar], values, strict=True))))
    assert_same(results[1], results[0])


@pytest.mark.slow
def test_saved_and_in_two_passes(tmp_path: Path) -> None:
    """From a file, and with the loop back in a function of its own."""
    inputs, outputs = long_loop(50, ad.Recursive(4))
    values = drawn(inputs)
    wanted = ad.build(inputs, outputs, cache=False)(*values)
    for _ in range(2):
        program = ad.build(inputs, outputs, cache=tmp_path)
        assert_same(program(*values), wanted)
    program.export(tmp_path / "program.so")
    loaded = ad.load(tmp_path / "program.so")
    assert_same(loaded(*values), wanted)
    assert loaded.memory().loops == program.memory().loops
    forward, backward = ad.build_vjp(inputs[:2], outputs[0], cache=False)
    value, residuals = forward(*values[:2])
    assert_same([value, *backward(residuals, values[2])], wanted)


def test_a_step_that_is_linear_in_its_state_keeps_none() -> None:
    x, s0 = te.placeholder((20,), D, name="x"), te.placeholder((), D, name="s0")
    w, bar = te.placeholder((), D, name="w"), te.placeholder((), D, name="bar")
    values, results = drawn([x, s0, w, bar]), []
    for plan in (None, ad.Recursive(3)):

        def step(s, x):
            return te.compute((), lambda: 0.9 * s() + w() * x(), name="new"), None

        last, _ = ad.scan(step, s0, x, checkpoint=plan)
        program = ad.build([x, s0, w, bar], list(ad.vjp(last, [x, s0, w], bar)), cache=False)
        results.append(program(*values))
    assert_same(results[1], results[0])
    assert not program.memory().loops


def test_as_many_slots_as_leave_one_more_pass() -> None:
    for length in (1, 2, 3, 50, 1000):
        [(op, rewind)] = loops_back(long_loop(length, "recursive")[1])
        told = plan_of(op, rewind)
        assert told.repeats is not None
        assert told.repeats <= 2
        assert told.extra_steps is not None
        assert told.extra_steps < length


def test_a_budget_for_less_than_one_state_names_the_least() -> None:
    with pytest.raises(ad.InvalidArgumentError, match=r"loop move: one state takes 40 bytes"):
        long_loop(100, ad.Budget(41))
    try:
        long_loop(100, ad.Budget(41))
    except ad.InvalidArgumentError as error:
        least = int(str(error).rpartition("at least ")[2].replace(",", ""))
    [(_, rewind)] = loops_back(long_loop(100, ad.Budget(least))[1])
    assert rewind.slots == 1
    with pytest.raises(ad.InvalidArgumentError, match="too small"):
        long_loop(100, ad.Budget(least - 1))


def test_sizes_that_no_plan_follows_from() -> None:
    with pytest.raises(ad.InvalidArgumentError, match=r"symbolic length.*Recursive\(slots=32\)"):
        long_loop(te.var("n"), "recursive")
    with pytest.raises(ad.InvalidArgumentError, match=r"symbolic size.*Recursive\(slots=32\)"):
        long_loop(10, "1MB", te.var("m"))


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "often", "64 apples", (3,)])
def test_what_is_no_plan(wrong: object) -> None:
    with pytest.raises(ad.InvalidArgumentError, match="checkpoint must be None, a number k"):
        long_loop(10, wrong)


def test_what_is_no_number_of_slots_or_bytes() -> None:
    for wrong in (0, True, 2.5):
        with pytest.raises(ad.InvalidArgumentError, match="slots must be a number"):
            ad.Recursive(wrong)
    for wrong in (0, -5, "0B", "five", True, 1.5):
        with pytest.raises(ad.InvalidArgumentError, match="positive number of bytes"):
            ad.Budget(wrong)
    texts = ("64MB", "1.5GiB", "2 kB", "2KB", "3KiB", "10B", "1GB")
    sizes = [ad.Budget(text).size for text in texts]
    assert sizes == [64 * 10**6, 3 * 2**29, 2000, 2000, 3072, 10, 10**9]
