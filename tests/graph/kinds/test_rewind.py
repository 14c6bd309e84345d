"""Loops that keep some states and loops back over them: values, and the steps that they take."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests import evaluate_scalars, evaluate_statements
from tests.evaluate import evaluate_graph, key_of
from tvm_autodiff.graph.kinds.binomial import extra_steps
from tvm_autodiff.graph.kinds.kind import kind_of
from tvm_autodiff.graph.kinds.loop import Loop, step_of
from tvm_autodiff.graph.kinds.rewind import KeptLoop, Rewind, kept_stage, rewind_stage

D = "float64"


def program(length, slots, reverse=False):
    """``s ← sin(s·w) + x[t]``, with the number of the step as a second carry; the loop back reads
    the states and gives them. One stage of the step alone is of type int16.
    """

    def ahead():
        s, n = te.placeholder((2,), D, name="s"), te.placeholder((), "int32", name="n")
        x, w = te.placeholder((), D, name="x"), te.placeholder((2,), D, name="w")
        mark = te.compute((), lambda: n().astype("int16"), name="mark")
        new = te.compute((2,), lambda i: te.sin(s[i] * w[i]) + x(), name="new")
        following = te.compute((), lambda: mark().astype("int32") + 1, name="following")
        return [s, n], [x], [w], [new, following]

    s0, xs = te.placeholder((2,), D, name="s0"), te.placeholder((length,), D, name="xs")
    n0, w0 = te.placeholder((), "int32", name="n0"), te.placeholder((2,), D, name="w0")
    last = te.placeholder((2,), D, name="last")
    carries, x, w, news = ahead()
    given = te.compute((2,), lambda i: news[0][i] * 1.0, name="given")
    inputs = ((s0, n0), (xs,), (w0,), length, reverse)
    forward = kept_stage(
        "f", KeptLoop(Loop(step_of(carries, x, w, news, [given]), *inputs), slots, (0, 1))
    )
    arriving, state = (
        te.placeholder((2,), D, name="arriving"),
        te.placeholder((2,), D, name="state"),
    )
    count, weight = (
        te.placeholder((), "int32", name="count"),
        te.placeholder((2,), D, name="weight"),
    )
    leaving = te.compute(
        (2,), lambda i: arriving[i] * te.cos(state[i] * weight[i]) * weight[i], "leaving"
    )
    seen = te.compute((2,), lambda i: state[i] + count().astype(D), name="seen")
    step = step_of([arriving], [state, count], [weight], [leaving], [seen])
    back = Loop(step, (last,), (), (w0,), length, not reverse)
    carries, x, w, news = ahead()
    rewind = Rewind(
        Loop(step_of(carries, x, w, news, []), *inputs), back, tuple(forward[3:]), slots
    )
    return [s0, n0, xs, w0, last], forward, rewind_stage("b", rewind)


def by_hand(values, reverse):
    s, n, xs, w, last = values
    states = []
    for x in xs[::-1] if reverse else xs:
        states.append(s + n)
        s, n = np.sin(s * w) + x, n + 1
    final, cotangent = s, last
    for number, state in reversed(list(enumerate(states))):
        cotangent = cotangent * np.cos((state - values[1] - number) * w) * w
    seen = np.array(states[::-1] if reverse else states).reshape(len(xs), 2)
    return final, cotangent, seen


def drawn(inputs):
    rng = np.random.default_rng(0)
    values = [rng.standard_normal([int(n) for n in t.shape]) for t in inputs]
    values[1] = np.asarray(0, "int32")
    return values


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("length", "slots"), [(0, 1), (1, 1), (1, 3), (2, 1), (2, 2), (7, 1), (9, 2), (11, 3), (12, 20)]
)
def test_the_loop_nests_compute_all_states_in_the_fewest_steps(
    length: int, slots: int, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, forward, backward = program(length, slots, reverse)
    values = drawn(inputs)
    marks = []

    def store(node):
        run = evaluate_scalars._store(node)
        marked = [1] if str(node.buffer.ty.dtype) == "int16" else []
        return lambda frame: (marks.extend(marked), run(frame))

    monkeypatch.setitem(evaluate_scalars._STATEMENTS, tirx.BufferStore, store)
    known = {key_of(tensor): array for tensor, array in zip(inputs, values, strict=True)}
    counts = []
    for op in (forward[0].op, backward[0].op):
        shapes = [tuple(int(n) for n in op.output(k).shape) for k in range(op.num_outputs)]
        found = evaluate_statements.run_extern(op, shapes, {}, known)
        known |= {key_of(op.output(n)): array for n, array in enumerate(found)}
        counts.append(len(marks))
        marks.clear()
    final, cotangent, seen = by_hand(values, reverse)
    np.testing.assert_allclose(known[key_of(forward[0])], final)
    np.testing.assert_allclose(known[key_of(backward[0])], cotangent)
    np.testing.assert_allclose(known[key_of(backward[1])], seen)
    assert counts == [length, extra_steps(length, slots)]


@pytest.mark.parametrize("calls", [True, False])
def test_built(calls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one function, and as one that calls kernels by address."""
    from tvm_autodiff.schedule.cpu.recurrences import small_loop

    if calls:
        monkeypatch.setattr(small_loop, "KERNEL_CALL", 0)
    for length, slots, reverse in ((1, 1, False), (23, 4, True)):
        inputs, forward, backward = program(length, slots, reverse)
        values = drawn(inputs)
        built = ad.build(inputs, [forward[0], *backward[:2]], cache=False)
        rules = [launch.rule for launch in built.profile(*values, repeats=1).kernels]
        assert ("small_loop" in rules) != calls
        for one, other in zip(built(*values), by_hand(values, reverse), strict=True):
            np.testing.assert_allclose(one, other)


def test_values_are_those_of_all_states() -> None:
    inputs, forward, backward = program(5, 2)
    values = drawn(inputs)
    found = evaluate_graph([forward[0], *backward[:2]], list(zip(inputs, values, strict=True)))
    for one, other in zip(found, by_hand(values, False), strict=True):
        np.testing.assert_allclose(one, other)


def test_text() -> None:
    _, forward, backward = program(5, 2)
    text = ad.show([*forward, *backward])
    assert "loop_{t<5, 2 states kept} s = s0, n = n0, x = xs[t], w = w0" in text
    assert "loop_{t<5 from last, 2 slots} arriving = last, state = s0 before t" in text
    assert "states by loop_{t<5} s = s0" in text


def test_cost_counts_the_steps_that_are_computed_again() -> None:
    def iterations(slots):
        return ad.estimate_cost(program(12, slots)[2][:1]).iterations

    forward = 12 * 6  # three stages of 2, 1 and 1 points, and 2 of what is stacked
    back = 12 * 4
    assert iterations(12) == forward + back
    assert iterations(3) == forward + back + extra_steps(12, 3) * 4


def test_the_kind_is_over_the_present_inputs() -> None:
    _, forward, backward = program(5, 2)
    kept, rewind = kind_of(forward[0].op), kind_of(backward[0].op)
    assert isinstance(kept, KeptLoop)
    assert isinstance(rewind, Rewind)
    assert kept.loop.inputs[0].op == rewind.ahead.inputs[0].op
    assert [tensor.op for tensor in rewind.kept] == [forward[0].op] * 2
