"""Compiles a program with TVM; kernels whose code TVM rejects are found, and only they fall back.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..codegen.deep import run_deep
from ..codegen.host.workspace import PlannedStorage
from ..codegen.modules import compiled_module, module_of
from ..codegen.passes.compaction import lowered_by_tvm
from ..codegen.stages.primfunc import first_line
from ..codegen.targets import host_target
from ..errors import LoweringError
from ..expr.nodes import Expr
from ..package import FOLDER
from .backends import finished, pipelines_for
from .emit.memory_plan import compile_watched
from .emit.program import Program, function_alone
from .machine import Machine
from .rule import Scheduled
from .size_parts import Plans


@dataclass(frozen=True)
class Compiled:
    """The code of a program, and information about it."""

    executable: Any
    program: Program
    storages: Sequence[PlannedStorage]
    shapes: Sequence[Sequence[Expr]]  #: of the parameters that sizes of storages are over


class _RefusedError(Exception):
    """TVM cannot compile a module."""


#: the functions that call TVM's compiler and its lowering, of which a failure is TVM's
_CALLERS = frozenset((compiled_module.__name__, lowered_by_tvm.__name__))


def compiled(plan: Plans, *, direct: bool = True) -> Compiled:
    """Compile a program; `direct`, for a CPU, as in `emit.program.assemble`.

    One module is compiled as long as TVM accepts it. Otherwise every kernel is compiled separately,
    and the rejected ones are scheduled by the next rules; all are if none is rejected separately.

    Raises
    ------
    LoweringError
        If TVM rejects the plain loops of a stage.
    """
    while True:
        calls = direct and plan.machine.kind == "llvm"
        here = partial(_built, machine=plan.machine, target=host_target()) if calls else None
        try:
            return _attempt(run_deep(plan.program, here), plan.machine)
        except _RefusedError as refused:
            failure, cause = str(refused), refused.__cause__
        culprits = [
            (one, reason)
            for one in plan.scheduled
            if (reason := _reason_against(one, plan.machine)) is not None
        ]
        if not culprits:  # each alone is compiled: plain loops for all may be together, too
            others = [one for one in plan.scheduled if not one.plain and one.launches]
            culprits = [(one, failure) for one in others]
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
    executable, storages, shapes = run_deep(
        compile_watched,
        lambda: _built(program.module, machine, machine.target),
        program.steps,
    )
    if program.workspace is not None:
        storages = list(program.workspace.storages)
    return Compiled(executable, program, storages, shapes)


def _built(module: Any, machine: Machine, target: Any) -> Any:
    try:
        return compiled_module(module, target, *pipelines_for(machine))
    except Exception as error:  # of TVM's passes and code generators, which raise anything
        place = _own_pass(error)
        if place is not None:
            raise LoweringError(
                f"a pass of tvm_autodiff failed ({place}) with {type(error).__name__}: {error}. "
                "This is a bug in tvm_autodiff: please report it with the program"
            ) from error
        raise _RefusedError(first_line(error)) from error


def _own_pass(error: Exception) -> str | None:
    """Where in a pass of this package an exception was raised; None if in TVM's own."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(FOLDER)
    ]
    last = own[-1]
    if last.name in _CALLERS:
        return None
    return f"{Path(last.filename).stem}.{last.name}, line {last.lineno}"


def _reason_against(one: Scheduled, machine: Machine) -> str | None:
    """Why TVM cannot compile the functions of a kernel, or None."""
    for launch in finished(one.launches, machine):
        module = module_of({"main": function_alone(launch)})
        try:
            run_deep(_built, module, machine, machine.target)
        except _RefusedError as refused:
            return str(refused)
    return None
