"""A program compiled by TVM: kernels whose code it refuses are found, and only they fall back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from ..codegen.deep import run_deep
from ..codegen.direct_calls import PIPELINE
from ..codegen.primfunc import first_line
from ..errors import LoweringError
from .backends import finished, relax_pipeline_for
from .machine import Machine
from .memory_plan import PlannedStorage, compile_watched
from .plan import Plan
from .program import Program, function_alone
from .rule import Scheduled


@dataclass(frozen=True)
class Compiled:
    """The code of a program, and what is known of it."""

    executable: Any
    program: Program
    storages: Sequence[PlannedStorage]
    params: Sequence[Any]


class _RefusedError(Exception):
    """TVM does not compile a module."""


def compiled(plan: Plan) -> Compiled:
    """Compile a program.

    One module is compiled as long as TVM takes it. Where it does not, every kernel is compiled
    alone, and those that are refused are scheduled by the next rules; all are where none is.

    Raises
    ------
    LoweringError
        TVM refuses the plain loops of a stage.
    """
    while True:
        program = run_deep(plan.program, plan.machine.kind == "llvm")
        try:
            return _attempt(program, plan.machine)
        except _RefusedError as refused:
            failure, cause = str(refused), refused.__cause__
        culprits = [
            (one, reason)
            for one in plan.scheduled
            if (reason := _reason_against(one, plan.machine)) is not None
        ]
        if not culprits:  # each alone is compiled: plain loops for all may be together, too
            culprits = [(one, failure) for one in plan.scheduled if not one.plain]
        if not culprits:
            names = ", ".join(str(tensor.op.name) for tensor in plan.outputs)
            raise LoweringError(
                f"TVM cannot compile the stages of {names} for {plan.machine.kind}: {failure}"
            ) from cause
        for one, reason in culprits:
            if one.plain:
                raise LoweringError(
                    f"TVM cannot compile stage {one.kernel.name} for {plan.machine.kind}: {reason}"
                ) from cause
            plan.refuse(one, reason)


def _attempt(program: Program, machine: Machine) -> Compiled:
    executable, storages, params = run_deep(
        compile_watched,
        lambda: _built(program.module, machine),
        program.steps,
    )
    if program.workspace is not None:
        storages = list(program.workspace.storages)
    return Compiled(executable, program, storages, params)


def _built(module: Any, machine: Machine) -> Any:
    try:
        return tvm.compile(
            module,
            target=machine.target,
            relax_pipeline=relax_pipeline_for(machine),
            tir_pipeline=PIPELINE if machine.kind == "llvm" else "default",
        )
    except Exception as error:  # of TVM's passes and code generators, which raise anything
        raise _RefusedError(first_line(error)) from error


def _reason_against(one: Scheduled, machine: Machine) -> str | None:
    """Why TVM does not compile the functions of a kernel; None where it does."""
    for launch in finished(one.launches, machine):
        module = tvm.IRModule({"main": function_alone(launch)})
        try:
            run_deep(_built, module, machine)
        except _RefusedError as refused:
            return str(refused)
    return None
