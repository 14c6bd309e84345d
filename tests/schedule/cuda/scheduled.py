"""What is scheduled for a GPU: the machine, the launches of a program, the rules that made them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te

from tvm_autodiff.codegen.stages.primfunc import StageFunction
from tvm_autodiff.schedule.cuda.rules import CUDA_RULES
from tvm_autodiff.schedule.cuda.verify import problem_of
from tvm_autodiff.schedule.fusion.kernels import cut
from tvm_autodiff.schedule.machine import Machine, as_target, machine_of
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rule import Scheduled, apply_rules

SM_90 = {"kind": "cuda", "arch": "sm_90"}


def gpu() -> Machine:
    """The machine that tests schedule for."""
    return machine_of(as_target(SM_90), 1)


def kernels_of(outputs: Any, rules: Sequence[Any] = CUDA_RULES) -> list[Scheduled]:
    """The kernels of a program in order, scheduled."""
    tensors = [outputs] if isinstance(outputs, te.Tensor) else list(outputs)
    kernels, _ = cut(normal_form(tensors))
    return [one for kernel in kernels for one in apply_rules(kernel, gpu(), rules)]


def scheduled(outputs: Any, rules: Sequence[Any] = CUDA_RULES) -> list[tuple[StageFunction, str]]:
    """The launches of a program in order, each with the rule that made its kernel."""
    return [(launch, one.rule) for one in kernels_of(outputs, rules) for launch in one.launches]


def rules_of(outputs: Any) -> list[str]:
    """The rule that takes each kernel."""
    return [one.rule for one in kernels_of(outputs)]


def problems_of(kernels: Sequence[Scheduled]) -> list[str]:
    """What a GPU would refuse of kernels."""
    found = [problem_of(launch.func, gpu()) for one in kernels for launch in one.launches]
    return [problem for problem in found if problem is not None]
