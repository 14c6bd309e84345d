"""Blocks of a reduction over symbolic sizes: all tiles pass over a part of it that the second cache
holds, and then over the next one. Accumulators are kept in memory in between.

    ``for i, j: y[i, j] = Σ_k f(i, j, k)
    →  for b: for i, j: y[i, j] = y[i, j] + Σ_{k in block b} f(i, j, k)``

Each result is summed up in the same order as without blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ....codegen.loop_nest import Local, Statement, allocated, counter, local, loop
from ....expr.build import add, cast, compare, const, mul, sub
from ....expr.nodes import Axis, Expr, Var, binary, dtype_of, node_id
from ....graph.stage import bounds_of
from ...kernel import size_of
from ...machine import Machine
from .nests import Nest, ranges_of
from .packing import packed_size
from .tile import Part


@dataclass(frozen=True)
class Blocks:
    """The blocks of a reduced axis, of so many places each; the last one may have fewer."""

    axis: Axis
    size: int

    def first(self, nest: Nest) -> Nest:
        """The loops of one block."""
        return replace(nest, extents={**nest.extents, node_id(self.axis.var): self.size})

    def over(
        self,
        tiles: Sequence[tuple[Var, int]],
        sums: Sequence[Local],
        body: Callable[[Part], Statement],
    ) -> Statement:
        """All blocks of the tiles in some loops, with the accumulators `sums` of a tile; `body` is
        these loops for a part of the reduction.
        """
        extent = bounds_of(self.axis)[1]
        dtype = dtype_of(extent)
        size, zero, one = (const(number, dtype) for number in (self.size, 0, 1))
        count = binary("floordiv", add(extent, const(self.size - 1, dtype)), size)
        block = counter("block", count)
        low = mul(block, size)
        number: Expr = const(0, "int32")
        for var, turns in tiles:
            number = add(mul(number, const(turns, "int32")), cast("int32", var))
        every = size_of([turns for _, turns in tiles], 1)
        kept = [
            local(f"kept{n}", [every, one.elements], one.buffer.dtype) for n, one in enumerate(sums)
        ]
        part = Part(
            self.axis.var,
            low,
            binary("min", size, sub(extent, low)),
            compare("eq", block, zero),
            compare("ge", add(low, size), extent),
            tuple(kept),
            number,
        )
        # an empty sum has a block as well, which writes the results
        blocks = binary("max", count, one)
        return allocated(kept, loop(block, blocks, body(part)))


def blocks_of(nest: Nest, machine: Machine) -> Blocks | None:
    """Blocks whose operands stay in the second cache until the last tile has read them, if all of
    the reduction reads more than that; None if the accumulators of all tiles are too many.

    The outermost axis is divided that can be: what a block reads is in few pieces of memory.
    """
    literal = all(key in nest.extents for key in nest.reduced)
    if literal or any(key not in nest.extents for key in nest.spatial):
        return None
    half = machine.cache_bytes // 2
    sums = len(nest.body.reduction.sources)
    if 2 * nest.count(nest.spatial) * nest.itemsize * sums > half:
        return None
    every = _bytes(nest, nest.extents)
    if every <= half:
        return None
    for axis, key in zip(nest.body.reduction.axes, nest.reduced, strict=True):
        step = _bytes(nest, {**nest.extents, key: 1})
        if step <= half:
            return Blocks(axis, half // step)
    return None


def _bytes(nest: Nest, extents: dict[int, int]) -> int:
    """The bytes that all tiles read."""
    ranges = ranges_of(extents)
    sizes = [packed_size(one, ranges, nest.symbolic) for one in nest.body.operands]
    return sum(sizes) * nest.itemsize
