"""Computes sums of products of several tensors by smaller sums, where these take fewer points.

Rounding: factors are multiplied and summed in another order, so that a result has at most one more
rounding for each factor and each sum. Its error stays below ``(n + m)·ε·Σ|Π factors|`` for n terms
of m factors, as that of the sum in any order (Higham, Accuracy and Stability of Numerical
Algorithms, section 3.1). Products of fewer factors than written may leave the range of the dtype.

A factor outside of a sum is evaluated also where the sum has no terms. There it may divide by zero
or read outside of its tensor, so that the product gets the condition that the sum has terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ....expr.build import sum_of
from ....expr.nodes import Expr, Tensor, is_load, load, load_tensor, node_id, operands
from ....graph.graph import Graph, Replacement, each_original_stage, reads_replaced, retarget
from ....graph.stage import Operation, axis_range, axis_vars, data_axis, is_placeholder, make_stage
from ...cost import MARGIN, STORE
from ...kernel import size_of
from .order import Elimination, Order, cheapest_order
from .shared import Shared, Term, shared_eliminations
from .stages import Results, Stages
from .terms import Contraction, contractions_of, divisor_of, whole_of

#: a term, and the cheapest order of its sums
_Ordered: TypeAlias = tuple[Contraction, Order]


def with_ordered_contractions(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Equal tensors whose sums of products have fewer points.

    ``y[i,j] = Σ_{k,l} a[i,k]*b[k,l]*c[l,j] → t[i,l] = Σ_k a[i,k]*b[k,l]; y[i,j] = Σ_l
    t[i,l]*c[l,j]``, and ``y[i,j] = Σ_k (a[k]*b[i,j] + a[i]*b[k,j]) → s = Σ_k a[k]; t[j] = Σ_k
    b[k,j]; y[i,j] = s*b[i,j] + a[i]*t[j]``.

    A sum that several stages would begin with is computed once, and a product is divided after the
    sum: ``y[i] = Σ_{k,d} h[i,d]*w[k,d]*e[i,k]/s[i], z[i,k] = Σ_d h[i,d]*w[k,d]/s[i] → p[i,k] = Σ_d
    h[i,d]*w[k,d]; q[i] = Σ_k p[i,k]*e[i,k]; y[i] = q[i]/s[i]; z[i,k] = p[i,k]/s[i]``.
    """
    stages = [op for op in Graph(outputs).ops if not is_placeholder(op)]
    plans = iter(_plans(stages))
    results = Results()

    def change(op: Operation, replacement: Replacement) -> list[Tensor]:
        plan = next(plans)
        if plan is None:
            return retarget(op, replacement)
        read = reads_replaced(replacement)
        return _result(op, [part.reading(read) for part in plan], results)

    return each_original_stage(outputs, change)


@dataclass(frozen=True)
class _Plan:
    """How a term is computed: the eliminations, the first of them a shared one."""

    term: Contraction
    eliminations: Sequence[Elimination]
    first: Shared | None

    def reading(self, read: Callable[[Expr], Expr]) -> _Plan:
        """The plan over other tensors."""
        return replace(self, term=self.term.reading(read))


def _plans(stages: Sequence[Operation]) -> list[list[_Plan] | None]:
    """The plans of the terms of each stage; None for stages that stay."""
    readings = _readings(stages)
    return [
        _planned(terms, first) if any(first) or _pays(terms) else None
        for terms, first in zip(readings, _shared(readings), strict=True)
    ]


def _readings(stages: Sequence[Operation]) -> list[list[_Ordered]]:
    """The terms of each stage, or the whole if others begin with that and with no term of it:
    ``Σ (e₁ + e₂), Σ (e₁ + e₂)*u``.
    """
    terms = [list(map(_ordered, contractions_of(op))) for op in stages]
    wholes = [
        list(map(_ordered, whole_of(op))) if len(own) > 1 and not _pays(own) else []
        for op, own in zip(stages, terms, strict=True)
    ]
    if not any(wholes):
        return terms
    shared = _shared([[*own, *whole] for own, whole in zip(terms, wholes, strict=True)])
    return [
        whole if whole and first[-1] and not any(first[:-1]) else own
        for own, whole, first in zip(terms, wholes, shared, strict=True)
    ]


