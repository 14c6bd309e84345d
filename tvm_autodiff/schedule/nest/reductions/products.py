"""Reads a reduction as a sum of products, with its factors as operands.

Each factor has the linear forms of the loop variables that its value depends on, and its part of
the guard. An operand can then be copied to where a kernel needs it, with the guard evaluated in the
copy instead of the inner loop. Rules choose the layout.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import gcd

from ....expr.build import add, cast, compare, const, mul, multiplied
from ....expr.costly import may_be_infinite
from ....expr.factoring import conditional_factors
from ....expr.linear_terms import linear_sum, linear_terms
from ....expr.nodes import (
    COMPARISONS,
    Axis,
    Expr,
    Var,
    dtype_of,
    is_const,
    is_integer,
    is_load,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import (
    depends_on,
    outermost,
    postorder,
    replace_outermost,
    variables_of,
)
from ....graph.stage import Operation, Reduction, reduction_of
from ..access import Affine, affine_forms, combine, stride_of

Atom = tuple[tuple[int, int], ...]  #: terms (id of a variable, coefficient) of an affine form


@dataclass
class Operand:
    """A factor of the product that a reduction sums.

    Attributes
    ----------
    expr : Expr
        The factor, without the part of the guard that belongs to it.
    guards : list of Expr
        Conditions on this operand only; it is zero where they do not hold.
    atoms : tuple of linear forms
        The linear forms that `expr` and `guards` depend on, in order of first occurrence.
    """

    expr: Expr
    atoms: tuple[Atom, ...]
    guards: list[Expr] = field(default_factory=list)

    @property
    def is_load(self) -> bool:
        """Whether the factor is a plain read."""
        return is_load(self.expr)

    @cached_property
    def _variables(self) -> frozenset[int]:
        return frozenset(key for atom in self.atoms for key, _ in atom)

    def variables(self) -> frozenset[int]:
        """Ids of the loop variables that the operand depends on."""
        return self._variables


@dataclass
class Product:
    """A reduction read as ``Σ scale · Π operands``."""

    axes: tuple[Axis, ...]
    reduction: Reduction
    operands: list[Operand]
    scale: list[Expr]

    @property
    def steps(self) -> tuple[tuple[frozenset[int], float], ...]:
        """What is computed for a point of the loops, as of an `elementwise_body.Body`: factors of
        equal loops are multiplied with each other first, and the last product is added.
        """
        axes = frozenset(node_id(axis.var) for axis in (*self.axes, *self.reduction.axes))
        loops = sorted((operand.variables() for operand in self.operands), key=len)
        equal = [one for number, one in enumerate(loops) if one in loops[:number]]
        partial = accumulate(dict.fromkeys(loops), frozenset[int].union)
        return tuple((along, 1.0) for along in (*equal, *[*partial][1:-1], axes))

    def over(self, reads: Sequence[Expr], inside: Sequence[int] = ()) -> tuple[Expr, ...]:
        """``(a[i]·b[j])·c[i]·x → x·b[j]·(a[i]·c[i])``: factors of equal loops `inside` a tile, the
        first of which runs over the lanes of vectors, are multiplied with each other first.
        """
        groups: dict[frozenset[int], list[Expr]] = {}
        if self.scale:
            groups[frozenset()] = list(self.scale)
        for operand, read in zip(self.operands, reads, strict=True):
            groups.setdefault(operand.variables().intersection(inside), []).append(read)
        unrolled = frozenset(inside[1:])
        order = sorted(groups, key=lambda loops: (len(loops & unrolled), len(loops)))
        return (multiplied([multiplied(groups[loops]) for loops in order]),)


def product_of(op: Operation, of_loops: bool = False) -> Product | None:
    """The operands of a sum of products, with guards assigned to them, or None. Operands read a
    tensor, unless factors `of_loops` alone are operands as well: ``x[i, k]*float(k)``.

    A factor has all conditions under which it is written and whose loops it knows, since zero times
    infinity is no zero: ``b[i]*(if z[i] > 0 then a[i]/z[i] else 0)``. One that knows too few joins
    one that has the condition, unless it is finite for finite elements of tensors.
    """
    reduction = reduction_of(op)
    if reduction is None or not is_sum(reduction):
        return None
    variables = [axis.var for axis in (*op.axis, *reduction.axes)]
    found: list[Operand] = []
    scale: list[Expr] = []
    inside: list[tuple[Expr, Operand | None, tuple[Expr, ...]]] = []
    pairs = conditional_factors(without_cancelled(reduction.sources[0], variables))
    for factor, conditions in pairs:
        operand = None
        if not _reads(factor) and not _varies(factor, variables):
            scale.append(factor)
        else:
            atoms = atoms_of([factor], variables)
            if atoms is None or not (of_loops or _reads(factor)):
                return None
            operand = Operand(factor, atoms)
            found.append(operand)
        if conditions:
            inside.append((factor, operand, conditions))
    guards = {node_id(one): one for _, conditions in pairs for one in conditions}
    plain = {key: _one_sided(guard, variables) for key, guard in guards.items()}
    joined: dict[int, Operand] = {}  # what an operand has become a part of
    for factor, operand, conditions in inside:
        while operand is not None and id(operand) in joined:
            operand = joined[id(operand)]
        for guard in (plain[node_id(one)] for one in conditions):
            atoms = atoms_of([guard], variables)
            if atoms is None:
                return None
            if operand is not None and knows(operand, atoms):
                operand.guards.append(guard)
                continue
            if not may_be_infinite(factor):
                continue
            wider = [one for one in found if one is not operand and knows(one, atoms)]
            wider = [one for one in wider if operand is None or knows(one, operand.atoms)]
            if not wider:
                return None
            # ``(if n > 0 then a[k]*(1/n) else 0)``
            [first, *_] = wider
            first.expr = mul(first.expr, factor if operand is None else operand.expr)
            if operand is not None:
                first.guards += operand.guards
                joined[id(operand)] = first
                found = [one for one in found if one is not operand]
            scale = [one for one in scale if one is not factor]
            operand = first
            operand.guards.append(guard)
    for guard in plain.values():
        if any(guard is known for one in found for known in one.guards):
            continue
        if not _hand_out(guard, found, variables):
            return None
    return Product(tuple(op.axis), reduction, found, scale)


def without_cancelled(source: Expr, variables: Sequence[Var]) -> Expr:
    """``i - k + 1 + k < n → i + 1 < n``: loops whose terms cancel in a linear form leave the text,
    which would tie a factor to a sum that it does not depend on.
    """
    forms, by_id = affine_forms([source], variables), {node_id(var): var for var in variables}
    written: dict[int, Expr] = {}
    for node in outermost([source], lambda node: node_id(node) in forms):
        form = forms[node_id(node)]
        if len(form.terms) < sum(node_id(var) in by_id for var in variables_of(node)):
            dtype = dtype_of(node)
            terms = [(cast(dtype, by_id[key]), factor) for key, factor in form.terms]
            written[node_id(node)] = linear_sum(terms, form.constant, dtype)
    return replace_outermost(source, written) if written else source


def is_sum(reduction: Reduction) -> bool:
    """Whether a reduction is a plain sum."""
    combiner = reduction.combiner
    if len(reduction.sources) != 1 or op_name(combiner.result[0]) != "add":
        return False
    left, right = operands(combiner.result[0])
    formal = {node_id(combiner.lhs[0]), node_id(combiner.rhs[0])}
    return {node_id(left), node_id(right)} == formal and is_const(combiner.identity[0], 0)


def _reads(expr: Expr) -> bool:
    return any(is_load(node) for node in postorder(expr))


def _varies(expr: Expr, variables: Sequence[Var]) -> bool:
    wanted = {node_id(var) for var in variables}
    return any(node_id(node) in wanted for node in postorder(expr))


def atoms_of(roots: Sequence[Expr], variables: Sequence[Var]) -> tuple[Atom, ...] | None:
    """The maximal affine forms under some expressions, without common factors and without sums of
    other ones; None if a variable occurs outside of one.
    """
    forms = affine_forms(roots, variables)
    wanted = {node_id(var) for var in variables}
    atoms: dict[Atom, None] = {}
    pending = list(reversed(list(roots)))
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if node_id(node) in seen:
            continue
        seen.add(node_id(node))
        form = forms.get(node_id(node))
        if form is not None:
            if form.terms:
                atoms.setdefault(_primitive(form.terms)[0])
            continue
        if node_id(node) in wanted:
            return None
        pending.extend(reversed(operands(node)))
    return tuple(atom for atom in atoms if len(atom) == 1 or not _covered(atom, atoms))


def _primitive(terms: Atom) -> tuple[Atom, int]:
    """``-10*i + 5*j → (2*i - j, -5)``: coprime coefficients, the first one positive."""
    factor = gcd(*(c for _, c in terms))
    if terms[0][1] < 0:
        factor = -factor
    return tuple((key, c // factor) for key, c in terms), factor


def _one_sided(guard: Expr, variables: Sequence[Var]) -> Expr:
    """``p <= h + 1 → 0 <= h - p + 1``, ``i + 3 <= n + r → i - r + 3 <= n``: what is compared of
    loops becomes one affine form, and sizes are on the other side.
    """
    if op_name(guard) not in COMPARISONS or not is_integer(operands(guard)[0]):
        return guard
    left, right = operands(guard)
    order = {node_id(var): number for number, var in enumerate(variables)}
    forms = affine_forms([left, right], variables)
    dtype = dtype_of(left)
    difference, size = Affine(()), const(0, dtype)
    for side, sign in ((left, 1), (right, -1)):
        terms, constant = linear_terms(side)
        known = [(forms.get(node_id(node)), node, factor) for node, factor in terms]
        if not any(form is not None and form.terms for form, _, _ in known):
            return guard
        for form, node, factor in known:
            if form is not None:
                difference = combine(difference, form, sign * factor, order)
            elif depends_on(node, variables):
                return guard
            else:
                size = add(size, mul(node, const(-sign * factor, dtype)))
        difference = combine(difference, Affine((), constant), sign, order)
    value = const(difference.constant, dtype)
    for key, c in reversed(difference.terms):
        value = add(mul(cast(dtype, variables[order[key]]), const(c, dtype)), value)
    return compare(op_name(guard), value, size)


def _hand_out(guard: Expr, found: list[Operand], variables: Sequence[Var]) -> bool:
    """Assign a condition to the operands that depend on all of its variables."""
    atoms = atoms_of([guard], variables)
    if atoms is None:
        return False
    for operand in found:
        if knows(operand, atoms):
            operand.guards.append(guard)
            return True
    return False


def knows(operand: Operand, atoms: Sequence[Atom]) -> bool:
    """Whether an operand depends on all that some linear forms do."""
    return all(_known(atom, operand.atoms) for atom in atoms)


def _known(atom: Atom, atoms: Collection[Atom]) -> bool:
    return atom in atoms or _covered(atom, atoms)


def _covered(atom: Atom, atoms: Collection[Atom]) -> bool:
    """Whether each variable of a linear form is a linear form of its own."""
    single = {other[0][0] for other in atoms if len(other) == 1 and other[0][1] == 1}
    return all(key in single for key, _ in atom)


def rebased(
    expr: Expr,
    variables: Sequence[Var],
    places: Mapping[Atom, Expr],
) -> Expr:
    """The expression with each linear form replaced: ``a*L + c → a*places[L] + c``."""
    forms = affine_forms([expr], variables)
    memo: dict[int, Expr] = {}
    for node in postorder(expr):
        form = forms.get(node_id(node))
        if form is not None and form.terms:
            memo[node_id(node)] = _place(form, places, dtype_of(node))
    return replace_outermost(expr, memo)


def _place(form: Affine, places: Mapping[Atom, Expr], dtype: str) -> Expr:
    atom, factor = _primitive(form.terms)
    if atom in places:
        place = mul(cast(dtype, places[atom]), const(factor, dtype))
        return add(place, const(form.constant, dtype))
    value = const(form.constant, dtype)
    for key, c in form.terms:
        part = places.get(((key, 1),))
        if part is None:
            return const(0, dtype)  # a part of a larger form: that one is replaced as a whole
        value = add(mul(cast(dtype, part), const(c, dtype)), value)
    return value


def operand_stride(operand: Operand, key: int, variables: Sequence[Var]) -> int | None:
    """`stride_of` an operand that is a plain read; None for any other."""
    return stride_of(operand.expr, key, variables) if operand.is_load else None
