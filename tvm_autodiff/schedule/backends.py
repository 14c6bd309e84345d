"""What differs between kinds of targets: the schedule rules, and the passes that Relax runs.

In: a machine. Out: its rules, the one that always applies last, and its pipeline. Everything else
in `schedule` is the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from .cpu.rules import CPU_RULES
from .cuda.rules import CUDA_RULES
from .machine import Machine
from .rule import Rule

_RULES: Mapping[str, tuple[Rule, ...]] = {"llvm": CPU_RULES, "cuda": CUDA_RULES}


def rules_for(machine: Machine) -> tuple[Rule, ...]:
    """The rules for a machine, the one that always applies last."""
    return _RULES[machine.kind]


def relax_pipeline_for(machine: Machine) -> Any:
    """What lowers the function that calls the kernels, as `tvm.compile` takes it."""
    return _kernels_as_they_are() if machine.kind == "cuda" else "default"


def _kernels_as_they_are() -> Any:
    # TVM's pipeline for CUDA fuses kernels and schedules them anew: only the rest of it is wanted
    return tvm.transform.Sequential(
        [
            relax.transform.RewriteDataflowReshape(),
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
            relax.transform.StaticPlanBlockMemory(),
            relax.transform.LowerAllocTensor(),
            relax.transform.KillAfterLastUse(),
            relax.transform.LowerRuntimeBuiltin(),
            relax.transform.ComputePrimValue(),
            relax.transform.VMShapeLower(),
            relax.transform.AttachGlobalSymbol(),
        ]
    )
