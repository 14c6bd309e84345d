"""The graph that stages form through the tensors they read.

It gives the stages in topological order and the consumers of a tensor, and rebuilds a graph over
other inputs. Stages that no output needs are not included, so rebuilding removes dead stages. No
walk is recursive, so thousands of stages in sequence are safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import tvm_ffi
from tvm import te, tirx

from ..errors import LoweringError
from ..expr.nodes import Expr, Tensor, is_load, load, load_tensor, node_id, operands, tensor_key
from ..expr.remembered import remembered
from ..expr.rewrite import Rewriter, contains_load, postorder
from .stage import (
    Operation,
    bodies,
    is_compute,
    is_extern,
    is_placeholder,
    make_stage,
    mapped_reduction,
    outputs_of,
    reduce_expr,
    reduction_bounds,
    reduction_of,
)

#: what is read in place of a tensor; None keeps it
Replacement: TypeAlias = Callable[[Tensor], Tensor | None]


def tensors_read_by(op: Operation) -> list[Tensor]:
    """The tensors that a stage reads, including those in bounds, each once, in order of first
    occurrence.
    """
    if not is_compute(op):
        return [] if is_placeholder(op) else list(op.input_tensors)
    return list(_read_by(op))


@remembered(1 << 10)
def _read_by(op: Operation) -> tuple[Tensor, ...]:
    """The tensors that a compute stage reads."""
    found: dict[tuple[int, int], Tensor] = {}
    for node in postorder([*reduction_bounds(op), *bodies(op)]):
        if is_load(node):
            tensor = load_tensor(node)
            found.setdefault(tensor_key(tensor), tensor)
    return tuple(found.values())


def topological(
    tensors: Iterable[Tensor],
    reads: Callable[[Operation], Sequence[Tensor]] = tensors_read_by,
) -> list[Operation]:
    """Every stage that the tensors need, producers first, in the order in which bodies read them.
    """
    order: list[Operation] = []
    seen: set[int] = set()
    pending: list[tuple[Operation, bool]] = [(tensor.op, False) for tensor in tensors]
    pending.reverse()
    while pending:
        op, expanded = pending.pop()
        key = hash(op)
        if key in seen:
            continue
        if expanded:
            seen.add(key)
            order.append(op)
            continue
        pending.append((op, True))
        pending.extend((tensor.op, False) for tensor in reversed(reads(op)))
    return order


class Graph:
    """The stages that some tensors need, and the reads between them.

    Parameters
    ----------
    tensors : sequence of Tensor
        The outputs.
    reads : callable, optional
        Returns the tensors that a stage reads; by default, those in its body. With a custom
        derivative a stage may depend on tensors that its body does not read.

    Attributes
    ----------
    ops : list of Operation
        Topological order, producers first.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        reads: Callable[[Operation], Sequence[Tensor]] = tensors_read_by,
    ) -> None:
        self.outputs = list(tensors)
        self._reads: dict[int, list[Tensor]] = {}

        def reads_once(op: Operation) -> list[Tensor]:
            key = hash(op)
            if key not in self._reads:
                self._reads[key] = list(reads(op))
            return self._reads[key]

        self.ops = topological(tensors, reads_once)
        self._places = {hash(op): place for place, op in enumerate(self.ops)}
        self._consumers: dict[tuple[int, int], list[Operation]] = {}
        for op in self.ops:
            for tensor in self._reads[hash(op)]:
                self._consumers.setdefault(tensor_key(tensor), []).append(op)

    def reads(self, op: Operation) -> list[Tensor]:
        """The tensors that a stage of this graph reads."""
        return self._reads[hash(op)]

    def consumers(self, tensor: Tensor) -> list[Operation]:
        """The stages that read a tensor, in topological order."""
        return self._consumers.get(tensor_key(tensor), [])

    def place(self, key: int) -> int:
        """The position of a stage in topological order, by its hash."""
        return self._places[key]

    def contains(self, tensor: Tensor) -> bool:
        """Whether the stage of a tensor belongs to this graph."""
        return hash(tensor.op) in self._reads

    def placeholders(self) -> list[Tensor]:
        """The inputs that the graph reads, in topological order."""
        return [op.output(0) for op in self.ops if is_placeholder(op)]

    def depends_on(
        self,
        tensors: Iterable[Tensor],
        reads: Callable[[Operation], Sequence[Tensor]] | None = None,
    ) -> set[int]:
        """Hashes of the stages that are, or that read directly or indirectly, one of the tensors'
        stages.

        `reads` returns the reads of a stage that count.
        """
        reached = {hash(tensor.op) for tensor in tensors}
        for op in self.ops:
            if any(hash(tensor.op) in reached for tensor in (reads or self.reads)(op)):
                reached.add(hash(op))
        return reached


