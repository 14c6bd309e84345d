"""Writes fusion groups row by row: softmax and norms, their gradients, and sums over the rows.

One parallel loop runs over pieces of the rows. Within a row every stage is a few vectorised loops,
joined if one reads the other's element. Intermediate results are held in local buffers, small ones
on the stack and large ones on the heap. Each thread accumulates sums over the rows, which are added
at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....codegen.flat_axes import unflattened
from ....codegen.loop_nest import (
    ON_STACK,
    PARALLEL,
    Local,
    Places,
    Statement,
    allocated,
    bind,
    counter,
    element,
    function,
    local,
    loop,
    nested,
    parameter,
    sequence,
    store,
)
from ....codegen.stages.primfunc import StageFunction, external_reads
from ....expr.build import add, cast, const, mul, sub
from ....expr.costly import EXPENSIVE
from ....expr.dtypes import bits_of
from ....expr.nodes import Expr, Tensor, Var, binary, dtype_of, node_id, op_name, tensor_key
from ....expr.rewrite import postorder, substituter
from ....graph.stage import (
    Extent,
    Operation,
    axis_range,
    bodies,
    outputs_of,
    reduction_of,
)
from ...declined import Declined
from ...fusion.groups import FusionGroup
from ...fusion.row_items import items_of, nests_of
from ...fusion.row_kernels import RowKernel, inner_axes
from ...kernel import iterations, size_of
from ...machine import Machine
from .common_subexpressions import with_common_subexpressions
from .components import with_components
from .parallel import threads_over
from .result_blocks import ResultBlocks
from .strip_mining import filled, strip_start
from .vector_loops import NestWriter, combined


def row_function(group: FusionGroup, machine: Machine) -> list[StageFunction] | Declined:
    """A fusion group as one function."""
    chunks = _chunks(group, machine)
    parts = with_components(group, machine)
    found = _scheduled(parts, chunks, machine, tuple(group.outputs))
    if isinstance(found, Declined) and parts is not group:  # more buffers may be too many
        return _scheduled(group, chunks, machine, tuple(group.outputs))
    return found


def blocks_function(
    whole: FusionGroup, blocks: ResultBlocks, machine: Machine
) -> list[StageFunction] | Declined:
    """A group of one kernel, in blocks of its results, as one function."""
    return _scheduled(blocks.group, _chunks(whole, machine), machine, tuple(whole.outputs), blocks)


def too_few_rows(group: FusionGroup, machine: Machine) -> bool:
    """Whether the rows are fewer than would give each thread a fair share."""
    chunks = _chunks(group, machine)
    return chunks > 1 and size_of(group.extents, machine.symbolic_size) < 2 * chunks


def _chunks(group: FusionGroup, machine: Machine) -> int:
    work = sum(_cycles(member, machine) for member in group.members)
    return threads_over(group.extents, work, group.parts[0].repetition, machine)


def _scheduled(
    group: FusionGroup,
    chunks: int,
    machine: Machine,
    results: tuple[Tensor, ...],
    blocks: ResultBlocks | None = None,
) -> list[StageFunction] | Declined:
    """A fusion group as one function that writes `results`, on a given number of threads."""
    group = with_common_subexpressions(group, machine)
    ops = [op for member in group.members for op in member.kernel.ops]
    inputs = external_reads(ops)
    buffers = _Buffers(group, inputs, results, blocks)
    items = items_of(group, machine)
    writer = NestWriter(buffers.places, buffers.sums)
    rows = _Rows(group.extents, chunks, blocks)
    nests = [writer.write(nest, rows.places) for nest in nests_of(items)]
    buffers.kept += writer.buffers
    if _bytes(buffers.kept) > machine.cache_bytes // 2:
        return Declined("what it keeps of a row takes more than half of a core's cache")
    body = rows.loops(
        nests, buffers.kept, _begin(group, buffers, machine), _end(group, buffers, rows)
    )
    after = _after(group, buffers, rows, machine)
    if _bytes(buffers.shared) > machine.last_cache_bytes // 2:
        return Declined("the sums of all threads take more than half of the last cache")
    # the stack of a thread may be a small one
    if _bytes(_on_stack([*buffers.kept, *buffers.shared])) > 32 * ON_STACK:
        return Declined(f"its small buffers take more than {32 * ON_STACK} bytes of the stack")
    func = function(
        buffers.parameters,
        allocated(buffers.shared, sequence([body, *after])),
        once=blocks is None or blocks.are_apart,
    )
    return [StageFunction(func, tuple(inputs), results)]


def _bytes(buffers: Sequence[Local]) -> int:
    """The size of local buffers."""
    return sum(size_of(one.shape) * bits_of(one.buffer.dtype) // 8 for one in buffers)


def _on_stack(buffers: Sequence[Local]) -> list[Local]:
    """The buffers that TVM does not allocate on the heap."""
    literal = [b for b in buffers if all(isinstance(extent, int) for extent in b.shape)]
    return [b for b in literal if b.elements * bits_of(b.buffer.dtype) <= 8 * ON_STACK]


def _cycles(member: RowKernel, machine: Machine) -> float:
    """The time of a kernel: an element of an expensive function, or half a vector, in a cycle."""
    root = member.kernel.root
    costly = any(op_name(node) in EXPENSIVE for node in postorder(bodies(root)))
    lanes = min(machine.lanes("float32"), machine.lanes(dtype_of(root.output(0))))
    return iterations(root, machine.symbolic_size) * (1 if costly else 2 / lanes)


class _Buffers:
    """The memory of the tensors of a fusion group: parameters, buffers of a row, sums over the
    rows.
    """

    def __init__(
        self,
        group: FusionGroup,
        inputs: Sequence[Tensor],
        results: Sequence[Tensor],
        blocks: ResultBlocks | None,
    ) -> None:
        self.places = Places()
        self.kept: list[Local] = []  #: of one thread
        self.shared: list[Local] = []  #: of all threads
        self.sums: dict[tuple[int, int], Local] = {}
        self.partial: dict[tuple[int, int], Local] = {}
        self.parameters: list[Any] = []
        for number, tensor in enumerate(inputs):
            self.parameters.append(parameter(tensor, f"p{number}_{_word(tensor)}"))
            self.places.put(tensor, self.parameters[-1])
        written = [parameter(tensor, f"r{n}_{_word(tensor)}") for n, tensor in enumerate(results)]
        self.parameters += written
        if blocks is None:
            for tensor, buffer in zip(group.outputs, written, strict=True):
                self.places.put(tensor, buffer)
        else:
            for tensor, (number, offsets) in zip(group.outputs, blocks.places, strict=True):
                self.places.put_beyond(tensor, written[number], offsets)
        outputs = {tensor_key(tensor) for tensor in group.outputs}
        for member in group.members:
            self._place(member, outputs)

    def _place(self, member: RowKernel, outputs: set[tuple[int, int]]) -> None:
        shape = inner_shape(member)
        inner = {node_id(axis.var) for axis in inner_axes(member)}
        root = member.kernel.root
        dims = [n for n, axis in enumerate(root.axis) if node_id(axis.var) in inner]
        for op in member.kernel.ops:
            for tensor in outputs_of(op):
                if tensor_key(tensor) not in outputs:
                    buffer = local(_word(tensor), shape, dtype_of(tensor))
                    (self.shared if member.across else self.kept).append(buffer)
                    self.places.put(tensor, buffer, dims)
            if member.across and hash(op) == hash(root):
                for tensor in outputs_of(op):
                    total = local(f"{_word(tensor)}_sum", shape, dtype_of(tensor))
                    self.kept.append(total)
                    self.sums[tensor_key(tensor)] = total


def inner_shape(member: RowKernel) -> list[Extent]:
    """Extents of the axes of a kernel that are not the rows; literals where rows are summed."""
    return [axis_range(axis)[1] for axis in inner_axes(member)]


def _word(tensor: Tensor) -> str:
    return "".join(c if c.isalnum() else "_" for c in tensor.op.name)[:40]


class _Rows:
    """The loop over the rows, or over blocks of them, in pieces for the threads."""

    def __init__(
        self, extents: Sequence[Extent], chunks: int, blocks: ResultBlocks | None = None
    ) -> None:
        symbol = next((e for e in extents if not isinstance(e, int)), None)
        self.dtype = "int32" if symbol is None else dtype_of(symbol)
        self.chunks = chunks
        self.total: Any = 1
        for extent in extents:
            self.total = self.total * extent
        self.row = counter("row", self.total)
        self.chunk = counter("chunk", chunks)
        self.bound: list[tuple[Var, Expr]] = []
        self.places: list[Expr] = [self.row][: len(extents)]
        if len(extents) > 1:
            self.places = [counter("row", extent) for extent in extents]
            pairs = zip(self.places, unflattened(self.row, extents), strict=True)
            self.bound = [(var, cast(dtype_of(var), place)) for var, place in pairs]
        if blocks is not None:
            self._begin_blocks(blocks)

    def _begin_blocks(self, blocks: ResultBlocks) -> None:
        """Bind the index at which a block begins along each axis."""
        numbers, self.places = self.places, []
        for number, step, end in zip(numbers, blocks.steps, blocks.ends, strict=True):
            self.places.append(number)
            if step > 1:
                self.places[-1] = counter("begin", end)
                self.bound.append((self.places[-1], strip_start(number, step, end)))

    def loops(
        self,
        nests: Sequence[Statement],
        kept: Sequence[Local],
        begin: Sequence[Statement],
        end: Sequence[Statement],
    ) -> Statement:
        """The loop with `nests` for each row; `begin` and `end` run once for each thread."""
        body = [*(bind(var, value) for var, value in self.bound), *nests]
        if self.chunks == 1:
            rows = loop(self.row, self.total, sequence(body))
            return allocated(kept, sequence([*begin, rows, *end]))
        chunks = const(self.chunks, self.dtype)
        chunk = self.chunk.astype(self.dtype)
        total = _int(self.total, self.dtype)
        if isinstance(self.total, int):
            size = const(-(-self.total // self.chunks), self.dtype)
        else:
            size = binary("floordiv", add(total, const(self.chunks - 1, self.dtype)), chunks)
        here = size
        if not isinstance(self.total, int) or self.total % self.chunks:
            here = binary("min", size, sub(total, mul(chunk, size)))
        place = counter("place", self.total)
        body.insert(0, bind(self.row, add(mul(chunk, size), place)))
        piece = sequence([*begin, loop(place, here, sequence(body)), *end])
        return loop(self.chunk, self.chunks, allocated(kept, piece), PARALLEL)


def _int(value: Extent, dtype: str) -> Expr:
    return const(value, dtype) if isinstance(value, int) else value


def _sums(group: FusionGroup) -> list[RowKernel]:
    return [member for member in group.members if member.across]


def _begin(group: FusionGroup, buffers: _Buffers, machine: Machine) -> list[Statement]:
    """Initialise every thread's sums with the identity."""
    statements = []
    for member in _sums(group):
        root = member.kernel.root
        reduction = reduction_of(root)
        assert reduction is not None
        for tensor, identity in zip(outputs_of(root), reduction.combiner.identity, strict=True):
            lanes = machine.lanes(dtype_of(tensor))
            total = buffers.sums[tensor_key(tensor)]
            statements.append(filled(total, identity, inner_shape(member), lanes))
    return statements


