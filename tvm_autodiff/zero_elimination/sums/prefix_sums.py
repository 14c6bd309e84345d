"""Recognises sums up to a place, which take one step for each element and one for each place:
``Σ_k if k <= j then a[k]``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.build import sub
from ...expr.factoring import factors_of
from ...expr.linear_terms import linear_terms
from ...expr.nodes import INDEX_DTYPES, Axis, Expr, dtype_of, node_id, op_name, operands
from ...expr.rewrite import contains_load, depends_on, expand_lets

_ORDERS = ("lt", "le", "gt", "ge")


def places_of(
    source: Expr, elements: Sequence[Axis], summed: Sequence[Axis]
) -> tuple[Axis, ...] | None:
    """The axes of the elements that only tell up to where a sum goes; None if it is no such sum.

    Factors of the source that do not depend on the summed axis may depend on any element.

    Parameters
    ----------
    source : Expr
        The summed expression, with conditions.
    elements : sequence of Axis
        The axes of the result.
    summed : sequence of Axis
        The axes of the sum.

    Examples
    --------
    >>> from tvm import te
    >>> x, k = te.placeholder((9,), name="x"), te.reduce_axis((0, 9), "k")
    >>> y = te.compute((9,), lambda j: te.sum(te.if_then_else(k <= j - 2, x[k], 0.0), axis=k))
    >>> [source] = y.op.body[0].source
    >>> places_of(source, y.op.axis, [k]) == (y.op.axis[0],)
    True
    """
    if len(summed) != 1:
        return None
    [axis] = summed
    conditions, factors = factors_of(expand_lets(source))
    bounds = [condition for condition in conditions if depends_on(condition, [axis.var])]
    if len(bounds) != 1 or not _is_order(bounds[0], axis):
        return None
    places = tuple(one for one in elements if depends_on(bounds[0], [one.var]))
    variables = [one.var for one in places]
    if not places or any(
        depends_on(factor, [axis.var]) and depends_on(factor, variables) for factor in factors
    ):
        return None
    return places


def _is_order(condition: Expr, axis: Axis) -> bool:
    """Whether a condition compares an axis with what does not depend on it."""
    if op_name(condition) not in _ORDERS or dtype_of(operands(condition)[0]) not in INDEX_DTYPES:
        return False
    if contains_load(condition):
        return False
    terms, _ = linear_terms(sub(*operands(condition)))
    within = [(node, factor) for node, factor in terms if depends_on(node, [axis.var])]
    return [(node_id(node), abs(factor)) for node, factor in within] == [(node_id(axis.var), 1)]
