"""Reads reductions of te so that all values have the dtypes of what is reduced.

te gives the literals of ``init=2.5`` and ``lambda t: 0.0`` a dtype of their own, and the variables
of a reducer the dtypes of its identity.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..expr.build import cast, variable
from ..expr.nodes import Expr, Var, const_value, dtype_of, elements, node_id, op_name
from ..expr.rewrite import Rewriter

_Parts = tuple[tuple[Var, ...], tuple[Var, ...], tuple[Expr, ...], tuple[Expr, ...]]


def combiner_parts(body: Expr) -> _Parts:
    """The left and right variables of a reduction's reducer, its results, and its identity."""
    combiner, wanted = body.combiner, [dtype_of(source) for source in elements(body.source)]
    lhs, rhs = elements(combiner.lhs), elements(combiner.rhs)
    results, identity = elements(combiner.result), elements(combiner.identity_element)
    if not is_of_one_dtype(body):
        left, right = (_typed_variables(side, wanted) for side in (lhs, rhs))
        pairs = zip((*lhs, *rhs), (*left, *right), strict=True)
        table = {node_id(old): new for old, new in pairs}
        typed = Rewriter(lambda node: table.get(node_id(node)) if op_name(node) == "var" else None)
        lhs, rhs = left, right
        results = tuple(cast(t, typed(value)) for t, value in zip(wanted, results, strict=True))
        identity = tuple(cast(t, value) for t, value in zip(wanted, identity, strict=True))
    return lhs, rhs, results, identity


def _typed_variables(side: Sequence[Var], dtypes: Sequence[str]) -> tuple[Var, ...]:
    return tuple(variable(var.name, dtype) for var, dtype in zip(side, dtypes, strict=True))


def literals_typed(init: Sequence[Expr], sources: Sequence[Expr]) -> tuple[Expr, ...]:
    """Initial values, with the literals among them in the dtypes of the sources.

    Reads keep theirs, because an initial value cannot be a conversion: see `plain_reduction`.
    """
    return tuple(
        value if const_value(value) is None else cast(dtype_of(source), value)
        for value, source in zip(init, sources, strict=False)
    )


def is_of_one_dtype(body: Expr) -> bool:
    """Whether the reducer of a reduction has the dtypes of what it reduces."""
    combiner, wanted = body.combiner, [dtype_of(source) for source in elements(body.source)]
    parts = (combiner.lhs, combiner.result, combiner.identity_element)
    return all(list(map(dtype_of, elements(part))) == wanted for part in parts)
