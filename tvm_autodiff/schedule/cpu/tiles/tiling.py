"""A register tile: the loop nest in which a reduction keeps its results in registers.

The outer loops run in parallel over tiles. Within a tile, the reduction runs outside a small
unrolled and vectorised block of accumulators, which the reading stage then consumes. The rules
choose the factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ....codegen.stages.primfunc import StageFunction, stage_function
from ....expr.nodes import Tensor
from ....graph.stage import Operation
from ...machine import Machine
from ...primitives import extent_of, schedule_of, scheduled
from ..loops.parallel import share_out


@dataclass(frozen=True)
class Tile:
    """Factors of a register tile; axes are numbers of output axes.

    Attributes
    ----------
    vector : int or None
        The vectorised axis, with `width` elements per register and `vectors` registers.
    unrolled : tuple of (axis, factor)
        The other axes of the tile.
    """

    vector: int | None
    width: int = 1
    vectors: int = 1
    unrolled: tuple[tuple[int, int], ...] = ()

    @property
    def unrolled_elements(self) -> int:
        """The number of elements of the tile for each lane of its vectors."""
        return prod(factor for _, factor in self.unrolled)

    @property
    def factors(self) -> dict[int, int]:
        """``axis → extent of the tile along it``."""
        factors = dict(self.unrolled)
        if self.vector is not None:
            factors[self.vector] = self.width * self.vectors
        return factors


def schedule_tile(
    accumulate: Operation,
    consume: Sequence[Operation],
    results: Sequence[Tensor],
    tile: Tile,
    machine: Machine,
    parallel: bool,
    vectorize_consumer: bool,
    order: Sequence[int] | None = None,
) -> StageFunction:
    """Schedule `accumulate`, a reduction over whole tiles, and what reads it.

    Parameters
    ----------
    consume : sequence of Operation
        The stages that read it.
    results : sequence of Tensor
        The tensors of the program that these compute.
    parallel : bool
        Whether tiles run in parallel.
    vectorize_consumer : bool
        Whether the innermost axis of the reading stages is the vectorised one, and the lanes of
        each vector are all inside it or all outside.
    order : sequence of int, optional
        The output axes in the order of the loops over tiles, outermost first.
    """
    unscheduled = stage_function([accumulate, *consume], [op.output(0) for op in consume])
    schedule, blocks = schedule_of(unscheduled)
    block, readers = blocks[0], blocks[1:]
    loops = schedule.get_loops(block)
    spatial, reduced = loops[: len(accumulate.axis)], loops[len(accumulate.axis) :]
    outer_of: list[Any] = list(spatial)
    inner: list[Any] = []
    for axis, factor in tile.unrolled:
        outer_of[axis], in_loop = schedule.split(spatial[axis], [None, factor])
        inner.append(in_loop)
    vector = None
    if tile.vector is not None:
        outer_of[tile.vector], vectors, vector = schedule.split(
            spatial[tile.vector], [None, tile.vectors, tile.width]
        )
        # operands of the outer loop stay in registers during the inner one: the fewer of them
        inner.insert(0 if tile.vectors > tile.unrolled_elements else len(inner), vectors)
    outer = [outer_of[axis] for axis in (order or range(len(spatial)))]
    schedule.reorder(*outer, *reduced, *inner, *([] if vector is None else [vector]))
    for number in range(accumulate.num_outputs):
        schedule.set_scope(block, number, "local")
    for reader in readers if outer else ():
        schedule.reverse_compute_at(reader, outer[-1])
    for loop in inner:
        schedule.unroll(loop)
    if vector is not None:
        schedule.vectorize(vector)
    if parallel and outer:
        share_out(schedule, outer, machine)
    if reduced:
        init = schedule.decompose_reduction(block, reduced[0])
        _register_loops(schedule, init, len(inner), vector is not None)
    for reader in readers if outer else ():
        *rows, last = schedule.get_loops(reader)
        if vectorize_consumer and vector is not None:
            if (extent_of(schedule, last) or 0) > tile.width:
                between, last = schedule.split(last, [None, tile.width])
                rows.append(between)
            schedule.vectorize(last)
        # LLVM keeps the accumulators in registers only where it knows which one is read
        for loop in rows[len(outer) :]:
            schedule.unroll(loop)
    return scheduled(schedule, unscheduled, results)


def _register_loops(schedule: Any, block: Any, unrolled: int, vectorized: bool) -> None:
    loops: Sequence[Any] = schedule.get_loops(block)
    count = unrolled + (1 if vectorized else 0)
    mine = loops[len(loops) - count :] if count else []
    for number, loop in enumerate(mine):
        if vectorized and number == len(mine) - 1:
            schedule.vectorize(loop)
        else:
            schedule.unroll(loop)
