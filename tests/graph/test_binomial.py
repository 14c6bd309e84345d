"""The plan of checkpoints against dynamic programming over all places of the next state."""

from __future__ import annotations

from functools import cache

import pytest

from tvm_autodiff.graph.kinds.binomial import (
    covered,
    extra_steps,
    first_stop,
    repeats_of,
    slots_for,
    steps_ahead,
)


@cache
def least(length: int, slots: int) -> int:
    """``t(l, c) = min over m of m + t(m, c) + t(l - m, c - 1)``, and without a slot each state from
    the first one.
    """
    if length <= 1:
        return 0
    if slots == 1:
        return length * (length - 1) // 2
    return min(m + least(m, slots) + least(length - m, slots - 1) for m in range(1, length))


def by_stops(length: int, slots: int) -> int:
    """The steps that the stops lead to."""
    if length <= 1:
        return 0
    if slots == 1:
        return length * (length - 1) // 2
    m = first_stop(length, slots)
    assert 1 <= m < length
    return m + by_stops(m, slots) + by_stops(length - m, slots - 1)


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 5, 7, 12, 40, 100])
def test_the_plan_takes_the_fewest_steps(slots: int) -> None:
    for length in range(61):
        assert by_stops(length, slots) == steps_ahead(length, slots) == least(length, slots)


def test_with_a_slot_for_each_step_nothing_is_computed_again() -> None:
    assert [extra_steps(n, n) for n in range(1, 9)] == [0] * 8
    assert extra_steps(0, 3) == 0
    assert [extra_steps(n, n - 1) for n in range(2, 9)] == [0] * 7  # the last state is there
    assert extra_steps(10, 8) == 1


def test_slots_and_repeats() -> None:
    for slots in range(1, 8):
        for repeats in range(1, 6):
            assert repeats_of(covered(slots, repeats), slots) == repeats
            assert repeats_of(covered(slots, repeats) + 1, slots) == repeats + 1
            assert slots_for(covered(slots, repeats), repeats) == slots
            assert slots_for(covered(slots, repeats) + 1, repeats) == slots + 1
