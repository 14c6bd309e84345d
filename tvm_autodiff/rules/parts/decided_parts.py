"""Numbers by which a stage decides, as stages of their own, which all of its derivatives read.

The derivatives of ``max(q/n - m*m, 0)`` by q and by m are computed in different kernels, which may
round the quotient and the product differently. Where both lead to one tensor and cancel, each must
take the same side.
"""

from __future__ import annotations

from ...expr.nodes import (
    COMPARISONS,
    Expr,
    Tensor,
    is_float,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ...expr.rewrite import postorder, preorder
from ...graph.stage import Operation, is_placeholder
from .stored import needed_operands, parts_of


def decided_parts(op: Operation) -> list[Tensor] | None:
    """The results of an equal stage that reads the numbers by which it decides; None if it has none
    that are stored.

    ``y[i] = max(q[i]/n[i] - m[i]*m[i], 0)  →  p[i] = q[i]/n[i] - m[i]*m[i], y[i] = max(p[i], 0)``

    Such a number calls a function of many operations and depends on several computed tensors, whose
    adjoints may lead to the same tensor. Sums of products without such functions are written in
    operations that all kernels round alike instead (`expr.rounded_alike`).
    """
    found = parts_of(op)
    if found is None:
        return None
    parts = [
        number
        for node in preorder(found.sources, needed_operands)
        for number in _numbers(node)
        if found.facts[node_id(number)].slow
        and found.symbolic <= found.facts[node_id(number)].axes
        and reads_computed(number)
    ]
    once = list({node_id(part): part for part in parts}.values())
    return found.stored(once, "decided") if once else None


def reads_computed(expr: Expr) -> bool:
    """Whether an expression depends on several tensors that are computed."""
    tensors = [load_tensor(node) for node in postorder(expr) if is_load(node)]
    computed = {
        tensor_key(one) for one in tensors if is_float(one) and not is_placeholder(one.op)
    }
    return len(computed) > 1


def _numbers(node: Expr) -> tuple[Expr, ...]:
    """The floats by which a node decides."""
    if op_name(node) in (*COMPARISONS, "min", "max"):
        return tuple(filter(is_float, operands(node)))
    return ()