def retarget(op: Operation, replacement: Replacement) -> list[Tensor]:
    """The same stage reading other tensors; its own outputs if nothing it reads is replaced.

    Attributes that hold tensors are replaced as well.
    """
    reads = tensors_read_by(op)
    if not any(replacement(tensor) is not None for tensor in reads):
        return outputs_of(op)
    if is_compute(op):
        visitor = reads_replaced(replacement)
        attrs = _retarget_attrs(op, replacement)
        reduction = reduction_of(op)
        if reduction is not None and contains_load(reduction_bounds(op)):
            moved = mapped_reduction(reduction, visitor)
            new_bodies = [reduce_expr(moved, index) for index in range(op.num_outputs)]
        else:
            new_bodies = [visitor(body) for body in bodies(op)]
        return make_stage(op.name, list(op.axis), new_bodies, op.tag, attrs)
    if is_extern(op):
        found = [replacement(tensor) for tensor in op.inputs]
        new_inputs = [
            old if new is None else new for old, new in zip(op.inputs, found, strict=True)
        ]
        attrs = _retarget_attrs(op, replacement)
        buffers, body = _buffers_over(list(op.input_placeholders), new_inputs, op.body)
        new_op = te._ffi_api.ExternOp(
            op.name, op.tag, attrs, new_inputs, buffers, op.output_placeholders, body
        )
        return outputs_of(new_op)
    raise LoweringError(
        f"stage {op.name} is a te.scan, which TVM cannot lower: unroll it into compute stages"
    )


def _buffers_over(
    buffers: Sequence[Any], tensors: Sequence[Tensor], body: Any
) -> tuple[list[Any], Any]:
    """Buffers declared with the shape objects of the tensors, as TVM requires, and the body."""
    renewed: dict[int, Any] = {}
    for buffer, tensor in zip(buffers, tensors, strict=True):
        old = buffer.ty
        if all(a.same_as(b) for a, b in zip(old.shape, tensor.shape, strict=True)):
            continue
        renewed[node_id(buffer)] = tirx.decl_buffer(
            tensor.shape,
            old.dtype,
            buffer.name,
            data_alignment=old.data_alignment,
            elem_offset=old.elem_offset,
            layout=old.layout,
        )
    if renewed:
        body = tvm_ffi.structural_map(body, (tirx.Var, lambda var: renewed.get(node_id(var), var)))
    return [renewed.get(node_id(buffer), buffer) for buffer in buffers], body


def _retarget_attrs(op: Operation, replacement: Replacement) -> dict[str, Any]:
    """The attributes of a stage; a list of tensors keeps only those that the stage reads."""
    read = {tensor_key(tensor) for tensor in tensors_read_by(op)}

    def renew(value: Any) -> Any:
        if isinstance(value, te.Tensor):
            return rebuild([value], replacement)[0]
        # topi's dense names its weights in one: layout_free_placeholders
        if isinstance(value, (list, tuple, tvm_ffi.Array)):
            kept = [v for v in value if not isinstance(v, te.Tensor) or tensor_key(v) in read]
            return [renew(v) for v in kept]
        return value

    return {key: renew(value) for key, value in op.attrs.items()}


