"""Estimates the cost of tensors from their expressions: iterations, multiplications and memory.

The definitions are those of the RFC's branch, so the figures are comparable with the ones recorded
there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .errors import InvalidArgumentError
from .expr.build import const
from .expr.nodes import Tensor, Var, const_value, dtype_of
from .expr.rewrite import substituter
from .expr.simplify import simplify
from .graph.counting import Cost, Put
from .graph.graph import topological
from .graph.kinds.custom import without_rules
from .graph.kinds.rules.table import rules_of
from .graph.stage import Operation, is_placeholder
from .keywords import checked_keywords

__all__ = ["Cost", "estimate_cost", "stage_cost"]


@checked_keywords
def estimate_cost(
    tensors: Tensor | Sequence[Tensor], params: Mapping[Var, int] | None = None
) -> Cost:
    """Count the work of everything that some tensors need, forward stages included.

    Parameters
    ----------
    tensors : Tensor or sequence of Tensor
        The tensors to compute.
    params : mapping from Var to int, optional
        Values of symbolic extents. Extents without a value stay symbolic in the result. An extent
        that is data, as in ``te.reduce_axis((0, length[i]))``, is represented by the variable of
        its axis: the average number of iterations per row.

    Returns
    -------
    Cost

    Raises
    ------
    InvalidArgumentError
        If an argument is not a tensor.

    Examples
    --------
    >>> from tvm import te
    >>> A, B = te.placeholder((4, 5), name="A"), te.placeholder((5, 3), name="B")
    >>> k = te.reduce_axis((0, 5), name="k")
    >>> C = te.compute((4, 3), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    >>> estimate_cost(C)
    Cost(iterations=60, multiplications=60, memory=12)

    References
    ----------
    apache/tvm issue 1996 and its branch ``autodiff-dev``, whose tests recorded these three figures.
    """
    listed = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    for tensor in listed:
        if not hasattr(tensor, "op"):
            raise InvalidArgumentError(
                f"estimate_cost() takes te tensors, got {type(tensor).__name__}"
            )
    put = _evaluator(params or {})
    total = Cost(0, 0, 0)
    for op in topological(without_rules(listed)):
        if not is_placeholder(op):
            total = total + stage_cost(op, put)
    return Cost(
        *(_plain(value) for value in (total.iterations, total.multiplications, total.memory))
    )


def stage_cost(op: Operation, put: Put = lambda extent: extent) -> Cost:
    """The cost of one stage; `put` maps symbolic extents to their values."""
    kind, rules = rules_of(op)
    return rules.cost(op, kind, put)


def _evaluator(params: Mapping[Var, int]) -> Callable[[Any], Any]:
    def put(extent: Any) -> Any:
        if isinstance(extent, int) or not params:
            return extent
        values = {var: const(value, dtype_of(var)) for var, value in params.items()}
        return _plain(substituter(values)(extent))

    return put


def _plain(value: Any) -> Any:
    if isinstance(value, int):
        return value
    simplified = simplify(value)
    number = const_value(simplified)
    return simplified if number is None else int(number)
