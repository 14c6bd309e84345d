"""Splits what a reducer of one value takes, other than a sum, into a value with conditions and the
constant that stands at all other points.

Points with the reducer's identity do not count, as those with zero in a sum. A maximum also begins
with any other constant, if each element has a point that holds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isnan

from ...expr.build import like, negate
from ...expr.fold import fold
from ...expr.nodes import BRANCHES, Expr, const_value, op_name, operands
from ...expr.rewrite import contains_load, expand_lets, variables_of
from ...expr.sharing.lets import merge_equal
from ...expr.simplify import simplify
from ...graph.stage import Combiner, Reduction
from ...rules.reductions.reducers import classify
from ...rules.terms import Condition
from .summands import Summand, conditions_of

#: extremes, of which equal values combine to the value → whether a constant adds nothing
_ADDS_NOTHING: dict[str, Callable[[float, float], bool]] = {
    "max": lambda value, identity: value <= identity,
    "min": lambda value, identity: value >= identity,
}


@dataclass(frozen=True)
class Counted:
    """``⊕_k if c then v else w``.

    Attributes
    ----------
    part : Summand
        The value v with its conditions c.
    combiner : Combiner
        The reducer, which begins with w.
    counts : bool
        Whether w is more than the identity: then each element needs a point that holds it.
    """

    part: Summand
    combiner: Combiner
    counts: bool


def counted(reduction: Reduction) -> Counted | None:
    """The points that count, of a reduction with one source and no condition or initial value of
    its own; None if the source is no choice beside a constant that may be left out.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.expr.printing.text import text
    >>> from tvm_autodiff.graph.stage import reduction_of
    >>> x, k = te.placeholder((9,), name="x"), te.reduce_axis((0, 9), "k")
    >>> def maximum(j):
    ...     return te.max(te.if_then_else(k != j, -1e30, x[k]), axis=k)
    >>> found = counted(reduction_of(te.compute((9,), maximum).op))
    >>> text(found.part.value), [text(c.expr) for c in found.part.conditions], found.counts
    ('x[k]', ['k == j'], True)
    """
    [source] = reduction.sources
    [value] = merge_equal([expand_lets(source)])
    leaves_out = _constants(reduction.combiner)
    if leaves_out is None:
        return None
    conditions: list[Condition] = []
    known: float | None = None
    while op_name(value) in BRANCHES:
        guards = op_name(value) == "if_then_else"
        condition, then, otherwise = operands(value)
        sides = ((condition, then, leaves_out(otherwise)), (None, otherwise, leaves_out(then)))
        found = [side for side in sides if side[2] is not None and known in (None, side[2])]
        if not found:
            break
        test, value, known = found[0]
        holds = negate(condition) if test is None else test
        conditions += conditions_of([holds], guards)
    part = None if known is None else Summand(value).where(conditions)
    if known is None or part is None:
        return None
    [identity] = reduction.combiner.identity
    begins = replace(reduction.combiner, identity=(like(identity, known),))
    return Counted(part, begins, known != const_value(identity))


def _constants(combiner: Combiner) -> Callable[[Expr], float | None] | None:
    """Constants that may be left out, as the number that the reducer begins with instead."""
    identity = const_value(combiner.identity[0])
    if identity is None:
        return None
    adds_nothing = _ADDS_NOTHING.get(classify(combiner, 0))
    if adds_nothing is None:
        # `where=` relies on it as well, but a sum that begins with one is no mistake
        [twice] = combiner.apply(combiner.identity, combiner.identity)
        if const_value(simplify(twice)) not in (None, identity):
            return None

    def begin(node: Expr) -> float | None:
        value = None if variables_of([node]) or contains_load(node) else const_value(fold(node))
        if value is None or isnan(value):
            return None
        if adds_nothing is None:
            return identity if value == identity else None
        return identity if adds_nothing(value, identity) else value

    return begin
