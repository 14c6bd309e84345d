"""Full derivatives of Python functions: `jacfwd`, `jacrev` and `hessian`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..errors import NotDifferentiableError
from ..expr.nodes import dtype_of, is_float
from ..keywords import checked_keywords
from ..transforms.linear.jacobian import jacobian
from .array_function import ArrayFunction, derived
from .local import Argnums, checked_argnums, local_call, picked
from .tracing import described


@checked_keywords
def jacfwd(f: Callable[..., Any], argnums: int | Sequence[int] = 0) -> ArrayFunction:
    """The Jacobian of a function by forward mode, which suits results larger than the arguments.

    Parameters
    ----------
    f : callable
        A function from te tensors to te tensors, in containers.
    argnums : int or sequence of int
        The positional arguments to differentiate with respect to.

    Returns
    -------
    ArrayFunction
        A function that returns the form of the result with, for each of its tensors, the form of
        the argument, which holds tensors of shape ``result.shape + argument.shape``. For a sequence
        of argument numbers it is a tuple of such forms.

    Raises
    ------
    NotDifferentiableError
        In the call: if an argument or a result is not floating point.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm_autodiff import jacfwd
    >>> jacfwd(lambda x: x * x)(np.float32([1, 2]))
    array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    return _jacobian(f, argnums, "forward")


@checked_keywords
def jacrev(f: Callable[..., Any], argnums: int | Sequence[int] = 0) -> ArrayFunction:
    """The Jacobian of a function by reverse mode, which suits arguments larger than the results.

    Parameters
    ----------
    f, argnums
        As in `jacfwd`.

    Returns
    -------
    ArrayFunction
        As in `jacfwd`.

    Raises
    ------
    NotDifferentiableError
        As in `jacfwd`.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm_autodiff import jacrev
    >>> jacrev(lambda x: {"y": x * x})(np.float32([1, 2]))
    {'y': array([[2., 0.],
           [0., 4.]], dtype=float32)}
    """
    return _jacobian(f, argnums, "reverse")


@checked_keywords
def hessian(f: Callable[..., Any], argnums: int | Sequence[int] = 0) -> ArrayFunction:
    """The second derivative of a function, computed forward over reverse.

    Parameters
    ----------
    f, argnums
        As in `jacfwd`.

    Returns
    -------
    ArrayFunction
        ``jacfwd(jacrev(f, argnums), argnums)``. For a scalar function of one tensor x it returns a
        tensor of shape ``x.shape + x.shape``.

    Raises
    ------
    NotDifferentiableError
        As in `jacfwd`.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm import topi
    >>> from tvm_autodiff.functions import hessian
    >>> hessian(lambda x: topi.sum(x * x * x))(np.float32([1, 2]))
    array([[ 6.,  0.],
           [ 0., 12.]], dtype=float32)
    """
    return jacfwd(jacrev(f, argnums), argnums)


def _jacobian(f: Callable[..., Any], argnums: Any, mode: str) -> ArrayFunction:
    numbers = checked_argnums(argnums)
    return derived(f, (mode, numbers), partial(_jacobians, f, numbers, mode))


def _jacobians(
    f: Callable[..., Any], argnums: Argnums, mode: str, /, *args: Any, **kwargs: Any
) -> Any:
    local = local_call(f, args, kwargs, argnums)
    local.require_floats()
    outputs, form = local.outputs()
    rows = []
    for output in outputs:
        if not is_float(output):
            raise NotDifferentiableError(
                f"{described(f)} returned {output.op.name} of dtype {dtype_of(output)}: only "
                "floating point results have derivatives"
            )
        parts = local.form.filled([jacobian(output, x, mode=mode) for x in local.formal])
        rows.append(picked(parts, argnums))
    return local.moved(form.filled(rows))
