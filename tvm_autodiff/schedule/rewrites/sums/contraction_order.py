"""Computes sums of products of several tensors in the cheapest order of smaller sums.

Each reduce axis concerns only the factors that depend on it, so their product can be summed over it
before it meets the others: variable elimination. The order with the fewest points is found by
trying all of them. A point costs the same for any number of factors, because a tile multiplies
those that it has in common once.

Rounding: factors are multiplied and summed in another order, so that a result has at most one more
rounding for each factor and each sum. Its error stays below ``(n + m)·ε·Σ|Π factors|`` for n terms
of m factors, as that of the sum in any order (Higham, Accuracy and Stability of Numerical
Algorithms, section 3.1). Products of fewer factors than written may leave the range of the dtype.

A factor outside of a sum is evaluated also where the sum has no terms. There it may divide by zero
or read outside of its tensor, so that the product gets the condition that the sum has terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import TypeVar

from ....expr.build import if_then_else, mul, neg, sum_of
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    const_value,
    is_const,
    is_float,
    load,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import contains_load, expand_lets, substituter, variables_of
from ....graph.graph import each_stage
from ....graph.sizes.nonnegative import nonnegative, not_empty
from ....graph.stage import (
    Operation,
    Reduction,
    axis_range,
    data_axis,
    is_compute,
    make_stage,
    reduction_of,
    reduction_stage,
    renewed_reduction,
)
from ....graph.structural import EqualStages
from ...cost import MARGIN, MAX_SEARCHED, STORE, SYMBOLIC_SIZE
from ...kernel import size_of
from ...nest.in_range import Loops, is_safe, loops_of
from ...nest.products import Product, distinct, guarded, is_sum, operand_value, product_of

Variables = frozenset[int]  #: ids of loop variables
Item = TypeVar("Item")


def with_ordered_contractions(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Equal tensors whose sums of products have fewer points.

    ``y[i,j] = Σ_{k,l} a[i,k]*b[k,l]*c[l,j] → t[i,l] = Σ_k a[i,k]*b[k,l]; y[i,j] = Σ_l
    t[i,l]*c[l,j]``, and ``y[i,j] = Σ_k (a[k]*b[i,j] + a[i]*b[k,j]) → s = Σ_k a[k]; t[j] = Σ_k
    b[k,j]; y[i,j] = s*b[i,j] + a[i]*t[j]``.
    """
    equal = EqualStages()

    def change(op: Operation) -> list[Tensor] | None:
        terms = _contractions(op)
        orders = [cheapest_order(*term.problem()) for term in terms]
        if not any(found.eliminations for found in orders):
            return None
        # each sum that is left writes what the last one adds
        left = [term for term, found in zip(terms, orders, strict=True) if not term.is_whole(found)]
        elements = size_of([axis_range(axis)[1] for axis in op.axis])
        added = max(0, len(left) - 1) * STORE * elements
        cost = sum(found.cost for found in orders) + added
        if cost * MARGIN > sum(found.together for found in orders):
            return None
        return _result(op, terms, [found.eliminations for found in orders], equal)

    return each_stage(outputs, change)


@dataclass(frozen=True)
class Elimination:
    """A sum over `axes` of the product of factors, among them all that depend on one of the axes.

    Factors are numbered in order: those of the contraction, then the result of each elimination.
    """

    axes: Variables
    factors: tuple[int, ...]


@dataclass(frozen=True)
class Order:
    """Eliminations in order, their cost, and that of the sum as it is written."""

    eliminations: list[Elimination]
    cost: int
    together: int


def cheapest_order(
    factors: Sequence[Variables], kept: Variables, extents: Mapping[int, int]
) -> Order:
    """The eliminations to do before the product of what remains, which cost least.

    Parameters
    ----------
    factors : sequence of frozenset of int
        The variables that each factor depends on.
    kept : frozenset of int
        The variables of the result; all others are summed over.
    extents : mapping from int to int
        The number of values of each variable.

    Examples
    --------
    >>> sizes = dict.fromkeys(range(4), 10)
    >>> chain = [frozenset({0, 1}), frozenset({1, 2}), frozenset({2, 3})]
    >>> cheapest_order(chain, frozenset({0, 3}), sizes).eliminations
    [Elimination(axes=frozenset({1}), factors=(0, 1))]
    >>> cheapest_order(chain[:2], frozenset({0, 2}), sizes).eliminations
    []
    """
    groups: dict[tuple[int, ...], set[int]] = {}
    for variable in extents:  # in the order of the loops: ids differ between processes
        readers = tuple(n for n, factor in enumerate(factors) if variable in factor)
        if readers and variable not in kept:
            groups.setdefault(readers, set()).add(variable)
    search = _Search(kept, extents)
    everything = dict(enumerate(factors))
    together = search.together(everything)
    if len(groups) > MAX_SEARCHED:
        return Order([], together, together)
    cost, order = search.best(everything, tuple(map(frozenset, groups.values())), len(factors))
    return Order(order, cost, together)


