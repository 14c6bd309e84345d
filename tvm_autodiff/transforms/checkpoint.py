"""`checkpoint`: a value that is computed again where derivatives need it."""

from __future__ import annotations

from typing import Any

from ..expr.nodes import Expr, Tensor
from ..graph.checkpoint import checkpointed
from ..graph.value_marks import with_mark


def checkpoint(value: Tensor | Expr) -> Any:
    """The same value, which no forward pass keeps for a backward pass: that computes it again.

    What the value is computed from is kept, unless it is a checkpoint, too. In what is built the
    mark costs nothing; derivatives of any order and in any mode are those without it. `build_vjp`
    never keeps a checkpoint as a residual. Within one program the gradient computes it a second
    time, so that its memory is free in between.

    Parameters
    ----------
    value : Tensor or expression
        A tensor, or an expression inside of a `te.compute`.

    Returns
    -------
    Tensor or expression
        Of the same shape and dtype.

    Raises
    ------
    InvalidArgumentError
        The value is neither a tensor nor an expression.

    References
    ----------
    A. Griewank, A. Walther, "Evaluating Derivatives", 2nd edition, SIAM 2008, chapter 12.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import checkpoint, differentiate, show
    >>> x, h = te.placeholder((3,), name="x"), te.placeholder((3,), name="h")
    >>> t = checkpoint(te.compute((3,), lambda i: te.exp(x[i]), name="t"))
    >>> y = te.compute((3,), lambda i: t[i] * t[2 - i], name="y")
    >>> print(show(y))
    inputs  x: float32[3]
    t[i] = exp(x[i])                             float32[3]
    t_checkpoint[i0] = checkpoint(t[i0])         float32[3]
    y[i] = t_checkpoint[i]*t_checkpoint[2 - i]  float32[3]
    """
    return with_mark(value, checkpointed, "checkpoint", "checkpoint")
