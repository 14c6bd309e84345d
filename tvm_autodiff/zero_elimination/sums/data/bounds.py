"""Bounds on data from both sides: ``idx[e] <= n < idx[e] + 3`` as one equation, ``n == idx[e] + w``
for w in 0 .. 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ....expr.build import add, affirmed, compare, const, like, mul, variable
from ....expr.linear_terms import linear_terms
from ....expr.nodes import INDEX_DTYPES, Expr, Var, dtype_of, op_name, operands
from ....expr.rewrite import contains_load, variables_of
from ....expr.simplify import simplify
from ....expr.structural import StructuralKeys
from ....rules.terms import Condition

#: comparison → the sign with which ``left - right`` is at least zero, or one if it is strict
_BOUNDS = {"ge": (1, 0), "gt": (1, 1), "le": (-1, 0), "lt": (-1, 1)}
Terms = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Bound:
    """``sign*(left - end) >= 0``: a bound from one side, with the terms of the difference, by key,
    and its constant.
    """

    left: Expr
    end: Expr
    sign: int
    terms: Terms
    constant: int

    @property
    def opposite(self) -> Terms:
        """The terms of the negated difference."""
        return frozenset((key, -factor) for key, factor in self.terms)

    def equals(self, offset: Expr | None) -> Expr:
        """``sign*(left - end) == offset``."""
        if offset is None:
            return compare("eq", self.left, self.end)
        step = mul(offset, const(self.sign, dtype_of(offset)))
        return compare("eq", self.left, add(self.end, step))


@dataclass(frozen=True)
class Window:
    """Two bounds with few integers between them.

    Attributes
    ----------
    conditions : tuple of Condition
        All conditions, with an equation in place of the first bound.
    place : int
        Where the equation is.
    offset : Var
        The integer above the lower bound, in ``0 .. width-1``.
    width : int
    bounds : tuple of Expr
        The two conditions.
    """

    conditions: tuple[Condition, ...]
    place: int
    offset: Var
    width: int
    bounds: tuple[Expr, Expr]


def with_equations(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """``idx[e] >= n, idx[e] <= n → idx[e] == n``: conditions on data that bound it from both sides.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.expr.printing.text import text
    >>> idx, e, n = te.placeholder((9,), "int32", "idx"), te.var("e"), te.var("n")
    >>> bounds = [Condition(idx(e) >= n, False), Condition(idx(e) < n + 1, False)]
    >>> [text(one.expr) for one in with_equations(bounds)]
    ['idx[e] == n']
    """
    found = _apart(conditions)
    while True:
        pairs = (pair for pair in _pairs(found) if pair[2] == 1)
        first, second, _, bound = next(pairs, (0, 0, 0, None))
        if bound is None:
            return found
        found = _joined(found, first, second, bound.equals(None))


def windows_of(conditions: Sequence[Condition]) -> Iterator[Window]:
    """Pairs of bounds on data, each with the conditions that it leaves.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.expr.printing.text import text
    >>> idx, e, n = te.placeholder((9,), "int32", "idx"), te.var("e"), te.var("n")
    >>> bounds = [Condition(n >= idx(e), False), Condition(n < idx(e) + 3, False)]
    >>> [(one.width, text(one.conditions[one.place].expr)) for one in windows_of(bounds)]
    [(3, 'n == idx[e] + offset')]
    """
    apart = _apart(conditions)
    for first, second, width, bound in _pairs(apart):
        offset = variable("offset", dtype_of(bound.left))
        bounds = apart[first].expr, apart[second].expr
        joined = _joined(apart, first, second, bound.equals(offset))
        yield Window(joined, first, offset, width, bounds)


def rare(conditions: Sequence[Condition]) -> list[Expr]:
    """The conditions on data that few points satisfy: equations of data with an index, or of
    either of several, and two bounds of an index by data.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.expr.printing.text import text
    >>> start, row, k = te.placeholder((9,), "int32", "start"), te.var("row"), te.var("k")
    >>> tests = [k >= start(row), k < start(row + 1), start(row) > 3, start(row).equal(k + 1)]
    >>> [text(test) for test in rare([Condition(test, False) for test in tests])]
    ['start[row] == k + 1', 'k >= start[row]', 'k < start[row + 1]']
    """
    bounds: dict[int, dict[bool, Expr]] = {}
    keys = StructuralKeys()
    for condition in _apart(conditions):
        name = op_name(condition.expr)
        beside = _index_beside_data(condition.expr) if name in _BOUNDS else None
        if beside is not None:
            place, index = beside
            is_lower = (_BOUNDS[name][0] > 0) == (place == 0)
            bounds.setdefault(keys.expr(index), {})[is_lower] = condition.expr
    both = [bound for sides in bounds.values() if len(sides) == 2 for bound in sides.values()]
    return [*(c.expr for c in conditions if _is_equation(c.expr)), *both]


def _is_equation(condition: Expr) -> bool:
    """Whether a condition is an equation of data with an index, or holds only where one of several
    does.
    """
    if op_name(condition) == "or":
        return all(map(_is_equation, operands(condition)))
    if op_name(condition) == "and":
        return any(map(_is_equation, operands(condition)))
    return op_name(condition) == "eq" and _index_beside_data(condition) is not None


def _index_beside_data(comparison: Expr) -> tuple[int, Expr] | None:
    """The number of the side that reads nothing, and the side, if the other one reads."""
    reads = list(map(contains_load, operands(comparison)))
    if reads.count(True) != 1:
        return None
    place = reads.index(False)
    side = operands(comparison)[place]
    return (place, side) if variables_of(side) else None


def _apart(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    return tuple(replace(c, expr=part) for c in conditions for part in _parts(c.expr))


def _parts(condition: Expr) -> list[Expr]:
    return affirmed(condition) if contains_load(condition) else [condition]


def _pairs(conditions: Sequence[Condition]) -> Iterator[tuple[int, int, int, Bound]]:
    """The places of two bounds on data, the number of integers between them, and the first."""
    keys = StructuralKeys()
    earlier: dict[Terms, list[tuple[int, Bound]]] = {}
    for place, condition in enumerate(conditions):
        bound = bound_of(condition.expr, keys) if contains_load(condition.expr) else None
        if bound is None:
            continue
        for first, other in earlier.get(bound.opposite, []):
            width = bound.constant + other.constant + 1
            if width > 0:
                yield first, place, width, other
        earlier.setdefault(bound.terms, []).append((place, bound))


def _joined(
    conditions: Sequence[Condition], first: int, second: int, equation: Expr
) -> tuple[Condition, ...]:
    """The conditions with an equation in place of two bounds."""
    guards = conditions[first].guards or conditions[second].guards
    joined = [*conditions[:first], Condition(equation, guards), *conditions[first + 1 :]]
    return (*joined[:second], *joined[second + 1 :])


def bound_of(condition: Expr, keys: StructuralKeys) -> Bound | None:
    """A condition that bounds integers from one side."""
    if op_name(condition) not in _BOUNDS:
        return None
    left, right = operands(condition)
    if dtype_of(left) not in INDEX_DTYPES:
        return None
    sign, strict = _BOUNDS[op_name(condition)]
    terms: dict[int, int] = {}
    constant = -strict
    for side, factor in ((left, sign), (right, -sign)):
        parts, rest = linear_terms(side)
        constant += factor * rest
        for node, times in parts:
            key = keys.expr(node)
            terms[key] = terms.get(key, 0) + factor * times
    # a > b is a >= b + 1
    end = simplify(add(right, like(right, sign))) if strict else right
    return Bound(left, end, sign, frozenset(one for one in terms.items() if one[1]), constant)
