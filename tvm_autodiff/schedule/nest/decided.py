"""Simplifies expressions on a part of their loops: conditions, clamps and divisions that numeric
ranges decide are replaced by their values, and what is left has fewer variables.

Only affine forms are analysed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
    BRANCHES,
    COMPARISONS,
    Expr,
    Var,
    address,
    binary,
    const_value,
    dtype_of,
    is_integer,
    node_id,
    op_name,
    operands as operands_of,
)
from ...expr.rewrite import BranchRewriter, outermost, replacement
from .access import Affine, AffineForms, Interval, combine, interval

#: comparison → whether it holds for a difference of its sides
HOLDS: dict[str, Callable[[int], bool]] = {
    "eq": lambda difference: difference == 0,
    "ne": lambda difference: difference != 0,
    "lt": lambda difference: difference < 0,
    "le": lambda difference: difference <= 0,
    "gt": lambda difference: difference > 0,
    "ge": lambda difference: difference >= 0,
}


def decided(
    exprs: Sequence[Expr],
    variables: Sequence[Var],
    ranges: Mapping[int, Interval],
    renamed: Mapping[Var, Expr] | None = None,
) -> list[Expr]:
    """Expressions for variables in `ranges`, by id, which others may have been `renamed` to; all
    others may have any value. What they share is visited once.

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
    return list(map(_decider(DecidedForms(variables), ranges, renamed), exprs))


class DecidedForms(AffineForms):
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


def parts_decided(
    exprs: Sequence[Expr],
    wanted: Callable[[Expr], bool],
    forms: DecidedForms,
    ranges: Mapping[int, Interval],
    among: Collection[int] | None = None,
) -> list[Expr]:
    """The outermost parts of a kind that are evaluated on some ranges, `decided` there, if they are
    `among` some nodes, by id, to which all that use one of them belong.

    What is around them is only walked, not built anew.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.expr.nodes import is_load
    >>> i, x = te.var("i"), te.placeholder((9,), name="x")
    >>> body = te.if_then_else(i < 4, x[te.min(i, 5)] * 2.0, x[i])
    >>> [read] = parts_decided([body], is_load, DecidedForms([i]), {node_id(i): (0, 3)})
    >>> operands_of(read)
    (i,)
    """
    simplified = _decider(forms, ranges)

    def below(node: Expr) -> Sequence[Expr]:
        parts = operands_of(node)
        if op_name(node) in BRANCHES:
            known = const_value(simplified(parts[0]))
            if known is not None:
                parts = (parts[1 if known else 2],)
        return parts if among is None else [part for part in parts if address(part) in among]

    return list(map(simplified, outermost(exprs, wanted, below)))


def _decider(
    forms: DecidedForms,
    ranges: Mapping[int, Interval],
    renamed: Mapping[Var, Expr] | None = None,
) -> BranchRewriter:
    named = replacement(renamed or {})

    def visit(node: Expr) -> Expr | None:
        parts = operands_of(node)
        if not parts:
            return named(node)
        name = op_name(node)
        if name in BRANCHES:
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

    return BranchRewriter(visit)


def changes_at(name: str, factor: int, constant: int) -> list[int]:
    """The places p, other than the least, at which it changes whether ``factor*p + constant``
    compares with zero as a comparison says, or which side a clamp takes.

    Examples
    --------
    >>> changes_at("lt", 2, -9), changes_at("eq", 1, -3), changes_at("min", -1, 4)
    ([5], [3, 4], [5])
    """
    holds = HOLDS[name if name in COMPARISONS else "lt"]
    root = -constant // factor
    return [
        place
        for place in (root - 1, root, root + 1, root + 2)
        if holds(factor * place + constant) != holds(factor * (place - 1) + constant)
    ]


def difference_of(node: Expr, forms: AffineForms) -> Affine | None:
    """The form of ``a - b`` for a comparison, or a clamp, of a and b; None if one has no form."""
    left, right = map(forms.of, operands_of(node))
    return None if left is None or right is None else combine(left, right, -1, forms.order)


def _compared(node: Expr, forms: AffineForms, ranges: Mapping[int, Interval]) -> Expr | None:
    difference = difference_of(node, forms)
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
    first, last = HOLDS[name](low), HOLDS[name](high)
    if first != last:
        return None
    return true() if first else negate(true())


def _divided(node: Expr, forms: DecidedForms, ranges: Mapping[int, Interval]) -> Expr | None:
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
    node: Expr, forms: DecidedForms, ranges: Mapping[int, Interval]
) -> Expr | None:
    """``g*A + r < g*b → A < b`` for 0 <= r < g."""
    difference = difference_of(node, forms) if op_name(node) in _ORDERS else None
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


def _divided_apart(node: Expr, forms: DecidedForms, ranges: Mapping[int, Interval]) -> Expr | None:
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

    def __init__(self, forms: DecidedForms, ranges: Mapping[int, Interval], dtype: str) -> None:
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
