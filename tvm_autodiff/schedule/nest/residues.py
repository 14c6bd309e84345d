"""How many neighbours along each axis a loop writes together, so that no quotient is left in it.

Quotients and remainders that change often are written out over residue classes; those that change
seldom are left, since loops are cut where they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, lcm, prod

from ...expr.build import add, cast, const, mul, variable
from ...expr.nodes import (
    Axis,
    Expr,
    Var,
    const_value,
    dtype_of,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import depends_on, postorder, rewrite, substituter
from ...graph.stage import axis_range
from ..cost import MAX_COPIES
from .access import Affine, AffineForms, Interval, interval
from .decided import decided
from .index_set_splitting import changes, first_change, is_cut, pieces
from .inside import within_symbolic

_DIVISIONS = ("floordiv", "floormod")


def moduli_of(values: Sequence[Expr], axes: Sequence[Axis]) -> list[int] | None:
    """For each axis the number of neighbours for which no quotient of the values varies but at
    cuts.

    Returns
    -------
    list of int or None
        None if a quotient or remainder depends on several axes, or on data. Above a product of
        `MAX_COPIES` the numbers are lower bounds. Of a loop of symbolic extent, what lies between
        its borders counts.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.reduce_axis((0, 24), "i")
    >>> moduli_of([i // 2 % 3, (i + 1) % 24], [i])
    [6]
    """
    moduli = [1] * len(axes)
    values = within_symbolic(values, axes)
    while any(op_name(node) in _DIVISIONS for node in postorder(list(values))):
        factors = _factors(in_classes(values, axes, moduli))
        if factors is None:
            return None
        if all(factor == 1 for factor in factors):
            return moduli
        moduli = [m * factor for m, factor in zip(moduli, factors, strict=True)]
        if prod(moduli) > MAX_COPIES:
            return moduli
    return moduli


@dataclass(frozen=True)
class Classes:
    """Values over ``m*q + r`` in place of each axis.

    Attributes
    ----------
    values : list of Expr
    quotients, residues : list of Var
        Of each axis.
    ranges : mapping from id to (int, int)
        Of the quotients, unless they are symbolic, and of the residues.
    """

    values: list[Expr]
    quotients: list[Var]
    residues: list[Var]
    ranges: Mapping[int, Interval]

    def inside(self, var: Var) -> list[Expr]:
        """The values on the longest piece of the loop over a quotient."""
        variables = [*self.quotients, *self.residues]
        own = self.ranges.get(node_id(var))
        if own is None:
            return self.values
        cut = pieces(self.values, var, own[1] + 1, variables, self.ranges)
        longest = max(cut, key=lambda piece: piece[1] - piece[0])
        known = {**self.ranges, node_id(var): longest}
        return decided(self.values, variables, known)


def in_classes(values: Sequence[Expr], axes: Sequence[Axis], moduli: Sequence[int]) -> Classes:
    """``i → m*q + r`` for every axis, and what that decides."""
    quotients, residues = [], []
    ranges: dict[int, Interval] = {}
    table: dict[Var, Expr] = {}
    for axis, modulus in zip(axes, moduli, strict=True):
        name, dtype, extent = axis.var.name, dtype_of(axis.var), axis_range(axis)[1]
        quotient, residue = variable(name, dtype), variable(f"{name}_residue", dtype)
        if isinstance(extent, int):
            ranges[node_id(quotient)] = (0, max(-(-extent // modulus), 1) - 1)
        ranges[node_id(residue)] = (0, modulus - 1)
        quotients.append(quotient)
        residues.append(residue)
        place = mul(quotient, const(modulus, dtype))
        table[axis.var] = add(place, residue) if modulus > 1 else quotient
    rename, variables = substituter(table), [*quotients, *residues]
    moved = decided(list(map(rename, values)), variables, ranges)
    return Classes(moved, quotients, residues, ranges)


def _factors(classes: Classes) -> list[int] | None:
    """By how much each modulus grows; None if a quotient is left that no modulus removes."""
    order = {node_id(var): place for place, var in enumerate(classes.quotients)}
    variables = [*classes.quotients, *classes.residues]
    forms = AffineForms(variables)
    factors = [1] * len(order)
    left = False

    def visit(node: Expr) -> Expr | None:
        """The node in one class, between two cuts, up to a constant: ``(i + 3)%8 → i``."""
        nonlocal left
        if op_name(node) not in _DIVISIONS:
            return None
        if not depends_on(node, variables):
            return const(0, dtype_of(node))  # of sizes alone
        numerator, divisor = operands(node)
        d, form = const_value(divisor), forms.of(numerator)
        along = [] if form is None else [term for term in form.terms if term[0] in order]
        zero, modulo = const(0, dtype_of(node)), op_name(node) == "floormod"
        if len(along) > 1 and isinstance(d, int) and d > 0:
            if all(order[key] != len(order) - 1 for key, _ in along):
                return None  # the same for all elements of a vector
            if form is not None and _crosses_once(form, along[-1][0], d, classes.ranges):
                return numerator if modulo else zero
            left = True
            return None
        if form is None or not isinstance(d, int) or d < 1:
            left = True
            return None
        if not along:
            return zero
        [(key, factor)] = along
        place = order[key]
        period = d // gcd(factor, d)
        if period == 1:
            quotient = cast(dtype_of(node), classes.quotients[place])
            return zero if modulo else mul(quotient, const(factor // d, dtype_of(node)))
        if key in classes.ranges and _is_cut(form, key, d, classes.ranges):
            return numerator if modulo else zero
        factors[place] = lcm(factors[place], period)
        return None

    for value in classes.values:
        rewrite(value, visit)
    return None if left and all(factor == 1 for factor in factors) else factors


def _crosses_once(form: Affine, last: int, divisor: int, ranges: Mapping[int, Interval]) -> bool:
    """Whether a quotient of several axes changes once along the last one, near one of its places.
    """
    if any(key not in ranges for key, _ in form.terms):
        return False
    low, high = ranges[last]
    rest = Affine(tuple(term for term in form.terms if term[0] != last), form.constant)
    bounds = interval(rest, ranges)
    factor = form.coefficient(last)
    places = [
        first_change(factor, bound, divisor, low)
        for bound in bounds or ()
        if changes(Affine(((last, factor),), bound), divisor, (low, high)) <= 1
    ]
    return len(places) == 2 and 2 * abs(places[1] - places[0]) <= high + 1 - low


def _is_cut(form: Affine, key: int, divisor: int, ranges: Mapping[int, Interval]) -> bool:
    """Whether loops are cut where a quotient changes, in any class."""
    low = high = form.constant
    for other, factor in form.terms:
        if other != key:
            most = factor * ranges[other][1]
            low, high = low + min(0, most), high + max(0, most)
    own = ((key, form.coefficient(key)),)
    return all(is_cut(Affine(own, place), divisor, ranges[key]) for place in {low, high})
