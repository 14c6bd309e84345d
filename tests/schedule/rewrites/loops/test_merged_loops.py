"""Loops of equal steps made one, and results that nobody reads left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.kinds.kind import kind_of
from tvm_autodiff.graph.kinds.loop import Loop, loop_stage, step_of
from tvm_autodiff.graph.kinds.rewind import KeptLoop, kept_stage
from tvm_autodiff.schedule.rewrites.loops.merged_loops import merged_loops
from tvm_autodiff.schedule.rewrites.loops.unread_results import without_unread_results


def loops_of(tensors: Sequence[te.Tensor]) -> list[Loop]:
    kinds = [kind_of(op) for op in topological(tensors)]
    return [kind for kind in kinds if isinstance(kind, Loop)]


INIT, XS = te.placeholder((2,), "float64", "init"), te.placeholder((5, 2), "float64", "xs")
WEIGHT = te.placeholder((2,), "float64", "weight")


def running(
    factor: float, doubled: bool, xs: te.Tensor = XS, reverse: bool = False
) -> list[te.Tensor]:
    """``h → factor*h + x``; what is stacked is the new state, or its double and the old one."""
    h, x = te.placeholder((2,), "float64", "h"), te.placeholder((2,), "float64", "x")
    new = te.compute((2,), lambda i: factor * h[i] + x[i], name="new")
    double = te.compute((2,), lambda i: 2.0 * new[i], name="double")
    step = step_of([h], [x], [], [new], [double, h] if doubled else [new])
    return loop_stage("running", Loop(step, (INIT,), (xs,), (), 5, reverse))


def shifted(tensor: te.Tensor) -> te.Tensor:
    return te.compute((5, 2), lambda t, i: tensor[t, i] + 1.0, name="shifted")


def values(tensors: Sequence[te.Tensor]) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    given = {
        tensor: rng.standard_normal(tuple(map(int, tensor.shape))) for tensor in (INIT, XS, WEIGHT)
    }
    return evaluate_graph(tensors, given)


def check(tensors: list[te.Tensor], rewritten: list[te.Tensor], count: int) -> list[Loop]:
    found = loops_of(rewritten)
    assert len(found) == count
    for got, want in zip(values(rewritten), values(tensors), strict=True):
        np.testing.assert_array_equal(got, want)
    return found


def test_a_loop_that_gives_more_takes_the_place_of_both() -> None:
    tensors = [*running(0.5, False), *running(0.5, True)]
    [loop] = check(tensors, merged_loops(tensors), 1)
    assert len(loop.step.ys) == 3


def test_equal_results_are_stacked_once() -> None:
    again = running(0.5, True)
    tensors = [*running(0.5, False), *again, *running(0.5, False)]
    [loop] = check(tensors, merged_loops(tensors), 1)
    assert len(loop.step.ys) == 3


def test_other_steps_orders_and_data_stay_apart() -> None:
    other = te.compute((5, 2), lambda t, i: XS[4 - t, i], name="turned")
    seconds = [running(0.25, True), running(0.5, True, reverse=True), running(0.5, True, other)]
    for second in seconds:
        tensors = [*running(0.5, False), *second]
        check(tensors, merged_loops(tensors), 2)


def test_loops_over_what_merged_loops_give_are_merged() -> None:
    tensors: list[te.Tensor] = []
    for doubled in (False, True):
        states = running(0.5, doubled)[2 if doubled else 1]
        tensors += running(0.5, doubled, shifted(states))
    # the first reads new states and the second old ones: only the inner loops are one
    check(tensors, merged_loops(tensors), 3)
    twice = [t for flag in (False, True) for t in running(0.5, flag, running(0.5, False)[1])]
    check(twice, merged_loops(twice), 2)


def test_a_loop_that_reads_the_other_stays_behind_it() -> None:
    first = running(0.5, False)
    second = running(0.5, False, first[1])
    tensors = [*first, *second]
    check(tensors, merged_loops(tensors), 2)


def test_unread_results_and_what_they_need_are_left_out() -> None:
    h, g, x = (te.placeholder((2,), "float64", name) for name in ("h", "g", "x"))
    inside = te.placeholder((2,), "float64", "w")
    new = te.compute((2,), lambda i: 0.5 * h[i] + 1.0, name="new")
    other = te.compute((2,), lambda i: g[i] * inside[i] + x[i], name="other")
    step = step_of([h, g], [x], [inside], [new, other], [new, other])
    loop = Loop(step, (INIT, INIT), (XS,), (WEIGHT,), 5)
    stacked = loop_stage("both", loop)
    [kept] = check([stacked[2]], without_unread_results([stacked[2]]), 1)
    counts = [len(part) for part in (kept.init, kept.xs, kept.consts, kept.step.ys)]
    assert counts == [1, 0, 0, 1]


def test_carries_that_others_need_stay() -> None:
    a, b = te.placeholder((2,), "float64", "a"), te.placeholder((2,), "float64", "b")
    new_a = te.compute((2,), lambda i: a[i] + b[i], name="new_a")
    new_b = te.compute((2,), lambda i: 0.5 * b[i], name="new_b")
    loop = Loop(step_of([a, b], [], [], [new_a, new_b], [b]), (INIT, INIT), (), (), 4)
    tensors = loop_stage("pair", loop)[:1]
    [kept] = check(tensors, without_unread_results(tensors), 1)
    assert (len(kept.init), len(kept.step.ys)) == (2, 0)


def test_nothing_changes_where_everything_is_read() -> None:
    tensors = running(0.5, True)
    for rewrite in (merged_loops, without_unread_results):
        same = rewrite(tensors)
        assert all(a.same_as(b) for a, b in zip(same, tensors, strict=True))
    assert replace(loops_of(tensors)[0]).length == 5


def keeping(slots: int, doubled: bool = False) -> list[te.Tensor]:
    """`running` with some of its states."""
    kind = kind_of(running(0.5, doubled)[0].op)
    assert isinstance(kind, Loop)
    return kept_stage("running", KeptLoop(kind, slots, (0,)))


def read(kept: te.Tensor) -> te.Tensor:
    return te.compute((2,), lambda i: kept[0, i], name="read")


def test_a_loop_that_keeps_states_takes_the_place_of_one_that_does_not() -> None:
    for tensors in (
        [*running(0.5, True), read(keeping(2)[2]), keeping(2)[1]],
        [read(keeping(2)[2]), *running(0.5, True)],
    ):
        rewritten = merged_loops(tensors)
        [kept] = [
            kind for kind in map(kind_of, topological(rewritten)) if isinstance(kind, KeptLoop)
        ]
        assert (kept.slots, len(kept.loop.step.ys)) == (2, 3)
        assert not loops_of(rewritten)
        given = values(tensors)
        for place, tensor in enumerate(tensors):
            if tensor.op.name != "read":
                np.testing.assert_array_equal(values(rewritten)[place], given[place])


def test_a_loop_keeps_states_in_one_way() -> None:
    tensors = [read(keeping(2)[2]), read(keeping(3)[2]), running(0.5, False)[1]]
    kinds = [kind_of(op) for op in topological(merged_loops(tensors))]
    assert sorted(kind.slots for kind in kinds if isinstance(kind, KeptLoop)) == [2, 3]
    assert not any(isinstance(kind, Loop) for kind in kinds)


def test_states_that_nobody_reads_are_not_kept() -> None:
    [kind] = loops_of(without_unread_results(keeping(2, True)[:1]))
    assert not kind.step.ys
    outputs = without_unread_results([read(keeping(2, True)[3])])
    [kept] = [kind for kind in map(kind_of, topological(outputs)) if isinstance(kind, KeptLoop)]
    assert kept.carries == (0,)
    assert not kept.loop.step.ys
