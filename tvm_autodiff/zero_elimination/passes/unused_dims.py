"""Removes axes that a stage does not depend on.

Intermediate stages lose every axis along which all elements are equal, and readers omit that index.
An output keeps its shape and copies what was computed once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.nodes import Tensor
from ...graph.counting import multiplications_in
from ...graph.stage import Operation, bodies, reduction_of
from ...graph.unused_axes import without_unused_axes
from ...keywords import checked_keywords
from ..walk import tensor_list


@checked_keywords
def remove_unused_dims(tensors: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """Remove axes that a stage does not depend on, so that no element is computed twice.

    ``T[i, j] = exp(x[i]), y[i, j] = T[i, j] + z[j]  →  T[i] = exp(x[i]), y[i, j] = T[i] + z[j]``

    Parameters
    ----------
    tensors : Tensor or sequence of Tensor
        The outputs. All stages that they need are simplified, producers first, so an axis that a
        stage only passes to its producer is removed as well.

    Returns
    -------
    list of Tensor
        Tensors of the same shapes and values. An output that does not depend on one of its axes
        becomes a copy of a smaller stage, if it is a reduction or contains multiplications.

    Raises
    ------
    InvalidArgumentError
        If an argument is not a tensor.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import show
    >>> x = te.placeholder((3,), name="x")
    >>> T = te.compute((3, 4), lambda i, j: te.exp(x[i]), name="T")
    >>> y = te.compute((3, 4), lambda i, j: T[i, j] + x[i], name="y")
    >>> z = te.compute((3, 4), lambda i, j: y[i, j] * j.astype("float32"), name="z")
    >>> print(show(remove_unused_dims(z)))
    inputs  x: float32[3]
    T[i] = exp(x[i])  float32[3]
    y[i] = T[i] + x[i]  float32[3]
    z[i, j] = y[i]*float32(j)  float32[3, 4]
    """
    return without_unused_axes(tensor_list(tensors), _pays)


def _pays(op: Operation, is_output: bool) -> bool:
    """Whether computing an element is more expensive than copying it; only outputs are copied."""
    is_work = reduction_of(op) is not None or any(map(multiplications_in, bodies(op)))
    return is_work or not is_output
