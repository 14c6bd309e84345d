"""`stop_gradient`: a value that derivatives take for a constant."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidArgumentError
from ..expr.nodes import Expr, Tensor, as_expr, is_expr, is_float, is_tensor, load
from ..graph.stage import data_axis, make_stage, shape_of
from ..graph.stop_gradient import stopped


def stop_gradient(value: Tensor | Expr) -> Any:
    """The same value, which no gradient flows through: at any order, in any mode.

    It costs nothing in what is built. A custom rule (`manual`, `override`) for the read that it
    marks is still followed.

    Parameters
    ----------
    value : Tensor or expression
        A tensor, or an expression inside of a `te.compute`. What is not floating point has no
        gradient and comes back as it is.

    Returns
    -------
    Tensor or expression
        Of the same shape and dtype.

    Raises
    ------
    InvalidArgumentError
        The value is neither a tensor nor an expression.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import differentiate, show, stop_gradient
    >>> x, h = te.placeholder((3,), name="x"), te.placeholder((3,), name="h")
    >>> y = te.compute((3,), lambda i: x[i] * stop_gradient(x[i]), name="y")
    >>> print(show(differentiate(y, [x], h)[0]))
    inputs  h: float32[3], x: float32[3]
    dx[i0] = h[i0]*stop_gradient(x[i0])  float32[3]

    A tensor:

    >>> print(show(stop_gradient(x)))
    inputs  x: float32[3]
    x_stopped[i0] = stop_gradient(x[i0])  float32[3]
    """
    if is_tensor(value):
        if not is_float(value):
            return value
        axes = [data_axis(f"i{number}", extent) for number, extent in enumerate(shape_of(value))]
        body = stopped(load(value, [axis.var for axis in axes]))
        return make_stage(f"{value.op.name}_stopped", axes, [body])[0]
    expr = as_expr(value)
    if not is_expr(expr):
        raise InvalidArgumentError(
            "stop_gradient() takes a te.Tensor or an expression over elements of tensors, got "
            f"{type(value).__name__}"
        )
    return stopped(expr) if is_float(expr) else expr