@dataclass(frozen=True)
class _Search:
    """All orders of eliminations, by their points and what they store."""

    kept: Variables
    extents: Mapping[int, int]

    def together(self, factors: Mapping[int, Variables]) -> int:
        """The points if everything that remains is one sum."""
        return self._points(self.kept.union(*factors.values()))

    def best(
        self, factors: Mapping[int, Variables], groups: Sequence[Variables], fresh: int
    ) -> tuple[int, list[Elimination]]:
        """The least cost and its eliminations; the next result has the number `fresh`."""
        cost, order = self.together(factors), list[Elimination]()
        for axes, bucket in self._buckets(factors, groups):
            parts = [factors[number] for number in bucket]
            left = frozenset[int]().union(*parts) - axes
            # what has the form of the result gets the other factors before it is stored
            stored = 0 if left == self.kept else STORE * self._points(left)
            here = self._points(left | axes) + stored
            if here >= cost:
                continue
            rest = {number: f for number, f in factors.items() if number not in bucket}
            others = [group for group in groups if not group <= axes]
            after, following = self.best({**rest, fresh: left}, others, fresh + 1)
            if here + after < cost:
                cost = here + after
                order = [Elimination(axes, bucket), *following]
        return cost, order

    def _buckets(
        self, factors: Mapping[int, Variables], groups: Sequence[Variables]
    ) -> Iterator[tuple[Variables, tuple[int, ...]]]:
        """Axes to sum over, with the factors that are multiplied before: those that depend on the
        axes, and any that depend on nothing else; not all factors.
        """
        for chosen in _subsets(groups):
            axes: Variables = frozenset().union(*chosen)
            needed = [number for number, factor in factors.items() if factor & axes]
            inside = frozenset[int]().union(*(factors[number] for number in needed))
            free = [n for n, factor in factors.items() if n not in needed and factor <= inside]
            for more in ((), *_subsets(free)):
                if len(needed) + len(more) < len(factors):
                    yield axes, tuple(sorted((*needed, *more)))

    def _points(self, variables: Variables) -> int:
        return prod(self.extents[variable] for variable in variables)


