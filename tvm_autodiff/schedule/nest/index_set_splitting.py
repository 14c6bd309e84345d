"""Finds the cuts of a loop at which more is decided: conditions, clamps and quotients of its
variable become others there.

Only affine forms are analysed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import gcd

from ...expr.nodes import (
    COMPARISONS,
    Expr,
    Var,
    address,
    const_value,
    dtype_of,
    is_float,
    is_integer,
    node_id,
    op_name,
    operands as operands_of,
)
from ...expr.rewrite import postorder
from ..cost import MAX_COPIES, MAX_PIECES
from .access import Affine, AffineForms, Interval
from .decided import DecidedForms, changes_at, decided, difference_of, parts_decided

_BORDERS = frozenset((*COMPARISONS, "min", "max", "floordiv", "floormod"))
Piece = tuple[int, int, list[Expr]]  #: first, last, the expressions in between


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

    forms = DecidedForms(variables)

    bordered = with_borders(exprs, var)
    whole = [expr for expr in exprs if address(expr) in bordered]

    def places(low: int, high: int) -> Iterator[int]:
        """The cuts between two indices."""
        here = {**ranges, node_id(var): (low, high)}
        left = parts_decided(whole, _is_discrete, forms, here, bordered)
        return _cuts(left, var, forms, low, high, quotients)

    pending, done = [(0, extent - 1)] if whole else [], []
    while pending:
        low, high = pending.pop()
        cut = next(places(low, high), None)
        if cut is None:
            done.append((low, high))
        else:
            pending += [(cut, high), (low, cut - 1)]
        if len(done) + len(pending) > most:
            low, high = _inner(places, extent)
            parts = (0, low - 1), (low, high), (high + 1, extent - 1)
            return [(first, last) for first, last in parts if first <= last]
    return done or [(0, extent - 1)]


def _is_discrete(node: Expr) -> bool:
    """Whether a node is an integer or a condition, other than a comparison of floats."""
    dtype = dtype_of(node)
    if dtype == "bool" and op_name(node) in COMPARISONS:
        return not is_float(operands_of(node)[0])
    return dtype == "bool" or is_integer(node)


def with_borders(exprs: Sequence[Expr], var: Var) -> set[int]:
    """The nodes in which a condition, a clamp or a quotient depends on a variable, by id."""
    dependent: set[int] = {address(var)}
    bordered: set[int] = set()
    for node in postorder(list(exprs)):
        key, parts = address(node), list(map(address, operands_of(node)))
        if not dependent.isdisjoint(parts):
            dependent.add(key)
            if op_name(node) in _BORDERS:
                bordered.add(key)
        if not bordered.isdisjoint(parts):
            bordered.add(key)
    return bordered


def _inner(places: Callable[[int, int], Iterable[int]], extent: int) -> Interval:
    """The longest part between all cuts in turn, down to where nothing changes; the whole loop if
    that is less than half of it.
    """
    low, high = 0, extent - 1
    while 2 * (high + 1 - low) >= extent:
        cuts = sorted({low, *places(low, high), high + 1})
        if len(cuts) == 2:
            # a clamp has the same value on both sides of a cut: one place more may belong to them
            wider = ((low - 1, high + 1), (low, high + 1), (low - 1, high), (low, high))
            inside = (part for part in wider if part[0] >= 0 and part[1] < extent)
            return next(part for part in inside if next(iter(places(*part)), None) is None)
        low, end = max(pairwise(cuts), key=lambda part: part[1] - part[0])
        high = end - 1
    return 0, extent - 1


def split(exprs: Sequence[Expr], var: Var, extent: int, most: int) -> list[Piece]:
    """The loop ``0 <= var < extent`` as (first, last, the expressions in between)."""
    found = []
    for low, high in pieces(exprs, var, extent, [var], {}, most):
        here = {node_id(var): (low, high)}
        found.append((low, high, decided(exprs, [var], here)))
    return found


def _cuts(
    exprs: Sequence[Expr],
    var: Var,
    forms: AffineForms,
    low: int,
    high: int,
    quotients: bool,
) -> Iterator[int]:
    """Indices in low+1 .. high where a condition, a clamp or a quotient of `var` alone changes."""
    for node in postorder(list(exprs)):
        name = op_name(node)
        if quotients and name in ("floordiv", "floormod"):
            place = wrap(node, forms, node_id(var), (low, high))
            if place is not None:
                yield place
        for place in turning_points(node, forms, node_id(var)):
            if low < place <= high:
                yield place


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
    form = difference_of(node, forms)
    if form is None or len(form.terms) != 1 or form.terms[0][0] != key:
        return []
    return changes_at(name, form.terms[0][1], form.constant)


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
    return first_change(factor, form.constant, d, inside[0])


def first_change(factor: int, constant: int, divisor: int, first: int) -> int:
    """The first place p after one at which the quotient of ``factor*p + constant`` is another.

    Examples
    --------
    >>> first_change(1, 3, 8, 0), first_change(-2, 9, 8, 0)
    (5, 1)
    """
    quotient = (factor * first + constant) // divisor
    # of factor*place, at which the quotient changes
    limit = (quotient + (factor > 0)) * divisor - constant
    return -(-limit // factor) if factor > 0 else limit // factor + 1
