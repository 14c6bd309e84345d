"""Reads reductions of te so that all values have the dtypes of what is reduced.

te gives the literals of ``init=2.5`` and ``lambda t: 0.0`` a dtype of their own, and the variables
of a reducer the dtypes of its identity.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidArgumentError
from ..expr.build import cast, variable
from ..expr.dtypes import integer_range
from ..expr.nodes import Expr, Var, const_value, dtype_of, elements, node_id, op_name
from ..expr.rewrite import Rewriter

_Parts = tuple[tuple[Var, ...], tuple[Var, ...], tuple[Expr, ...], tuple[Expr, ...]]


def combiner_parts(body: Expr, where: str) -> _Parts:
    """The left and right variables of a reduction's reducer, its results, and its identity.

    `where` is for error messages.
    """
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
        identity = tuple(
            _converted(value, t, where) for t, value in zip(wanted, identity, strict=True)
        )
    return lhs, rhs, results, identity


def _typed_variables(side: Sequence[Var], dtypes: Sequence[str]) -> tuple[Var, ...]:
    return tuple(variable(var.name, dtype) for var, dtype in zip(side, dtypes, strict=True))


def literals_typed(
    init: Sequence[Expr], sources: Sequence[Expr], where: str
) -> tuple[Expr, ...]:
    """Initial values, with the literals among them in the dtypes of the sources.

    Reads keep theirs, because an initial value cannot be a conversion: see `plain_reduction`.
    """
    return tuple(
        value if const_value(value) is None else _converted(value, dtype_of(source), where)
        for value, source in zip(init, sources, strict=False)
    )


def _converted(value: Expr, dtype: str, where: str) -> Expr:
    """A literal in another dtype; a number that an integer dtype does not hold is refused."""
    number = const_value(value)
    if number is not None and dtype_of(value) != dtype and dtype.startswith(("int", "uint")):
        low, high = integer_range(dtype)
        if not low <= number <= high or number != int(number):
            raise InvalidArgumentError(
                f"{where} reduces {dtype} from {number}, which {dtype} does not hold: give the "
                f'init= or identity as tirx.const(value, "{dtype}")'
            )
    return cast(dtype, value)


def is_of_one_dtype(body: Expr) -> bool:
    """Whether the reducer of a reduction has the dtypes of what it reduces."""
    combiner, wanted = body.combiner, [dtype_of(source) for source in elements(body.source)]
    parts = (combiner.lhs, combiner.result, combiner.identity_element)
    return all(list(map(dtype_of, elements(part))) == wanted for part in parts)
