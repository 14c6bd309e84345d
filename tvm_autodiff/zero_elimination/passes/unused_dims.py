"""Removes axes that a stage does not depend on.

Intermediate stages lose every axis along which all elements are equal, and readers omit that index.
An output keeps its shape and copies what was computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...expr.nodes import (
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
from ...expr.rewrite import Rewriter, postorder
from ...graph.bounded_stage import bounded_stage
from ...graph.counting import multiplications_in
from ...graph.graph import retarget, tensors_read_by, topological
from ...graph.stage import (
    Operation,
    bodies,
    bounds_of,
    is_compute,
    outputs_of,
    reduction_of,
)
from ...keywords import checked_keywords
from ..walk import tensor_list

_Key = tuple[int, int]


@checked_keywords
def remove_unused_dims(tensors: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """Remove axes that a stage does not depend on, so that no element is computed twice.

    ``T[i, j] = exp(x[i]), y[i, j] = T[i, j] + z[j]  →  T[i] = exp(x[i]), y[i, j] = T[i] + z[j]``

    Parameters
    ----------
    tensors : Tensor or sequence of Tensor
        The outputs. All stages that they need are simplified, producers first, so an axis that a
        stage only passes to its producer is removed as well.

    Returns
    -------
    list of Tensor
        Tensors of the same shapes and values. An output that does not depend on one of its axes
        becomes a copy of a smaller stage, if it is a reduction or contains multiplications.

    Raises
    ------
    InvalidArgumentError
        If an argument is not a tensor.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import show
    >>> x = te.placeholder((3,), name="x")
    >>> T = te.compute((3, 4), lambda i, j: te.exp(x[i]), name="T")
    >>> y = te.compute((3, 4), lambda i, j: T[i, j] + x[i], name="y")
    >>> z = te.compute((3, 4), lambda i, j: y[i, j] * j.astype("float32"), name="z")
    >>> print(show(remove_unused_dims(z)))
    inputs  x: float32[3]
    T[i] = exp(x[i])  float32[3]
    y[i] = T[i] + x[i]  float32[3]
    z[i, j] = y[i]*float32(j)  float32[3, 4]
    """
    outputs = tensor_list(tensors)
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
        kept = _used_places(op, new_bodies)
        must_be_whole = any(tensor_key(tensor) in needed_whole for tensor in outputs_of(op))
        if len(kept) == len(op.axis) or (must_be_whole and not _is_work(op, new_bodies)):
            _record(whole, op, _stage(op, op.name, range(len(op.axis)), new_bodies))
            continue
        name = f"{op.name}_once" if must_be_whole else op.name
        narrow = _stage(op, name, kept, new_bodies)
        for old, new in zip(outputs_of(op), narrow, strict=True):
            smaller[tensor_key(old)] = new, kept
        if must_be_whole:
            places = [op.axis[place].var for place in kept]
            copies = [load(tensor, places) for tensor in narrow]
            _record(whole, op, bounded_stage(op.name, list(op.axis), copies))
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


def _used_places(op: Operation, new_bodies: Sequence[Expr]) -> tuple[int, ...]:
    """The numbers of the axes on which bodies, or bounds of their reduce axes, depend."""
    roots = list(new_bodies)
    reduction = reduction_of(op)
    if reduction is not None:
        roots += [bound for axis in reduction.axes for bound in bounds_of(axis)]
    used = {node_id(node) for node in postorder(roots) if op_name(node) == "var"}
    return tuple(place for place, axis in enumerate(op.axis) if node_id(axis.var) in used)


def _is_work(op: Operation, new_bodies: Sequence[Expr]) -> bool:
    """Whether computing an element is more expensive than copying it."""
    return reduction_of(op) is not None or any(map(multiplications_in, new_bodies))


def _stage(
    op: Operation, name: str, kept: Sequence[int], new_bodies: Sequence[Expr]
) -> list[Tensor]:
    same = all(node_id(a) == node_id(b) for a, b in zip(bodies(op), new_bodies, strict=True))
    if same and len(kept) == len(op.axis):
        return outputs_of(op)
    return bounded_stage(name, [op.axis[place] for place in kept], new_bodies, op.tag)