def _end(group: FusionGroup, buffers: _Buffers, rows: _Rows) -> list[Statement]:
    """Store the sums of every thread."""
    statements = []
    for member in _sums(group):
        shape = inner_shape(member)
        places = [counter("i", extent) for extent in shape]
        for tensor in outputs_of(member.kernel.root):
            value = element(buffers.sums[tensor_key(tensor)], places)
            if rows.chunks == 1:
                statement = buffers.places.write(tensor, value, places)
            else:
                partial = local(f"{_word(tensor)}_part", [rows.chunks, *shape], dtype_of(tensor))
                buffers.shared.append(partial)
                buffers.partial[tensor_key(tensor)] = partial
                statement = store(partial, value, [rows.chunk, *places])
            statements.append(nested(list(zip(places, shape, strict=True)), statement))
    return statements


def _after(group: FusionGroup, buffers: _Buffers, rows: _Rows, machine: Machine) -> list[Statement]:
    """Combine the sums of the threads, and compute what reads them."""
    statements = []
    for member in _sums(group):
        for op in member.kernel.ops:
            shape = inner_shape(member)
            places = [counter("i", extent) for extent in shape]
            if hash(op) != hash(member.kernel.root):
                rename = substituter(dict(zip((a.var for a in op.axis), places, strict=True)))
                value = buffers.places.read(rename(bodies(op)[0]))
                written = [buffers.places.write(op.output(0), value, places)]
            elif rows.chunks > 1:
                written = _added_up(op, buffers, rows.chunks, places)
            else:
                continue
            statements.append(nested(list(zip(places, shape, strict=True)), sequence(written)))
    return statements


def _added_up(
    op: Operation, buffers: _Buffers, chunks: int, places: Sequence[Var]
) -> list[Statement]:
    """The values of the threads, combined at an index one after the other."""
    reduction = reduction_of(op)
    assert reduction is not None
    partial = [buffers.partial[tensor_key(tensor)] for tensor in outputs_of(op)]
    here = [const(0, "int32"), *places]
    statements: list[Statement] = []
    for chunk in range(1, chunks):
        others = [element(part, [const(chunk, "int32"), *places]) for part in partial]
        statements += combined(reduction, partial, here, others)
    for tensor, part in zip(outputs_of(op), partial, strict=True):
        statements.append(buffers.places.write(tensor, element(part, here), places))
    return statements
