"""Panels: parts of an operand that all tiles inside of some loops read.

They are copied where these loops begin: no function of its own copies the operand, and no memory
holds all of the copy.

    ``C = pack(B); for p: for i: tile(A[i], C[p])  →  for p: c = pack(B[p]); for i: tile(A[i], c)``
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ...cost import MIN_LANES, enough_tasks
from ...machine import Machine
from ...nest.reductions.products import Operand
from .loop_order import TileOrders
from .nests import Nest, ranges_of
from .packing import packed_size
from .tile import Tile


@dataclass(frozen=True)
class Panels:
    """How the loops over tiles run through the panels of an operand.

    Attributes
    ----------
    order : list of int
        The output axes in the order of their loops, outermost first.
    outer : int
        The leading loops outside of a panel.
    """

    order: list[int]
    outer: int


def panels_of(
    operand: Operand, nest: Nest, tile: Tile, padded: Mapping[int, int], machine: Machine
) -> Panels | None:
    """Loops that copy each panel of an operand once, in the second cache; None if there are none.

    The loops outside of a panel occupy all threads, and those inside read it several times.
    """
    if nest.spatial[tile.vector] not in operand.variables():
        return None  # loops that begin with another operand stream the one of the vectors
    if nest.blocks or any(key not in nest.extents for key in nest.reduced):
        return None
    if nest.repetition.times > 1 and nest.is_fixed(operand):
        return None  # one copy serves all steps
    if not _in_vectors(operand, nest, tile, padded):
        return None
    alone = {atom[0][0] for atom in operand.atoms if len(atom) == 1}
    turns = {
        axis: padded.get(key, nest.symbolic) // tile.factors.get(axis, 1)
        for axis, key in enumerate(nest.spatial)
    }
    outer = [axis for axis, n in turns.items() if n > 1 and nest.spatial[axis] in alone]
    if any(key not in padded for axis, key in enumerate(nest.spatial) if axis not in outer):
        return None  # a panel would have a symbolic size
    panels = prod(turns[axis] for axis in outer)
    size = packed_size(operand, ranges_of(padded), nest.symbolic)
    if 2 * size // panels * nest.itemsize > machine.cache_bytes:
        return None
    if prod(turns.values()) == panels:
        return None  # no other tile reads it again
    if machine.threads > 1 and not enough_tasks(panels, machine.threads):
        return None
    order = TileOrders(nest, tile, padded, machine).with_outermost(outer)
    return None if order is None else Panels(order, len(outer))


def _in_vectors(
    operand: Operand, nest: Nest, tile: Tile, padded: Mapping[int, int]
) -> bool:
    """Whether neighbours in the copy are neighbours in memory; or those along a loop of the
    reduction, for squares without borders, which are transposed in registers.
    """
    distance = nest.furthest(operand, tile.vector)
    if distance is not None and distance <= 1:
        return True
    if operand.guards or not nest.reads_inside(operand, padded):
        return False
    turned = (key for key in nest.reduced if nest.extents[key] >= MIN_LANES)
    return any(nest.stride(operand, key) == 1 for key in turned)
