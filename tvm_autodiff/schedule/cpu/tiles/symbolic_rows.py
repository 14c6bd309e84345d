"""Schedules a reduction over an output axis of symbolic extent in blocks of a constant number of
rows.

A kernel of one block has constant extents, so a register tile fits it. What remains of the axis is
computed in blocks of powers of two, by the same code with fewer unrolled rows.

    ``y[i], i < n  →  y[8*b + r], r < 8, b < n//8;  then 4, 2 and 1 rows, where n has that bit``
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ....codegen.loop_nest import (
    PARALLEL,
    Buffer,
    Statement,
    bind,
    function,
    loop,
    nested,
    parameter,
    sequence,
    when,
)
from ....codegen.passes.row_blocks import Position, RowBlock, RowBlocks
from ....codegen.stages.primfunc import StageFunction
from ....expr.build import add, const, mul, variable
from ....expr.nodes import Axis, Expr, Tensor, Var, binary, dtype_of, load, node_id, tensor_key
from ....expr.rewrite import (
    depends_on,
    expand_lets,
    map_loads,
    postorder,
    replace_outermost,
)
from ....graph.sizes.equal_sizes import is_same
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
from ...cost import SYMBOLIC_SIZE
from ...kernel import Kernel, Repetition
from ...machine import Machine
from ...nest.access import Affine, Interval, affine_forms, interval
from ...nest.in_range import loops_of
from ..loops.parallel import shared_loops


@dataclass(frozen=True)
class BlockAxis:
    """An output axis of symbolic extent, of which a block has a constant number of places.

    Attributes
    ----------
    number : int
        The number of the output axis.
    size : int
        The places of a block.
    shifted : bool
        Whether reads may be some places further on, as those of a window: ``x[i + k]``.
    """

    number: int
    size: int
    shifted: bool = False


@dataclass(frozen=True)
class BlockKernel:
    """A kernel that computes a block.

    Attributes
    ----------
    kernel : Kernel
    axes : tuple of BlockAxis
    extents : dict
        The extent of all places, by number of the axis.
    whole : dict
        For the key of each tensor of a block, the tensor of all places, and the axes of the block
        by dimension.
    """

    kernel: Kernel
    axes: tuple[BlockAxis, ...]
    extents: dict[int, Expr]
    whole: dict[tuple[int, int], tuple[Tensor, dict[int, int]]]


class _Reads:
    """Replaces reads at places of the axes by reads of a block: ``x[i, k] → block[r, k]``."""

    def __init__(self, axes: Sequence[BlockAxis], extents: Mapping[int, Expr]) -> None:
        self._axes, self._extents = axes, extents
        self._blocks: dict[object, Tensor] = {}
        self.whole: dict[tuple[int, int], tuple[Tensor, dict[int, int]]] = {}
        self.fixed: set[tuple[int, int]] = set()

    def moved(self, body: Expr, old: Sequence[Axis], new: Sequence[Axis]) -> Expr | None:
        """The body over a block, or None if it uses a place of the axes otherwise.

        `old` and `new` are all axes, of the kernel and of the block.
        """
        variables = [axis.var for axis in old]
        numbers = [axis.number for axis in self._axes]
        places = {number: (old[number].var, new[number].var) for number in numbers}
        ranges = loops_of(old).ranges

        def read(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
            dims: dict[int, int] = {}
            shape, moved = list(shape_of(tensor)), list(indices)
            for dim, index in enumerate(indices):
                for axis in self._axes:
                    var, fresh = places[axis.number]
                    if not depends_on(index, [var]):
                        continue
                    if dim in dims or axis.number in dims.values():
                        return None
                    ahead = _ahead(index, var, variables, ranges)
                    same = is_same(shape[dim], self._extents[axis.number])
                    if ahead is None or not (axis.shifted or (ahead == 0 and same)):
                        return None
                    dims[dim] = axis.number
                    shape[dim] = axis.size + ahead
                    moved[dim] = replace_outermost(index, {node_id(var): fresh})
            if not dims:
                self.fixed.add(tensor_key(tensor))
                return None
            return load(self._block(tensor, dims, shape), moved)

        made = map_loads(expand_lets(body), read)
        rest = {node_id(var) for var, _ in places.values()}
        return None if any(node_id(node) in rest for node in postorder([made])) else made

    def _block(self, tensor: Tensor, dims: dict[int, int], shape: Sequence[Extent]) -> Tensor:
        sizes = tuple((dim, shape[dim]) for dim in dims)
        key = (tensor_key(tensor), tuple(dims.items()), sizes)
        if key not in self._blocks:
            block = placeholder(shape, dtype_of(tensor), f"{tensor.op.name}_rows")
            self._blocks[key] = block
            self.whole[tensor_key(block)] = tensor, dims
        return self._blocks[key]


def _ahead(
    index: Expr, var: Var, variables: Sequence[Var], ranges: Mapping[int, Interval]
) -> int | None:
    """How far an index may be beyond a variable: 4 for ``i + k, k < 5``; None if it is before it,
    or not known.
    """
    form = affine_forms([index], variables).get(node_id(index))
    if form is None or form.coefficient(node_id(var)) != 1:
        return None
    rest = tuple(term for term in form.terms if term[0] != node_id(var))
    bounds = interval(Affine(rest, form.constant), ranges)
    return None if bounds is None or bounds[0] < 0 else bounds[1]


def block_kernel(
    kernel: Kernel, axes: Sequence[BlockAxis], symbolic: int = SYMBOLIC_SIZE
) -> BlockKernel | None:
    """The kernel of a block, or None if places of its axes depend on where they are. The axes
    count as `symbolic` places.
    """
    op = kernel.root
    reduction = reduction_of(op)
    if reduction is None or op.num_outputs != 1:
        return None
    extents: dict[int, Expr] = {}
    for axis in axes:
        low, extent = axis_range(op.axis[axis.number])
        if low != 0 or isinstance(extent, int):
            return None
        extents[axis.number] = extent
    reads = _Reads(axes, extents)
    spatial, table = _axes(op, axes)
    reduced = [renew_axis(axis) for axis in reduction.axes]
    for old, new in zip(reduction.axes, reduced, strict=True):
        table[node_id(old.var)] = new.var
    source = reads.moved(reduction.sources[0], [*op.axis, *reduction.axes], [*spatial, *reduced])
    if source is None:
        return None
    parts = replace(reduction, sources=(replace_outermost(source, table),), axes=tuple(reduced))
    made = reduction_stage(op.name, spatial, parts)[0]
    epilogue = None
    if kernel.epilogue is not None:
        epilogue = _epilogue(kernel, kernel.epilogue, made, axes, reads)
        if epilogue is None:
            return None
    times = max(2, symbolic // prod(axis.size for axis in axes))
    repetition = Repetition(times, frozenset(reads.fixed))
    block = Kernel(made.op, epilogue, repetition)
    return BlockKernel(block, tuple(axes), extents, reads.whole)


def _axes(op: Operation, blocks: Sequence[BlockAxis]) -> tuple[list[Axis], dict[int, Expr]]:
    axes = [renew_axis(axis) for axis in op.axis]
    for block in blocks:
        old = op.axis[block.number].var
        axes[block.number] = data_axis(old.name, block.size, dtype_of(old))
    table = {node_id(a.var): b.var for a, b in zip(op.axis, axes, strict=True)}
    return axes, table


def _epilogue(
    kernel: Kernel,
    reader: Operation,
    made: Tensor,
    blocks: Sequence[BlockAxis],
    reads: _Reads,
) -> Operation | None:
    axes, table = _axes(reader, blocks)
    root = tensor_key(kernel.root.output(0))

    def read(tensor: Tensor, _: Sequence[Expr]) -> Expr | None:
        # an epilogue reads its root at its own place only
        return load(made, [axis.var for axis in axes]) if tensor_key(tensor) == root else None

    body = map_loads(expand_lets(bodies(reader)[0]), read)
    moved = reads.moved(body, list(reader.axis), axes)
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
    [axis] = block.axes
    inputs, buffers, dims = parameters_of(launch, block, whole)
    code = RowBlocks(launch.func, dims, (axis.number, axis.size))

    def at(count: int, row: Expr) -> RowBlock | None:
        return code.block(count, Position({axis.number: row}), buffers)

    threads = machine.threads if parallel else 1
    body = _all_rows(at, axis.size, block.extents[axis.number], threads, code)
    if body is None:
        return None
    [result] = whole.outputs
    return replace(launch, func=function(buffers, body), inputs=inputs, outputs=(result,))


def parameters_of(
    launch: StageFunction, block: BlockKernel, whole: Kernel
) -> tuple[tuple[Tensor, ...], list[Buffer], dict[int, dict[int, int]]]:
    """The inputs with all places, the parameters, and by parameter the axes of the block."""
    inputs = [block.whole.get(tensor_key(t), (t, {})) for t in launch.inputs]
    first = len(inputs) + len(launch.scalars)
    dims = {n: dims for n, (_, dims) in enumerate(inputs) if dims}
    dims[first] = {axis.number: axis.number for axis in block.axes}
    [result] = whole.outputs
    params = list(launch.func.params)
    buffers = [parameter(t, p.name) for (t, _), p in zip(inputs, params, strict=False)]
    buffers += [*params[len(inputs) : first], parameter(result, params[first].name)]
    return tuple(tensor for tensor, _ in inputs), buffers, dims


#: the code of so many rows from a row on
RowCode = Callable[[int, Expr], "RowBlock | None"]


def _all_rows(
    at: RowCode, size: int, rows: Expr, threads: int, code: RowBlocks
) -> Statement | None:
    found = rows_of(at, size, rows)
    if found is None:
        return None
    if threads > 1 and prod(extent for _, extent in found.full.loops) < threads:
        return _shared_blocks(found, code)
    return shared_loops(found.full.loops, code.with_buffers(found.serial()), threads)


@dataclass(frozen=True)
class Rows:
    """The code of all rows.

    Attributes
    ----------
    number, blocks : Var, Expr
        The number of a whole block, and how many there are.
    whole : Statement
        A whole block, inside of its loops.
    full : RowBlock
        The same.
    tails : list
        For each power of two, when there are so many rows left, where they begin, and their code.
    """

    number: Var
    blocks: Expr
    whole: Statement
    full: RowBlock
    tails: list[tuple[Expr, Expr, Var, RowBlock]]

    def serial(self) -> Statement:
        """All rows one after the other, inside of the loops of a whole block."""
        inside = [loop(self.number, self.blocks, self.whole)]
        for condition, place, start, one in self.tails:
            # the loops of the other blocks run over the same tiles
            same = [bind(a, b) for (a, _), (b, _) in zip(one.loops, self.full.loops, strict=True)]
            inside.append(when(condition, sequence([*same, bind(start, place), one.body])))
        return sequence(inside)


def rows_of(at: RowCode, size: int, rows: Expr) -> Rows | None:
    """Whole blocks of rows, and what remains in blocks of powers of two."""
    dtype = dtype_of(rows)
    number, row = variable("block", dtype), variable("row", dtype)
    full = at(size, row)
    if full is None:
        return None
    rest = binary("floormod", rows, const(size, dtype))
    blocks = binary("floordiv", rows, const(size, dtype))
    whole = sequence([bind(row, mul(number, const(size, dtype))), full.body])
    tails: list[tuple[Expr, Expr, Var, RowBlock]] = []
    count = 1 << (size - 1).bit_length() - 1
    while count:
        start = variable(f"row{count}", dtype)
        one = at(count, start)
        assert one is not None, "it differs from a full block only in its extents"
        half = binary("floordiv", rest, const(2 * count, dtype))
        place = add(rows - rest, mul(half, const(2 * count, dtype)))
        bit = binary("floormod", binary("floordiv", rest, const(count, dtype)), const(2, dtype))
        tails.append((binary("eq", bit, const(1, dtype)), place, start, one))
        count //= 2
    return Rows(number, blocks, whole, full, tails)


def _shared_blocks(found: Rows, code: RowBlocks) -> Statement:
    """Threads share blocks of rows, and one of them computes the rest."""
    whole = found.whole
    whole = nested(found.full.loops, whole)
    statements = [loop(found.number, found.blocks, code.with_buffers(whole), PARALLEL)]
    rest = []
    for condition, place, start, one in found.tails:
        body = sequence([bind(start, place), one.body])
        body = nested(one.loops, body)
        rest.append(when(condition, body))
    return sequence([*statements, code.with_buffers(sequence(rest))])
