"""Splits conditions that hold in several separate parts of a domain.

A disjunction, a distance and a wrapped difference bound no index at all points where they hold, so
that a sum over these points would have a dense box. In each case, linear conditions take their
place. The cases are disjoint, and cover the points where the conditions hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...domain import Domain, simplify_domain
from ...errors import UnsolvableError
from ...expr.build import add, affirmed, all_of, compare, conjuncts, like, mul, negate, sub
from ...expr.nodes import (
    INDEX_DTYPES,
    Expr,
    binary,
    const_value,
    dtype_of,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import postorder, variables_of
from ...expr.sharing.lets import merge_equal
from ...expr.simplify import Ranges, constant_bounds
from ...rules.terms import Condition
from ..sums.conditions import on_indices
from .clamps import choice_at, replacing
from .splitting import fully_split

#: the maximum number of cases of the conditions of a sum: each is solved
_MOST_CASES = 16
#: the maximum number of quotients of an index that wraps: two for a difference on a circle, three
#: for a sum of three
_MOST_TURNS = 3

_Case = tuple[Condition, ...]


def cases_of(conditions: Sequence[Condition], ranges: Ranges) -> list[_Case] | None:
    """``[abs(k - j) == 7] → [k >= j, k - j == 7], [k < j, j - k == 7]``.

    Parameters
    ----------
    conditions : sequence of Condition
        Conditions in order of evaluation.
    ranges : mapping of Var to (min, extent)
        The ranges of indices.

    Returns
    -------
    list of tuple of Condition, or None
        None if no condition on indices has cases, or if there are too many.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.expr.printing.text import text
    >>> k, j = te.var("k"), te.var("j")
    >>> ranges = {k: (0, 9), j: (0, 9)}
    >>> def shown(condition):
    ...     found = cases_of([Condition(condition, False)], ranges)
    ...     return [", ".join(text(c.expr) for c in case) for case in found]
    >>> shown(te.any(k == j, k == j + 1))
    ['k == j', 'k == j + 1']
    >>> shown((k - j + 9) % 9 < 2)
    ['k - j + 9 < 9, k - j + 9 < 2', 'k - j + 9 >= 9, k - j + 9 - 9 < 2']
    """
    every = tuple(Condition(part, c.guards) for c in conditions for part in affirmed(c.expr))
    return fully_split(every, lambda current: _split(current, ranges), _MOST_CASES)


def _split(conditions: _Case, ranges: Ranges) -> list[_Case] | None:
    """The cases of the first condition that has some."""
    for number, condition in enumerate(conditions):
        if not on_indices(condition.expr):
            continue
        sides = _either(condition.expr, ranges)
        if sides is None:
            sides = next(_by_values(condition.expr, ranges), None)
        if sides is not None:
            return [
                (
                    *conditions[:number],
                    *(Condition(part, condition.guards) for part in side),
                    *conditions[number + 1 :],
                )
                for side in sides
            ]
    return None


def _either(condition: Expr, ranges: Ranges) -> list[list[Expr]] | None:
    """``a or b → [a], [b, not a]``, without ``not a`` where it follows; None for others."""
    sides = _sides(condition)
    if sides is None:
        return None
    found: list[list[Expr]] = []
    for number, side in enumerate(sides):
        own = affirmed(side)
        for other in sides[:number]:
            if not _excludes(own, other, ranges):
                own += affirmed(negate(other))
        found.append(own)
    return found


def _sides(condition: Expr) -> list[Expr] | None:
    """``a or b → a, b``, ``not (a and b) → not a, not b``, ``i != j → i < j, i > j``."""
    name = op_name(condition)
    if name == "ne" and dtype_of(operands(condition)[0]) in INDEX_DTYPES:
        return [compare("lt", *operands(condition)), compare("gt", *operands(condition))]
    if name == "or":
        return [part for side in operands(condition) for part in _sides(side) or [side]]
    if name == "not" and op_name(operands(condition)[0]) == "and":
        return [negate(part) for part in conjuncts(operands(condition)[0])]
    return None


def _excludes(conditions: Sequence[Expr], other: Expr, ranges: Ranges) -> bool:
    """Whether the solver shows that no point satisfies conditions and another one."""
    both = (*conditions, *affirmed(other))
    named = {node_id(var) for var in variables_of(both)}
    known = {var: bounds for var, bounds in ranges.items() if node_id(var) in named}
    try:
        return simplify_domain(Domain(tuple(known), known, both)).new_domain.is_empty
    except UnsolvableError:
        return False


def _by_values(condition: Expr, ranges: Ranges) -> Iterator[list[list[Expr]]]:
    """``min(i, j) == 3 → [i <= j, i == 3], [i > j, j == 3]``, for each node with few values,
    innermost first.
    """
    [condition] = merge_equal([condition])
    for node in postorder(condition):
        choice = choice_at(node)
        values = _quotients(node, ranges) if choice is None else choice
        if values:
            yield [
                [*affirmed(holds), *affirmed(replacing(node, value)(condition))]
                for holds, value in values
            ]


def _quotients(node: Expr, ranges: Ranges) -> list[tuple[Expr, Expr]]:
    """``i % n → [i < n] i, [i >= n] i - n`` for i from 0 to 2*n - 1; empty for other nodes and if
    there are more turns.
    """
    if op_name(node) not in ("floordiv", "floormod") or dtype_of(node) not in INDEX_DTYPES:
        return []
    index, divisor = operands(node)
    turns = _turns(node, ranges)
    if turns is None:
        return []
    found: list[tuple[Expr, Expr]] = []
    for turn in turns:
        start = mul(divisor, like(node, turn))
        value = like(node, turn) if op_name(node) == "floordiv" else sub(index, start)
        bounds = [
            *([] if turn == turns[0] else [compare("ge", index, start)]),
            *([] if turn == turns[-1] else [compare("lt", index, add(start, divisor))]),
        ]
        found.append((all_of(bounds), value))
    return found


def _turns(node: Expr, ranges: Ranges) -> range | None:
    """The quotients of an index by a positive literal, if they are few."""
    index, divisor = operands(node)
    value = const_value(divisor)
    if value is None or value <= 0:
        return None
    try:
        least, most = constant_bounds(binary("floordiv", index, divisor), ranges)
    except UnsolvableError:
        return None
    return range(least, most + 1) if most - least < _MOST_TURNS else None
