"""The loops over panels of vectors and blocks of rows, shared by the threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ....codegen.loop_nest import (
    Buffer,
    Statement,
    bind,
    counter,
    loop,
    nested,
    parameter,
    sequence,
)
from ....codegen.passes.row_blocks import Position, RowBlock, RowBlocks
from ....codegen.stages.primfunc import StageFunction
from ....expr.build import add, const, mul, variable
from ....expr.nodes import Expr, Tensor, Var, dtype_of, tensor_key
from ....graph.stage import (
    axis_range,
)
from ...kernel import Kernel
from ...machine import Machine
from ...rule import Rest
from ..loops.parallel import shared_loops, tasks
from .nests import Nest
from .symbolic_rows import (
    BlockAxis,
    BlockKernel,
    parameters_of,
    rows_of,
)
from .tiling import Tile


@dataclass(frozen=True)
class Panels:
    """What panels are made of.

    Attributes
    ----------
    kernel : Kernel
    axes : tuple of BlockAxis
        The rows of a block, if there are any, and the panel.
    tile : Tile
        The tile of a block, whose vectors are a panel.
    machine : Machine
    parallel : bool
    """

    kernel: Kernel
    axes: tuple[BlockAxis, ...]
    tile: Tile
    machine: Machine
    parallel: bool

    @property
    def panel(self) -> BlockAxis:
        """The axis of the vectors."""
        return self.axes[-1]

    @property
    def rows(self) -> BlockAxis | None:
        """The axis of the rows."""
        return self.axes[0] if len(self.axes) > 1 else None

    @property
    def extent(self) -> Expr:
        """The extent of the vectorised axis."""
        return axis_range(self.kernel.root.axis[self.panel.number])[1]


@dataclass(frozen=True)
class Run:
    """Pieces of the axis of one width: ``start + number*width``, for each number below `count`.

    Attributes
    ----------
    width : int
    start, count : Expr
    partial : bool
        Whether the last piece may end outside of the axis.
    """

    width: int
    start: Expr
    count: Expr
    partial: bool

    def at(self, number: Expr) -> Expr:
        """Where a piece begins."""
        return add(self.start, mul(number, const(self.width, dtype_of(number))))


@dataclass(frozen=True)
class Code:
    """The function of a piece, the copies that it reads, and the tensors of all pieces.

    Attributes
    ----------
    block : BlockKernel
    launch : StageFunction
    copies : list of Rest or StageFunction
    whole : dict
        For the key of a copied operand of one piece, or of all, the copies of all pieces.
    pieces : set
        The keys of those that have a copy for each piece.
    nest : Nest
    """

    block: BlockKernel
    launch: StageFunction
    copies: list[Rest | StageFunction]
    whole: dict[tuple[int, int], Tensor]
    pieces: set[tuple[int, int]]
    nest: Nest


@dataclass(frozen=True)
class _Part:
    """A piece within its loops, the number of the piece, and how many there are."""

    number: Var
    count: Expr
    loops: tuple[tuple[Var, int], ...]
    body: Statement
    code: RowBlocks


class Loops:
    """The parameters and the loops of all pieces."""

    def __init__(self, panels: Panels) -> None:
        self._panels = panels
        self.inputs: dict[tuple[int, int], Tensor] = {}
        self._buffers: dict[tuple[int, int], Buffer] = {}
        [result] = panels.kernel.outputs
        self._result = parameter(result, "result")

    @property
    def buffers(self) -> dict[tuple[int, int], Buffer]:
        """The parameters, the result last."""
        [result] = self._panels.kernel.outputs
        return {**self._buffers, tensor_key(result): self._result}

    def piece(self, run: Run, code: Code) -> _Part | None:
        """The statement of a piece; None if its loops over rows are not unrolled."""
        panels = self._panels
        number = counter("piece", run.count)
        inputs, _, dims = parameters_of(code.launch, code.block, panels.kernel)
        tensors = [code.whole.get(tensor_key(tensor), tensor) for tensor in inputs]
        pieces: dict[int, Expr] = {
            n: number for n, tensor in enumerate(inputs) if tensor_key(tensor) in code.pieces
        }
        buffers = [*map(self._buffer, tensors), self._result]
        rows, column = panels.rows, panels.panel.number
        start = variable("column", dtype_of(run.start))
        end = (column, panels.extent) if run.partial else None
        made = RowBlocks(code.launch.func, dims, None if rows is None else (rows.number, rows.size))

        def at(count: int, row: Expr | None) -> RowBlock | None:
            starts = {column: start}
            if rows is not None and row is not None:
                starts[rows.number] = row
            return made.block(count, Position(starts, pieces, end), buffers)

        if rows is None:
            found = at(0, None)
            if found is None:
                return None
            loops, body = found.loops, found.body
        else:
            everything = rows_of(at, rows.size, code.block.extents[rows.number])
            if everything is None:
                return None
            loops, body = everything.full.loops, everything.serial()
        inside = sequence([bind(start, run.at(number)), body])
        return _Part(number, run.count, loops, inside, made)

    def _buffer(self, tensor: Tensor) -> Buffer:
        key = tensor_key(tensor)
        if key not in self._buffers:
            self._buffers[key] = parameter(tensor, f"p{len(self._buffers)}")
            self.inputs[key] = tensor
        return self._buffers[key]

    def together(self, parts: Sequence[_Part], nest: Nest) -> Statement:
        """All pieces, shared by the threads.

        An operand of panels is read again by loops that it does not depend on. These run inside of
        a panel, so panels and loops are tasks; other loops are outside of all panels.
        """
        first = parts[0]
        threads = self._panels.machine.threads if self._panels.parallel else 1
        if threads > 1 and prod(extent for _, extent in first.loops) < threads:
            return sequence([_tasks(part) for part in parts])
        extents = [[extent for _, extent in part.loops] for part in parts]
        if self._reused(nest) or any(one != extents[0] for one in extents):
            if threads > 1:
                return sequence([_tasks(part) for part in parts])
            return sequence([_in_order(part) for part in parts])
        inside = []
        for part in parts:
            same = [bind(a, b) for (a, _), (b, _) in zip(part.loops, first.loops, strict=True)]
            body = part.code.with_buffers(loop(part.number, part.count, part.body))
            inside.append(body if part is first else sequence([*same, body]))
        return shared_loops(first.loops, sequence(inside), threads)

    def _reused(self, nest: Nest) -> bool:
        """Whether an operand of panels is the same for several tiles of other axes."""
        along = nest.spatial[self._panels.panel.number]
        factors = self._panels.tile.factors
        rows = self._panels.rows
        others = [
            key
            for axis, key in enumerate(nest.spatial)
            if key != along
            and (rows is None or axis != rows.number)
            and nest.extents.get(key, 0) != factors.get(axis, 1)
        ]
        return any(
            key not in operand.variables()
            for operand in nest.body.operands
            if along in operand.variables()
            for key in others
        )


def _in_order(part: _Part) -> Statement:
    """``for piece: for loops: body``."""
    body = part.body
    body = nested(part.loops, body)
    return part.code.with_buffers(loop(part.number, part.count, body))


def _tasks(part: _Part) -> Statement:
    """The same as one parallel loop."""
    return tasks([(part.number, part.count), *part.loops], part.code.with_buffers(part.body))
