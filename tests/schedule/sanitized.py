"""Compiles the launches of programs with a check of every access, and makes calls of them.

The programs are those of `guarded_programs`, and `WRONG` and `FINE`. A `Task` refers to LLVM IR
with checks (`checked_accesses`) and is otherwise plain data. `sanitized_calls` runs it in a process
that AddressSanitizer's library is loaded into, where compiling would take several times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import te, tirx

from tests.schedule.checked_accesses import with_checks
from tests.schedule.guard_pages import arrays_for, shape_of, wanted
from tests.schedule.guarded_programs import PROGRAMS, Program
from tests.schedule.sanitized_calls import Call, Task
from tests.without_assertions import without_assertions
from tvm_autodiff.codegen.deep import run_deep
from tvm_autodiff.codegen.host.direct_calls import PIPELINE
from tvm_autodiff.compile.pipeline import _plan
from tvm_autodiff.compile.request import request_of
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.schedule.backends import rules_for
from tvm_autodiff.schedule.emit.program import function_alone
from tvm_autodiff.schedule.machine import as_target, machine_of

Making = Callable[[Path], Task]


def _lowering() -> tuple[Any, ...]:
    """The library's, and no checks of arguments: the arrays of a call are made from its shapes."""
    lower, *finalise = tirx.get_tir_pipeline(PIPELINE)
    return (tvm.transform.Sequential([lower, without_assertions]), *finalise)


_OF_ACCESSES = "tests.schedule.sanitized"
tirx.register_tir_pipeline(_OF_ACCESSES, _lowering)


def checked(func: Any, path: Path) -> Path:
    """Compile a scheduled function without optimisation, to a file of LLVM IR with checks of its
    accesses.
    """
    target = tvm.target.Target({**as_target(None).export(), "opt-level": 0})
    module = tvm.IRModule({"main": func})
    built = run_deep(tvm.compile, module, target=target, tir_pipeline=_OF_ACCESSES)
    path.write_text(with_checks(built.mod.inspect_source("ll")))
    return path


def calls_of(program: Program, folder: Path) -> Task:
    """Calls of the launches of a program with each of its sizes; intermediate tensors have arrays
    of their own.
    """
    machine = machine_of(as_target(None), 2)
    request = request_of(list(program.inputs), list(program.outputs))
    plan = run_deep(_plan, request, machine, rules_for(machine))
    launches = [step.launch for step in run_deep(plan.program).steps]
    codes = [
        checked(function_alone(launch), folder / f"{number}.ll")
        for number, launch in enumerate(launches)
    ]
    task = Task()
    for sizes in program.calls:
        arrays = arrays_for(program, sizes)
        given = dict(zip(map(tensor_key, request.inputs), arrays, strict=True))
        values = sizes_of(request.inputs, arrays)
        calls = [
            Call(
                code,
                tuple(map(tensor_key, launch.inputs)),
                {
                    tensor_key(tensor): (shape_of(tensor, values), str(tensor.dtype))
                    for tensor in launch.outputs
                },
            )
            for launch, code in zip(launches, codes, strict=True)
        ]
        results = zip(plan.results, wanted(program, arrays, sizes), strict=True)
        found = [(tensor_key(tensor), np.asarray(should)) for tensor, should in results]
        task.strips.append((given, calls, found))
    return task


def sizes_of(inputs: Sequence[Any], arrays: Sequence[np.ndarray]) -> dict[Any, int]:
    """The values of the variables that are dimensions of the inputs."""
    return {
        dim: size
        for tensor, array in zip(inputs, arrays, strict=True)
        for dim, size in zip(tensor.shape, array.shape, strict=True)
        if isinstance(dim, tirx.Var)
    }


def _alone(func: Any, count: int, folder: Path) -> Task:
    """One call of a function of x and y with `count` elements each; its result is not compared."""
    code = checked(func.with_attr("global_symbol", "main"), folder / "0.ll")
    call = Call(code, (0,), {1: ((count,), "float32")})
    return Task([({0: np.ones(count, "float32")}, [call], [])])


def _stage(reads: Callable[[Any, Any], Any]) -> Making:
    """A function that computes ``y[i] = reads(x, i)`` for i < 12 from x of 12 elements."""

    def make(folder: Path) -> Task:
        x = te.placeholder((12,), name="x")
        y = te.compute((12,), lambda i: reads(x, i), name="y")
        return _alone(te.create_prim_func([x, y]), 12, folder)

    return make


def _local(count: int, ahead: int) -> Making:
    """``a[i] = x[i]; y[i] = a[i + ahead]`` with a local array; TVM puts small ones on the stack."""

    def make(folder: Path) -> Task:
        x, y, a = (tirx.decl_buffer((count,), "float32", name) for name in "xya")
        body = [tirx.AllocBuffer(a), _copy(a, x, count, 0), _copy(y, a, count, ahead)]
        return _alone(tirx.PrimFunc([x, y], tirx.SeqStmt(body)), count, folder)

    return make


def _copy(to: Any, source: Any, count: int, ahead: int) -> Any:
    i = tirx.Var("i", "int32")
    store = tirx.BufferStore(to, tirx.BufferLoad(source, [i + ahead]), [i])
    return tirx.For(i, 0, count, tirx.ForKind.SERIAL, store)


#: functions that access what they must not, and their like that do not
WRONG: dict[str, Making] = {
    "behind": _stage(lambda x, i: x[i + 1]),
    "before": _stage(lambda x, i: x[i - 1]),
    "far": _stage(lambda x, i: te.if_then_else(i == 7, x[i + 9], x[i])),
    "local": _local(12, 1),
    "large-local": _local(500, 1),
}
FINE: dict[str, Making] = {
    "inside": _stage(lambda x, i: te.if_then_else(i < 11, x[i + 1], x[i])),
    "local-inside": _local(12, 0),
    "large-local-inside": _local(500, 0),
}
TASKS: dict[str, Making] = {
    **{name: lambda folder, make=make: calls_of(make(), folder) for name, make in PROGRAMS.items()},
    **WRONG,
    **FINE,
}
