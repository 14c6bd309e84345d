"""Finds terms whose value is non-zero only at every m-th position, because an operand was spread
with zeros.

The solver can then skip the zeros. The operand may be guarded by a remainder itself, or be a tensor
that copies another between zeros, such as the dilated input of a transposed convolution. Zeros
around a tensor (a padding) are left to the schedule: they are few, and a copy hides them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...expr.nodes import (
    Expr,
    Tensor,
    is_const,
    is_load,
    load,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import map_loads, postorder, substituter
from ...graph.stage import axis_vars, bodies
from ...rules.copies import terms_of_copy
from ...rules.terms import Condition, Term, guarded
from ..sums.conditions import on_indices
from ..sums.summands import summands

_REMAINDERS = frozenset(("floormod", "truncmod"))


def with_sparse_operands(term: Term) -> Term:
    """``[c] p·z[h] with z[a] = if a % m == r then x[g(a)] else 0  →  [c, h % m == r] p·x[g(h)]``.

    The same term if its value has no such factor.
    """
    value = with_guarded_reads(term.value)
    if node_id(value) == node_id(term.value) and not any(map(_is_sparse, postorder(value))):
        return term
    parts = summands(value)
    if len(parts) != 1 or not any(_is_sparse(c.expr) for c in parts[0].conditions):
        return term
    [part] = parts
    if not all(on_indices(condition.expr) for condition in part.conditions):
        return term
    return replace(term, value=part.value, conditions=(*term.conditions, *part.conditions))


def with_guarded_reads(expr: Expr) -> Expr:
    """``z[h]  →  if h % m == r then x[g(h)] else 0`` for tensors that are spread with zeros.

    The same node if it reads none.
    """
    return map_loads(expr, _spread_read)


def _spread_read(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
    """The guarded read of a tensor that is copied between zeros, through other copies, or None."""
    conditions: list[Condition] = []
    while True:
        terms = terms_of_copy(tensor.op)
        if terms is None or len(terms) != 1 or node_id(terms[0].value) != node_id(terms[0].seed):
            break
        if not _is_zero_elsewhere(tensor):  # a number between has no term in the derivative
            break
        [inner] = terms
        rename = substituter(dict(zip(axis_vars(tensor.op), indices, strict=True)))
        conditions += [Condition(rename(c.expr), c.guards) for c in inner.conditions]
        tensor, indices = inner.tensor, [rename(index) for index in inner.indices]
    if not any(_is_sparse(condition.expr) for condition in conditions):
        return None
    return guarded(load(tensor, indices), conditions)


def _is_zero_elsewhere(tensor: Tensor) -> bool:
    """Whether a copying stage writes only zeros besides what it reads."""
    nodes = [bodies(tensor.op)[0]]
    for node in nodes:  # grows while it is walked: branches of branches
        if op_name(node) in ("if_then_else", "select"):
            nodes += operands(node)[1:]
    return all(is_const(node, 0) for node in nodes if is_const(node))


def _is_sparse(expr: Expr) -> bool:
    """Whether an expression is a condition on a remainder of an index."""
    if op_name(expr) not in ("eq", "and"):
        return False
    nodes = postorder(expr)
    return any(op_name(node) in _REMAINDERS for node in nodes) and not any(map(is_load, nodes))
