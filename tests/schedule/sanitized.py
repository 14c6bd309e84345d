"""Runs scheduled functions on the heap of AddressSanitizer, with every access checked.

Run as ``python -m tests.schedule.sanitized`` with names of guarded programs, or of `WRONG` ones, in
a process that AddressSanitizer's library is loaded into. Prints ``begin``, the report of an access
outside of an array, of an intermediate or of a local array, or ``end`` and what came of it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import te, tirx

from tests.schedule.checked_accesses import with_checks
from tests.schedule.guard_pages import arrays_for, shape_of, wanted
from tests.schedule.guarded_programs import PROGRAMS, Program, Sizes
from tvm_autodiff.codegen.deep import run_deep
from tvm_autodiff.codegen.direct_calls import PIPELINE
from tvm_autodiff.compile.pipeline import _plan
from tvm_autodiff.compile.request import request_of
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.schedule.backends import rules_for
from tvm_autodiff.schedule.emit.program import function_alone
from tvm_autodiff.schedule.machine import as_target, machine_of


def checked(func: Any, folder: Path) -> Any:
    """A scheduled function, compiled as it is written and with checks of its accesses."""
    target = tvm.target.Target({**as_target(None).export(), "opt-level": 0})
    module = tvm.IRModule({"main": func})
    built = run_deep(tvm.compile, module, target=target, tir_pipeline=PIPELINE)
    path = folder / "checked.ll"
    path.write_text(with_checks(built.mod.inspect_source("ll")))
    return tvm.runtime.load_module(str(path))["main"]


class Steps:
    """The launches of a program, each as a function of its own."""

    def __init__(self, program: Program, folder: Path) -> None:
        machine = machine_of(as_target(None), 2)
        self.request = request_of(list(program.inputs), list(program.outputs))
        self.plan = run_deep(_plan, self.request, machine, rules_for(machine))
        launches = [step.launch for step in run_deep(self.plan.program, False).steps]
        self.launches = [(launch, checked(function_alone(launch), folder)) for launch in launches]

    def __call__(self, arrays: Sequence[np.ndarray], sizes: Sizes) -> list[np.ndarray]:
        """The outputs; all that lies between has an array of its own, too."""
        found = dict(zip(map(tensor_key, self.request.inputs), arrays, strict=True))
        for launch, function in self.launches:
            for tensor in launch.outputs:
                shape = shape_of(tensor, named([tensor], sizes))
                found[tensor_key(tensor)] = np.full(shape, 77, str(tensor.dtype))
            tensors = (*launch.inputs, *launch.outputs)
            function(*(_given(found[tensor_key(tensor)]) for tensor in tensors))
        return [found[tensor_key(tensor)] for tensor in self.plan.results]


def _given(array: np.ndarray) -> Any:
    # numpy gives an empty array strides of zero, which are no layout to TVM
    return array if array.size else tvm.runtime.empty(array.shape, array.dtype.name)


def named(tensors: Sequence[Any], sizes: Sizes) -> Mapping[Any, int]:
    """The sizes by the variables of some shapes."""
    variables: list[Any] = []
    for tensor in tensors:
        for dim in tensor.shape:
            tvm_ffi.structural_walk(dim, (tirx.Var, variables.append))
    return {var: sizes[var.name] for var in variables}


def run(program: Program, folder: Path) -> None:
    """Call the launches of a program with each of its sizes."""
    steps = Steps(program, folder)
    for sizes in program.calls:
        arrays = arrays_for(program, sizes)
        for have, should in zip(steps(arrays, sizes), wanted(program, arrays, sizes), strict=True):
            np.testing.assert_allclose(have, should, rtol=1e-4, atol=1e-4, err_msg=str(sizes))


def _stage(reads: Callable[[Any, Any], Any]) -> Callable[[Path], None]:
    """A function that computes ``y[i] = reads(x, i)`` for i < 12 from x of 12 elements."""

    def call(folder: Path) -> None:
        x = te.placeholder((12,), name="x")
        y = te.compute((12,), lambda i: reads(x, i), name="y")
        arrays = [np.ones(12, "float32") for _ in range(2)]
        checked(te.create_prim_func([x, y]).with_attr("global_symbol", "main"), folder)(*arrays)

    return call


def _local(count: int, ahead: int) -> Callable[[Path], None]:
    """``a[i] = x[i]; y[i] = a[i + ahead]`` with a local array: TVM has small ones on the stack."""

    def call(folder: Path) -> None:
        x, y, a = (tirx.decl_buffer((count,), "float32", name) for name in "xya")
        body = [tirx.AllocBuffer(a), _copy(a, x, count, 0), _copy(y, a, count, ahead)]
        func = tirx.PrimFunc([x, y], tirx.SeqStmt(body)).with_attr("global_symbol", "main")
        checked(func, folder)(*(np.ones(count, "float32") for _ in range(2)))

    return call


def _copy(to: Any, source: Any, count: int, ahead: int) -> Any:
    i = tirx.Var("i", "int32")
    store = tirx.BufferStore(to, tirx.BufferLoad(source, [i + ahead]), [i])
    return tirx.For(i, 0, count, tirx.ForKind.SERIAL, store)


#: functions that access what they must not, and their like that do not
WRONG: dict[str, Callable[[Path], None]] = {
    "behind": _stage(lambda x, i: x[i + 1]),
    "before": _stage(lambda x, i: x[i - 1]),
    "far": _stage(lambda x, i: te.if_then_else(i == 7, x[i + 9], x[i])),
    "local": _local(12, 1),
    "large-local": _local(500, 1),
}
FINE: dict[str, Callable[[Path], None]] = {
    "inside": _stage(lambda x, i: te.if_then_else(i < 11, x[i + 1], x[i])),
    "local-inside": _local(12, 0),
    "large-local-inside": _local(500, 0),
}
TASKS: dict[str, Callable[[Path], None]] = {
    **{name: lambda folder, make=make: run(make(), folder) for name, make in PROGRAMS.items()},
    **WRONG,
    **FINE,
}


def outcome(task: Callable[[Path], None]) -> str:
    """``right``, or what is wrong with the numbers or was raised."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            task(Path(folder))
    except Exception as error:
        return f"wrong {error!r}".replace("\n", " ")[:2000]
    return "right"


def main(names: Sequence[str]) -> None:
    warnings.simplefilter("ignore")
    for name in names:
        print("begin", name, flush=True)
        child = os.fork()  # of its own, since a wrong access ends the process
        if child == 0:
            print("end", outcome(TASKS[name]), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
