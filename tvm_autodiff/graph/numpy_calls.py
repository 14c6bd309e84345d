"""Refuses functions of numpy on tensors, while a function of tensors is called.

numpy takes an object that it does not know for an array of one element: ``np.max(x)`` would be the
tensor itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import te, topi

from ..errors import InvalidArgumentError

_PROTOCOL = "__array_function__"  #: numpy's, by which a class implements its functions (NEP 18)


@contextmanager
def without_numpy_calls() -> Iterator[None]:
    """A context in which functions of numpy raise an error for tensors; arithmetic goes on.

    Raises
    ------
    InvalidArgumentError
        If a function of numpy is called with a tensor.

    Examples
    --------
    >>> import numpy as np
    >>> x = te.placeholder((3,), name="x")
    >>> with without_numpy_calls():
    ...     np.max(x)
    Traceback (most recent call last):
    ...
    tvm_autodiff.errors.InvalidArgumentError: numpy.max has no rule for te.Tensors, and would take \
x for an array of one element: topi.max and te.compute compute tensors
    """
    if hasattr(te.Tensor, _PROTOCOL):  # a call within another one
        yield
        return
    setattr(te.Tensor, _PROTOCOL, _refused)
    try:
        yield
    finally:
        if hasattr(te.Tensor, _PROTOCOL):  # another thread may have been first
            delattr(te.Tensor, _PROTOCOL)


def _refused(self: te.Tensor, function: Any, _types: Any, _args: Any, _kwargs: Any) -> Any:
    name = function.__name__
    known = f"topi.{name}" if hasattr(topi, name) else "topi"
    raise InvalidArgumentError(
        f"numpy.{name} has no rule for te.Tensors, and would take {self.op.name} for an array of "
        f"one element: {known} and te.compute compute tensors"
    )
