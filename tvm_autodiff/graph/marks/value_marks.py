"""Marks for transforms: operators whose value is that of their operand.

They are removed before lowering; if TVM lowers the program directly, a mark becomes its operand.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import InvalidArgumentError
from ...expr.nodes import Expr, Tensor, as_expr, is_expr, is_tensor, load, op_name, operands
from ...expr.rewrite import postorder
from ..bounded_stage import elementwise_stage
from ..stage import Operation, bodies, is_compute, shape_of
from .checkpoint import CHECKPOINT, RECOMPUTED
from .stop_gradient import NAME as STOP

MARKS = frozenset((STOP, CHECKPOINT, RECOMPUTED))  #: in the vocabulary of `nodes`


def unmarked(node: Expr) -> Expr | None:
    """``mark(e, ...) → e``, a step of a rewrite; None for other nodes."""
    return operands(node)[0] if op_name(node) in MARKS else None


def has_marks(op: Operation) -> bool:
    """Whether a stage marks part of its expressions."""
    return is_compute(op) and any(op_name(node) in MARKS for node in postorder(bodies(op)))


def with_mark(
    value: Tensor | Expr, mark: Callable[[Expr], Expr], suffix: str, who: str
) -> Tensor | Expr:
    """A tensor with a mark around each element, or an expression with one around it.

    Parameters
    ----------
    value : Tensor or expression
        The value to mark.
    mark : callable
        Maps an expression to the marked one.
    suffix : str
        The suffix of the stage name.
    who : str
        The name of the public function, for error messages.

    Raises
    ------
    InvalidArgumentError
        If the value is neither a tensor nor an expression.
    """
    if is_tensor(value):
        return elementwise_stage(
            f"{value.op.name}_{suffix}", shape_of(value), lambda place: mark(load(value, place))
        )
    expr = as_expr(value)
    if not is_expr(expr):
        raise InvalidArgumentError(
            f"{who}() takes a te.Tensor or an expression over elements of tensors, got "
            f"{type(value).__name__}"
        )
    return mark(expr)
