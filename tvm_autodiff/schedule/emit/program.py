"""Assembles launches into a module: a single function, or kernels and a Relax function that calls
them.

``main`` takes inputs followed by outputs, which it writes. Relax plans the memory of temporaries,
and identical kernels appear once. Programs on a CPU whose sizes are literal or follow from the
shapes of inputs need neither; `direct` makes them.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import relax

from ...codegen.host.direct_calls import ALL_LAUNCHES
from ...codegen.host.workspace import Workspace
from ...codegen.modules import module_of
from ...codegen.passes.in_place import shared
from ...codegen.passes.indices.function_widths import with_safe_indices
from ...codegen.stages.primfunc import (
    StageFunction,
    buffer_of,
    relax_alignment,
    wide_dimension,
    with_parameters,
    with_sizes_from_shapes,
    with_value,
)
from ...expr.nodes import Tensor, dtype_of, tensor_key
from ...graph.stage import shape_of
from .direct import CallSizes, Part, are_sizes_known, direct_program
from .functions import Functions
from .names import identifier
from .places import reused_memory
from .updates import Step, Update

__all__ = [
    *("Program", "assemble", "assemble_parts", "finished_function", "function_alone"),
    "is_direct",
]


@dataclass(frozen=True)
class Program:
    """A scheduled module, its launches, and how its ``main`` is called.

    With a `workspace`, or with `sizes` that determine it at a call, ``main`` takes more than
    arrays, as described in `codegen.direct_calls`.
    """

    module: Any
    uses_vm: bool
    steps: tuple[Step, ...]
    names: tuple[str, ...]
    workspace: Workspace | None = None
    sizes: CallSizes | None = None


def assemble(
    steps: Sequence[Step],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    updates: Sequence[Update] = (),
) -> Program:
    """The module of a program whose ``main`` takes arrays alone.

    Parameters
    ----------
    steps
        Launches in order of execution.
    inputs, outputs
        Parameters of ``main``, in this order; every output is written by one launch.
    updates
        Pairs (input, new value) in the order of `updates.order_updates`: the new value is written
        into the memory of the input.
    """
    steps = [replace(step, launch=with_sizes_from_shapes(step.launch, inputs)) for step in steps]
    if len(steps) == 1 and not steps[0].launch.callees:
        func = _in_order(steps[0].launch, inputs, outputs, updates)
        if func is not None:
            func = finished_function(func).with_attr("global_symbol", "main")
            return Program(module_of({"main": func}), False, tuple(steps), ("main",))
    module, names = _relax_module(steps, inputs, outputs, updates)
    return Program(module, True, tuple(steps), tuple(names))


def is_direct(part: Part) -> bool:
    """Whether ``main`` can call the kernels itself: it knows all sizes of a call."""
    return part.is_static or are_sizes_known(part.steps, part.inputs)


def assemble_parts(parts: Sequence[Part]) -> Program:
    """The module of a program of direct calls, some of which have launches of their own; the last
    part is for all others.
    """
    made = direct_program(parts)
    steps = tuple(step for part in parts for step in part.steps)
    return Program(made.module, False, steps, made.names, made.workspace, made.sizes)


def finished_function(func: Any) -> Any:
    """A scheduled function that is safe to compile and to call."""
    return relax_alignment(with_safe_indices(func))


def function_alone(launch: StageFunction) -> Any:
    """The function of a launch as ``main`` of a separate module."""
    return finished_function(launch.func).with_attr("global_symbol", "main")


def _in_order(
    launch: StageFunction,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    updates: Sequence[Update],
) -> Any | None:
    """The function with its parameters in the order of the program, or None if it is more than a
    reordering.
    """
    func = launch.func
    have = [tensor_key(tensor) for tensor in (*launch.inputs, *launch.outputs)]
    params = dict(zip(have, func.params, strict=True))
    for old, new in updates:
        written = params.pop(tensor_key(new))
        if tensor_key(old) in params:
            func = shared(func, params[tensor_key(old)], written)
        else:
            params[tensor_key(old)] = written
    for number, tensor in enumerate(inputs):
        if tensor_key(tensor) not in params:  # nothing reads it: the signature is the caller's
            params[tensor_key(tensor)] = buffer_of(tensor, _name(tensor, f"in{number}"))
    want = [tensor_key(tensor) for tensor in (*inputs, *outputs)]
    if sorted(params) != sorted(want):
        return None
    return with_parameters(func, [params[key] for key in want])


def _relax_module(
    steps: Sequence[Step],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    updates: Sequence[Update],
) -> tuple[Any, list[str]]:
    builder = relax.BlockBuilder()
    functions = Functions(builder.add_func)
    symbols: dict[int, Any] = {}
    names: list[str] = []

    def tensor_type(tensor: Tensor) -> Any:
        dims = [wide_dimension(dim, symbols) for dim in shape_of(tensor)]
        return relax.TensorType(dims, dtype_of(tensor))

    params = [relax.Var(_name(t, f"in{n}"), tensor_type(t)) for n, t in enumerate(inputs)]
    results = [relax.Var(_name(t, f"out{n}"), tensor_type(t)) for n, t in enumerate(outputs)]
    values: dict[tuple[int, int], Any] = {
        tensor_key(tensor): var for tensor, var in zip(inputs, params, strict=True)
    }
    destinations = {tensor_key(tensor): var for tensor, var in zip(outputs, results, strict=True)}
    updated = {tensor_key(old) for old, _ in updates}
    destinations |= {tensor_key(new): values[tensor_key(old)] for old, new in updates}
    reused = reused_memory(steps, {*values, *destinations})
    with builder.function("main", [*params, *results]):
        with builder.dataflow():
            for step in steps:
                over = [key for key in map(tensor_key, step.launch.outputs) if key in reused]
                destinations |= {key: values[reused[key]] for key in over}
                launch = _placed_first(step.launch, destinations)
                arguments = [values[tensor_key(tensor)] for tensor in launch.inputs]
                types = [tensor_type(tensor) for tensor in launch.outputs]
                places = [destinations.get(tensor_key(tensor)) for tensor in launch.outputs]
                if updated & set(map(tensor_key, launch.inputs)) and places == [None]:
                    # Relax treats a copying kernel as an alias of its input, unless it writes into
                    # an existing buffer; but an old value must outlive its input
                    places = [builder.emit(_empty(types[0]))]
                func, arguments, indices = _written_in_place(launch, arguments, places)
                func = _with_callees(func, launch, functions)
                called = builder.add_func(finished_function(func), identifier(step.kernel.name))
                names.append(str(called.name_hint))
                out_type = types[0] if len(types) == 1 else types
                if all(index < 0 for index in indices):
                    call = relax.op.call_tir(called, arguments, out_type)
                else:
                    call = relax.op.call_tir_inplace(called, arguments, indices, out_type)
                value = builder.emit(call)
                if len(types) == 1:
                    values[tensor_key(launch.outputs[0])] = value
                else:
                    for index, tensor in enumerate(launch.outputs):
                        values[tensor_key(tensor)] = builder.emit(relax.TupleGetItem(value, index))
            # the caller has the results: returning them would cost a microsecond each
            returned = builder.emit_output(relax.Tuple([]))
        builder.emit_func_output(returned)
    return builder.get(), names


def _placed_first(launch: StageFunction, places: Container[tuple[int, int]]) -> StageFunction:
    """The same launch with the results that it writes into parameters of ``main`` in front.

    Relax passes them among the arguments and the buffers that it allocates behind all others,
    regardless of the order of the results.
    """
    count = len(launch.outputs)
    order = sorted(range(count), key=lambda n: tensor_key(launch.outputs[n]) not in places)
    if order == list(range(count)):
        return launch
    params = list(launch.func.params)
    params[-count:] = [params[n - count] for n in order]
    func = with_parameters(launch.func, params)
    return replace(launch, func=func, outputs=tuple(launch.outputs[n] for n in order))


def _with_callees(func: Any, launch: StageFunction, functions: Functions) -> Any:
    """The function of a launch, including all that it calls."""
    if launch.only is not None:
        func = with_value(func, launch.only, ALL_LAUNCHES)
    return functions.calling(func, launch.callees)


def _empty(type_: Any) -> Any:
    """Memory for a tensor."""
    shape, dtype = relax.ShapeExpr(list(type_.shape)), str(type_.dtype)
    return relax.op.builtin.alloc_tensor(shape, dtype, 0)


def _written_in_place(
    launch: StageFunction, arguments: list[Any], places: Sequence[Any]
) -> tuple[Any, list[Any], list[int]]:
    """A kernel, the arguments of its call, and for each result the argument it overwrites, or -1.

    `places` holds these arguments, or None.
    """
    func, count = launch.func, len(launch.outputs)
    params = list(func.params)
    indices = []
    for param, place in zip(params[-count:], places, strict=True):
        known = [
            n for n, argument in enumerate(arguments) if place is not None and argument is place
        ]
        if known:  # it takes the place of an input that the kernel reads
            func = shared(func, params[known[0]], param)
            indices.append(known[0])
        elif place is not None:
            indices.append(len(arguments))
            arguments = [*arguments, place]
        else:
            indices.append(-1)
    return func, arguments, indices


def _name(tensor: Tensor, default: str) -> str:
    return identifier(tensor.op.name) or default
