"""Integer expressions as sums of operands with literal coefficients, and such sums as expressions.
"""

from __future__ import annotations

from .build import binary, const, mul
from .nodes import Expr, const_value, node_id, op_name, operands


def linear_terms(expr: Expr) -> tuple[list[tuple[Expr, int]], int]:
    """``sum(k * operand) + constant``; equal nodes are one operand."""
    found: dict[int, tuple[Expr, int]] = {}
    constant = 0
    pending = [(expr, 1)]
    while pending:
        node, factor = pending.pop()
        value = const_value(node)
        if value is not None:
            constant += factor * int(value)
            continue
        name = op_name(node)
        if name in ("add", "sub"):
            left, right = operands(node)
            pending += [(right, factor if name == "add" else -factor), (left, factor)]
            continue
        if name == "mul":
            left, right = operands(node)
            a, b = const_value(left), const_value(right)
            if a is not None or b is not None:
                if b is not None:
                    pending.append((left, factor * int(b)))
                else:
                    pending.append((right, factor * int(a or 0)))
                continue
        key = node_id(node)
        found[key] = (node, found.get(key, (node, 0))[1] + factor)
    return [(node, k) for node, k in found.values() if k], constant


def linear_sum(terms: list[tuple[Expr, int]], constant: int, dtype: str) -> Expr:
    """``sum(k * operand) + constant`` with the constant first where all else is subtracted."""
    result: Expr | None = None
    for node, k in sorted((t for t in terms if t[1]), key=lambda term: term[1] < 0):
        if result is None and k < 0 and constant:
            result, constant = const(constant, dtype), 0
        if result is None:
            result = mul(node, const(k, dtype))
        else:
            term = mul(node, const(abs(k), dtype))
            result = binary("add" if k > 0 else "sub", result, term)
    if result is None:
        return const(constant, dtype)
    if constant:
        name = "add" if constant > 0 else "sub"
        result = binary(name, result, const(abs(constant), dtype))
    return result
