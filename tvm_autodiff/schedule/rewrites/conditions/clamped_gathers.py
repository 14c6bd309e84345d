"""Clamps the places of gathered rows that a condition keeps in bounds: a loop over a row has no
branch then.

    ``if 0 <= d[e] < n then x[d[e], c] else 0  →
    select(0 <= d[e] < n, x[min(max(d[e], 0), n - 1), c], 0)``
"""

from __future__ import annotations

from collections.abc import Sequence

from ....codegen.passes.short_circuit import holds_mark
from ....expr.build import select
from ....expr.costly import is_expensive
from ....expr.intrinsics import itself
from ....expr.nodes import Axis, Expr, Tensor, is_load, op_name, operands, same_node
from ....expr.rewrite import contains, contains_load, depends_on, expand_lets, rewrite
from ....graph.graph import each_stage
from ....graph.stage import Operation, bodies, is_compute, reduction_of, with_bodies
from ...nest.in_range import Loops, Safety, loops_of
from .guards import safe_branches


def with_clamped_gathers(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Equal tensors, whose elementwise stages gather rows without branches."""
    return each_stage(outputs, _changed)


def _changed(op: Operation) -> list[Tensor] | None:
    if not is_compute(op) or reduction_of(op) is not None or len(op.axis) < 2:
        return None
    old = [expand_lets(body) for body in bodies(op)]
    if not contains(old, _is_gather):
        return None
    loops = loops_of(op.axis)

    def visit(node: Expr) -> Expr | None:
        return _selected(node, op.axis[-1], loops) if op_name(node) == "if_then_else" else None

    new = [rewrite(body, visit) for body in old]
    changed = any(not same_node(a, b) for a, b in zip(old, new, strict=True))
    return with_bodies(op, new) if changed else None


def _is_gather(node: Expr) -> bool:
    """Whether a node reads at a place that is data."""
    return is_load(node) and any(contains_load(index) for index in operands(node))


def _selected(node: Expr, along: Axis, loops: Loops) -> Expr | None:
    """A branch that is the same for a whole row as a select between reads that are in bounds; None
    for others, and where both sides take longer than the branch.
    """
    condition, *sides = operands(node)
    if depends_on(condition, [along.var]) or not contains(sides, _is_gather):
        return None
    if contains(sides, is_expensive):
        return None
    safe = None if holds_mark(condition) else safe_branches(sides, Safety(loops))
    # TVM would simplify each side as if the condition decided it, and take the clamps away
    return None if safe is None else select(itself(condition), *safe)
