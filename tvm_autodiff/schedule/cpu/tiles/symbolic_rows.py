"""Schedules a reduction over an output axis of symbolic extent in blocks of a constant number of
rows.

A kernel of one block has constant extents, so a register tile fits it. What remains of the axis is
computed in blocks of powers of two, by the same code with fewer unrolled rows.

    ``y[i], i < n  →  y[8*b + r], r < 8, b < n//8;  then 4, 2 and 1 rows, where n has that bit``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ....codegen.loop_nest import (
    PARALLEL,
    Statement,
    bind,
    function,
    loop,
    parameter,
    sequence,
    when,
)
from ....codegen.passes.row_blocks import RowBlock, RowBlocks
from ....codegen.primfunc import StageFunction
from ....expr.build import add, const, mul, variable
from ....expr.nodes import Axis, Expr, Tensor, Var, binary, dtype_of, load, node_id, tensor_key
from ....expr.rewrite import expand_lets, map_loads, postorder, replace_outermost
from ....graph.stage import (
    Extent,
    Operation,
    axis_range,
    bodies,
    data_axis,
    make_stage,
    placeholder,
    reduction_of,
    reduction_stage,
    renew_axis,
    shape_of,
)
from ...kernel import SYMBOLIC_SIZE, Kernel, Repetition
from ...machine import Machine
from ..loops.parallel import shared_loops

SIZES = (4, 6, 8, 12)  #: rows of a block


@dataclass(frozen=True)
class BlockKernel:
    """A kernel that computes a block of rows.

    Attributes
    ----------
    kernel : Kernel
    axis : int
        The number of the output axis.
    size : int
        The rows of a block.
    extent : Expr
        The number of all rows.
    whole : dict
        For the key of each tensor of a block, the tensor of all rows and the dimension.
    """

    kernel: Kernel
    axis: int
    size: int
    extent: Expr
    whole: dict[tuple[int, int], tuple[Tensor, int]]


class _Reads:
    """Replaces reads at a row by reads of a block: ``x[i, k] → block[r, k]``."""

    def __init__(self, extent: Expr, size: int) -> None:
        self._extent, self._size = extent, size
        self._blocks: dict[tuple[tuple[int, int], int], Tensor] = {}
        self.whole: dict[tuple[int, int], tuple[Tensor, int]] = {}
        self.fixed: set[tuple[int, int]] = set()

    def moved(self, body: Expr, var: Var, row: Var) -> Expr | None:
        """The body over a row of a block, or None if it uses the place of the row otherwise."""

        def read(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
            places = [n for n, index in enumerate(indices) if node_id(index) == node_id(var)]
            if not places:
                self.fixed.add(tensor_key(tensor))
                return None
            if len(places) > 1 or not _same(shape_of(tensor)[places[0]], self._extent):
                return None
            block = self._block(tensor, places[0])
            return load(block, [row if n == places[0] else i for n, i in enumerate(indices)])

        new = map_loads(expand_lets(body), read)
        return None if any(node_id(node) == node_id(var) for node in postorder([new])) else new

    def _block(self, tensor: Tensor, dim: int) -> Tensor:
        key = (tensor_key(tensor), dim)
        if key not in self._blocks:
            shape = list(shape_of(tensor))
            shape[dim] = self._size
            block = placeholder(shape, dtype_of(tensor), f"{tensor.op.name}_rows")
            self._blocks[key] = block
            self.whole[tensor_key(block)] = tensor, dim
        return self._blocks[key]


def _same(left: Extent, right: Expr) -> bool:
    return not isinstance(left, int) and node_id(left) == node_id(right)


def block_kernel(kernel: Kernel, number: int, size: int) -> BlockKernel | None:
    """The kernel of `size` rows along an output axis, or None if rows depend on their places."""
    op = kernel.root
    reduction = reduction_of(op)
    low, extent = axis_range(op.axis[number])
    if reduction is None or op.num_outputs != 1 or low != 0 or isinstance(extent, int):
        return None
    reads = _Reads(extent, size)
    axes, table = _axes(op, number, size)
    reduced = [renew_axis(axis) for axis in reduction.axes]
    for old, new in zip(reduction.axes, reduced, strict=True):
        table[node_id(old.var)] = new.var
    source = reads.moved(reduction.sources[0], op.axis[number].var, axes[number].var)
    if source is None:
        return None
    parts = replace(
        reduction, sources=(replace_outermost(source, table),), axes=tuple(reduced)
    )
    made = reduction_stage(op.name, axes, parts)[0]
    epilogue = None
    if kernel.epilogue is not None:
        epilogue = _epilogue(kernel, kernel.epilogue, made, number, reads)
        if epilogue is None:
            return None
    times = max(2, SYMBOLIC_SIZE // size)
    repetition = Repetition(times, frozenset(reads.fixed))
    block = Kernel(made.op, epilogue, repetition)
    return BlockKernel(block, number, size, extent, reads.whole)


def _axes(op: Operation, number: int, size: int) -> tuple[list[Axis], dict[int, Expr]]:
    axes = [renew_axis(axis) for axis in op.axis]
    old = op.axis[number].var
    axes[number] = data_axis(old.name, size, dtype_of(old))
    table = {node_id(a.var): b.var for a, b in zip(op.axis, axes, strict=True)}
    return axes, table


def _epilogue(
    kernel: Kernel, reader: Operation, made: Tensor, number: int, reads: _Reads
) -> Operation | None:
    axes, table = _axes(reader, number, shape_of(made)[number])
    root = tensor_key(kernel.root.output(0))

    def read(tensor: Tensor, _: Sequence[Expr]) -> Expr | None:
        # an epilogue reads its root at its own place only
        return load(made, [axis.var for axis in axes]) if tensor_key(tensor) == root else None

    body = map_loads(expand_lets(bodies(reader)[0]), read)
    moved = reads.moved(body, reader.axis[number].var, axes[number].var)
    reads.fixed.discard(tensor_key(made))
    if moved is None:
        return None
    return make_stage(reader.name, axes, [replace_outermost(moved, table)])[0].op


def over_all_rows(
    launch: StageFunction, block: BlockKernel, whole: Kernel, machine: Machine, parallel: bool
) -> StageFunction | None:
    """The function of all rows from the function of a block, which has serial loops.

    Returns None if its loops over rows are not unrolled.
    """
    inputs = [block.whole.get(tensor_key(t), (t, -1)) for t in launch.inputs]
    first = len(inputs) + len(launch.scalars)
    dims = {n: dim for n, (_, dim) in enumerate(inputs) if dim >= 0} | {first: block.axis}
    [result] = whole.outputs
    params = list(launch.func.params)
    buffers = [parameter(t, p.name) for (t, _), p in zip(inputs, params, strict=False)]
    buffers += [*params[len(inputs) : first], parameter(result, params[first].name)]
    code = RowBlocks(launch.func, dims, block.size)
    threads = machine.threads if parallel else 1
    body = _all_rows(code, block, buffers, threads)
    if body is None:
        return None
    tensors = tuple(tensor for tensor, _ in inputs)
    return replace(launch, func=function(buffers, body), inputs=tensors, outputs=(result,))


def _all_rows(
    code: RowBlocks, block: BlockKernel, buffers: Sequence[object], threads: int
) -> Statement | None:
    size, rows = block.size, block.extent
    dtype = dtype_of(rows)
    number, row = variable("block", dtype), variable("row", dtype)
    full = code.block(size, row, buffers)
    if full is None:
        return None
    rest = binary("floormod", rows, const(size, dtype))
    blocks = binary("floordiv", rows, const(size, dtype))
    whole = sequence([bind(row, mul(number, const(size, dtype))), full.body])
    tails: list[tuple[Expr, Expr, Var, RowBlock]] = []
    count = 1 << (size - 1).bit_length() - 1
    while count:
        start = variable(f"row{count}", dtype)
        one = code.block(count, start, buffers)
        assert one is not None, "it differs from a full block only in its extents"
        half = binary("floordiv", rest, const(2 * count, dtype))
        place = add(rows - rest, mul(half, const(2 * count, dtype)))
        bit = binary("floormod", binary("floordiv", rest, const(count, dtype)), const(2, dtype))
        tails.append((binary("eq", bit, const(1, dtype)), place, start, one))
        count //= 2
    tiles = prod(extent for _, extent in full.loops)
    if threads > 1 and tiles < threads:
        return _shared_blocks(number, blocks, whole, full, tails)
    # the loops of the other blocks run over the same tiles
    inside = [loop(number, blocks, whole)]
    for condition, place, start, one in tails:
        same = [bind(a, b) for (a, _), (b, _) in zip(one.loops, full.loops, strict=True)]
        inside.append(when(condition, sequence([*same, bind(start, place), one.body])))
    return shared_loops(full.loops, sequence(inside), threads)


def _shared_blocks(
    number: Var,
    blocks: Expr,
    whole: Statement,
    full: RowBlock,
    tails: Sequence[tuple[Expr, Expr, Var, RowBlock]],
) -> Statement:
    """Threads share blocks of rows, and one of them computes the rest."""
    for var, extent in reversed(full.loops):
        whole = loop(var, extent, whole)
    statements = [loop(number, blocks, whole, PARALLEL)]
    for condition, place, start, one in tails:
        body = sequence([bind(start, place), one.body])
        for var, extent in reversed(one.loops):
            body = loop(var, extent, body)
        statements.append(when(condition, body))
    return sequence(statements)
