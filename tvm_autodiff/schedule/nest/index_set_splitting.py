"""Simplifies expressions on a part of their loops, and finds the cuts at which more is decided.

Conditions, clamps and divisions that numeric ranges decide are replaced by their values. Only
affine forms are analysed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd

from ...expr.build import (
    add,
    all_of,
    any_of,
    compare,
    const,
    if_then_else,
    mul,
    negate,
    select,
    sub,
    true,
)
from ...expr.dtypes import integer_range
from ...expr.nodes import (
    COMPARISONS,
    Expr,
    Var,
    binary,
    const_value,
    dtype_of,
    is_integer,
    node_id,
    op_name,
    operands as operands_of,
)
from ...expr.rewrite import Rewriter, postorder
from ..cost import MAX_COPIES, MAX_PIECES
from .access import Affine, AffineForms, Interval, combine, interval

_HOLDS: dict[str, Callable[[int], bool]] = {
    "eq": lambda difference: difference == 0,
    "ne": lambda difference: difference != 0,
    "lt": lambda difference: difference < 0,
    "le": lambda difference: difference <= 0,
    "gt": lambda difference: difference > 0,
    "ge": lambda difference: difference >= 0,
}
_BORDERS = frozenset((*COMPARISONS, "min", "max", "floordiv", "floormod"))
Piece = tuple[int, int, list[Expr]]  #: first, last, the expressions in between


def decided(
    exprs: Sequence[Expr], variables: Sequence[Var], ranges: Mapping[int, Interval]
) -> list[Expr]:
    """Expressions for variables in `ranges`, by id; others may have any value. What they share is
    visited once.

    What ranges do not decide has fewer variables and smaller coefficients, where it can.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> decided([te.if_then_else(i < 4, (i * 2 + 1) // 2, 7)], [i], {node_id(i): (0, 3)})
    [i]
    >>> a, b = te.var("a"), te.var("b")
    >>> ranges = {node_id(a): (0, 7), node_id(b): (0, 15)}
    >>> decided([(a * 16 + b + 8) // 16, (a * 16 + b + 16) % 64, a * 16 + b < 32], [a, b], ranges)
    [a + (b + 8) // 16, (a + 1) % 4 * 16 + b, a < 2]
    """
    return _decided(exprs, _Forms(variables), ranges)


class _Forms(AffineForms):
    """The affine forms over some variables, and expressions of them: one node for equal forms."""

    def __init__(self, variables: Sequence[Var]) -> None:
        super().__init__(variables)
        self._by_id = {node_id(var): var for var in variables}
        self._written: dict[tuple[Affine, str], Expr] = {}

    def written(self, form: Affine, dtype: str) -> Expr | None:
        """The expression of a form, or None if the dtype does not hold its literals."""
        least, most = integer_range(dtype)
        if not all(least <= c <= most for c in (form.constant, *(c for _, c in form.terms))):
            return None
        found = self._written.get((form, dtype))
        if found is None:
            found = self._written[form, dtype] = _expression(form, self._by_id, dtype)
        return found


def _decided(
    exprs: Sequence[Expr], forms: _Forms, ranges: Mapping[int, Interval]
) -> list[Expr]:
    """`decided`, by forms that are found once for several ranges."""

    def visit(node: Expr) -> Expr | None:
        parts = operands_of(node)
        if not parts:
            return None
        name = op_name(node)
        if name in ("if_then_else", "select"):
            return (if_then_else if name == "if_then_else" else select)(*parts)
        if name == "and":
            return all_of(parts)
        if name == "or":
            return any_of(parts)
        if name == "not":
            return negate(parts[0])
        if name == "likely":
            return parts[0]
        if name == "cast" or not is_integer(parts[0]):
            return None
        if name in COMPARISONS or name in ("min", "max"):
            known = _compared(node, forms, ranges)
            return _compared_apart(node, forms, ranges) if known is None else known
        if name in ("floordiv", "floormod"):
            known = _divided(node, forms, ranges)
            return _divided_apart(node, forms, ranges) if known is None else known
        if name in ("add", "sub", "mul"):
            form = forms.of(node)
            return None if form is None else forms.written(form, dtype_of(node))
        return None

    return list(map(Rewriter(visit), exprs))


def _difference(node: Expr, forms: AffineForms) -> Affine | None:
    left, right = map(forms.of, operands_of(node))
    return None if left is None or right is None else combine(left, right, -1, forms.order)


def _compared(node: Expr, forms: AffineForms, ranges: Mapping[int, Interval]) -> Expr | None:
    difference = _difference(node, forms)
    bounds = None if difference is None else interval(difference, ranges)
    if bounds is None:
        return None
    low, high = bounds
    name = op_name(node)
    left, right = operands_of(node)
    if name in ("min", "max"):
        if high <= 0:
            return left if name == "min" else right
        if low >= 0:
            return right if name == "min" else left
        return None
    if name in ("eq", "ne") and low <= 0 <= high and low != high:
        return None
    first, last = _HOLDS[name](low), _HOLDS[name](high)
    if first != last:
        return None
    return true() if first else negate(true())


def _divided(node: Expr, forms: _Forms, ranges: Mapping[int, Interval]) -> Expr | None:
    """``(d*A + r)//d → A + k``, ``(d*A + r)%d → r - d*k`` where r is known to lie in d*k .. d*k +
    d-1.
    """
    numerator, divisor = operands_of(node)
    value = const_value(divisor)
    form = forms.of(numerator)
    if form is None or value is None or value <= 0:
        return None
    d = int(value)
    for nearest in (False, True):  # 8*i = 9*i - i has the quotient i for small i
        parts = [(k, c, _quotient(c, d, nearest)) for k, c in form.terms]
        whole = Affine(tuple((k, q) for k, _, q in parts if q), form.constant // d)
        rest = Affine(tuple((k, c - d * q) for k, c, q in parts if c - d * q), form.constant % d)
        bounds = interval(rest, ranges)
        if bounds is not None and bounds[0] // d == bounds[1] // d:
            turns = bounds[0] // d
            whole = Affine(whole.terms, whole.constant + turns)
            rest = Affine(rest.terms, rest.constant - d * turns)
            chosen = whole if op_name(node) == "floordiv" else rest
            return forms.written(chosen, dtype_of(node))
    return None


#: comparison → what is added to the difference for ``difference < 0``, and whether that is negated
_ORDERS = {"lt": (0, False), "le": (-1, False), "ge": (0, True), "gt": (-1, True)}


def _compared_apart(
    node: Expr, forms: _Forms, ranges: Mapping[int, Interval]
) -> Expr | None:
    """``g*A + r < g*b → A < b`` for 0 <= r < g."""
    difference = _difference(node, forms) if op_name(node) in _ORDERS else None
    if difference is None or len(difference.terms) < 2:
        return None
    more, negated = _ORDERS[op_name(node)]
    form = Affine(difference.terms, difference.constant + more)
    found = _multiples(form, 0, ranges)
    if found is None:
        return None
    dtype = dtype_of(operands_of(node)[0])
    below = forms.written(Affine(found[1].terms), dtype)
    if below is None:
        return None
    return compare("ge" if negated else "lt", below, const(-found[1].constant, dtype))


def _multiples(
    form: Affine, d: int, ranges: Mapping[int, Interval]
) -> tuple[int, Affine, Affine] | None:
    """``g*A + r`` with 0 <= r < g, for the largest divisor g of d: g, A and r."""
    for g in sorted({gcd(c, d) for _, c in form.terms}, reverse=True):
        high = Affine(tuple((k, c // g) for k, c in form.terms if c % g == 0), form.constant // g)
        low = Affine(tuple(term for term in form.terms if term[1] % g), form.constant % g)
        bounds = interval(low, ranges)
        if g > 1 and bounds is not None and bounds[0] >= 0 and bounds[1] < g:
            return g, high, low
    return None


def _divided_apart(node: Expr, forms: _Forms, ranges: Mapping[int, Interval]) -> Expr | None:
    """``(d*A + r)//d → A + r//d``, ``(d*A + r)%d → r%d``, ``(d*A - r)//d → A - 1 - (r - 1)//d``,
    and for 0 <= r < g also ``(g*A + r)//(g*d) → A//d``, ``(g*A + r)%(g*d) → A%d*g + r``.
    """
    numerator, divisor = operands_of(node)
    form, d = forms.of(numerator), const_value(divisor)
    if form is None or not isinstance(d, int) or d <= 0:
        return None
    found = _Division(forms, ranges, dtype_of(node)).of(form, d)
    if found is None:
        return None
    return found[0] if op_name(node) == "floordiv" else found[1]


class _Division:
    """Quotients and remainders of linear forms over variables in some ranges."""

    def __init__(self, forms: _Forms, ranges: Mapping[int, Interval], dtype: str) -> None:
        self._forms, self._ranges, self._dtype = forms, ranges, dtype

    def of(self, form: Affine, d: int) -> tuple[Expr, Expr] | None:
        """``form//d`` and ``form%d``; None if the dtype does not hold a literal."""
        nearest = [(k, c, _quotient(c, d, c % d > d // 2)) for k, c in form.terms]
        whole = tuple((k, q) for k, _, q in nearest if q)
        rest = tuple((k, c - d * q) for k, c, q in nearest if c - d * q)
        down = bool(rest) and all(c < 0 for _, c in rest)
        constant = -form.constant - 1 if down else form.constant
        if down:  # ``n//d = -1 - (-n - 1)//d``
            rest = tuple((k, -c) for k, c in rest)
        turns = constant // d
        first = self._forms.written(Affine(whole, -1 - turns if down else turns), self._dtype)
        left = self._positive(Affine(rest, constant % d), d)
        if first is None or left is None:
            return None
        quotient, remainder = left
        if down:
            return sub(first, quotient), sub(self._const(d - 1), remainder)
        return add(first, quotient), remainder

    def _positive(self, form: Affine, d: int) -> tuple[Expr, Expr] | None:
        """The same for a form that holds no multiple."""
        found = _multiples(form, d, self._ranges)
        g, high, low = (1, form, None) if found is None else found
        above = self._forms.written(high, self._dtype)
        below = None if low is None else self._forms.written(low, self._dtype)
        if above is None or (low is not None and below is None):
            return None
        quotient = binary("floordiv", above, self._const(d // g))
        remainder = binary("floormod", above, self._const(d // g))
        if below is not None:
            remainder = add(mul(remainder, self._const(g)), below)
        return quotient, remainder

    def _const(self, value: int) -> Expr:
        return const(value, self._dtype)


def _quotient(number: int, divisor: int, nearest: bool) -> int:
    return (number + (divisor // 2 if nearest else 0)) // divisor


def _expression(form: Affine, by_id: Mapping[int, Var], dtype: str) -> Expr:
    if not form.terms:
        return const(form.constant, dtype)
    value: Expr | None = None
    for key, c in form.terms:
        var = by_id[key]
        term = mul(var if dtype_of(var) == dtype else var.astype(dtype), const(c, dtype))
        value = term if value is None else add(value, term)
    assert value is not None
    return add(value, const(form.constant, dtype))


def pieces(
    exprs: Sequence[Expr],
    var: Var,
    extent: int,
    variables: Sequence[Var],
    ranges: Mapping[int, Interval],
    most: int = MAX_PIECES,
    quotients: bool = True,
) -> list[Interval]:
    """``0 .. extent-1`` cut into (first, last) so that conditions on `var` alone are decided.

    Where that would take more than `most`, they are decided in an inner piece of at least half of
    the loop, with one piece on each side of it, or else there is one piece. Quotients are cut where
    they change, too, unless `quotients` is false.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> pieces([te.all(i >= 1, i < 9)], i, 10, [i], {})
    [(0, 0), (1, 8), (9, 9)]
    >>> pieces([te.all(i >= 1, i >= 2, i < 90)], i, 100, [i], {}, most=3)
    [(0, 1), (2, 89), (90, 99)]
    """

    forms = _Forms(variables)

    def place(exprs: list[Expr], low: int, high: int) -> tuple[int | None, list[Expr]]:
        """A cut between two indices, and what is left of the expressions there."""
        here = _decided(exprs, forms, {**ranges, node_id(var): (low, high)})
        return _cut(here, var, forms, low, high, quotients), here

    exprs = _with_borders(exprs, var)
    pending, done = [(0, extent - 1, exprs)] if exprs else [], []
    while pending:
        low, high, before = pending.pop()
        cut, here = place(before, low, high)
        if cut is None:
            done.append((low, high))
        else:
            pending += [(cut, high, here), (low, cut - 1, here)]
        if len(done) + len(pending) > most:
            low, high = _inner(place, exprs, extent)
            parts = (0, low - 1), (low, high), (high + 1, extent - 1)
            return [(first, last) for first, last in parts if first <= last]
    return done or [(0, extent - 1)]


def _with_borders(exprs: Sequence[Expr], var: Var) -> list[Expr]:
    """The expressions in which a condition, a clamp or a quotient depends on a variable."""
    dependent: set[int] = {node_id(var)}
    bordered: set[int] = set()
    for node in postorder(list(exprs)):
        key, parts = node_id(node), list(map(node_id, operands_of(node)))
        if not dependent.isdisjoint(parts):
            dependent.add(key)
            if op_name(node) in _BORDERS:
                bordered.add(key)
        if not bordered.isdisjoint(parts):
            bordered.add(key)
    return [expr for expr in exprs if node_id(expr) in bordered]


def _inner(
    place: Callable[[list[Expr], int, int], tuple[int | None, list[Expr]]],
    exprs: list[Expr],
    extent: int,
) -> Interval:
    """The longer side of each cut in turn, down to where nothing changes; the whole loop if that is
    less than half of it, or many cuts away.
    """
    low, high = 0, extent - 1
    for _ in range(MAX_COPIES):
        cut, exprs = place(exprs, low, high)
        if cut is None:
            return low, high
        low, high = (low, cut - 1) if cut - low > high + 1 - cut else (cut, high)
        if 2 * (high + 1 - low) < extent:
            break
    return 0, extent - 1


def split(exprs: Sequence[Expr], var: Var, extent: int, most: int) -> list[Piece]:
    """The loop ``0 <= var < extent`` as (first, last, the expressions in between)."""
    found = []
    for low, high in pieces(exprs, var, extent, [var], {}, most):
        here = {node_id(var): (low, high)}
        found.append((low, high, decided(exprs, [var], here)))
    return found


def _cut(
    exprs: Sequence[Expr],
    var: Var,
    forms: AffineForms,
    low: int,
    high: int,
    quotients: bool,
) -> int | None:
    """An index in low+1 .. high where a condition, a clamp or a quotient of `var` alone changes."""
    for node in postorder(list(exprs)):
        name = op_name(node)
        if quotients and name in ("floordiv", "floormod"):
            place = wrap(node, forms, node_id(var), (low, high))
            if place is not None:
                return place
        for place in turning_points(node, forms, node_id(var)):
            if low < place <= high:
                return place
    return None


def turning_points(node: Expr, forms: AffineForms, key: int) -> list[int]:
    """The values of a variable at which a condition or a clamp of it alone becomes another.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> turning_points(i * 2 < 9, AffineForms([i]), node_id(i))
    [5]
    """
    name = op_name(node)
    if name not in COMPARISONS and name not in ("min", "max"):
        return []
    if not is_integer(operands_of(node)[0]):
        return []
    form = _difference(node, forms)
    if form is None or len(form.terms) != 1 or form.terms[0][0] != key:
        return []
    factor = form.terms[0][1]
    root = -form.constant // factor
    holds = _HOLDS[name if name in COMPARISONS else "lt"]
    return [
        place
        for place in (root - 1, root, root + 1, root + 2)
        if holds(factor * place + form.constant) != holds(factor * (place - 1) + form.constant)
    ]


def changes(form: Affine, divisor: int, inside: Interval) -> int:
    """How often the quotient of a form of one variable changes in an interval, at most.

    Examples
    --------
    >>> changes(Affine(((1, 1),), 3), 8, (0, 7))
    1
    """
    [(_, factor)] = form.terms
    first, last = ((factor * place + form.constant) // divisor for place in inside)
    return abs(last - first)


def is_cut(form: Affine, divisor: int, inside: Interval) -> bool:
    """Whether a loop is cut where the quotient of a form of its variable changes.

    One that changes more than once, but so seldom that its residue classes are too many to be
    written out, is cut at every change.

    Examples
    --------
    >>> [is_cut(Affine(((1, 2),)), d, (0, 63)) for d in (8, 32, 64, 128)]
    [False, False, True, True]
    """
    [(_, factor)] = form.terms
    count = changes(form, divisor, inside)
    return count < 2 or (count < MAX_PIECES and divisor // gcd(factor, divisor) > MAX_COPIES)


def wrap(node: Expr, forms: AffineForms, key: int, inside: Interval) -> int | None:
    """The first index at which a quotient is another one, if the loop is cut there.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> wrap((i + 3) % 8, AffineForms([i]), node_id(i), (0, 7))
    5
    """
    numerator, divisor = operands_of(node)
    d = const_value(divisor)
    form = forms.of(numerator)
    if not isinstance(d, int) or d < 1 or form is None:
        return None
    if len(form.terms) != 1 or form.terms[0][0] != key:
        return None
    if not changes(form, d, inside) or not is_cut(form, d, inside):
        return None
    [(_, factor)] = form.terms
    first = (factor * inside[0] + form.constant) // d
    # of factor*place, at which the quotient changes
    limit = (first + (factor > 0)) * d - form.constant
    return -(-limit // factor) if factor > 0 else limit // factor + 1
