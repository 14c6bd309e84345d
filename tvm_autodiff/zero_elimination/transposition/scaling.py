"""Reads through cotangents that only scale another tensor, outside of sums.

If the stage of a cotangent is one read times literals, as in the division of an average, a gathered
term without reduce axes reads the tensor behind it. Under a sum the scaling stays a stage, so that
it happens once per element.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.nodes import Expr, Tensor, binary, is_const, is_load, op_name, operands, tensor_key
from ...expr.rewrite import contains_load, map_loads, substituter
from ...expr.simplify import simplify
from ...graph.stage import axis_range, axis_vars, bodies, is_compute

#: the maximum number of literals that multiply one read; long sequences of scalings are not
#: expanded
_MOST_FACTORS = 2


def read_through_scaling(source: Expr, head: Tensor) -> Expr:
    """``head[g(b)] → up[g(b)]/4`` if the head's stage is ``head[a] = up[a]/4``."""
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
    """The simplified body of a stage if it is one read times literals."""
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