def _shared(found: Sequence[Sequence[_Ordered]]) -> list[list[Shared | None]]:
    """What each term of each stage begins with, and others, too."""
    every = [
        Term((stage, place), term, order.cost)
        for stage, terms in enumerate(found)
        for place, (term, order) in enumerate(terms)
    ]
    shared = shared_eliminations(every)
    return [
        [shared.get((stage, place)) for place in range(len(terms))]
        for stage, terms in enumerate(found)
    ]


def _planned(terms: Sequence[_Ordered], firsts: Sequence[Shared | None]) -> list[_Plan]:
    """The plans of the terms of a stage, which begin with what is shared."""
    plans = []
    for (term, order), first in zip(terms, firsts, strict=True):
        own = order if first is None else _order(term, first.elimination)
        plans.append(_Plan(term, _divided_last(term, own.eliminations), first))
    return plans


def _ordered(term: Contraction) -> _Ordered:
    return term, _order(term)


def _order(term: Contraction, first: Elimination | None = None) -> Order:
    return cheapest_order(term.variables(), term.kept, term.extents(), first)


def _pays(terms: Sequence[_Ordered]) -> bool:
    """Whether the orders of the terms of a stage take less time than the stage as it is."""
    if [term.stands_for_several for term, _ in terms] == [True]:
        return True
    if any(
        len(_divided_last(term, order.eliminations)) > len(order.eliminations)
        for term, order in terms
    ):
        return True
    if not any(order.eliminations for _, order in terms):
        return False
    # each sum that is left writes what the last one adds
    left = [term for term, order in terms if not _is_whole(term, order.eliminations)]
    points = size_of([axis_range(axis)[1] for axis in terms[0][0].op.axis])
    added = max(0, len(left) - 1) * STORE * points
    fewer = sum(order.points for _, order in terms) + added
    if fewer * MARGIN <= sum(term.points() for term, _ in terms):
        return True
    # further multiplications at a point wait for the reads and the functions of its factors
    evaluated = sum(term.evaluation() for term, _ in terms)
    cost = sum(order.cost for _, order in terms) + added + evaluated
    return cost * MARGIN <= sum(order.together for _, order in terms) + evaluated


def _is_whole(term: Contraction, order: Sequence[Elimination]) -> bool:
    """Whether nothing is left to sum after some eliminations."""
    return term.summed <= frozenset[int]().union(*(one.axes for one in order))


def _divided_last(term: Contraction, order: Sequence[Elimination]) -> list[Elimination]:
    """``Σ_k a[i,k]*b[k,j]/s[i] → (Σ_k a[i,k]*b[k,j])/s[i]``: the eliminations with one for what is
    left to sum.
    """
    left = dict(enumerate(term.variables()))
    number = len(left)
    for one in order:
        parts = [left.pop(factor) for factor in one.factors]
        left[number] = frozenset[int]().union(*parts) - one.axes
        number += 1
    axes = term.summed & frozenset[int]().union(*left.values())
    bucket = tuple(factor for factor, variables in left.items() if variables & axes)
    loops = frozenset[int]().union(*(left[factor] for factor in bucket))
    divides = any(
        factor < len(term.factors) and divisor_of(term.factors[factor].expr) is not None
        for factor in left
        if factor not in bucket
    )
    if not axes or not divides or any(left[factor] == loops for factor in bucket):
        return list(order)  # it is no product of rows and columns
    return [*order, Elimination(axes, bucket)]


def _result(op: Operation, plans: Sequence[_Plan], results: Results) -> list[Tensor]:
    """The stage in place of the whole, which reads those of the eliminations."""
    made = [
        Stages(plan.term, results, f"{op.name}_part{number}" if number else f"{op.name}_part").of(
            plan.eliminations, plan.first
        )
        for number, plan in enumerate(plans)
    ]
    if len(made) == 1 and made[0].summed:
        return made[0].stage(op.name, list(op.axis))
    values = []
    for number, term in enumerate(made):
        value = term.value
        if term.summed:
            axes = [data_axis(str(axis.var.name), axis_range(axis)[1]) for axis in op.axis]
            [partial] = term.renamed(op.axis, axes).stage(f"{op.name}_term{number}", axes)
            value = load(partial, axis_vars(op))
        values.append(value)
    value = sum_of(values)
    if is_load(value) and list(map(node_id, operands(value))) == list(map(node_id, axis_vars(op))):
        return [load_tensor(value)]
    return make_stage(op.name, list(op.axis), [value])
