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
    parameter,
    sequence,
)
from ...codegen.primfunc import StageFunction
from ...codegen.vectors import widened_read
from ...expr.build import add, const, mul, variable
from ...expr.nodes import (
    BINARY_CLASSES,
    Axis,
    Expr,
    Var,
    binary,
    dtype_of,
    is_load,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import expand_lets, postorder, replace_outermost, substitute, variables_of
from ...graph.stage import Operation, axis_range, bodies, is_compute, reduction_of
from ..declined import NOT_COMPUTED, REDUCES, Declined, no_gain, other_kind
from ..kernel import EXPENSIVE, Kernel, iterations
from ..machine import Machine
from ..nest.access import affine_forms
from .loops.elements import Elements
from .loops.parallel import shared_loops
from .loops.squares import turned

MIN_SIDE = 4  #: of a tile
#: operators that there are for vectors
VECTOR_OPS = EXPENSIVE | {*BINARY_CLASSES, "load", "var", "const", "select", "cast", "sqrt"}


def transposition(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a kernel that transposes."""
    op = kernel.root
    if not is_compute(op):
        return NOT_COMPUTED
    if kernel.epilogue is not None or reduction_of(op) is not None:
        return REDUCES
    elements = Elements(tuple(op.axis), tuple(expand_lets(body) for body in bodies(op)))
    found = _crossed(elements)
    if found is None:
        return other_kind("no read runs through memory along another axis than the write")
    across, reads = found
    rows, columns = _extent(op.axis[across]), _extent(op.axis[-1])
    side = machine.lanes(dtype_of(reads[0]))
    while side > min(rows, columns):
        side //= 2
    if side < MIN_SIDE:
        return no_gain(f"its tiles have fewer than {MIN_SIDE} rows or columns")
    tensors = [*elements.reads(), *kernel.outputs]
    places, buffers = Places(), []
    for number, tensor in enumerate(tensors):
        buffers.append(parameter(tensor, f"p{number}"))
        places.put(tensor, buffers[-1])
    tile = _Tile(elements, kernel, across, reads, side, places)
    threads = machine.threads_for(iterations(op))
    body = _loops(op, across, side, tile, threads)
    # tiles that overlap write some elements twice
    once = rows % side == 0 and columns % side == 0
    func = function(buffers, body, once)
    return [StageFunction(func, tuple(elements.reads()), tuple(kernel.outputs))]


def _extent(axis: Axis) -> int:
    low, extent = axis_range(axis)
    return extent if low == 0 and isinstance(extent, int) else 0


def _crossed(elements: Elements) -> tuple[int, list[Expr]] | None:
    """The axis along which reads are contiguous that are not along the last one, and those reads.

    None if there are none, or if another read is contiguous along neither.
    """
    axes = elements.axes
    if len(axes) < 2 or not all(_extent(axis) for axis in axes):
        return None
    nodes = postorder(list(elements.values))
    variables = [axis.var for axis in axes]
    known = {node_id(var) for var in variables}
    if any(op_name(node) not in VECTOR_OPS for node in nodes):
        return None
    if any(node_id(var) not in known for var in variables_of(elements.values)):
        return None
    last = node_id(variables[-1])
    reads: list[Expr] = []
    candidates: list[int] | None = None
    for node in nodes:
        if not is_load(node) or not operands(node):
            continue
        indices = operands(node)
        forms = affine_forms(list(indices), variables)
        if any(node_id(index) not in forms for index in indices):
            return None
        outer = [forms[node_id(index)] for index in indices[:-1]]
        inner = forms[node_id(indices[-1])]
        if not any(form.coefficient(last) for form in outer):
            if inner.coefficient(last) in (0, 1):
                continue
            return None
        along = [
            place
            for place, var in enumerate(variables[:-1])
            if inner.coefficient(node_id(var)) == 1
            and not any(form.coefficient(node_id(var)) for form in outer)
        ]
        if inner.coefficient(last):
            return None
        candidates = along if candidates is None else [c for c in candidates if c in along]
        reads.append(node)
    if not candidates or len({dtype_of(read) for read in reads}) != 1:
        return None
    return max(candidates, key=lambda place: _extent(axes[place])), reads


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
        counter(op.axis[place].var.name, _extent(op.axis[place])) for place in (across, -1)
    )
    begin: list[Statement] = []
    blocks: list[tuple[Var, int]] = []
    for place, var in ((-1, column), (across, row)):
        extent = _extent(op.axis[place])
        block = counter(f"{var.name}_tile", extent)
        start = mul(block, const(side, dtype_of(block)))
        if extent % side:
            start = binary("min", start, const(extent - side, dtype_of(block)))
        begin.append(bind(var, start))
        blocks.append((block, -(-extent // side)))
    outer = [
        (axis.var, _extent(axis)) for place, axis in enumerate(op.axis[:-1]) if place != across
    ]
    body = sequence([*begin, tile.statement(row, column)])
    return shared_loops([*outer, *blocks], body, threads)
