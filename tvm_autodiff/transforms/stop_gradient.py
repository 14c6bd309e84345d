"""`stop_gradient`: a value that derivatives treat as a constant."""

from __future__ import annotations

from typing import Any

from ..expr.nodes import Expr, Tensor, is_float, is_tensor
from ..graph.marks.stop_gradient import stopped
from ..graph.marks.value_marks import with_mark
from ..keywords import checked_keywords


@checked_keywords
def stop_gradient(value: Tensor | Expr) -> Any:
    """Mark a value as a constant for derivatives of any order and mode.

    The mark costs nothing in compiled functions. A custom rule (`manual`, `override`) for the
    marked read is still followed.

    Parameters
    ----------
    value : Tensor or expression
        A tensor, or an expression inside a `te.compute`. A value that is not floating point has no
        gradient and is returned unchanged.

    Returns
    -------
    Tensor or expression
        The same value, of the same shape and dtype.

    Raises
    ------
    InvalidArgumentError
        If the value is neither a tensor nor an expression.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import differentiate, show, stop_gradient
    >>> x, h = te.placeholder((3,), name="x"), te.placeholder((3,), name="h")
    >>> y = te.compute((3,), lambda i: x[i] * stop_gradient(x[i]), name="y")
    >>> print(show(differentiate(y, [x], h)[0]))
    inputs  h: float32[3], x: float32[3]
    dx[i0] = h[i0]*stop_gradient(x[i0])  float32[3]

    The function also takes tensors:

    >>> print(show(stop_gradient(x)))
    inputs  x: float32[3]
    x_stopped[i0] = stop_gradient(x[i0])  float32[3]
    """
    if is_tensor(value) and not is_float(value):
        return value

    def mark(expr: Expr) -> Expr:
        return stopped(expr) if is_float(expr) else expr

    return with_mark(value, mark, "stopped", "stop_gradient")
