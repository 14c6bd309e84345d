"""Gradients of calls of te functions, in the form that `relax.transform.Gradient` requires.

A `call_tir_with_grad` gets a tuple with a cotangent for each argument. TVM finds the gradient
function by the name in the call. One name serves all functions that can be read back as te. If te
contains more than its function does (custom rules, scans, scatters, user-defined reducers), a
separate name keeps the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import relax

from ...codegen.stages.primfunc import StageFunction
from ...codegen.stages.recovered import UnrecoveredError, recovered
from ...errors import NotDifferentiableError
from ...expr.nodes import Tensor, is_tensor
from ...graph.graph import topological
from ...graph.kinds.custom import custom_of
from ...graph.marks.value_marks import has_marks
from .pullback import pull_back
from .sizes import Sizes
from .trace import Opaque, Trace, holds_floats, shape_of_expr

_PREFIX = "tvm.relax.te_grad._register."


def te_gradient_name(launch: StageFunction, outputs: Sequence[Tensor], name: str) -> str:
    """Register the gradient of a function that computes tensors, and return its name."""
    if _tells_all(launch, outputs):
        return recovered_gradient()

    def gradient(var: Any, call: Any, cotangent: Any, builder: Any) -> Any:
        arguments = list(call.args[1].fields)
        pairs = list(zip(launch.inputs, arguments, strict=False))  # behind them scalars
        sizes = Sizes.matching([(tensor, shape_of_expr(expr)) for tensor, expr in pairs])
        found = pull_back(builder, pairs, outputs, var, cotangent, f"{name}_gradient", sizes)
        return _tuple(builder, arguments, found)

    number = 0
    while _is_known(f"tvm_autodiff.{name}_{number}"):
        number += 1
    return _make_known(f"tvm_autodiff.{name}_{number}", gradient)


def _tells_all(launch: StageFunction, outputs: Sequence[Tensor]) -> bool:
    """Whether the stages read back from a function have the derivatives of the tensors."""
    if any(custom_of(op) is not None or has_marks(op) for op in topological(outputs)):
        return False
    try:
        recovered(launch.func, [*launch.inputs, *launch.scalars])
    except UnrecoveredError:
        return False
    return True


def recovered_gradient() -> str:
    """The name of the gradient of all functions that can be read back."""
    return _make_known("tvm_autodiff.recovered", _gradient_of_function)


def _is_known(name: str) -> bool:
    return tvm_ffi.get_global_func(_PREFIX + name, allow_missing=True) is not None


def _make_known(name: str, gradient: Callable[..., Any]) -> str:
    if not _is_known(name):
        tvm_ffi.register_global_func(_PREFIX + name, gradient)
    return name


def _gradient_of_function(var: Any, call: Any, cotangent: Any, builder: Any) -> Any:
    """The cotangents of the arguments of a call, whose function is read back."""
    called, arguments = call.args[0], list(call.args[1].fields)
    if not holds_floats(var.ty):
        return _tuple(builder, arguments, [])
    trace = Trace(builder.get())
    stands = [trace.value(one) for one in arguments]
    for one in stands:
        if isinstance(one, Opaque):
            raise NotDifferentiableError(f"function {called.name_hint}: {one.reason}")
    try:
        results = recovered(trace.module[called], stands, trace.shapes(call.ty))
    except UnrecoveredError as error:
        raise NotDifferentiableError(
            f"function {called.name_hint} has no gradient: {error}. Write the call with emit_te, "
            "or give its gradient to tvm.relax.training.utils.register_te_gradient"
        ) from error
    tensors = {n: one for n, one in enumerate(stands) if is_tensor(one)}
    pairs = [(one, arguments[n]) for n, one in tensors.items()]
    name = f"{called.name_hint}_gradient"
    found = pull_back(builder, pairs, results, var, cotangent, name, trace.sizes)
    known = dict(zip(tensors, found, strict=True))
    return _tuple(builder, arguments, [known.get(n) for n in range(len(arguments))])


def _tuple(builder: Any, arguments: Sequence[Any], found: Sequence[Any | None]) -> Any:
    """The form that TVM requires: the cotangent of the only argument, or a tuple; zeros if there is
    none.
    """
    given = [*found, *[None for _ in arguments[len(found) :]]]
    filled = [
        one if one is not None else builder.emit(relax.op.zeros_like(argument))
        for argument, one in zip(arguments, given, strict=True)
    ]
    return builder.emit(filled[0] if len(filled) == 1 else relax.Tuple(filled))
