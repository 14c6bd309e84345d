"""Intermediate tensors whose dimensions are others: what stands for them, and where it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....expr.build import like
from ....expr.nodes import (
    Expr,
    Tensor,
    binary,
    is_load,
    load,
    load_tensor,
    operands,
    tensor_key,
)
from ....expr.rewrite import rewrite
from ....graph.graph import Graph, retarget, tensors_read_by
from ....graph.stage import Extent, Operation, is_placeholder, outputs_of, sources_of
from .digits import with_sources

Key = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """A tensor that stands for another one, and the indices at which it is read instead."""

    tensor: Tensor
    places: Callable[[Sequence[Expr]], list[Expr]]


def with_layouts(
    outputs: Sequence[Tensor],
    graph: Graph,
    lay: Callable[[Operation, Operation], Layout | None],
) -> list[Tensor]:
    """The outputs of a graph over tensors that are laid out in another way.

    Parameters
    ----------
    outputs : sequence of Tensor
    graph : Graph
        The stages that they need.
    lay : callable
        Called with each stage and the same one over the tensors that are there by then: what stands
        for its result, or None. Stages that are no `compute` may not read such a tensor.
    """
    replaced: dict[Key, Tensor] = {}
    laid: dict[Key, Layout] = {}

    def changed(node: Expr) -> Expr | None:
        own = laid.get(tensor_key(load_tensor(node))) if is_load(node) else None
        return None if own is None else load(own.tensor, own.places(operands(node)))

    for op in graph.ops:
        if is_placeholder(op):
            continue
        new = retarget(op, lambda tensor: replaced.get(tensor_key(tensor)))
        if any(key in laid for key in map(tensor_key, tensors_read_by(op))):
            new = with_sources(new[0].op, [rewrite(s, changed) for s in sources_of(new[0].op)])
        own = lay(op, new[0].op)
        if own is not None:
            laid[tensor_key(op.output(0))] = own
            continue
        for old, fresh in zip(outputs_of(op), new, strict=True):
            if tensor_key(old) != tensor_key(fresh):
                replaced[tensor_key(old)] = fresh
    return [replaced.get(tensor_key(tensor), tensor) for tensor in outputs]


def digits_at(index: Expr, extents: Sequence[Extent]) -> list[Expr]:
    """``q → q//5, q%5`` for extents 5, 5: the digits of an index, the first one outermost."""
    found: list[Expr] = []
    for extent in reversed(extents[1:]):
        found.append(binary("floormod", index, like(index, extent)))
        index = binary("floordiv", index, like(index, extent))
    return [index, *reversed(found)]
