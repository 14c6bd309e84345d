"""CUDA schedules run on the CPU: what the scheduled loops compute, with no GPU at hand.

In: tensors. Out: a function of numpy arrays that runs the kernels scheduled for CUDA with every
loop over threads as a plain loop. Scheduled functions, before TVM lowers them, mean the same in any
order of their loops: blocks say what they read and write, and stages through shared memory are
blocks of their own. Synchronisation, which TVM puts in afterwards, is not tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_autodiff.compile import _program
from tvm_autodiff.runtime.compiled import CompiledFunction
from tvm_autodiff.schedule.machine import Machine, as_target, machine_of

SM_90 = {"kind": "cuda", "arch": "sm_90"}


def gpu() -> Machine:
    """The machine that tests schedule for: the same on every computer."""
    return machine_of(as_target(SM_90), 1)


def serialized(func: Any) -> Any:
    """The function with every loop as a serial one, those over threads included, and atomic
    additions as plain ones.
    """

    def plain(loop: Any) -> Any:
        kind = tirx.ForKind.SERIAL
        return tirx.For(loop.loop_var, loop.min, loop.extent, kind, loop.body, None, {})

    def added(node: Any) -> Any:
        call = node.value
        if str(getattr(call.op, "name", "")) != "tirx.call_extern":
            return node
        name, address, value = call.args
        assert name.value == "atomicAdd", name
        [place] = address.args
        return tirx.BufferStore(place.source, place + value, list(place.indices))

    body = tvm_ffi.structural_map(func.body, [(tirx.For, plain), (tirx.Evaluate, added)])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def on_cpu(inputs: Any, outputs: Any, machine: Machine | None = None, rules: Any = None) -> Any:
    """The kernels scheduled for CUDA as a function of numpy arrays."""
    program, signature = _program(inputs, outputs, machine or gpu(), rules)
    functions = {
        var: serialized(func) if isinstance(func, tirx.PrimFunc) else func
        for var, func in program.module.functions_items()
    }
    module = tvm.IRModule(functions)
    executable = tvm.compile(module, target=as_target(None))
    return CompiledFunction(executable, signature, 1, uses_vm=program.uses_vm, parallel=False)


def primfuncs(inputs: Any, outputs: Any, rules: Any = None) -> Sequence[Any]:
    """The scheduled functions of a program."""
    program, _ = _program(inputs, outputs, gpu(), rules)
    return [f for _, f in program.module.functions_items() if isinstance(f, tirx.PrimFunc)]
