"""`checkpoint`: a value that is recomputed where derivatives need it."""

from __future__ import annotations

from typing import Any

from ..expr.nodes import Expr, Tensor
from ..graph.marks.checkpoint import checkpointed
from ..graph.marks.value_marks import with_mark
from ..keywords import checked_keywords


@checked_keywords
def checkpoint(value: Tensor | Expr) -> Any:
    """Mark a value so that the backward pass recomputes it instead of keeping it.

    The inputs of the computation are kept, unless they are checkpoints as well. The mark costs
    nothing in compiled functions, and derivatives of any order and mode equal those without it.
    `build_vjp` never keeps a checkpoint as a residual. Within one program the gradient computes the
    value a second time, so that its memory is free in between.

    Parameters
    ----------
    value : Tensor or expression
        A tensor, or an expression inside a `te.compute`.

    Returns
    -------
    Tensor or expression
        The same value, of the same shape and dtype.

    Raises
    ------
    InvalidArgumentError
        If the value is neither a tensor nor an expression.

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
