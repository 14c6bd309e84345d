"""Cotangents that only scale another tensor, read through where no sum is around them.

In: the source of a gathered term without reduce axes, the cotangent it reads. Out: the same value
from the tensor behind the cotangent's stage, if that is one read times literals: an average's
division is such a stage. Under a sum the scaling stays a stage, which does it once an element.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.nodes import Expr, Tensor, binary, is_const, is_load, op_name, operands, tensor_key
from ...expr.rewrite import contains_load, map_loads, substituter
from ...expr.simplify import simplify
from ...graph.stage import axis_range, axis_vars, bodies, is_compute

#: literals that one read may be multiplied by; a chain of scalings must not be written out whole
_MOST_FACTORS = 2


def read_through_scaling(source: Expr, head: Tensor) -> Expr:
    """``head[g(b)] → up[g(b)]/4`` where the head's stage is ``head[a] = up[a]/4``."""
    if not is_compute(head.op):
        return source
    body = _scaled_read(head)
    if body is None:
        return source

    def expand(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        if tensor_key(tensor) != tensor_key(head):
            return None
        return substituter(dict(zip(axis_vars(head.op), indices, strict=True)))(body)

    return map_loads(source, expand)


def _scaled_read(head: Tensor) -> Expr | None:
    """The body of a stage, simplified, where that is one read times literals."""
    ranges = {axis.var: axis_range(axis) for axis in head.op.axis}
    body = bodies(head.op)[head.value_index]
    factors: list[tuple[bool, Expr]] = []
    while op_name(body) in ("mul", "div"):
        left, right = operands(body)
        swapped = op_name(body) == "mul" and not contains_load(left)
        factor, rest = (left, right) if swapped else (right, left)
        factor = factor if contains_load(factor) else simplify(factor, ranges)
        if not is_const(factor):
            return None
        factors.append((op_name(body) == "div", factor))
        body = rest
    if not is_load(body) or len(factors) > _MOST_FACTORS:
        return None
    for divides, factor in reversed(factors):
        body = binary("div" if divides else "mul", body, factor)
    return body