def _subsets(items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    for count in range(1, len(items) + 1):
        yield from combinations(items, count)


@dataclass(frozen=True)
class _Contraction:
    """A sum of products, or one term of a sum of several, and the loops that it runs over."""

    op: Operation
    product: Product
    loops: Loops

    def problem(self) -> tuple[list[Variables], Variables, dict[int, int]]:
        """What `cheapest_order` takes."""
        axes = [*self.op.axis, *self.product.reduction.axes]
        extents = {node_id(axis.var): axis_range(axis)[1] for axis in axes}
        return (
            self.factors(),
            frozenset(node_id(axis.var) for axis in self.op.axis),
            {key: n if isinstance(n, int) else SYMBOLIC_SIZE for key, n in extents.items()},
        )

    def factors(self) -> list[Variables]:
        """The variables of each factor."""
        return [frozenset(operand.variables()) for operand in self.product.operands]

    def is_whole(self, found: Order) -> bool:
        """Whether nothing is left to sum after some eliminations."""
        summed = frozenset(node_id(axis.var) for axis in self.product.reduction.axes)
        return summed <= frozenset[int]().union(*(one.axes for one in found.eliminations))


def _contractions(op: Operation) -> list[_Contraction]:
    """The sums of products that a stage adds up; none if they may not be taken apart."""
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None or reduction.init or not const_value(reduction.condition):
        return []
    if not is_float(reduction.sources[0]) or not is_sum(reduction):
        return []
    axes = [*op.axis, *reduction.axes]
    own = {node_id(axis.var) for axis in axes}
    for axis in axes:
        low, extent = axis_range(axis)
        sized = isinstance(extent, int) or not contains_load(extent)
        if low != 0 or not sized:
            return []
        if not isinstance(extent, int) and any(node_id(v) in own for v in variables_of(extent)):
            return []  # it changes from row to row
    found = []
    for term in terms_of(expand_lets(reduction.sources[0])):
        one = reduction_stage(op.name, list(op.axis), replace(reduction, sources=(term,)))[0].op
        product = product_of(one)
        if product is None:
            return []
        used = {key for operand in product.operands for key in operand.variables()}
        if any(node_id(axis.var) not in used for axis in reduction.axes):
            return []
        found.append(_Contraction(op, product, loops_of(axes)))
    return found


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


def _result(
    op: Operation,
    terms: Sequence[_Contraction],
    orders: Sequence[Sequence[Elimination]],
    equal: EqualStages,
) -> list[Tensor]:
    """The stage in place of the whole, which reads those of the eliminations."""
    made = [
        _Stages(term, equal, f"{op.name}_part{number}" if number else f"{op.name}_part").of(order)
        for number, (term, order) in enumerate(zip(terms, orders, strict=True))
    ]
    if len(made) == 1 and made[0].summed:
        return made[0].stage(op.name, list(op.axis))
    values = []
    for number, term in enumerate(made):
        value = term.value
        if term.summed:
            axes = [data_axis(str(axis.var.name), axis_range(axis)[1]) for axis in op.axis]
            [partial] = term.renamed(op.axis, axes).stage(f"{op.name}_term{number}", axes)
            value = load(partial, [axis.var for axis in op.axis])
        values.append(value)
    return make_stage(op.name, list(op.axis), [sum_of(values)])


@dataclass(frozen=True)
class _Term:
    """What is left of a contraction: the sum of a value over some axes, or the value."""

    reduction: Reduction
    summed: tuple[Axis, ...]
    value: Expr

    def renamed(self, old: Sequence[Axis], new: Sequence[Axis]) -> _Term:
        """The term over other data axes."""
        rename = substituter({a.var: b.var for a, b in zip(old, new, strict=True)})
        return replace(self, value=rename(self.value))

    def stage(self, name: str, axes: Sequence[Axis]) -> list[Tensor]:
        """The stage that sums it."""
        reduction = replace(self.reduction, axes=self.summed, sources=(self.value,))
        return reduction_stage(name, axes, renewed_reduction(reduction, {}))


class _Stages:
    """The stages of a contraction in some order."""

    def __init__(self, contraction: _Contraction, equal: EqualStages, name: str) -> None:
        self._contraction = contraction
        self._equal, self._name = equal, name
        self._reduction = contraction.product.reduction
        axes = (*contraction.op.axis, *self._reduction.axes)
        self._axes = {node_id(axis.var): axis for axis in axes}
        #: the conditions, value and variables of each factor
        self._factors: list[tuple[list[Expr], Expr, Variables]] = []
        for operand in contraction.product.operands:
            conditions, value = operand_value(operand, contraction.loops)
            self._factors.append((conditions, value, frozenset(operand.variables())))
        self._is_total = all(
            operand.is_load and self._reads_inside(operand.expr, variables)
            for operand, (_, _, variables) in zip(
                contraction.product.operands, self._factors, strict=True
            )
        ) and all(const_value(factor) is not None for factor in contraction.product.scale)

    def of(self, order: Sequence[Elimination]) -> _Term:
        """What is left after some eliminations."""
        left = list(range(len(self._factors)))
        for elimination in order:
            left = [factor for factor in left if factor not in elimination.factors]
            left.append(len(self._factors))
            self._factors.append(self._eliminated(elimination))
        used = frozenset[int]().union(*(self._factors[number][2] for number in left))
        summed = tuple(axis for axis in self._reduction.axes if node_id(axis.var) in used)
        value = self._product(left, self._contraction.product.scale)
        return _Term(self._reduction, summed, value)

    def _eliminated(self, elimination: Elimination) -> tuple[list[Expr], Expr, Variables]:
        """The result of an elimination as a factor."""
        used = frozenset[int]().union(*(self._factors[n][2] for n in elimination.factors))
        kept = [axis for key, axis in self._axes.items() if key in used - elimination.axes]
        summed = tuple(axis for key, axis in self._axes.items() if key in elimination.axes)
        axes = [data_axis(str(axis.var.name), nonnegative(axis_range(axis)[1])) for axis in kept]
        term = _Term(self._reduction, summed, self._product(elimination.factors, ()))
        [made] = term.renamed(kept, axes).stage(self._name, axes)
        tensor = self._equal.first(made.op).output(0)
        conditions = [] if self._is_total else not_empty(summed)
        return conditions, load(tensor, [axis.var for axis in kept]), used - elimination.axes

    def _reads_inside(self, read: Expr, variables: Variables) -> bool:
        """Whether a read is in bounds without the loops that it does not depend on."""
        own = [axis for key, axis in self._axes.items() if key in variables]
        return is_safe([read], loops_of(own))

    def _product(self, numbers: Sequence[int], scale: Sequence[Expr]) -> Expr:
        # sums have the highest numbers, and their conditions hold where the others are evaluated
        order = sorted(numbers, reverse=True)
        conditions = [c for number in order for c in self._factors[number][0]]
        [value, *others] = [self._factors[number][1] for number in numbers]
        for other in (*others, *scale):
            value = mul(value, other)
        return guarded(distinct(conditions, self._contraction.loops.variables), value)
