"""Register tiles whose vectors run along an output axis of symbolic extent.

The axis is cut into panels of a few vectors. What whole panels leave is computed one vector at a
time over copies of the operands that end with zeros, and only lanes inside of the result are
stored. Another axis of symbolic extent may run in blocks of rows.

    ``y[i, j], j < n  →  y[i, 64*p + c], c < 64, p < n//64;
    then y[i, n - n%64 + 16*v + c], c < min(16, what is left), v < ceil((n%64)/16)``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ....codegen.loop_nest import (
    PARALLEL,
    Buffer,
    Statement,
    bind,
    counter,
    function,
    loop,
    parameter,
    sequence,
)
from ....codegen.passes.row_blocks import Position, RowBlock, RowBlocks
from ....codegen.primfunc import StageFunction
from ....expr.build import add, all_of, compare, const, if_then_else, mul, variable, zero_like
from ....expr.nodes import Expr, Tensor, Var, binary, dtype_of, load, node_id, tensor_key
from ....expr.rewrite import map_loads, replace_outermost
from ....graph.graph import tensors_read_by
from ....graph.stage import (
    Extent,
    axis_range,
    axis_vars,
    bodies,
    data_axis,
    make_stage,
    renew_axis,
    shape_of,
)
from ...kernel import Kernel
from ...machine import Machine
from ...rule import Made, Rest
from ..loops.parallel import shared_loops
from .copies import needs_copy
from .nests import Nest, padded_extents
from .packing import pack
from .symbolic_rows import (
    BlockAxis,
    BlockKernel,
    block_kernel,
    parameters_of,
    rows_of,
)
from .tile_functions import inner_axes, nest_of_kernel, tile_function
from .tiling import Tile

SEVERAL = 8  #: panels of an operand, for the decision to copy it


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
class _Run:
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
class _Code:
    """The function of a piece, the copies that it reads, and the tensors of all pieces.

    Attributes
    ----------
    block : BlockKernel
    launch : StageFunction
    copies : list of StageFunction
    whole : dict
        For the key of a copied operand of one piece, or of all, the copies of all pieces.
    pieces : set
        The keys of those that have a copy for each piece.
    nest : Nest
    """

    block: BlockKernel
    launch: StageFunction
    copies: list[Rest]
    whole: dict[tuple[int, int], Tensor]
    pieces: set[tuple[int, int]]
    nest: Nest


def panel_functions(panels: Panels) -> Made | None:
    """The copies of operands, and the function of all panels; None if a copy follows the rows."""
    extent, width = panels.extent, panels.panel.size
    dtype, lanes = dtype_of(extent), panels.tile.width
    rest = binary("floormod", extent, const(width, dtype))
    vectors = binary("floordiv", add(rest, const(lanes - 1, dtype)), const(lanes, dtype))
    full = binary("floordiv", extent, const(width, dtype))
    runs = (
        _Run(width, const(0, dtype), full, False),
        _Run(lanes, extent - rest, vectors, True),
    )
    copied = _copied(panels)
    if copied is None:
        return None
    shared: dict[int, Tensor] = {}
    codes: list[_Code] = []
    for run in runs:
        code = _code(panels, run, copied, shared)
        if code is None:
            return None
        codes.append(code)
    body = _Body(panels)
    parts = [body.piece(run, code) for run, code in zip(runs, codes, strict=True)]
    if any(part is None for part in parts):
        return None
    statement = body.together([part for part in parts if part is not None], codes[0].nest)
    [result] = panels.kernel.outputs
    func = function([*body.buffers.values()], statement)
    last = replace(
        codes[0].launch, func=func, inputs=tuple(body.inputs.values()), outputs=(result,)
    )
    return [*(launch for code in codes for launch in code.copies), last]


def _copied(panels: Panels) -> list[bool] | None:
    """Which operands are copied, if there are several panels."""
    size = SEVERAL * panels.panel.size
    block = block_kernel(panels.kernel, (*panels.axes[:-1], replace(panels.panel, size=size)))
    one = replace(panels.machine, threads=1)
    nest = None if block is None else nest_of_kernel(block.kernel, one)
    if nest is None:
        return None
    padded = padded_extents(nest, panels.tile)
    return [needs_copy(each, nest, panels.tile, one, padded) for each in nest.body.operands]


def _code(
    panels: Panels, run: _Run, copied: Sequence[bool], shared: dict[int, Tensor]
) -> _Code | None:
    """The code of a piece; copies that are the same for all pieces are `shared`, by operand."""
    tile = replace(panels.tile, vectors=run.width // panels.tile.width)
    axes = (*panels.axes[:-1], replace(panels.panel, size=run.width))
    block = block_kernel(panels.kernel, axes)
    one = replace(panels.machine, threads=1)
    nest = None if block is None else nest_of_kernel(block.kernel, one)
    if block is None or nest is None:
        return None
    padded, inner = padded_extents(nest, tile), inner_axes(nest, tile)
    along = nest.spatial[panels.panel.number]
    reads: list[Expr] = []
    copies: list[Rest] = []
    whole: dict[tuple[int, int], Tensor] = {}
    pieces: set[tuple[int, int]] = set()
    for number, operand in enumerate(nest.body.operands):
        varies = along in operand.variables()
        if not (copied[number] or (varies and run.partial)):
            reads.append(operand.expr)
            continue
        name = f"{panels.kernel.root.name}_{'rest' if run.partial else 'pack'}{number}"
        packed = pack(operand, name, nest.loops(padded), nest.spatial, inner)
        if packed is None:
            return None
        tensor, read = packed
        reads.append(read)
        if not varies and number in shared:
            whole[tensor_key(tensor)] = shared[number]
            continue
        all_pieces = _of_all_pieces(tensor, block, run, panels.panel) if varies else tensor
        if all_pieces is None or any(
            tensor_key(one) in block.whole for one in tensors_read_by(all_pieces.op)
        ):
            return None  # it follows the rows
        if varies:
            pieces.add(tensor_key(tensor))
        else:
            shared[number] = tensor
        whole[tensor_key(tensor)] = all_pieces
        copies.append(Rest(Kernel(all_pieces.op)))
    [launch] = tile_function(block.kernel, nest, tile, one, reads, blocks=True)
    assert isinstance(launch, StageFunction), "a block writes its results itself"
    return None if launch.scalars else _Code(block, launch, copies, whole, pieces, nest)


def _of_all_pieces(
    tensor: Tensor, block: BlockKernel, run: _Run, panel: BlockAxis
) -> Tensor | None:
    """``p[k, c] = block[k, c]  →  all[number, k, c] = x[k, start(number) + c]``, and zero outside
    of x.
    """
    [body] = bodies(tensor.op)
    axes = [renew_axis(axis) for axis in tensor.op.axis]
    table = {node_id(a): b.var for a, b in zip(axis_vars(tensor.op), axes, strict=True)}
    piece = data_axis("piece", run.count, dtype_of(run.count))
    start = run.at(piece.var)
    inside: list[Expr] = []
    follows_rows = False

    def read(one: Tensor, indices: Sequence[Expr]) -> Expr | None:
        nonlocal follows_rows
        if tensor_key(one) not in block.whole:
            return None
        whole, dims = block.whole[tensor_key(one)]
        moved = list(indices)
        for dim, axis in dims.items():
            if axis != panel.number:
                follows_rows = True
                continue
            moved[dim] = add(start, indices[dim])
            if run.partial:
                inside.append(compare("lt", moved[dim], _expr(shape_of(whole)[dim])))
        return load(whole, moved)

    made = map_loads(body, read)
    if follows_rows:
        return None
    if inside:
        made = if_then_else(all_of(inside), made, zero_like(made))
    made = replace_outermost(made, table)
    return make_stage(tensor.op.name, [piece, *axes], [made])[0]


def _expr(extent: Extent) -> Expr:
    return const(extent, "int32") if isinstance(extent, int) else extent


@dataclass(frozen=True)
class _Part:
    """A piece within its loops, the number of the piece, and how many there are."""

    number: Var
    count: Expr
    loops: tuple[tuple[Var, int], ...]
    body: Statement


class _Body:
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

    def piece(self, run: _Run, code: _Code) -> _Part | None:
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
        return _Part(number, run.count, loops, inside)

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
        if self._reused(nest):
            if threads > 1:
                return sequence([_tasks(part) for part in parts])
            return sequence([_in_order(part) for part in parts])
        inside = []
        for part in parts:
            same = [bind(a, b) for (a, _), (b, _) in zip(part.loops, first.loops, strict=True)]
            body = loop(part.number, part.count, part.body)
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
    for var, extent in reversed(part.loops):
        body = loop(var, extent, body)
    return loop(part.number, part.count, body)


def _tasks(part: _Part) -> Statement:
    """The same as one parallel loop."""
    dtype = dtype_of(part.count)
    below = prod(extent for _, extent in part.loops)
    total = mul(part.count, const(below, dtype))
    task = variable("task", dtype)
    values = [bind(part.number, binary("floordiv", task, const(below, dtype)))]
    for var, extent in part.loops:
        below //= extent
        value = binary("floordiv", task, const(below, dtype))
        value = binary("floormod", value, const(extent, dtype))
        values.append(bind(var, value if dtype == dtype_of(var) else value.astype(dtype_of(var))))
    return loop(task, total, sequence([*values, part.body]), PARALLEL)
