"""Reverse mode of Python functions: `grad`, `value_and_grad` and `vjp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..containers import flattened
from ..errors import InvalidArgumentError, NotDifferentiableError
from ..expr.nodes import Tensor, dtype_of, is_float, is_tensor
from ..graph.stage import shape_of
from ..keywords import checked_keywords
from ..transforms.arguments import shape_text
from ..transforms.sweep import identity
from ..transforms.vjp import vjp as vjp_of_tensors
from .array_function import ArrayFunction, derived
from .local import Argnums, LocalCall, checked_argnums, fitted, local_call, picked
from .modes import pulled
from .passes import Pullbacks, two_passes
from .tracing import described, holds_tensors


@checked_keywords
def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> ArrayFunction:
    """The value and the gradient of a function with a scalar value.

    Parameters
    ----------
    f : callable
        A function from te tensors to a te tensor of shape (), or to a pair (value, aux) if
        `has_aux`. Arguments and aux are tensors in nested tuples, lists, dictionaries and
        dataclasses.
    argnums : int or sequence of int
        The positional arguments to differentiate with respect to. All of their tensors must be
        floating point.
    has_aux : bool
        Whether the function also returns auxiliary results, which are not differentiated.

    Returns
    -------
    ArrayFunction
        A function from the arguments of `f` to ``(value, gradient)``, or to ``((value, aux),
        gradient)`` if `has_aux`. The gradient has the form of the argument; for a sequence of
        argument numbers it is a tuple of such forms. It takes arrays, and te tensors while another
        function is traced.

    Raises
    ------
    NotDifferentiableError
        In the call: if an argument or the value is not floating point.
    InvalidArgumentError
        In the call: if the value is not a scalar.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm import te, topi
    >>> from tvm_autodiff import value_and_grad
    >>> def loss(w, x):
    ...     return topi.sum(w["a"] * x * x)
    >>> value, gradient = value_and_grad(loss)({"a": np.float32([1, 2])}, np.float32([3, 4]))
    >>> float(value), gradient
    (41.0, {'a': array([ 9., 16.], dtype=float32)})
    """
    numbers = checked_argnums(argnums)
    made = partial(_value_and_gradient, f, numbers, has_aux)
    return derived(f, ("value_and_grad", numbers, has_aux), made)


def _value_and_gradient(
    f: Callable[..., Any], argnums: Argnums, has_aux: bool, /, *args: Any, **kwargs: Any
) -> Any:
    local = local_call(f, args, kwargs, argnums)
    local.require_floats()
    value = _scalar(local, has_aux)
    gradients = list(vjp_of_tensors(value, local.formal, identity(value)))
    return local.moved((local.result, picked(local.form.filled(gradients), argnums)))


@checked_keywords
def grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> ArrayFunction:
    """The gradient of a function with a scalar value.

    Parameters
    ----------
    f, argnums, has_aux
        As in `value_and_grad`.

    Returns
    -------
    ArrayFunction
        A function from the arguments of `f` to the gradient, or to ``(gradient, aux)`` if
        `has_aux`.

    Raises
    ------
    NotDifferentiableError, InvalidArgumentError
        As in `value_and_grad`.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm import topi
    >>> from tvm_autodiff import grad
    >>> cube = lambda x: topi.sum(x * x * x)
    >>> grad(cube)(np.float32([1, 2]))
    array([ 3., 12.], dtype=float32)
    >>> grad(lambda x: topi.sum(grad(cube)(x)))(np.float32([1, 2]))
    array([ 6., 12.], dtype=float32)
    """
    numbers = checked_argnums(argnums)
    return derived(f, ("grad", numbers, has_aux), partial(_gradient, f, numbers, has_aux))


def _gradient(
    f: Callable[..., Any], argnums: Argnums, has_aux: bool, /, *args: Any, **kwargs: Any
) -> Any:
    value, gradients = _value_and_gradient(f, argnums, has_aux, *args, **kwargs)
    return (gradients, value[1]) if has_aux else gradients


def vjp(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """The result of a function, and a function that pulls its cotangents back.

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
    pullback : callable
        A function from cotangents, in the form of the result, to a tuple with the cotangent of each
        argument, in the argument's form. An argument None means zeros; a result None means that
        there is no derivative. For arrays it holds the residuals of the forward pass: numpy arrays
        among the arguments and results are copied, others must not change before it is called.

    Raises
    ------
    InvalidArgumentError
        If cotangents do not fit the result.
    NotDifferentiableError
        If a stage has no derivative, or no argument is floating point.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm_autodiff.functions import vjp
    >>> y, pullback = vjp(lambda x, w: {"y": x * w}, np.float32([1, 2]), np.float32([3, 4]))
    >>> y
    {'y': array([3., 8.], dtype=float32)}
    >>> pullback({"y": np.float32([1, 1])})
    (array([3., 4.], dtype=float32), array([1., 2.], dtype=float32))
    """
    if not holds_tensors(primals):
        return two_passes(f, Pullbacks, primals)
    local = local_call(f, primals, {}, tuple(range(len(primals))))
    outputs, form = local.outputs()

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        heads = fitted(cotangents, outputs, form, "the cotangent")
        # the cotangents are tensors of the caller's graph: only the others are moved
        return local.moved(local.form.filled(pulled(outputs, local.formal, heads)))

    return local.moved(local.result), pullback


def _scalar(local: LocalCall, has_aux: bool) -> Tensor:
    """The value to differentiate."""
    name, value = described(local.function), local.result
    if has_aux:
        if not isinstance(value, tuple) or len(value) != 2:
            raise InvalidArgumentError(
                f"{name} returned {flattened(value)[1]}: with has_aux=True it must return a pair "
                "(value, aux)"
            )
        value = value[0]
    if not is_tensor(value):
        raise InvalidArgumentError(
            f"{name} returned {_form_text(value)}: a gradient needs one te.Tensor of shape (); to "
            "return auxiliary results, return a pair (value, aux) and set has_aux=True"
        )
    if shape_of(value) != ():
        raise InvalidArgumentError(
            f"{name} returned {value.op.name} of shape {shape_text(shape_of(value))}: a gradient "
            "needs a scalar of shape (); sum it, or use jacrev or vjp"
        )
    if not is_float(value):
        raise NotDifferentiableError(
            f"{name} returned {value.op.name} of dtype {dtype_of(value)}: only floating point "
            "values have derivatives"
        )
    return value


def _form_text(value: Any) -> str:
    leaves, form = flattened(value)
    return type(value).__name__ if form.kind == "leaf" else f"{form}, {len(leaves)} values"
