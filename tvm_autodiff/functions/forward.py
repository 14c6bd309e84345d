"""Forward mode of Python functions: `jvp`, `linearize` and `hvp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..errors import InvalidArgumentError
from .array_function import ArrayFunction, derived
from .local import fitted, local_call
from .modes import pushed
from .passes import Linearizations, two_passes
from .reverse import grad
from .tracing import described, holds_tensors


def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The result of a function, and its derivative along a direction.

    Parameters
    ----------
    f : callable
        A function from te tensors to te tensors, in containers.
    primals : sequence
        Its arguments: arrays, or te tensors while another function is traced.
    tangents : sequence
        The direction, in the form of the arguments. None means zeros, and is required for arguments
        that are not floating point.

    Returns
    -------
    result, tangent
        ``f(*primals)``, and its derivative in the same form, with None for results that are not
        floating point.

    Raises
    ------
    InvalidArgumentError
        If the tangents do not fit the arguments.
    NotDifferentiableError
        If a stage has no derivative.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm_autodiff.functions import jvp
    >>> jvp(lambda x: x * x, [np.float32([1, 2])], [np.float32([1, 0])])
    (array([1., 4.], dtype=float32), array([2., 0.], dtype=float32))
    """
    given = _sequence(primals, "primals"), _sequence(tangents, "tangents")
    if len(given[0]) != len(given[1]):
        raise InvalidArgumentError(
            f"{described(f)} has {len(given[0])} primals and {len(given[1])} tangents: pass one "
            "tangent for each argument"
        )
    return pushforward_of(f)(*given)


def pushforward_of(f: Callable[..., Any]) -> ArrayFunction:
    """The function from arguments and tangents to the result and its tangent."""
    return derived(f, "jvp", partial(_pushforward, f), own_arguments=True)


def _pushforward(
    f: Callable[..., Any], /, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Any, Any]:
    local = local_call(f, primals, {}, tuple(range(len(primals))))
    outputs, form = local.outputs()
    directions = fitted(tuple(tangents), local.actual, local.form, "tangents")
    moved = pushed(outputs, local.formal, directions)
    return local.moved((local.result, form.filled(moved)))


def linearize(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The result of a function, and its derivative as a linear function of tangents.

    Parameters
    ----------
    f : callable
        A function from te tensors to te tensors, in containers.
    *primals
        Its arguments: arrays, or te tensors while another function is traced.

    Returns
    -------
    result
        ``f(*primals)``.
    linear : callable
        A function from one tangent for each argument to the tangent of the result. For arrays it
        holds residuals of the first pass, so that what does not depend on the tangents is computed
        once: numpy arrays among the arguments and results are copied, others must not change.

    Raises
    ------
    InvalidArgumentError
        If tangents do not fit the arguments.
    NotDifferentiableError
        If a stage has no derivative, or no argument is floating point.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm_autodiff.functions import linearize
    >>> y, linear = linearize(lambda x: x * x, np.float32([1, 2]))
    >>> y, linear(np.float32([1, 0])), linear(np.float32([0, 1]))
    (array([1., 4.], dtype=float32), array([2., 0.], dtype=float32), array([0., 4.], dtype=float32))
    """
    if not holds_tensors(primals):
        result, later = two_passes(f, Linearizations, primals)
        return result, lambda *tangents: later(tangents)
    local = local_call(f, primals, {}, tuple(range(len(primals))))
    outputs, form = local.outputs()

    def linear(*tangents: Any) -> Any:
        directions = fitted(tangents, local.actual, local.form, "tangents")
        return local.moved(form.filled(pushed(outputs, local.formal, directions)))

    return local.moved(local.result), linear


def hvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The product of the Hessian of a function with a direction, without forming the Hessian.

    Parameters
    ----------
    f : callable
        A function with a scalar value. All of its arguments are floating point.
    primals, tangents : sequence
        As in `jvp`.

    Returns
    -------
    tuple
        The derivative of the gradient with respect to each argument, along the direction.

    Raises
    ------
    InvalidArgumentError, NotDifferentiableError
        As in `jvp` and `grad`.

    References
    ----------
    B. Pearlmutter, "Fast exact multiplication by the Hessian" (Neural Computation, 1994).

    Examples
    --------
    >>> import numpy as np
    >>> from tvm import topi
    >>> from tvm_autodiff.functions import hvp
    >>> hvp(lambda x: topi.sum(x * x * x), [np.float32([1, 2])], [np.float32([1, 1])])
    (array([ 6., 12.], dtype=float32),)
    """
    function = derived(f, "hvp", partial(_product, f), own_arguments=True)
    return function(_sequence(primals, "primals"), _sequence(tangents, "tangents"))


def _product(f: Callable[..., Any], /, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    gradient = grad(f, tuple(range(len(primals))))
    return _pushforward(gradient, primals, tangents)[1]


def _sequence(value: Any, what: str) -> tuple[Any, ...]:
    if not isinstance(value, (tuple, list)):
        raise InvalidArgumentError(
            f"{what} must be a list or tuple with one entry for each argument, got "
            f"{type(value).__name__}"
        )
    return tuple(value)
