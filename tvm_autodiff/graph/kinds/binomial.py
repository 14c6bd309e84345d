"""Places the kept states of a loop so that as few steps as possible are recomputed.

This is Griewank and Walther's `revolve` (ACM TOMS 26, 2000): `slots` states, including the first
one, and at most `repeats` runs of each step cover ``C(slots + repeats, slots)`` steps.
"""

from __future__ import annotations

from math import comb


def covered(slots: int, repeats: int) -> int:
    """The most steps that can be reversed if each step is computed ahead at most `repeats` times.
    """
    return comb(slots + repeats, slots) if repeats >= 0 else 0


def repeats_of(length: int, slots: int) -> int:
    """The maximum number of times that a step is computed ahead.

    Examples
    --------
    >>> repeats_of(10, 10), repeats_of(1000, 10), repeats_of(1000, 1)
    (1, 4, 999)
    """
    if slots == 1:
        return max(length - 1, 0)
    repeats = 0
    while covered(slots, repeats) < length:
        repeats += 1
    return repeats


def steps_ahead(length: int, slots: int) -> int:
    """The minimum number of steps computed ahead of their reversal, including those of the first
    pass.

    The first pass ends at the state before the last step, because reversing a step computes it as
    well.

    Examples
    --------
    >>> steps_ahead(10, 10), steps_ahead(10, 3), steps_ahead(10, 1)
    (9, 15, 45)
    """
    if length <= 1:
        return 0
    repeats = repeats_of(length, slots)
    return repeats * length - covered(slots + 1, repeats - 1)


def extra_steps(length: int, slots: int) -> int:
    """The steps that are recomputed to reach states, in addition to one pass over all steps."""
    return steps_ahead(length, slots) - max(length - 1, 0)


def first_stop(length: int, slots: int) -> int:
    """The number of steps after which the next state is kept; the remaining steps have one slot
    less.

    Of several optimal positions this is the last.

    Examples
    --------
    >>> first_stop(10, 10), first_stop(10, 3), first_stop(10, 2)
    (1, 4, 6)
    """
    repeats = repeats_of(length, slots)
    most = length - covered(slots - 1, repeats - 1)
    return min(covered(slots, repeats - 1), most)


def slots_for(length: int, repeats: int) -> int:
    """The fewest slots for which no step is computed ahead more than `repeats` times.

    Examples
    --------
    >>> slots_for(1000, 2), slots_for(1, 2)
    (44, 1)
    """
    slots = 1
    while covered(slots, repeats) < length:
        slots += 1
    return slots
