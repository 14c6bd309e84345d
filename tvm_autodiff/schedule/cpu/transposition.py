"""Schedules elementwise kernels that read along another axis than they write: transposes, packed
operands.

Some read is contiguous along an axis that is not the last one. The function goes through square
tiles: each is read in whole vectors along the axis of the read, transposed in registers, and
written in whole vectors along the last axis. Each cache line is thus touched once per tile, however
far apart the rows are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...codegen.loop_nest import (
    VECTORIZED,
    Local,
    Places,
    Statement,
    allocated,
    bind,
    branch,
    counter,
    element,
    function,
    loop,
    sequence,
)
from ...codegen.stages.primfunc import StageFunction
from ...codegen.vectors import widened_read
from ...expr.build import add, all_of, compare, const, variable
from ...expr.nodes import (
    Expr,
    Var,
    binary,
    dtype_of,
    node_id,
)
from ...expr.rewrite import replace_outermost, substitute
from ...graph.free_variables import free_variables
from ...graph.stage import Extent, Operation, axis_range
from ..cost import MIN_LANES
from ..declined import Declined
from ..kernel import Kernel, unknown_size
from ..machine import Machine
from .loops.crossed import crossed
from .loops.elements import Elements
from .loops.parallel import shared_loops, threads_of
from .loops.squares import turned
from .loops.strip_mining import strip_start


def transposition(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a kernel that transposes."""
    found = crossed(kernel, machine)
    if isinstance(found, Declined):
        return found
    op, elements, side = kernel.root, found.elements, found.side
    tensors = [*elements.reads(), *kernel.outputs]
    if (unknown := unknown_size(free_variables(op), tensors)) is not None:
        return unknown
    places, buffers = Places.of(tensors)
    extents = [axis_range(op.axis[place])[1] for place in (found.across, -1)]
    symbolic = [extent for extent in extents if not isinstance(extent, int)]
    threads = threads_of(kernel, machine)
    body: Statement | None = None
    # the narrowest tiles are single elements
    for width in (1, MIN_LANES, side) if symbolic else (side,):
        tile = _Tile(elements, kernel, found.across, found.reads, width, places)
        loops = _loops(op, tile, threads)
        fits = all_of(compare("ge", extent, const(width, dtype_of(extent))) for extent in symbolic)
        body = loops if body is None else branch(fits, loops, body)
    assert body is not None
    # tiles that overlap write some elements twice
    once = all(isinstance(extent, int) and extent % side == 0 for extent in extents)
    func = function(buffers, body, once)
    return [StageFunction(func, tuple(elements.reads()), tuple(kernel.outputs))]


@dataclass(frozen=True)
class _Tile:
    """The work of one tile: `side` rows along the last axis and as many columns across."""

    elements: Elements
    kernel: Kernel
    across: int
    reads: Sequence[Expr]
    side: int
    places: Places

    def statement(self, row: Var, column: Var) -> Statement:
        """The tile starting at `row` of the axis across and at `column` of the last one."""
        buffers: list[Local] = []
        before: list[Statement] = []
        if self.side == 1:
            return self._element(row, column)
        turned = [self._turned(read, row, column, buffers, before) for read in self.reads]
        variables = [axis.var for axis in self.elements.axes]
        body = []
        for number in range(self.side):
            lane = variable("lane", dtype_of(column))
            here = {
                variables[self.across]: add(row, const(number, dtype_of(row))),
                variables[-1]: add(column, lane),
            }
            inside: list[Statement] = []
            names: dict[int, Expr] = {}
            for read, vectors in zip(self.reads, turned, strict=True):
                names[node_id(read)] = element(vectors[number], [lane])
            indices = [here.get(var, var) for var in variables]
            for value, tensor in zip(self.elements.values, self.kernel.outputs, strict=True):
                scalar = substitute(replace_outermost(value, names), here)
                scalar = self.places.read(scalar)
                inside.append(self.places.write(tensor, scalar, indices))
            body.append(loop(lane, self.side, sequence(inside), VECTORIZED))
        return allocated(buffers, sequence([*before, *body]))

    def _element(self, row: Var, column: Var) -> Statement:
        """A single element."""
        variables = [axis.var for axis in self.elements.axes]
        here: dict[Var, Expr] = {variables[self.across]: row, variables[-1]: column}
        indices = [here.get(var, var) for var in variables]
        return sequence(
            [
                self.places.write(tensor, self.places.read(substitute(value, here)), indices)
                for value, tensor in zip(self.elements.values, self.kernel.outputs, strict=True)
            ]
        )

    def _turned(
        self,
        read: Expr,
        row: Var,
        column: Var,
        buffers: list[Local],
        statements: list[Statement],
    ) -> list[Local]:
        """The tile of a read, as vectors along the last axis."""
        variables = [axis.var for axis in self.elements.axes]
        vectors: list[Expr] = []
        for number in range(self.side):
            at = add(column, const(number, dtype_of(column)))
            here = substitute(read, {variables[self.across]: row, variables[-1]: at})
            vectors.append(widened_read(self.places.read(here), self.side))
        statements += turned(vectors, buffers, dtype_of(read))[0]
        return buffers[-self.side :]


def _loops(op: Operation, tile: _Tile, threads: int) -> Statement:
    """The loops over tiles; the last tile of an axis overlaps the one before."""
    side = tile.side
    extents = [axis_range(axis)[1] for axis in op.axis]
    begin: list[Statement] = []
    blocks: list[tuple[Var, Extent]] = []
    places: list[Var] = []
    for place in (-1, tile.across):
        extent = extents[place]
        var, block = (counter(f"{op.axis[place].var.name}{end}", extent) for end in ("", "_tile"))
        width = const(side, dtype_of(block))
        size = const(extent, dtype_of(block)) if isinstance(extent, int) else extent
        begin.append(bind(var, strip_start(block, side, extent)))
        count = binary("floordiv", add(size, const(side - 1, dtype_of(block))), width)
        blocks.append((block, -(-extent // side) if isinstance(extent, int) else count))
        places.append(var)
    outer = [
        (axis.var, extents[place])
        for place, axis in enumerate(op.axis[:-1])
        if place != tile.across
    ]
    column, row = places
    body = sequence([*begin, tile.statement(row, column)])
    return shared_loops([*outer, *blocks], body, threads)
