"""Schedules reductions that reuse operands: matrix products, convolutions and their gradients,
pairwise distances.

A block of threads computes a tile of the output from tiles of all operands in shared memory, and
each thread a small tile in registers. Small outputs with long reductions use two functions. Guards
are evaluated where a tile is fetched, never in the inner loop.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ...codegen.stages.primfunc import StageFunction
from ...expr.nodes import always
from ...graph.stage import axis_range
from ..declined import Declined, no_gain
from ..kernel import Kernel
from ..machine import Machine
from ..nest.reductions.elementwise_body import reduced_body
from ..rule import Made, Rest, over_split_axes, writes_to
from .blocks.block_tile import BlockTile, best_tile, plain_cycles, tile_cycles
from .blocks.matrices import Matrices, matrices_of
from .blocks.parts import split_for_device
from .blocks.threads import BLOCK, LONG_ROW, WARP
from .blocks.tile_loops import tile_loops


def contraction(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a kernel that reduces a body with reuse."""
    return over_split_axes(_contraction, kernel, machine)


def _contraction(kernel: Kernel, machine: Machine) -> Made | Declined:
    matrices = _matrices(kernel)
    if isinstance(matrices, Declined):
        return matrices
    _, rows, columns, _ = matrices.sizes
    if min(rows, columns) < 2 or prod(matrices.sizes) < 8 * LONG_ROW:
        return no_gain("it is too small or too narrow for a tile")
    tile = best_tile(matrices, machine)
    certain = min(rows, columns) >= BLOCK // WARP
    if not certain and tile_cycles(tile, matrices, machine) >= plain_cycles(matrices, machine):
        return no_gain("its best tile is estimated slower than plain loops")
    split = split_for_device(kernel, matrices.reduced, _parts(matrices, tile, machine))
    if split is None:
        return [tile_loops(kernel, matrices, tile, machine)]
    partial, combined = split
    first = _part(partial, replace(tile, parts=1), machine)
    if first is None:  # a guard that ties a part to an output is in the way
        whole = best_tile(matrices, machine, whole=True)
        return [tile_loops(kernel, matrices, whole, machine)]
    return [*writes_to([first], partial), *writes_to([Rest(combined)], kernel)]


def _parts(matrices: Matrices, tile: BlockTile, machine: Machine) -> int:
    """The number of parts of the reduction; one of symbolic length may be long, and its parts
    occupy the multiprocessors that the tiles alone do not.
    """
    if all(isinstance(axis_range(axis)[1], int) for axis in matrices.reduced):
        return tile.parts
    return max(tile.parts, machine.multiprocessors // tile.count(matrices.sizes))


def _matrices(kernel: Kernel) -> Matrices | Declined:
    found = reduced_body(kernel.root)
    if isinstance(found, Declined):
        return found
    if not always(found.reduction.condition) or found.reduction.init:
        return Declined("it has a condition or initial values of its own")
    matrices = matrices_of(found)
    return matrices or Declined("its operands are not those of rows and of columns")


def _part(kernel: Kernel, tile: BlockTile, machine: Machine) -> StageFunction | None:
    matrices = _matrices(kernel)
    return None if isinstance(matrices, Declined) else tile_loops(kernel, matrices, tile, machine)
