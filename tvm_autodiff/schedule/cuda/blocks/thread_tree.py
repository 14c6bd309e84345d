"""Combines what the threads of a block have reduced, as a tree, for any reducer.

Halves of the threads exchange values in shared memory, and the lanes of a warp by shuffles. A place
of shared memory is written once and read once, so that one barrier a step is enough.

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
from ....expr.nodes import Expr, dtype_of
from ....graph.stage import Combiner
from ...statement_loops import accumulated


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
    place, count = thread
    other, others = beside
    narrow = any(bits_of(dtype) not in (16, 32, 64) for dtype in map(_dtype, values))
    last = 1 if narrow or not in_warps else min(count, WARP)
    shared = [
        buffer_in(SHARED, f"shared_{n}", [count, others], _dtype(value))
        for n, value in enumerate(values if count > last else ())
    ]
    steps: list[Statement] = [barrier()] if shared and again else []
    fresh = [local("other", [], _dtype(value), REGISTERS) for value in values]
    known = [element(register, []) for register in fresh]
    add_known = accumulated(combiner, values, known, Places(), REGISTERS)
    while count > 1:
        count //= 2
        half = const(count, "int32")
        if count < last:
            received = [value_of_lane(element(value, []), count) for value in values]
            steps += [*_stored(fresh, received, []), add_known]
            continue
        above = [compare("ge", place, half), compare("lt", place, const(2 * count, "int32"))]
        own = [element(value, []) for value in values]
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
