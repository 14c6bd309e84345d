"""Combines what the threads of a block have reduced, as a tree, for any reducer.

The lanes of a warp exchange values by shuffles, and warps in shared memory; threads that are not
neighbours exchange them in shared memory in halves. A place of shared memory is written once and
read once, so that one barrier a step is enough.

    ``for half in 64, 32, .. 1: if x < half: value[x] = value[x] ⊕ value[x + half]``
"""

from __future__ import annotations

from collections.abc import Sequence

from ....codegen.loop_nest import (
    Local,
    Places,
    Statement,
    allocated,
    element,
    local,
    sequence,
    store,
    when,
)
from ....codegen.thread_loops import REGISTERS, SHARED, WARP, barrier, buffer_in, value_of_lane
from ....expr.build import add, all_of, compare, const
from ....expr.dtypes import bits_of
from ....expr.nodes import Expr, binary, dtype_of
from ....graph.stage import Combiner
from ...statement_loops import accumulated


def shared_places(dtypes: Sequence[str], count: int, in_warps: bool) -> int:
    """The places of shared memory that `count` threads need to combine values of some dtypes."""
    if in_warps and _shuffled(dtypes):
        count //= WARP
    return count if count > 1 else 0


def _shuffled(dtypes: Sequence[str]) -> bool:
    return all(bits_of(dtype) in (16, 32, 64) for dtype in dtypes)


def combined_by_threads(
    combiner: Combiner,
    values: Sequence[Local],
    thread: tuple[Expr, int],
    beside: tuple[Expr, int],
    in_warps: bool,
    again: bool,
) -> tuple[list[Local], Statement]:
    """Shared buffers, and statements after which thread 0 has the combination of all.

    Parameters
    ----------
    values : sequence of Local
        A register for each component of the reducer.
    thread, beside : (Expr, int)
        The position among the threads that combine, of which there is a power of two, and the
        position of other threads of the block that do the same, with their numbers.
    in_warps : bool
        Whether neighbouring positions are neighbouring lanes of a warp.
    again : bool
        Whether the block has combined values in the same shared memory before.
    """
    (place, count), (other, others) = thread, beside
    fresh = [local("other", [], _dtype(value), REGISTERS) for value in values]
    known = [element(register, []) for register in fresh]
    add_known = accumulated(combiner, values, known, Places(), REGISTERS)

    def by_shuffles(lanes: int) -> list[Statement]:
        steps: list[Statement] = []
        while lanes > 1:
            lanes //= 2
            received = [value_of_lane(element(value, []), lanes) for value in values]
            steps += [*_stored(fresh, received, []), add_known]
        return steps

    dtypes = list(map(_dtype, values))
    places = shared_places(dtypes, count, in_warps)
    shared = [
        buffer_in(SHARED, f"shared_{n}", [places, others], dtype)
        for n, dtype in enumerate(dtypes if places else ())
    ]
    own = [element(value, []) for value in values]
    first: list[Statement] = [barrier()] if again else []
    if in_warps and _shuffled(dtypes):
        if not shared:
            return shared, allocated(fresh, sequence(by_shuffles(count)))
        width = const(WARP, "int32")
        warp, lane = binary("floordiv", place, width), binary("floormod", place, width)
        leads = compare("eq", lane, const(0, "int32"))
        taken = _stored(values, [element(buffer, [place, other]) for buffer in shared], [])
        steps = [
            *by_shuffles(WARP),
            *first,
            when(leads, sequence(_stored(shared, own, [warp, other]))),
            barrier(),
            when(compare("lt", place, const(places, "int32")), sequence(taken)),
            *by_shuffles(places),
        ]
        return shared, allocated(fresh, sequence(steps))
    steps = first if shared else []
    while count > 1:
        count //= 2
        half = const(count, "int32")
        above = [compare("ge", place, half), compare("lt", place, const(2 * count, "int32"))]
        theirs = [element(buffer, [add(place, half), other]) for buffer in shared]
        steps += [
            when(all_of(above), sequence(_stored(shared, own, [place, other]))),
            barrier(),
            when(compare("lt", place, half), sequence([*_stored(fresh, theirs, []), add_known])),
        ]
    return shared, allocated(fresh, sequence(steps))


def _dtype(value: Local) -> str:
    return dtype_of(element(value, [const(0, "int32")] * len(value.shape)))


def _stored(
    buffers: Sequence[Local], values: Sequence[Expr], indices: Sequence[Expr]
) -> list[Statement]:
    return [store(a, value, indices) for a, value in zip(buffers, values, strict=True)]
