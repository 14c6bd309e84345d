"""The loops of a reduction with reuse, as seen by the choice of a register tile.

It has output and reduce axes with their extents, and the operands that a surrounding loop does not
change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from ....expr.costly import is_expensive, is_slow
from ....expr.nodes import (
    Axis,
    Expr,
    Var,
    is_load,
    load_tensor,
    node_id,
    operands,
    tensor_key,
)
from ....expr.rewrite import postorder
from ....graph.stage import axis_range, shape_of
from ...cost import CALL, DIVISION, SYMBOLIC_SIZE
from ...kernel import ONCE, Repetition
from ...machine import Machine
from ...nest.access import Affine, Interval, affine_forms, interval, strides_along
from ...nest.in_range import Loops, loops_of, range_conditions
from ...nest.reductions.elementwise_body import Body, Steps
from ...nest.reductions.products import Operand, Product, operand_stride
from .tile import Tile


@dataclass(frozen=True)
class Nest:
    """The loops of a reduction and the dependences of its operands."""

    body: Product | Body
    steps: Steps  #: what is computed for each point
    spatial: tuple[int, ...]  #: ids of the output axes
    reduced: tuple[int, ...]
    extents: dict[int, int]  #: of the loops with a literal extent
    dtype: str
    itemsize: int
    finishing: float = 0.0  #: the cycles of functions, roots and quotients of each result
    repetition: Repetition = ONCE
    symbolic: int = SYMBOLIC_SIZE  #: what a symbolic extent counts as
    blocks: frozenset[int] = frozenset()  #: symbolic axes of which these are the loops of a block

    @property
    def variables(self) -> list[Var]:
        """All loop variables, output axes first."""
        return [axis.var for axis in self._axes]

    @property
    def iterations(self) -> int:
        """The number of points."""
        return self.count((*self.spatial, *self.reduced))

    def count(self, keys: Iterable[int], extents: Mapping[int, int] | None = None) -> int:
        """The points of some loops, of their own or of other extents; symbolic ones are estimated.
        """
        known = self.extents if extents is None else extents
        return prod(known.get(key, self.symbolic) for key in keys)

    def loops(self, padded: Mapping[int, int]) -> Loops:
        """The loops, in the order of the nest; those of all blocks."""
        known = {key: extent for key, extent in padded.items() if key not in self.blocks}
        return replace(self._loops, ranges=ranges_of(known))

    def reads_inside(self, operand: Operand, padded: Mapping[int, int]) -> bool:
        """Whether all that an operand reads is in its tensor, for other extents of the loops."""
        own = operand.variables()
        known = id(operand), tuple((key, padded[key]) for key in sorted(own & padded.keys()))
        if known not in self._inside:
            self._inside[known] = self._reads_inside(operand, self.loops(padded))
        return self._inside[known]

    def _reads_inside(self, operand: Operand, loops: Loops) -> bool:
        for form, dim in self._indices[id(operand)]:
            bounds = None if form is None else interval(form, loops.ranges)
            if bounds is None:
                return not range_conditions([operand.expr], loops)
            if bounds[0] < 0 or bounds[1] >= dim:
                return False
        return True

    @cached_property
    def _inside(self) -> dict[tuple[int, tuple[tuple[int, int], ...]], bool]:
        """What `reads_inside` has found, by operand and the extents of its loops."""
        return {}

    @cached_property
    def _indices(self) -> dict[int, list[tuple[Affine | None, int]]]:
        """The linear form and the dimension of each index; None for what is not linear, literal, or
        a plain read.
        """
        found: dict[int, list[tuple[Affine | None, int]]] = {}
        for operand in self.body.operands:
            found[id(operand)] = [(None, 0)]
            if operand.is_load:
                indices, shape = operands(operand.expr), shape_of(load_tensor(operand.expr))
                forms = affine_forms(list(indices), self.variables)
                found[id(operand)] = [
                    (forms.get(node_id(index)), dim) if isinstance(dim, int) else (None, 0)
                    for index, dim in zip(indices, shape, strict=True)
                ]
        return found

    def in_blocks(self, sizes: Mapping[int, int]) -> Nest:
        """The loops of a block, which has so many places of some symbolic output axes.

        What no block changes is fixed while all of them are computed.
        """
        times = max(2, self.symbolic // prod(sizes.values()))
        extents = {**self.extents, **sizes}
        repetition = Repetition(times)
        return replace(self, extents=extents, blocks=frozenset(sizes), repetition=repetition)

    def of_all_blocks(self) -> Nest:
        """The loops of so many blocks as a symbolic extent counts for."""
        every = {key: self.extents[key] * self.repetition.times for key in self.blocks}
        return replace(
            self, extents={**self.extents, **every}, blocks=frozenset(), repetition=ONCE
        )

    def is_fixed(self, operand: Operand) -> bool:
        """Whether an operand holds the same values in every step of the loop that this is in."""
        if self.blocks:
            return not operand.variables() & self.blocks
        if not self.repetition.fixed:
            return False
        reads = [load_tensor(node) for node in postorder([operand.expr]) if is_load(node)]
        return all(tensor_key(tensor) in self.repetition.fixed for tensor in reads)

    def stride(self, operand: Operand, key: int) -> int | None:
        """The distance in memory of neighbours along a variable, or None if it is not constant."""
        return self._strides[id(operand), key]

    def furthest(self, operand: Operand, axis: int) -> int | None:
        """The largest distance in memory of neighbours along an output axis in what an operand
        reads; None if one is not constant, and 0 if nothing moves.
        """
        known = id(operand), axis
        if known not in self._furthest:
            last = self.body.axes[axis].var
            strides = strides_along([operand.expr], last, self.variables)
            self._furthest[known] = None if strides is None else max(strides, default=0)
        return self._furthest[known]

    @cached_property
    def _furthest(self) -> dict[tuple[int, int], int | None]:
        return {}

    @cached_property
    def _strides(self) -> dict[tuple[int, int], int | None]:
        return {
            (id(operand), key): operand_stride(operand, key, self.variables)
            for operand in self.body.operands
            for key in (*self.spatial, *self.reduced)
        }

    @cached_property
    def _loops(self) -> Loops:
        return loops_of(self._axes)

    @property
    def _axes(self) -> tuple[Axis, ...]:
        return (*self.body.axes, *self.body.reduction.axes)


def nest_of(
    found: Product | Body,
    dtype: str,
    machine: Machine,
    epilogue: Sequence[Expr] = (),
    repetition: Repetition = ONCE,
) -> Nest | None:
    """The loops of a reduction, or None if there are none or some do not start at zero."""
    if not found.axes or not found.reduction.axes:
        return None
    extents: dict[int, int] = {}
    for axis in (*found.axes, *found.reduction.axes):
        low, extent = axis_range(axis)
        if low != 0:
            return None
        if isinstance(extent, int):
            extents[node_id(axis.var)] = extent
    return Nest(
        found,
        found.steps,
        tuple(node_id(axis.var) for axis in found.axes),
        tuple(node_id(axis.var) for axis in found.reduction.axes),
        extents,
        dtype,
        machine.vector_bytes // machine.lanes(dtype),
        sum(_cycles_of(node) for node in postorder(list(epilogue))),
        repetition,
        machine.symbolic_size,
    )


def _cycles_of(node: Expr) -> float:
    if is_expensive(node):
        return CALL
    return DIVISION if is_slow(node) else 0.0


def padded_extents(nest: Nest, tile: Tile) -> dict[int, int]:
    """Extents with tile axes rounded up to whole tiles."""
    padded = dict(nest.extents)
    for axis, factor in tile.factors.items():
        key = nest.spatial[axis]
        padded[key] = -(-padded[key] // factor) * factor
    return padded


def ranges_of(extents: Mapping[int, int]) -> dict[int, Interval]:
    """Ranges of loops that begin at zero."""
    return {key: (0, extent - 1) for key, extent in extents.items()}
