"""Reads reductions over tuples back from blocks, if they select one of their elements.

``v = select(v > x[k], v, x[k]), i = select(v > x[k], i, k)`` is argmax. Where a component keeps its
value, its source is the other side of the select, and the condition over the sources is that of the
reducer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...expr.build import const, select, variable
from ...expr.nodes import (
    Expr,
    Var,
    const_value,
    dtype_of,
    is_integer,
    is_load,
    node_id,
    op_name,
    operands,
    same_node,
)
from ...expr.rewrite import contains, postorder, replace_outermost, rewrite, variables_of
from ...expr.structural import StructuralKeys
from ...graph.stage import Combiner


@dataclass(frozen=True)
class Selection:
    """A reducer that selects, and its sources; components may be wider integers than their buffers.
    """

    combiner: Combiner
    sources: tuple[Expr, ...]


def selection(
    values: Sequence[Expr], states: Sequence[Var], starts: Sequence[Expr | None]
) -> Selection | None:
    """The reducer of a block that selects, or None for any other block.

    Parameters
    ----------
    values : sequence of Expr
        The written values, over `states`.
    states : sequence of Var
        The values computed so far.
    starts : sequence of Expr or None
        Initial values.
    """
    numbers = [None if start is None else const_value(start) for start in starts]
    if None in numbers:
        return None
    wide, lhs = _widened(values, states)
    parts = [_sides(value, state) for value, state in zip(wide, lhs, strict=True)]
    sides = [part for part in parts if part is not None]
    if len(sides) < len(parts):
        return None
    sources = [source for _, source, _ in sides]
    rhs = [variable(f"{var.name}_rhs", dtype_of(var)) for var in lhs]
    keys = StructuralKeys()
    by_key = {keys.expr(source): var for source, var in zip(sources, rhs, strict=True)}
    known = {node_id(var) for var in (*lhs, *rhs)}
    results = []
    for (condition, _, keeps), left, right in zip(sides, lhs, rhs, strict=True):
        found = {
            node_id(node): by_key[key]
            for node in postorder(condition)
            if (key := keys.expr(node)) in by_key
        }
        over = replace_outermost(condition, found)
        if contains(over, is_load) or {node_id(var) for var in variables_of(over)} - known:
            return None
        results.append(select(over, left, right) if keeps else select(over, right, left))
    if {node_id(var) for source in sources for var in variables_of(source)} & known:
        return None
    pairs = zip(numbers, lhs, strict=True)
    identity = tuple(const(number, dtype_of(var)) for number, var in pairs if number is not None)
    combiner = Combiner(tuple(lhs), tuple(rhs), tuple(results), identity)
    return Selection(combiner, tuple(sources))


def _sides(value: Expr, state: Var) -> tuple[Expr, Expr, bool] | None:
    """``select(c, state, x) → c, x``, and that the state is kept if c holds."""
    if op_name(value) != "select":
        return None
    condition, then, otherwise = operands(value)
    if same_node(then, state):
        return condition, otherwise, True
    return (condition, then, False) if same_node(otherwise, state) else None


def _widened(values: Sequence[Expr], states: Sequence[Var]) -> tuple[list[Expr], list[Var]]:
    """``int32(select(c, int64(i), k)) → select(c, i, k)`` over int64.

    TVM's indices are int64, while their buffer may be int32.
    """
    inner: list[Expr] = []
    lhs: list[Var] = []
    for value, state in zip(values, states, strict=True):
        narrow = op_name(value) == "cast" and is_integer(value) and is_integer(operands(value)[0])
        inner.append(operands(value)[0] if narrow else value)
        lhs.append(variable(state.name, dtype_of(inner[-1])) if narrow else state)
    table = {node_id(old): new for old, new in zip(states, lhs, strict=True)}

    def visit(node: Expr) -> Expr | None:
        if op_name(node) != "cast":
            return None
        [inside] = operands(node)
        new = table.get(node_id(inside), inside)
        return new if dtype_of(new) == dtype_of(node) else None  # TVM casts int64 to int64, too

    return [rewrite(value, visit) for value in inner], lhs
