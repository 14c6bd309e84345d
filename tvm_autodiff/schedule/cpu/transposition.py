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
    counter,
    element,
    function,
    loop,
    sequence,
)
from ...codegen.stages.primfunc import StageFunction
from ...codegen.vectors import widened_read
from ...expr.build import add, const, mul, variable
from ...expr.nodes import (
    Expr,
    Var,
    binary,
    dtype_of,
    node_id,
)
from ...expr.rewrite import replace_outermost, substitute
from ...graph.stage import Operation
from ..declined import Declined
from ..kernel import Kernel, constant_extent, iterations
from ..machine import Machine
from .loops.crossed import crossed
from .loops.elements import Elements
from .loops.parallel import shared_loops
from .loops.squares import turned


def transposition(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a kernel that transposes."""
    found = crossed(kernel, machine)
    if isinstance(found, Declined):
        return found
    op, elements, across, side = kernel.root, found.elements, found.across, found.side
    tensors = [*elements.reads(), *kernel.outputs]
    places, buffers = Places.of(tensors)
    tile = _Tile(elements, kernel, across, found.reads, side, places)
    threads = machine.threads_for(iterations(op))
    body = _loops(op, across, side, tile, threads)
    rows, columns = (constant_extent(op.axis[place]) for place in (across, -1))
    # tiles that overlap write some elements twice
    once = rows % side == 0 and columns % side == 0
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


def _loops(op: Operation, across: int, side: int, tile: _Tile, threads: int) -> Statement:
    """The loops over tiles; the last tile of an axis overlaps the one before."""
    row, column = (
        counter(op.axis[place].var.name, constant_extent(op.axis[place])) for place in (across, -1)
    )
    begin: list[Statement] = []
    blocks: list[tuple[Var, int]] = []
    for place, var in ((-1, column), (across, row)):
        extent = constant_extent(op.axis[place])
        block = counter(f"{var.name}_tile", extent)
        start = mul(block, const(side, dtype_of(block)))
        if extent % side:
            start = binary("min", start, const(extent - side, dtype_of(block)))
        begin.append(bind(var, start))
        blocks.append((block, -(-extent // side)))
    others = [axis for place, axis in enumerate(op.axis[:-1]) if place != across]
    outer = [(axis.var, constant_extent(axis)) for axis in others]
    body = sequence([*begin, tile.statement(row, column)])
    return shared_loops([*outer, *blocks], body, threads)
