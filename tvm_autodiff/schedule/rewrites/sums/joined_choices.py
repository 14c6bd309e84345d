"""Two terms of a sum of which a condition chooses one, with a factor in common, are one term.

The derivative of a leaky rectifier is such a sum: what the condition chooses no longer depends on
what is summed, and leaves the sum.

    ``select(c, p*a, 0) + select(not c, p*b, 0)  →  p*select(c, a, select(not c, b, 0))``
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ....expr.build import NEGATED, if_then_else, like, mul, multiplied, select, sum_of
from ....expr.nodes import (
    BRANCHES,
    Expr,
    Var,
    const_value,
    is_const,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import depends_on
from ....expr.sharing.lets import merge_equal
from ...nest.in_range import Loops, is_safe


def with_joined_choices(terms: Expr, nest: Loops, reduced: Sequence[Var]) -> Expr:
    """A sum of terms, of which pairs are one term with a choice of factors that the sum over some
    loops does not change; the given one if there is no pair.
    """
    [merged] = merge_equal([terms])
    summands, found = _summands(merged), list[Expr]()
    count = len(summands)
    while summands:
        first, *rest = summands
        for place, other in enumerate(rest):
            joined = _joined(first, other, nest, reduced)
            if joined is not None:
                first, rest = joined, [*rest[:place], *rest[place + 1 :]]
                break
        found.append(first)
        summands = rest
    return terms if len(found) == count else sum_of(found)


def _summands(expr: Expr) -> list[Expr]:
    if op_name(expr) != "add":
        return [expr]
    return [part for side in operands(expr) for part in _summands(side)]


def _joined(left: Expr, right: Expr, nest: Loops, reduced: Sequence[Var]) -> Expr | None:
    """One term for two that exclude each other."""
    this, that = _choice(left), _choice(right)
    if this is None or that is None or op_name(left) != op_name(right):
        return None
    if depends_on(this.condition, reduced) or not _is_opposite(this, that):
        return None
    first, second = _factors(this.value), _factors(that.value)
    common = Counter(map(node_id, first)) & Counter(map(node_id, second))
    shared, first = _parted(first, common)
    _, second = _parted(second, common)
    # no condition protects what is in common any more
    if not shared or not (op_name(left) == "select" or is_safe(shared, nest)):
        return None
    choose = select if op_name(left) == "select" else if_then_else
    zero = like(this.value, 0.0)
    rest = zero
    for choice, factors in ((that, second), (this, first)):
        value = multiplied(factors) if factors else like(zero, 1.0)
        sides = (value, rest) if choice.holds else (rest, value)
        rest = choose(choice.condition, *sides)
    return mul(multiplied(shared), rest)


@dataclass(frozen=True)
class _Choice:
    """A term that is a value if a condition holds, or if it does not, and else zero."""

    condition: Expr
    holds: bool
    value: Expr


def _choice(term: Expr) -> _Choice | None:
    if op_name(term) not in BRANCHES:
        return None
    condition, then, otherwise = operands(term)
    if is_const(otherwise, 0):
        return _Choice(condition, True, then)
    return _Choice(condition, False, otherwise) if is_const(then, 0) else None


def _is_opposite(this: _Choice, that: _Choice) -> bool:
    """Whether two choices exclude each other, and one of them is no zero where nothing is NaN, for
    which neither of two comparisons may hold.
    """
    if node_id(this.condition) == node_id(that.condition):
        return this.holds != that.holds
    if not (this.holds and that.holds):
        return False
    for one, other in ((this.condition, that.condition), (that.condition, this.condition)):
        if op_name(one) == "not" and node_id(operands(one)[0]) == node_id(other):
            return True
    if NEGATED.get(op_name(this.condition)) != op_name(that.condition):
        return False
    pairs = zip(operands(this.condition), operands(that.condition), strict=True)
    return all(node_id(one) == node_id(two) for one, two in pairs)


def _factors(product: Expr) -> list[Expr]:
    if op_name(product) != "mul":
        return [product]
    return [part for side in operands(product) for part in _factors(side)]


def _parted(factors: list[Expr], common: Counter[int]) -> tuple[list[Expr], list[Expr]]:
    """The factors in common, and the others."""
    left = Counter(common)
    shared: list[Expr] = []
    others: list[Expr] = []
    for factor in factors:
        is_shared = const_value(factor) is None and left[node_id(factor)] > 0
        left[node_id(factor)] -= is_shared
        (shared if is_shared else others).append(factor)
    return shared, others
