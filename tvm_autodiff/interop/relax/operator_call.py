"""Traces a call of a Relax operator as te, through the operator's own legaliser.

The result has placeholders for the tensors among the arguments, and te tensors over them, or the
reason why there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax

from ...expr.nodes import Tensor
from .sizes import Sizes
from .trace import Opaque, Trace, Value, bindings_of, leaves


@dataclass(frozen=True)
class TracedCall:
    """A call as te.

    Attributes
    ----------
    arguments : tuple
        For each argument of the call, a placeholder, a tuple of placeholders, or None if it is not
        a tensor.
    constants : tuple of (Tensor, Expr)
        Further placeholders, for constants.
    results : tuple of Tensor
    sizes : Sizes
        The sizes of the function that contains the call.
    """

    arguments: tuple[Value, ...]
    constants: tuple[tuple[Tensor, Any], ...]
    results: tuple[Tensor, ...]
    sizes: Sizes


def traced_call(call: Any) -> TracedCall | Opaque:
    """Trace what a call computes."""
    params: list[Any] = []
    arguments = [_over_parameters(one, params) for one in call.args]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(ir.Call(call.op, arguments, call.attrs, call.ty_args))
        builder.emit_func_output(result)
    module = relax.transform.LegalizeOps()(builder.get())
    function = module["main"]
    trace = Trace(module)
    places = {old: trace.value(new) for old, new in zip(params, function.params, strict=True)}
    count = len(trace.inputs)
    for binding in bindings_of(function):
        trace.bind(binding)
    value = trace.value(function.body.body)
    results = tuple(leaves(value))
    for one in results:
        if isinstance(one, Opaque):
            return one
    stands = tuple(_standing(one, places) for one in arguments)
    constants = tuple(trace.inputs[count:])
    return TracedCall(stands, constants, results, trace.sizes)


def _over_parameters(expr: Any, params: list[Any]) -> Any:
    """An argument with each tensor in it replaced by a new parameter."""
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([_over_parameters(one, params) for one in expr.fields])
    if isinstance(expr.ty, relax.TupleType) and isinstance(expr, relax.Var):
        fields = range(len(expr.ty.fields))
        return relax.Tuple([_over_parameters(relax.TupleGetItem(expr, n), params) for n in fields])
    if isinstance(expr, ir.GenericConst) or not isinstance(expr.ty, relax.TensorType):
        return expr
    name = str(expr.name) if isinstance(expr, relax.Var) else f"input{len(params)}"
    params.append(relax.Var(name, expr.ty))
    return params[-1]


def _standing(argument: Any, places: Mapping[Any, Value]) -> Value:
    """The placeholders of the parameters in an argument, or None if it has none."""
    if isinstance(argument, relax.Tuple):
        return tuple(_standing(one, places) for one in argument.fields)
    return places.get(argument) if isinstance(argument, relax.Var) else None
