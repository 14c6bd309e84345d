"""Where conditions on an axis are decided for every value of the other loops, and what bounds it.

A condition such as ``k <= j`` with k < 20 holds for all k from j = 19 on. Elsewhere it is a bound
of j for a given k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...expr.build import add, cast, compare, const, sub
from ...expr.nodes import (
    COMPARISONS,
    Axis,
    Expr,
    Var,
    const_value,
    dtype_of,
    is_integer,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import depends_on, postorder, substitute
from ...expr.simplify import prove, simplify
from ...graph.stage import axis_range
from .access import Affine, AffineForms, Interval, affine_forms, interval
from .decided import changes_at, decided, difference_of
from .index_set_splitting import first_change
from .literals import FLOOR_DIVISIONS

_BORDERS = frozenset((*COMPARISONS, "min", "max"))


def longest_piece(
    exprs: Sequence[Expr], last: Var, variables: Sequence[Var], ranges: Mapping[int, Interval]
) -> Interval:
    """The longest piece of the last axis on which conditions and clamps are decided for all values
    of the other loops, or the longest one without cuts; a clamp of a clamp is cut after the inner
    one is decided.
    """
    current, known = list(exprs), dict(ranges)
    while True:
        whole = known[node_id(last)]
        cuts, open_parts = _cuts(current, last, variables, known)
        every = [(first, end - 1) for first, end in pairwise(cuts)]
        if not every:  # an axis without places
            return whole
        decided_ones = [
            one for one in every if not any(a <= one[0] and one[1] < b for a, b in open_parts)
        ]
        found = max(decided_ones or every, key=lambda one: one[1] - one[0])
        if found == whole:
            return found
        known[node_id(last)] = found
        current = decided(current, variables, known)


def decided_piece(
    exprs: Sequence[Expr], last: Var, variables: Sequence[Var], ranges: Mapping[int, Interval]
) -> tuple[Interval, list[Expr]] | None:
    """The longest piece of the last axis, and the expressions there, if neither a condition nor a
    clamp on the axis is left in them, and the piece is at least half of the axis.

    Examples
    --------
    >>> from tvm import te
    >>> i, k = te.var("i"), te.var("k")
    >>> ranges = {node_id(i): (0, 9), node_id(k): (0, 2)}
    >>> decided_piece([te.if_then_else(i + k >= 1, i + k - 1, 7)], i, [i, k], ranges)
    ((1, 9), [i + k + -1])
    >>> decided_piece([te.if_then_else(i + k * 9 >= 1, i, 7)], i, [i, k], ranges)
    ((1, 9), [i])
    >>> decided_piece([te.if_then_else(i + k * 9 >= 10, i, 7)], i, [i, k], ranges) is None
    True
    """
    low, high = ranges[node_id(last)]
    first, end = longest_piece(exprs, last, variables, ranges)
    if 2 * (end + 1 - first) < high + 1 - low:
        return None
    found = decided(exprs, variables, {**ranges, node_id(last): (first, end)})
    left = (node for node in postorder(found) if op_name(node) in _BORDERS)
    if any(is_integer(operands(node)[0]) and depends_on(node, [last]) for node in left):
        return None
    return (first, end), found


def _cuts(
    exprs: Sequence[Expr], last: Var, variables: Sequence[Var], ranges: Mapping[int, Interval]
) -> tuple[list[int], list[Interval]]:
    """The ends of the last axis, where comparisons or clamps change for some other index, and the
    parts, the end of each excluded, on which one is another for another index.
    """
    first, end = ranges[node_id(last)]
    found = {first, end + 1}
    parts: list[Interval] = []
    forms = AffineForms(variables)
    for node in postorder(list(exprs)):
        divides = op_name(node) in FLOOR_DIVISIONS
        if not divides and (op_name(node) not in _BORDERS or not is_integer(operands(node)[0])):
            continue
        form = forms.of(operands(node)[0]) if divides else difference_of(node, forms)
        factor = 0 if form is None else form.coefficient(node_id(last))
        if form is None or not factor:
            continue
        terms = tuple((key, c) for key, c in form.terms if key != node_id(last))
        bounds = interval(Affine(terms, form.constant), ranges)
        if bounds is None:
            continue
        changes = [at for bound in bounds for at in _changes(node, factor, bound, (first, end))]
        found.update(changes)
        if bounds[0] < bounds[1] and changes:
            parts.append((min(changes), max(changes)))
    return sorted(cut for cut in found if first <= cut <= end + 1), parts


def _changes(node: Expr, factor: int, constant: int, inside: Interval) -> list[int]:
    """Where a comparison or a clamp of ``factor*place + constant`` changes, or a quotient that
    changes once.
    """
    if op_name(node) not in FLOOR_DIVISIONS:
        return changes_at(op_name(node), factor, constant)
    divisor = const_value(operands(node)[1])
    if not isinstance(divisor, int) or divisor < 1:
        return []
    first, last = ((factor * place + constant) // divisor for place in inside)
    return [first_change(factor, constant, divisor, inside[0])] if abs(last - first) == 1 else []


@dataclass(frozen=True)
class Bound:
    """``place >= value``, or ``place < value`` where `below` is False."""

    value: Expr
    below: bool


def bound_of(guard: Expr, last: Var, variables: Sequence[Var]) -> Bound | None:
    """A comparison as a bound of the last axis, if it is one."""
    name = op_name(guard)
    if name not in ("lt", "le", "gt", "ge"):
        return None
    left, right = operands(guard)
    forms = affine_forms([left, right], variables)
    if node_id(left) not in forms or node_id(right) not in forms:
        return None
    factor = forms[node_id(left)].coefficient(node_id(last))
    factor -= forms[node_id(right)].coefficient(node_id(last))
    if abs(factor) != 1:
        return None
    zero = {last: const(0, dtype_of(last))}
    # factor*place + rest compared with 0
    rest = cast(dtype_of(last), sub(substitute(left, zero), substitute(right, zero)))
    below = (name in ("gt", "ge")) == (factor == 1)
    root = sub(const(0, dtype_of(rest)), rest) if factor == 1 else rest
    strict = name in ("lt", "gt")
    return Bound(add(root, const(int(strict == below), dtype_of(root))), below)


def counted(axis: Axis, conditions: Sequence[Expr], around: Sequence[Axis]) -> list[Expr] | None:
    """The conditions, not proved in the loops around, under which some value of an axis counts;
    None for conditions that are no bounds of it.

    ``k < n and k < j → 0 < n, 0 < j``
    """
    dtype = dtype_of(axis.var)
    low, extent = (const(b, dtype) if isinstance(b, int) else b for b in axis_range(axis))
    lower, end = [low], [add(low, extent)]
    for condition in conditions:
        found = bound_of(condition, axis.var, [*(one.var for one in around), axis.var])
        if found is None:
            return None
        (lower if found.below else end).append(found.value)
    every = [compare("lt", simplify(a), simplify(b)) for a in lower for b in end]
    ranges = {one.var: axis_range(one) for one in around}
    return [condition for condition in every if not prove(condition, ranges)]
