"""The derivative of sums that a running extreme rescales, as in an online softmax.

``(m, s) ⊕ (n, t) = (o, s·exp(m - o) + t·exp(n - o))`` with ``o = max(m, n)`` computes ``M = max_k
m[k]`` and ``S = Σ_k s[k]·exp(m[k] - M)``. The seed of S reaches s and m through each term, and M
through all of them, which takes no prefixes or suffixes: ``s̄[k] = S̄·exp(m[k] - M)``, ``m̄[k] =
s̄[k]·s[k]``, ``M̄ = -S̄·S``.

Maxim Milakov and Natalia Gimelshein, Online normalizer calculation for softmax, 2018.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

from ...expr.build import call, like, mul, neg, sub
from ...expr.nodes import Expr, const_value, is_const, is_float, load, node_id, op_name, operands
from ...expr.sharing.lets import merge_equal
from ...graph.stage import Combiner, axis_vars
from ..terms import Contribution
from .arg_reduction import extreme
from .reducing import Reducing, SourceSeed, own_condition

#: how a function of ``m - o`` grows: its derivative is so many times its value
_RATES = {"exp": 1.0, "exp2": log(2.0), "exp10": log(10.0)}
_BETTER = {"max": "gt", "min": "lt"}


@dataclass(frozen=True)
class Rescaled:
    """How a component of a reducer is rescaled: by ``function(factor·(m - M))``.

    Attributes
    ----------
    extreme : int
        The component m.
    function : str
        ``"exp"``, ``"exp2"`` or ``"exp10"``.
    factor : float
    """

    extreme: int
    function: str
    factor: float


def rescaled(combiner: Combiner, component: int) -> Rescaled | None:
    """How a component is rescaled, or None if it is not."""
    results = merge_equal(combiner.result)
    if op_name(results[component]) != "add" or not is_const(combiner.identity[component], 0):
        return None
    terms = operands(results[component])
    own = (combiner.lhs[component], combiner.rhs[component])
    for first, second in (terms, terms[::-1]):
        left, right = (
            _factor(term, var) for term, var in zip((first, second), own, strict=True)
        )
        if left is None or right is None:
            continue
        for number, top in enumerate(results):
            found = _scale(left, combiner.lhs[number], top)
            other = _scale(right, combiner.rhs[number], top)
            if found is not None and found == other and _is_extreme(combiner, number):
                return Rescaled(number, *found)
    return None


def rescaled_sum(stage: Reducing) -> list[SourceSeed]:
    """S = Σ s·exp(m - M) → the seed of each term, and of the element that is the extreme."""
    combiner, reduction = stage.reduction.combiner, stage.reduction
    how = rescaled(combiner, stage.component)
    assert how is not None
    here = axis_vars(stage.op)
    total, top = (load(stage.op.output(n), here) for n in (stage.component, how.extreme))
    rate = how.factor * _RATES[how.function]
    power = sub(reduction.sources[how.extreme], top)
    if how.factor != 1.0:
        power = mul(power, like(power, how.factor))
    scale = mul(stage.seed, call(how.function, power))
    through_term = mul(mul(scale, stage.source), like(scale, rate))
    condition = own_condition(stage)
    seed = neg(mul(mul(stage.seed, total), like(total, rate)))
    better = _BETTER[op_name(combiner.result[how.extreme])]
    return [
        (stage.component, Contribution(scale, condition)),
        (how.extreme, Contribution(through_term, condition)),
        *extreme(replace(stage, component=how.extreme, seed=seed), better),
    ]


def _is_extreme(combiner: Combiner, number: int) -> bool:
    result = combiner.result[number]
    both = {node_id(combiner.lhs[number]), node_id(combiner.rhs[number])}
    return op_name(result) in _BETTER and set(map(node_id, operands(result))) == both


def _factor(term: Expr, var: Expr) -> Expr | None:
    """``var·e → e``"""
    if op_name(term) != "mul":
        return None
    first, second = operands(term)
    if node_id(first) == node_id(var):
        return second
    return first if node_id(second) == node_id(var) else None


def _scale(expr: Expr, var: Expr, top: Expr) -> tuple[str, float] | None:
    """``exp(c·(var - top)) → ("exp", c)``"""
    if op_name(expr) not in _RATES or not is_float(expr):
        return None
    [power] = operands(expr)
    factor = 1.0
    if op_name(power) == "mul":
        first, second = operands(power)
        value = const_value(second)
        if value is None:
            first, value = second, const_value(first)
        if value is None:
            return None
        power, factor = first, float(value)
    if op_name(power) != "sub":
        return None
    left, right = operands(power)
    pair, wanted = (node_id(left), node_id(right)), (node_id(var), node_id(top))
    if pair not in (wanted, wanted[::-1]):
        return None
    return op_name(expr), factor if pair == wanted else -factor
