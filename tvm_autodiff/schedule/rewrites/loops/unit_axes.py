"""Removes axes of one element from stages that are no outputs.

Reductions that keep their axes (`keepdims`) and what reads them then have their rows in common.
Outputs keep their shapes, and so do the stages that they read along their own axes of one element.

    ``s[i, e] = Σ_k x[i, k], e < 1;  y[i, k] = x[i, k]/s[i, 0]  →  s[i];  x[i, k]/s[i]``
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from ....expr.build import const
from ....expr.nodes import (
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_load,
    load,
    load_tensor,
    operands,
    tensor_key,
)
from ....expr.rewrite import Rewriter, depends_on, postorder, substituter
from ....graph.graph import Graph, retarget
from ....graph.stage import (
    Operation,
    axis_range,
    bodies,
    is_compute,
    is_placeholder,
    mapped_reduction,
    outputs_of,
    reduction_of,
    reduction_stage,
    with_bodies,
)

Key = tuple[int, int]


def without_unit_axes(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Equal tensors, whose stages have no axes of literal extent 1 that only they have.

    Stages whose code reads whole tensors keep the shapes of these.
    """
    graph = Graph(outputs)
    wanted = {tensor_key(tensor) for tensor in outputs}
    replaced: dict[Key, Tensor] = {}
    dropped: dict[Key, tuple[int, ...]] = {}
    for op in graph.ops:
        if is_placeholder(op):
            continue
        own = outputs_of(op)
        places: tuple[int, ...] = ()
        if is_compute(op):
            places = _removable(op, graph, wanted)
            new = _over_fewer_axes(op, places, graph.reads(op), replaced, dropped)
        else:
            new = retarget(op, lambda tensor: replaced.get(tensor_key(tensor)))
        for old, now in zip(own, new, strict=True):
            if tensor_key(old) != tensor_key(now):
                replaced[tensor_key(old)] = now
                dropped[tensor_key(old)] = places
    return [replaced.get(tensor_key(tensor), tensor) for tensor in outputs]


def _removable(op: Operation, graph: Graph, wanted: Container[Key]) -> tuple[int, ...]:
    """Which axes of a stage have one element, at zero, and are no axes of an output."""
    places = tuple(n for n, axis in enumerate(op.axis) if axis_range(axis) == (0, 1))
    own = outputs_of(op)
    if not places or any(tensor_key(tensor) in wanted for tensor in own):
        return ()
    for tensor in own:
        for reader in graph.consumers(tensor):
            if not is_compute(reader):
                return ()
            if any(tensor_key(output) in wanted for output in outputs_of(reader)):
                places = tuple(n for n in places if not _has_axis_at(reader, tensor, n))
    return places


def _has_axis_at(op: Operation, tensor: Tensor, place: int) -> bool:
    """Whether a stage reads a tensor along one of its own axes."""
    own = [axis.var for axis in op.axis]
    return any(
        depends_on(operands(node)[place], own)
        for node in postorder(bodies(op))
        if is_load(node) and tensor_key(load_tensor(node)) == tensor_key(tensor)
    )


def _over_fewer_axes(
    op: Operation,
    places: Sequence[int],
    reads: Sequence[Tensor],
    replaced: Mapping[Key, Tensor],
    dropped: Mapping[Key, tuple[int, ...]],
) -> list[Tensor]:
    """A compute stage without some of its axes, over tensors without theirs."""
    if not places and not any(tensor_key(read) in replaced for read in reads):
        return outputs_of(op)
    table: dict[Var, Expr] = {
        op.axis[place].var: const(0, dtype_of(op.axis[place].var)) for place in places
    }
    at_zero = substituter(table)

    def visit(node: Expr) -> Expr | None:
        if not is_load(node) or tensor_key(load_tensor(node)) not in replaced:
            return None
        key = tensor_key(load_tensor(node))
        kept = [index for n, index in enumerate(operands(node)) if n not in dropped[key]]
        return load(replaced[key], kept)

    fewer = Rewriter(visit)

    def move(expr: Expr) -> Expr:
        return fewer(at_zero(expr))

    axes = [axis for place, axis in enumerate(op.axis) if place not in places]
    reduction = reduction_of(op)
    if reduction is not None:
        return reduction_stage(op.name, axes, mapped_reduction(reduction, move))
    return with_bodies(op, [move(body) for body in bodies(op)], axes)
