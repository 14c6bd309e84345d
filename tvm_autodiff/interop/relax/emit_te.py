"""`emit_te`: emits a differentiable call of a te function in a Relax function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import ir, relax, runtime

from ...codegen.deep import run_deep
from ...errors import InvalidArgumentError
from ...expr.nodes import Tensor, is_tensor, tensor_key
from ...graph.stage import is_placeholder
from .emit import function_of, tensor_type
from .te_gradient import te_gradient_name
from .trace import Opaque, Trace, leaves


def emit_te(
    builder: Any,
    te_function: Callable[..., Any],
    *args: Any,
    name: str | None = None,
    **kwargs: Any,
) -> Any:
    """Call a function of te tensors in a Relax function that can be differentiated.

    Like `BlockBuilder.emit_te`, but `relax.transform.Gradient` can derive the gradient of the call,
    including custom rules in it. Run `clean` on the module afterwards.

    Parameters
    ----------
    builder : BlockBuilder
        A builder inside a function.
    te_function : callable
        A function from te tensors to a te tensor, or to a list or tuple of te tensors.
    *args, **kwargs
        Arguments of the function. Relax expressions of tensors become te tensors, and sizes become
        TIR variables. Other Python values are passed unchanged.
    name : str, optional
        The name of the function that is added to the module. By default, the name of `te_function`.

    Returns
    -------
    Var
        The result, which is a tuple for a list or tuple.

    Raises
    ------
    InvalidArgumentError
        If an argument is an array or a Relax expression that is not a tensor, or the result does
        not consist of te tensors computed from the arguments.

    Examples
    --------
    >>> from tvm import relax, te
    >>> from tvm_autodiff.interop.relax import emit_te
    >>> def softsign(x):
    ...     return te.compute(x.shape, lambda i: x[i] / (1.0 + te.abs(x[i])), name="softsign")
    >>> builder = relax.BlockBuilder()
    >>> x = relax.Var("x", relax.TensorType((4,), "float32"))
    >>> with builder.function("main", [x]):
    ...     with builder.dataflow():
    ...         y = emit_te(builder, softsign, x)
    ...         loss = builder.emit_output(relax.op.sum(y))
    ...     _ = builder.emit_func_output(loss)
    >>> sorted(f.name_hint for f in relax.transform.Gradient("main")(builder.get()).functions)
    ['main', 'main_adjoint', 'softsign', 'softsign_gradient']
    """
    if not isinstance(builder, relax.BlockBuilder):
        raise InvalidArgumentError(
            f"emit_te takes a relax.BlockBuilder first, got {type(builder).__name__}"
        )
    if not callable(te_function):
        raise InvalidArgumentError(
            f"emit_te takes a function of te tensors, got {type(te_function).__name__}"
        )
    title = str(name or getattr(te_function, "__name__", "te"))
    title = title if title.isidentifier() else "te"
    trace = Trace(builder.get())
    given = [_argument(trace, one, f"argument {n}") for n, one in enumerate(args)]
    named = {key: _argument(trace, one, f"argument {key}") for key, one in kwargs.items()}
    found = te_function(*given, **named)
    outputs = [found] if is_tensor(found) else list(found) if _is_list(found) else [found]
    for number, one in enumerate(outputs):
        if not is_tensor(one):
            raise InvalidArgumentError(
                f"{title} returns {type(one).__name__} for result {number}: return a te tensor, or "
                "a list or tuple of te tensors"
            )
        if is_placeholder(one.op):
            raise InvalidArgumentError(
                f"result {number} of {title} is the argument {one.op.name} itself: copy it with a "
                "te.compute, or use the argument in its place"
            )
    return _emitted(builder, trace, outputs, is_tensor(found), title)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or type(value).__name__ == "Array"


def _argument(trace: Trace, value: Any, what: str) -> Any:
    """A Python value, or te tensors instead of a Relax expression."""
    if isinstance(value, list):
        return [_argument(trace, one, what) for one in value]
    if isinstance(value, tuple):
        return tuple(_argument(trace, one, what) for one in value)
    if isinstance(value, (np.ndarray, runtime.Tensor)):
        raise InvalidArgumentError(
            f"{what} is an array: wrap it in relax.const, or make it a parameter of the function"
        )
    if not isinstance(value, ir.Expr):
        return value
    if isinstance(value, relax.ShapeExpr):
        return [trace.sizes.inner(one) for one in value.values]
    stands = trace.value(value)
    for one in leaves(stands):
        if isinstance(one, Opaque):
            raise InvalidArgumentError(
                f"{what} is not a tensor of known shape: {one.reason}. Give it a TensorType with a "
                "shape, with match_cast if it is not known"
            )
    return stands


def _emitted(builder: Any, trace: Trace, outputs: list[Tensor], single: bool, name: str) -> Any:
    launch = run_deep(function_of, outputs)
    known = {tensor_key(tensor): expr for tensor, expr in trace.inputs}
    for tensor in launch.inputs:
        if tensor_key(tensor) not in known:
            raise InvalidArgumentError(
                f"{name} reads the placeholder {tensor.op.name}, which is not one of its "
                "arguments: pass it as an argument"
            )
    called = builder.add_func(launch.func, name)
    arguments = [known[tensor_key(tensor)] for tensor in launch.inputs]
    arguments += [trace.sizes.outer(var) for var in launch.scalars]
    types = [tensor_type(tensor, trace.sizes) for tensor in outputs]
    gradient = te_gradient_name(launch, outputs, name)
    out = types[0] if single else types
    return builder.emit(relax.op.call_tir_with_grad(called, relax.Tuple(arguments), out, gradient))
