"""Replaces size arguments of function calls by tensors whose shapes contain the sizes.

`relax.transform.Gradient` of TVM 0.27 looks for a binding of each variable in the arguments of a
call, and fails for a size, which has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tvm import ir, relax, tirx

from ...codegen.stages.kept_stages import ATTRIBUTE
from ...codegen.stages.primfunc import with_parameters
from ...expr.build import variable
from ...expr.nodes import Expr, Var, const_value, dtype_of, node_id, op_name
from .trace import dtype_of_type, holds_floats, is_tensor_type


def sizes_from_shapes(builder: Any, call: Any, params: Iterable[Any]) -> Any:
    """``call_tir(f, (w, n)) → call_tir(g, (w, x))``, where x has the shape (n, 6).

    The function `g` is `f` with a buffer instead of the number, of which it reads only the shape.
    Sizes that are not a dimension of any parameter stay numbers.

    Parameters
    ----------
    builder : BlockBuilder
        A builder inside a function.
    call : Call
        A call of ``call_tir``.
    params : iterable of Var
        The parameters of the function that contains the call.
    """
    func, arguments = builder.get()[call.args[0]], list(call.args[1].fields)
    tensors = _tensors_with_sizes(params)
    places = [
        place
        for place, one in enumerate(arguments)
        if ir.is_prim_expr(one)
        and node_id(one) in tensors
        and dtype_of(func.params[place]) == dtype_of(one)
    ]
    if not places or (func.attrs and ATTRIBUTE in func.attrs):
        return call
    inner = {node_id(arguments[place]): func.params[place] for place in places}
    new_params = list(func.params)
    for place in places:
        tensor = tensors[node_id(arguments[place])]
        new_params[place] = _buffer(tensor, inner)
        arguments[place] = tensor
    called = builder.add_func(with_parameters(func, new_params), str(call.args[0].name_hint))
    [types] = call.ty_args
    out = list(types.fields) if isinstance(types, relax.TupleType) else types
    return relax.op.call_tir(called, relax.Tuple(arguments), out)


def _tensors_with_sizes(params: Iterable[Any]) -> dict[int, Any]:
    """A parameter for each size that is a dimension of one; integers first, because they get no
    cotangent.
    """
    found: dict[int, Any] = {}
    for param in sorted(params, key=lambda one: holds_floats(one.ty)):
        if is_tensor_type(param.ty):
            for dim in param.ty.shape.values:
                if op_name(dim) == "var":
                    found.setdefault(node_id(dim), param)
    return found


def _buffer(tensor: Any, inner: Mapping[int, Var]) -> Any:
    """A buffer parameter for a Relax tensor, over sizes of the function."""
    shape: list[Expr] = []
    for number, dim in enumerate(tensor.ty.shape.values):
        fresh = variable(f"{tensor.name}_{number}", dtype_of(dim))
        shape.append(inner.get(node_id(dim), dim if const_value(dim) is not None else fresh))
    return tirx.decl_buffer(shape, dtype_of_type(tensor.ty), str(tensor.name))
