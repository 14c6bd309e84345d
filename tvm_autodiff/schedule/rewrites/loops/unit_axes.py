"""Removes axes of one element that are read at a constant place.

Reductions that keep their axes (`keepdims`) and what reads them then have their rows in common.

    ``s[i, e] = Σ_k x[i, k], e < 1;  y[i, k] = x[i, k]/s[i, 0]  →  s[i];  x[i, k]/s[i]``
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from ....expr.rewrite import Rewriter, contains_load, depends_on, postorder, substituter
from ....graph.graph import Graph, retarget
from ....graph.stage import (
    Operation,
    axis_range,
    bodies,
    is_compute,
    is_placeholder,
    mapped_reduction,
    outputs_of,
    reduced_axes,
    reduction_bounds,
    reduction_of,
    reduction_stage,
    with_bodies,
)

Key = tuple[int, int]


def without_unit_axes(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Equal tensors, whose stages have no axes of literal extent 1 that are read at constants only.

    Outputs keep their shapes, and so do tensors that the code of a stage reads as a whole.
    """
    graph = Graph(outputs)
    places = _removable(graph)
    dropped = {
        tensor_key(tensor): places.get(hash(op), ())
        for op in graph.ops
        for tensor in outputs_of(op)
    }
    replaced: dict[Key, Tensor] = {}
    for op in graph.ops:
        if is_placeholder(op):
            continue
        if is_compute(op):
            new = _over_fewer_axes(op, places[hash(op)], graph.reads(op), replaced, dropped)
        else:
            new = retarget(op, lambda tensor: replaced.get(tensor_key(tensor)))
        for old, now in zip(outputs_of(op), new, strict=True):
            if tensor_key(old) != tensor_key(now):
                replaced[tensor_key(old)] = now
    return [replaced.get(tensor_key(tensor), tensor) for tensor in outputs]


def _removable(graph: Graph) -> dict[int, tuple[int, ...]]:
    """For each compute stage the axes of one element at zero along which nothing reads it, if it is
    no output.
    """
    wanted = {tensor_key(tensor) for tensor in graph.outputs}
    found: dict[int, tuple[int, ...]] = {}
    for op in reversed(graph.ops):  # the axes of what reads a stage are known before its own
        if not is_compute(op):
            continue
        places = tuple(n for n, axis in enumerate(op.axis) if axis_range(axis) == (0, 1))
        for tensor in outputs_of(op) if places else ():
            readers = graph.consumers(tensor)
            if tensor_key(tensor) in wanted or not all(map(is_compute, readers)):
                places = ()
            for reader in readers if places else ():
                along = _indices(reader, tensor, found[hash(reader)])
                places = tuple(n for n in places if n not in along)
        found[hash(op)] = places
    return found


def _indices(op: Operation, tensor: Tensor, removed: Sequence[int]) -> set[int]:
    """The places of the indices of a tensor that depend on axes that a stage keeps."""
    own = [axis.var for place, axis in enumerate(op.axis) if place not in removed]
    own += [axis.var for axis in reduced_axes(op)]
    return {
        place
        for node in postorder([*reduction_bounds(op), *bodies(op)])
        if is_load(node) and tensor_key(load_tensor(node)) == tensor_key(tensor)
        for place, index in enumerate(operands(node))
        if depends_on(index, own) or contains_load(index)
    }


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
