"""A call of a Relax operator as te: what its own legaliser computes.

In: the call. Out: placeholders for the tensors among its arguments, and its results as te tensors
over these; or the reason why there are none.
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
        What each argument of the call stands for: a placeholder, a tuple of these, or None where it
        is no tensor.
    constants : tuple of (Tensor, Expr)
        Further placeholders, for constants.
    results : tuple of Tensor
    sizes : Sizes
        Of the function that the call stands in.
    """

    arguments: tuple[Value, ...]
    constants: tuple[tuple[Tensor, Any], ...]
    results: tuple[Tensor, ...]
    sizes: Sizes


def traced_call(call: Any) -> TracedCall | Opaque:
    """What a call computes."""
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
    """An argument with a new parameter in the place of each tensor in it."""
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
    """The placeholders of the parameters in an argument; None where it has none."""
    if isinstance(argument, relax.Tuple):
        return tuple(_standing(one, places) for one in argument.fields)
    return places.get(argument) if isinstance(argument, relax.Var) else None
