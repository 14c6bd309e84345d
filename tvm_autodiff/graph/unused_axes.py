"""Axes on which no element of a stage depends: the stage is computed once along them.

Intermediate stages lose such axes, and readers omit that index. An output keeps its shape and
copies what was computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..expr.nodes import (
    Axis,
    Expr,
    Tensor,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ..expr.rewrite import Rewriter, postorder
from .graph import retarget, tensors_read_by, topological
from .stage import (
    Operation,
    axis_range,
    bodies,
    bounds_of,
    is_compute,
    make_stage,
    outputs_of,
    reduction_of,
    with_bodies,
)

_Key = tuple[int, int]


def costs_more_than_copies(op: Operation, is_output: bool) -> bool:
    """Whether a stage reduces, or reads elements and is no output.

    Numbers that depend on indices only are written into what reads them, and an output that is a
    function of elements would become two stages.
    """
    return reduction_of(op) is not None or (not is_output and bool(tensors_read_by(op)))


def without_unused_axes(
    outputs: Sequence[Tensor], pays: Callable[[Operation, bool], bool] = costs_more_than_copies
) -> list[Tensor]:
    """``T[i, j] = Σ_k x[i, k], y[i, j] = T[i, j]·z[j]  →  T[i] = Σ_k x[i, k], y[i, j] = T[i]·z[j]``

    Producers first, so an axis that a stage only passes to its producer is removed as well. An
    output becomes a copy of a smaller stage. Stages change where it `pays`, which gets a stage and
    whether it is an output, or read as a whole.
    """
    stages = topological(outputs)
    opaque = [tensor for op in stages if not is_compute(op) for tensor in tensors_read_by(op)]
    needed_whole = {tensor_key(tensor) for tensor in [*outputs, *opaque]}
    whole: dict[_Key, Tensor] = {}
    smaller: dict[_Key, tuple[Tensor, tuple[int, ...]]] = {}
    for op in stages:
        if not is_compute(op):
            _record(whole, op, retarget(op, lambda tensor: whole.get(tensor_key(tensor))))
            continue
        new_bodies = _over_smaller(op, whole, smaller)
        must_be_whole = any(tensor_key(tensor) in needed_whole for tensor in outputs_of(op))
        kept = _used_places(op, new_bodies, must_be_whole)
        if len(kept) == len(op.axis) or not pays(op, must_be_whole):
            _record(whole, op, _stage(op, op.name, range(len(op.axis)), new_bodies))
            continue
        name = f"{op.name}_once" if must_be_whole else op.name
        narrow = _stage(op, name, kept, new_bodies)
        for old, new in zip(outputs_of(op), narrow, strict=True):
            smaller[tensor_key(old)] = new, kept
        if must_be_whole:
            places = [op.axis[place].var for place in kept]
            copies = [load(tensor, places) for tensor in narrow]
            _record(whole, op, make_stage(op.name, list(op.axis), copies))
    return [whole.get(tensor_key(tensor), tensor) for tensor in outputs]


def _record(whole: dict[_Key, Tensor], op: Operation, news: Sequence[Tensor]) -> None:
    for old, new in zip(outputs_of(op), news, strict=True):
        whole[tensor_key(old)] = new


def _over_smaller(
    op: Operation,
    whole: dict[_Key, Tensor],
    smaller: dict[_Key, tuple[Tensor, tuple[int, ...]]],
) -> list[Expr]:
    """``T[i, j] → T[i]`` where T has lost its second axis."""

    def visit(node: Expr) -> Expr | None:
        if not is_load(node):
            return None
        key = tensor_key(load_tensor(node))
        if key in smaller:
            tensor, kept = smaller[key]
            indices = operands(node)
            return load(tensor, [indices[place] for place in kept])
        new = whole.get(key)
        same = new is None or tensor_key(new) == key
        return None if same else load(new, operands(node))

    visitor: Callable[[Expr], Expr] = Rewriter(visit)
    return [visitor(body) for body in bodies(op)]


def _used_places(
    op: Operation, new_bodies: Sequence[Expr], must_be_whole: bool
) -> tuple[int, ...]:
    """The numbers of the axes on which bodies, or bounds of their reduce axes, depend.

    Where the extent of an axis may be zero, so do reads at a place that contains it. A copy along
    an axis of one element would be the stage itself.
    """
    roots = list(new_bodies)
    reduction = reduction_of(op)
    if reduction is not None:
        roots += [bound for axis in reduction.axes for bound in bounds_of(axis)]
    used = {node_id(node) for node in postorder(roots) if op_name(node) == "var"}

    def is_used(axis: Axis) -> bool:
        bounds = bounds_of(axis)
        own = {node_id(node) for node in postorder(bounds) if op_name(node) == "var"}
        return not used.isdisjoint(own | {node_id(axis.var)}) or (
            must_be_whole and axis_range(axis)[1] == 1
        )

    return tuple(place for place, axis in enumerate(op.axis) if is_used(axis))


def _stage(
    op: Operation, name: str, kept: Sequence[int], new_bodies: Sequence[Expr]
) -> list[Tensor]:
    same = all(node_id(a) == node_id(b) for a, b in zip(bodies(op), new_bodies, strict=True))
    if same and len(kept) == len(op.axis):
        return outputs_of(op)
    return with_bodies(op, new_bodies, [op.axis[place] for place in kept], name)
