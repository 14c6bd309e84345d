"""``checkpoint(e)``: an expression equal to `e` that the backward pass recomputes instead of
keeping.

Two operators mark expressions, as in `stop_gradient`. ``checkpoint(e)`` is the user's mark;
``recomputed(e, g)`` marks what sweep number `g` recomputes, so that it is not merged with the
forward pass. Both are removed before lowering.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import ir, tirx

from ...expr.intrinsics import define_identity
from ...expr.nodes import (
    Expr,
    Tensor,
    const_value,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ...expr.rewrite import outermost, postorder, replace_outermost, rewrite
from ..bounded_stage import elementwise_stage
from ..graph import Graph, retarget, tensors_read_by
from ..stage import Operation, bodies, is_compute, is_placeholder, outputs_of, shape_of, with_bodies

CHECKPOINT = "checkpoint"  #: in the vocabulary of `nodes`
RECOMPUTED = "recomputed"

_CHECKPOINT = define_identity(CHECKPOINT)
_RECOMPUTED = define_identity(RECOMPUTED, 2)

Key = tuple[int, int]


def checkpointed(expr: Expr) -> Expr:
    """The expression with the user's mark around it.

    Examples
    --------
    >>> from tvm import te
    >>> op_name(checkpointed(te.var("x", "float32")))
    'checkpoint'
    """
    return ir.Call(_CHECKPOINT, [expr], ret_ty=ir.PrimType(dtype_of(expr)))


def recomputed(expr: Expr, generation: int) -> Expr:
    """The expression with the mark of a sweep around it."""
    number = tirx.const(generation, "int32")
    return ir.Call(_RECOMPUTED, [expr, number], ret_ty=ir.PrimType(dtype_of(expr)))


def generation_of(op: Operation) -> int:
    """The latest sweep that recomputes a stage, or 0 for a stage of the forward pass."""
    if not is_compute(op):
        return 0
    return max(
        (
            int(const_value(operands(node)[1]) or 0)
            for node in postorder(bodies(op))
            if op_name(node) == RECOMPUTED
        ),
        default=0,
    )


def without_generations(op: Operation) -> list[Tensor]:
    """The stage as the forward pass computes it: ``recomputed(e, g) → e``."""
    if not generation_of(op):
        return outputs_of(op)

    def step(node: Expr) -> Expr | None:
        return operands(node)[0] if op_name(node) == RECOMPUTED else None

    new = [rewrite(body, step) for body in bodies(op)]
    return with_bodies(op, new)


def checkpoints(ops: Sequence[Operation]) -> dict[Key, Tensor]:
    """The tensors that are never kept: stages that are marked as a whole, and tensors read directly
    under a mark.
    """
    found: dict[Key, Tensor] = {}
    for op in ops:
        if not is_compute(op):
            continue
        for node in postorder(bodies(op)):
            if op_name(node) == CHECKPOINT and is_load(operands(node)[0]):
                tensor = load_tensor(operands(node)[0])
                if not is_placeholder(tensor.op):
                    found.setdefault(tensor_key(tensor), tensor)
        for tensor, body in zip(outputs_of(op), bodies(op), strict=True):
            if op_name(body) == CHECKPOINT:
                found.setdefault(tensor_key(tensor), tensor)
    return found


def computed_again(graph: Graph) -> dict[Key, Tensor]:
    """For each checkpoint of a graph, an equal tensor that is recomputed from what is kept.

    ``c = checkpoint(t), t[i] = f(x[i]) → c' = checkpoint(t'), t'[i] = f(recomputed(x[i], g))``
    """
    marked = checkpoints(graph.ops)
    if not marked:
        return {}
    generation = 1 + max(map(generation_of, graph.ops), default=0)
    again: dict[Key, Tensor] = {}
    for op in graph.ops:
        if any(tensor_key(tensor) in marked for tensor in outputs_of(op)):
            for old, new in zip(outputs_of(op), _again(op, again, generation), strict=True):
                again[tensor_key(old)] = new
    return {key: new for key, new in again.items() if key in marked}


def _again(op: Operation, again: dict[Key, Tensor], generation: int) -> list[Tensor]:
    if not is_compute(op):
        inputs = dict(again)
        for tensor in tensors_read_by(op):
            if tensor_key(tensor) not in again:
                inputs[tensor_key(tensor)] = _copy(tensor, generation)
        return retarget(op, lambda tensor: inputs.get(tensor_key(tensor)))
    moved = retarget(op, lambda tensor: again.get(tensor_key(tensor)))[0].op
    fresh = {tensor_key(tensor) for tensor in again.values()}
    # only values are marked, not indices
    values = {
        node_id(node): recomputed(node, generation)
        for node in outermost_loads(bodies(moved))
        if tensor_key(load_tensor(node)) not in fresh
    }
    new = [replace_outermost(body, values) for body in bodies(moved)]
    return with_bodies(op, new, name=f"{op.name}_again")


def _copy(tensor: Tensor, generation: int) -> Tensor:
    """A marked copy of what an opaque stage reads; lowering removes the copy."""
    return elementwise_stage(
        f"{tensor.op.name}_again",
        shape_of(tensor),
        lambda place: recomputed(load(tensor, place), generation),
    )


def outermost_loads(roots: Sequence[Expr]) -> list[Expr]:
    """The loads that are not part of the index of another load."""
    return outermost(roots, is_load)
