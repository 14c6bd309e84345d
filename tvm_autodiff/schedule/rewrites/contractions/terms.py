"""Reads a stage as sums of products: their factors, and the loops that each depends on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from math import prod

from ....expr.build import div, if_then_else, like, mul, multiplied, neg, negate, negation_of
from ....expr.costly import is_expensive, may_be_infinite
from ....expr.factoring import factors_of
from ....expr.nodes import (
    Axis,
    Expr,
    const_value,
    is_const,
    is_float,
    is_load,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import contains, depends_on, expand_lets, postorder
from ....expr.structural import StructuralKeys
from ....graph.sizes.loop_sizes import is_size
from ....graph.stage import (
    Operation,
    Reduction,
    axis_range,
    is_compute,
    reduction_of,
    reduction_stage,
)
from ...cost import CALL, STORE, SYMBOLIC_SIZE
from ...nest.in_range import Loops, is_safe, loops_of
from ...nest.reductions.operand_values import guarded
from ...nest.reductions.products import (
    Operand,
    Product,
    atoms_of,
    is_sum,
    product_of,
    without_cancelled,
)
from .order import Variables, points


@dataclass(frozen=True)
class Contraction:
    """A sum of products, or one term of a sum of several, and the loops that it runs over; whether
    it stands for several terms of equal factors.
    """

    op: Operation
    reduction: Reduction
    factors: tuple[Operand, ...]
    scale: tuple[Expr, ...]
    loops: Loops
    stands_for_several: bool = False

    @property
    def axes(self) -> list[Axis]:
        """The loops by their numbers."""
        return [*self.op.axis, *self.reduction.axes]

    @property
    def kept(self) -> Variables:
        """The numbers of the loops of the result."""
        return frozenset(range(len(self.op.axis)))

    @property
    def summed(self) -> Variables:
        """The numbers of the other loops."""
        return frozenset(range(len(self.axes))) - self.kept

    def variables(self) -> list[Variables]:
        """The loops of each factor."""
        numbers = {node_id(axis.var): number for number, axis in enumerate(self.axes)}
        return [frozenset(numbers[key] for key in one.variables()) for one in self.factors]

    def reading(self, read: Callable[[Expr], Expr]) -> Contraction:
        """The same product with its reads replaced."""
        factors = tuple(
            replace(one, expr=read(one.expr), guards=[read(guard) for guard in one.guards])
            for one in self.factors
        )
        return replace(self, factors=factors, scale=tuple(map(read, self.scale)))

    def points(self) -> int:
        """The points of all loops."""
        return points(self.kept | self.summed, self.extents())

    def evaluation(self) -> int:
        """The cost of all factors, each at the points of its loops: any order reads them once."""
        extents = self.extents()
        pairs = zip(self.factors, self.variables(), strict=True)
        read = STORE // 2  # which is written and read
        return sum(
            (read + operations_of([one.expr])) * points(loops, extents) for one, loops in pairs
        )

    def extents(self) -> dict[int, int]:
        """The extent of each loop."""
        extents = [axis_range(axis)[1] for axis in self.axes]
        return {k: n if isinstance(n, int) else SYMBOLIC_SIZE for k, n in enumerate(extents)}


def contractions_of(op: Operation) -> list[Contraction]:
    """The sums of products that a stage adds up; none if they may not be taken apart. A negated sum
    is one term, unless all of its terms have the same factors.
    """
    reduction = reduction_of(op) if is_compute(op) else None
    if reduction is not None and contains(reduction.sources, _is_negated_sum):
        apart = _contractions(op, signed_terms_of)
        if len(apart) == 1:
            return apart
    return _contractions(op, terms_of)


def whole_of(op: Operation) -> list[Contraction]:
    """The sum of a stage as one product, or none: factors may be sums."""
    return _contractions(op, lambda source: [source])


def _contractions(op: Operation, terms: Callable[[Expr], list[Expr]]) -> list[Contraction]:
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None or reduction.init or not const_value(reduction.condition):
        return []
    if not is_float(reduction.sources[0]) or not is_sum(reduction):
        return []
    axes = [*op.axis, *reduction.axes]
    for axis in axes:
        low, extent = axis_range(axis)
        if low != 0 or not is_size(extent, axes):
            return []
    found = []
    for term in terms(expand_lets(reduction.sources[0])):
        one = _contraction(op, reduction, term)
        if one is None or not one.summed <= frozenset[int]().union(*one.variables()):
            return []
        found.append(one)
    return _collected(found)


def _collected(terms: Sequence[Contraction]) -> list[Contraction]:
    """``a*b + b*a*2 → a*b*3``: terms of equal factors are one; terms that cancel stay, because
    what is infinite has no difference.
    """
    keys = StructuralKeys()
    found: dict[Hashable, list[Contraction]] = {}
    for term in terms:
        parts = ((keys.expr(p.expr), *map(keys.expr, p.guards)) for p in term.factors)
        found.setdefault(tuple(sorted(parts)), []).append(term)
    collected = []
    for alike in found.values():
        scales = [[const_value(part) for part in term.scale] for term in alike]
        total = sum(prod(part for part in scale if part is not None) for scale in scales)
        if len(alike) == 1 or total == 0 or any(None in scale for scale in scales):
            collected += alike
        else:
            scale = like(alike[0].reduction.sources[0], total)
            whole = () if total == 1 else (scale,)
            collected.append(replace(alike[0], scale=whole, stands_for_several=True))
    return collected


def terms_of(source: Expr) -> list[Expr]:
    """The terms of a sum, with their signs and conditions.

    ``if c then a - b else 0 → if c then a else 0, if c then -b else 0``
    """
    name = op_name(source)
    if name in ("add", "sub"):
        left, right = operands(source)
        return [*terms_of(left), *(terms_of(right) if name == "add" else map(neg, terms_of(right)))]
    if name == "if_then_else" and is_const(operands(source)[2], 0):
        condition, then, zero = operands(source)
        return [if_then_else(condition, term, zero) for term in terms_of(then)]
    return [source]


def signed_terms_of(source: Expr) -> list[Expr]:
    """The terms of a sum, of which negated ones are sums, too: ``-(a - b) → -a, b``."""
    return [
        part
        for term in terms_of(source)
        for part in (
            map(neg, signed_terms_of(negation_of(term))) if _is_negated_sum(term) else [term]
        )
    ]


def _is_negated_sum(node: Expr) -> bool:
    negated = negation_of(node)
    return negated is not None and op_name(negated) in ("add", "sub")


def operations_of(parts: Sequence[Expr]) -> int:
    """The operations of some factors at one point."""
    nodes = [n for n in postorder(list(parts)) if is_float(n) and operands(n) and not is_load(n)]
    return sum(int(CALL) if is_expensive(node) else 1 for node in nodes)


def divisor_of(factor: Expr) -> Expr | None:
    """``c`` of a factor ``1/c``."""
    if op_name(factor) != "div" or not is_const(operands(factor)[0], 1):
        return None
    return operands(factor)[1]


def _contraction(op: Operation, reduction: Reduction, term: Expr) -> Contraction | None:
    """A term as a product. Conditions that no factor knows may be a factor of their own."""
    loops = loops_of([*op.axis, *reduction.axes])
    source = _with_inverses(without_cancelled(term, loops.variables), reduction)
    source = _with_choices(source, loops)
    guards, parts = factors_of(source)
    factors: list[Operand] = []
    product = _product(op, reduction, source)
    if product is None and guards:
        own = _with_conditions(op, reduction, guards, parts)
        if own is not None:
            factors, product = [own[0]], own[1]
        else:
            product = _product(op, reduction, term)
    if product is None:
        return None
    return Contraction(op, reduction, (*factors, *product.operands), tuple(product.scale), loops)


def _with_choices(source: Expr, loops: Loops) -> Expr:
    """``a*select(u[i] > v[k], b, 0) → a*(if u[i] > v[k] then b else 0)``: choices by what can be
    read at all points are conditions of factors. A comparison of floats that does not hold for NaN
    has no negation.
    """
    name, parts = op_name(source), operands(source)
    if name == "mul":
        return mul(*(_with_choices(part, loops) for part in parts))
    if name == "if_then_else" and is_const(parts[2], 0):
        return if_then_else(parts[0], _with_choices(parts[1], loops), parts[2])
    if name == "select" and any(is_const(side, 0) for side in parts[1:]):
        condition, then, otherwise = parts
        if is_const(then, 0):
            condition, then, otherwise = negate(condition), otherwise, then
        if op_name(condition) != "not" and is_safe([condition], loops):
            return if_then_else(condition, _with_choices(then, loops), otherwise)
    return source


def _with_conditions(
    op: Operation, reduction: Reduction, guards: Sequence[Expr], parts: Sequence[Expr]
) -> tuple[Operand, Product] | None:
    """``if z[i,k] > 0 then a[j,k]*b[i,j]/z[i] else 0 → (if z[i,k] > 0 then 1/z[i] else 0),
    a[j,k]*b[i,j]``: what may be infinite stays under all conditions, and the others get those that
    one of them knows.
    """
    infinite = [part for part in parts if may_be_infinite(part)]
    finite = [part for part in parts if not may_be_infinite(part)]
    if not finite:
        return None
    value = multiplied(finite)
    known: list[Expr] = []
    others: list[Expr] = []
    for guard in guards:
        alone = _product(op, reduction, guarded([guard], value))
        (others if alone is None else known).append(guard)
    product = _product(op, reduction, guarded(known, value))
    conditions = list(guards) if infinite else others
    factor = multiplied(infinite) if infinite else like(value, 1.0)
    axes = [axis.var for axis in (*op.axis, *reduction.axes)]
    atoms = atoms_of([factor, *conditions], axes)
    if product is None or atoms is None:
        return None
    operand = Operand(factor, atoms, conditions)
    return (operand, product) if len(operand.variables()) < len(axes) else None


def _product(op: Operation, reduction: Reduction, source: Expr) -> Product | None:
    changed = replace(reduction, sources=(source,))
    return product_of(reduction_stage(op.name, list(op.axis), changed)[0].op, of_loops=True)


def _with_inverses(source: Expr, reduction: Reduction) -> Expr:
    """``a*b/c → a*b*(1/c)``.

    A factor over a divisor that the sum changes stays one factor.
    """
    name = op_name(source)
    if name == "mul":
        left, right = (_with_inverses(part, reduction) for part in operands(source))
        return mul(left, right)
    if name == "if_then_else" and is_const(operands(source)[2], 0):
        condition, then, zero = operands(source)
        return if_then_else(condition, _with_inverses(then, reduction), zero)
    if name == "div" and is_float(source) and divisor_of(source) is None:
        numerator, divisor = operands(source)
        changes = depends_on(divisor, [axis.var for axis in reduction.axes])
        if not changes or op_name(numerator) in ("mul", "div"):
            return mul(_with_inverses(numerator, reduction), div(like(source, 1.0), divisor))
    return source
