"""Launches as one module: a single function, or kernels and a Relax function that calls them in
order.

In: scheduled launches, the inputs and outputs of the program. Out: an IRModule whose ``main`` takes
inputs and then outputs, and writes these. Relax plans the memory of what lies between; identical
kernels appear once.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax

from ..ir.nodes import Tensor, dtype_of
from ..ir.opaque_indices import hide_divisions
from ..ir.primfunc import StageFunction, relax_alignment, wide_dimension, with_parameters
from ..ir.stage import shape_of, tensor_key

__all__ = ["Program", "assemble"]


@dataclass(frozen=True)
class Program:
    """A scheduled module and how its ``main`` is called."""

    module: Any
    uses_vm: bool


def assemble(
    launches: Sequence[StageFunction],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    names: Sequence[str],
) -> Program:
    """The module of a program.

    Parameters
    ----------
    launches
        Functions in order of execution.
    inputs, outputs
        Parameters of ``main``, in this order; every output is written by one launch.
    names
        A name for each launch.
    """
    if len(launches) == 1 and not launches[0].scalars:
        func = _in_order(launches[0], inputs, outputs)
        if func is not None:
            func = _finished(func).with_attr("global_symbol", "main")
            return Program(tvm.IRModule({"main": func}), uses_vm=False)
    return Program(_relax_module(launches, inputs, outputs, names), uses_vm=True)


def _finished(func: Any) -> Any:
    """A scheduled function made safe to compile and to call."""
    return relax_alignment(hide_divisions(func))


def _in_order(
    launch: StageFunction, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> Any | None:
    """The function with its parameters in the order of the program, or None when it is not a
    mere order.
    """
    have = [tensor_key(tensor) for tensor in (*launch.inputs, *launch.outputs)]
    want = [tensor_key(tensor) for tensor in (*inputs, *outputs)]
    if sorted(have) != sorted(want):
        return None
    func = launch.func
    return with_parameters(func, [func.params[have.index(key)] for key in want])


def _relax_module(
    launches: Sequence[StageFunction],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    names: Sequence[str],
) -> Any:
    builder = relax.BlockBuilder()
    symbols: dict[int, Any] = {}

    def tensor_type(tensor: Tensor) -> Any:
        dims = [wide_dimension(dim, symbols) for dim in shape_of(tensor)]
        return relax.TensorType(dims, dtype_of(tensor))

    params = [relax.Var(_name(t, f"in{n}"), tensor_type(t)) for n, t in enumerate(inputs)]
    results = [relax.Var(_name(t, f"out{n}"), tensor_type(t)) for n, t in enumerate(outputs)]
    values: dict[tuple[int, int], Any] = {
        tensor_key(tensor): var for tensor, var in zip(inputs, params, strict=True)
    }
    destinations = {tensor_key(tensor): var for tensor, var in zip(outputs, results, strict=True)}
    with builder.function("main", [*params, *results]):
        with builder.dataflow():
            for written, name in zip(launches, names, strict=True):
                launch = _placed_first(written, destinations)
                called = builder.add_func(_finished(launch.func), _identifier(name))
                arguments = [values[tensor_key(tensor)] for tensor in launch.inputs]
                arguments += [wide_dimension(var, symbols) for var in launch.scalars]
                types = [tensor_type(tensor) for tensor in launch.outputs]
                places = [destinations.get(tensor_key(tensor)) for tensor in launch.outputs]
                value = builder.emit(_call(called, arguments, types, places))
                if len(types) == 1:
                    values[tensor_key(launch.outputs[0])] = value
                else:
                    for index, tensor in enumerate(launch.outputs):
                        values[tensor_key(tensor)] = builder.emit(relax.TupleGetItem(value, index))
            finished = [values[tensor_key(tensor)] for tensor in outputs]
            returned = builder.emit_output(relax.Tuple(finished))
        builder.emit_func_output(returned)
    return builder.get()


def _placed_first(launch: StageFunction, places: Container[tuple[int, int]]) -> StageFunction:
    """The same launch with the results that it writes into parameters of ``main`` in front.

    Relax passes them among the arguments and the buffers that it allocates behind all others,
    whatever the order of the results says.
    """
    count = len(launch.outputs)
    order = sorted(range(count), key=lambda n: tensor_key(launch.outputs[n]) not in places)
    if order == list(range(count)):
        return launch
    params = list(launch.func.params)
    params[-count:] = [params[n - count] for n in order]
    func = with_parameters(launch.func, params)
    return replace(launch, func=func, outputs=tuple(launch.outputs[n] for n in order))


def _call(called: Any, arguments: list[Any], types: list[Any], places: list[Any]) -> Any:
    """A call of a kernel; `places` holds, for each result, the parameter to write into, or None."""
    out_type = types[0] if len(types) == 1 else types
    if all(place is None for place in places):
        return relax.op.call_tir(called, arguments, out_type)
    indices = []
    for place in places:
        indices.append(-1 if place is None else len(arguments))
        if place is not None:
            arguments = [*arguments, place]
    return relax.op.call_tir_inplace(called, arguments, indices, out_type)


def _name(tensor: Tensor, default: str) -> str:
    return _identifier(tensor.op.name) or default


def _identifier(name: str) -> str:
    text = "".join(c if c.isalnum() or c == "_" else "_" for c in name)[:60]
    return text if text and not text[0].isdigit() else f"k{text}"