def reads_replaced(replacement: Replacement) -> Rewriter:
    """A function from expressions to the same ones that read other tensors."""

    def visit(node: Expr) -> Expr | None:
        if not is_load(node):
            return None
        new = replacement(load_tensor(node))
        return None if new is None else load(new, operands(node))

    return Rewriter(visit)


def rebuild(tensors: Sequence[Tensor], replacement: Replacement) -> list[Tensor]:
    """The tensors with some of the tensors they need replaced, at any depth of the graph.

    The walk stops at a replaced tensor, so stages that only it needs disappear. A tensor that is
    replaced by itself stays, with everything it needs.
    """
    done: dict[tuple[int, int], Tensor] = {}

    def lookup(tensor: Tensor) -> Tensor | None:
        return done.get(tensor_key(tensor))

    alive: list[Tensor] = []
    pending: list[tuple[Tensor, bool]] = [(tensor, False) for tensor in reversed(tensors)]
    changed: set[tuple[int, int]] = set()
    while pending:
        tensor, expanded = pending.pop()
        key = tensor_key(tensor)
        if key in done:
            continue
        new = None if expanded else replacement(tensor)
        if new is not None:
            done[key] = new
            if tensor_key(new) != key:
                changed.add(key)
            alive.append(tensor)
            continue
        if not expanded:
            pending.append((tensor, True))
            pending.extend((read, False) for read in reversed(tensors_read_by(tensor.op)))
            continue
        olds = outputs_of(tensor.op)
        news = retarget(tensor.op, lambda t: lookup(t) if tensor_key(t) in changed else None)
        for old, fresh in zip(olds, news, strict=True):
            done.setdefault(tensor_key(old), fresh)
            if hash(fresh.op) != hash(old.op):
                changed.add(tensor_key(old))
            alive.append(old)
    return [done[tensor_key(tensor)] for tensor in tensors]


def each_stage(
    tensors: Sequence[Tensor], change: Callable[[Operation], Sequence[Tensor] | None]
) -> list[Tensor]:
    """The tensors with changed stages, producers first.

    `change` gets each stage over the replaced stages that it reads, and returns its new outputs, or
    None to keep it.
    """

    def over_replaced(op: Operation, replacement: Replacement) -> Sequence[Tensor]:
        current = retarget(op, replacement)
        return change(current[0].op) or current

    return each_original_stage(tensors, over_replaced)


def each_original_stage(
    tensors: Sequence[Tensor], change: Callable[[Operation, Replacement], Sequence[Tensor]]
) -> list[Tensor]:
    """The tensors with changed stages, producers first, for changes that are planned for a whole
    graph before the first is made.

    `change` gets each stage as it was planned with, and what replaces the tensors that it reads;
    it returns the new outputs, which must read the replaced tensors.
    """
    replaced: dict[tuple[int, int], Tensor] = {}

    def replacement(tensor: Tensor) -> Tensor | None:
        return replaced.get(tensor_key(tensor))

    for op in Graph(tensors).ops:
        if is_placeholder(op):
            continue
        for old, new in zip(outputs_of(op), change(op, replacement), strict=True):
            if tensor_key(old) != tensor_key(new):
                replaced[tensor_key(old)] = new
    return [replaced.get(tensor_key(tensor), tensor) for tensor in tensors]


def replace_tensors(
    tensors: Sequence[Tensor], mapping: Mapping[Tensor, Tensor] | Sequence[tuple[Tensor, Tensor]]
) -> list[Tensor]:
    """`rebuild` with replacements given as a mapping or as pairs (old, new)."""
    pairs = list(mapping.items()) if isinstance(mapping, Mapping) else list(mapping)
    table = {tensor_key(old): new for old, new in pairs}
    return rebuild(tensors, lambda tensor: table.get(tensor_key(tensor)))
