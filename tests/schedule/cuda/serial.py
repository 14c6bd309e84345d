"""CUDA schedules run on the CPU: what the scheduled loops compute, with no GPU at hand.

In: tensors and arrays, or a scheduled function. Out: the values that the kernels scheduled for CUDA
compute with every loop over threads as a plain loop, and how often they write each element.
Scheduled functions, before TVM lowers them, mean the same in any order of their loops: blocks say
what they read and write, and stages through shared memory are blocks of their own. Where threads
have to wait for each other is decided afterwards, by TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import te, tirx

from tvm_autodiff.codegen.passes.opaque_indices import C_CAST, hide_divisions
from tvm_autodiff.codegen.primfunc import StageFunction, relax_alignment
from tvm_autodiff.compile import lower
from tvm_autodiff.expr.nodes import const_value, node_id, tensor_key
from tvm_autodiff.schedule.cuda.rules import CUDA_RULES
from tvm_autodiff.schedule.fusion.kernels import cut
from tvm_autodiff.schedule.machine import Machine, as_target, machine_of
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rule import apply_rules

SM_90 = {"kind": "cuda", "arch": "sm_90"}
CAST = "tirx.call_pure_extern"
Rules = Sequence[Any]


def gpu() -> Machine:
    """The machine that tests schedule for."""
    return machine_of(as_target(SM_90), 1)


def scheduled(outputs: Any, rules: Rules = CUDA_RULES) -> list[tuple[StageFunction, str]]:
    """The launches of a program in order, each with the rule that made its kernel."""
    kernels, _ = cut(normal_form(_list(outputs)))
    return [
        (launch, one.rule)
        for kernel in kernels
        for one in apply_rules(kernel, gpu(), rules)
        for launch in one.launches
    ]


def rules_of(outputs: Any) -> list[str]:
    """The rule that takes each kernel."""
    kernels, _ = cut(normal_form(_list(outputs)))
    return [one.rule for kernel in kernels for one in apply_rules(kernel, gpu(), CUDA_RULES)]


def _list(tensors: Any) -> list[Any]:
    return [tensors] if isinstance(tensors, te.Tensor) else list(tensors)


def run(
    inputs: Any,
    outputs: Any,
    arrays: Sequence[np.ndarray],
    rules: Rules = CUDA_RULES,
    literal: bool = False,
) -> Any:
    """The values of the outputs, computed by the kernels for CUDA; with `literal`, symbolic sizes
    are replaced by those of the arrays after scheduling.
    """
    kernels, results = cut(normal_form(_list(outputs)))
    sizes = _sizes(_list(inputs), arrays)
    values = {tensor_key(t): a for t, a in zip(_list(inputs), arrays, strict=True)}
    for one in [one for kernel in kernels for one in apply_rules(kernel, gpu(), rules)]:
        for launch in one.launches:
            for tensor in launch.outputs:
                values[tensor_key(tensor)] = np.full(_shape(tensor, sizes), 77, str(tensor.dtype))
            tensors = [values[tensor_key(t)] for t in (*launch.inputs, *launch.outputs)]
            scalars = [sizes[node_id(var)] for var in launch.scalars]
            place = len(launch.inputs)
            func = _of_sizes(launch.func, tensors) if literal else launch.func
            _call(serialized(func), [*tensors[:place], *scalars, *tensors[place:]])
    found = [values[tensor_key(tensor)] for tensor in results]
    return found[0] if isinstance(outputs, te.Tensor) else found


def writes(launch: StageFunction, sizes: dict[int, int]) -> list[np.ndarray]:
    """How often a launch writes each element of its outputs."""
    outputs = {str(param.name) for param in launch.func.params[-len(launch.outputs) :]}

    def counted(store: Any) -> Any:
        if str(store.buffer.name) not in outputs:
            return store
        zero, one = (tirx.const(n, str(store.value.ty)) for n in (0, 1))
        old = store.buffer[tuple(store.indices)]
        # zero, but still a read of what the kernel made
        nothing = tirx.max(tirx.min(store.value, zero), zero)
        return tirx.BufferStore(store.buffer, old + one + nothing, list(store.indices))

    func = serialized(launch.func)
    body = tvm_ffi.structural_map(func.body, (tirx.BufferStore, counted))
    inputs = [np.zeros(_shape(t, sizes), str(t.dtype)) for t in launch.inputs]
    results = [np.zeros(_shape(t, sizes), str(t.dtype)) for t in launch.outputs]
    scalars = [sizes[node_id(var)] for var in launch.scalars]
    counting = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
    _call(counting, [*inputs, *scalars, *results])
    return results


def serialized(func: Any) -> Any:
    """The function with every loop as a serial one, those over threads included, and atomic
    additions as plain ones.
    """

    def plain(loop: Any) -> Any:
        kind = tirx.ForKind.SERIAL
        return tirx.For(loop.loop_var, loop.min, loop.extent, kind, loop.body, None, {})

    def added(node: Any) -> Any:
        call = node.value
        if str(getattr(getattr(call, "op", None), "name", "")) != "tirx.call_extern":
            return node
        name, address, value = call.args
        assert name.value == "atomicAdd", name
        [place] = address.args
        return tirx.BufferStore(place.source, place + value, list(place.indices))

    def portable(call: Any) -> Any:
        # an index hidden in a cast of C
        if str(getattr(call.op, "name", "")) != CAST:
            return call
        return tirx.reinterpret(str(call.ty), call.args[1])

    func = relax_alignment(hide_divisions(func, C_CAST))
    body = tvm_ffi.structural_map(func.body, (tvm.ir.Call, portable))
    func = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
    body = tvm_ffi.structural_map(func.body, [(tirx.For, plain), (tirx.Evaluate, added)])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def on_cpu(inputs: Any, outputs: Any) -> Any:
    """The whole program for CUDA compiled for the CPU: kernels, and what calls them."""
    module = lower(inputs, outputs, SM_90)
    functions = {
        var: serialized(func) if isinstance(func, tirx.PrimFunc) else func
        for var, func in module.functions_items()
    }
    return tvm.compile(tvm.IRModule(functions), target=as_target(None))


def _call(func: Any, arguments: Sequence[Any]) -> None:
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    # an empty array of numpy has strides that are no layout to TVM
    given = [
        tvm.runtime.empty(a.shape, str(a.dtype)) if isinstance(a, np.ndarray) and not a.size else a
        for a in arguments
    ]
    tvm.compile(module, target="llvm")["main"](*given)


def _of_sizes(func: Any, arrays: Sequence[np.ndarray]) -> Any:
    buffers = {
        param: tirx.decl_buffer(array.shape, str(array.dtype), param.name)
        for param, array in zip(func.params, arrays, strict=True)
    }
    return func.specialize(buffers)


def _sizes(inputs: Sequence[Any], arrays: Sequence[np.ndarray]) -> dict[int, int]:
    return {
        node_id(dim): size
        for tensor, array in zip(inputs, arrays, strict=True)
        for dim, size in zip(tensor.shape, array.shape, strict=True)
        if const_value(dim) is None
    }


def _shape(tensor: Any, sizes: dict[int, int]) -> list[int]:
    def number(dim: Any) -> Any:
        value = sizes.get(node_id(dim))
        return dim if value is None else tirx.const(value, str(dim.ty))

    analyzer = tvm.sym.Analyzer()
    known = [
        dim
        if const_value(dim) is not None
        else analyzer.simplify(tvm_ffi.structural_map(dim, (tirx.Var, number)))
        for dim in tensor.shape
    ]
    return [int(const_value(dim)) for dim in known]
