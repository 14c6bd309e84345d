"""Selects what depends on the kind of target: schedule rules, final rewrites, and Relax's passes.

Everything else in `schedule` is the same for all targets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..codegen.gpu_pipeline import GPU_PIPELINE
from ..codegen.host.direct_calls import EXACT_PIPELINE, PIPELINE
from ..codegen.modules import kernels_as_they_are
from ..codegen.passes.absolute_values import with_maxima
from ..codegen.passes.indices.function_widths import needs_wider_indices, with_safe_indices
from ..codegen.passes.indices.opaque_conversions import hide_conversions
from ..codegen.passes.indices.opaque_indices import C_CAST
from ..codegen.passes.infinities import with_infinities_from_bits
from ..codegen.passes.launches import without_blocks
from ..codegen.passes.narrow_floats import with_float32_inside
from ..codegen.passes.opaque_choices import hide_choices
from ..codegen.stages.primfunc import StageFunction
from ..codegen.targets import computes_float16
from .cost import MAX_NODES
from .cpu.rules import CPU_RULES, LOOP_RULES
from .cuda.rules import CUDA_RULES
from .elementary.functions import elementary_calls, with_own_functions
from .elementary.library import (
    with_fused_products,
    with_library_functions,
    with_wide_functions,
)
from .machine import Machine
from .rule import LoopRule, Rule

_RULES: Mapping[str, tuple[Rule, ...]] = {"llvm": CPU_RULES, "cuda": CUDA_RULES}


def rules_for(machine: Machine) -> tuple[Rule, ...]:
    """The rules for a machine; the last one always applies."""
    return _RULES[machine.kind]


def loop_rules_for(machine: Machine) -> tuple[LoopRule, ...]:
    """The rules that write a loop over time as one function without calls."""
    return LOOP_RULES if machine.kind == "llvm" else ()


def finished(launches: Sequence[StageFunction], machine: Machine) -> list[StageFunction]:
    """Scheduled functions in their final form for compilation.

    On a CPU, calls of the C library are replaced by vectorised elementary functions, or, for exact
    math and where their code would be too large, by the library's exact versions, and narrow floats
    are computed in float32. On a GPU, indices are hidden by C casts.
    """
    if machine.kind == "cuda":
        return [replace(launch, func=_for_gpu(launch.func)) for launch in launches]
    if machine.kind != "llvm":
        return list(launches)

    # exact math rounds each operation on float16 as it is written
    native = machine.exact_math or computes_float16(machine.target)
    widened = ("bfloat16",) if native else ("bfloat16", "float16")

    def with_functions(func: Any) -> Any:
        func = hide_conversions(hide_choices(with_maxima(func)))
        # LLVM has to inline each call: its passes over so many copies take minutes
        exact = machine.exact_math or elementary_calls(func) > MAX_NODES
        func = with_wide_functions(func)
        for dtype in widened:
            func = with_float32_inside(func, dtype)
        func = with_library_functions(func, exact)
        return func if exact else with_own_functions(func)

    return [replace(launch, func=with_functions(launch.func)) for launch in launches]


def _for_gpu(func: Any) -> Any:
    """A scheduled function of a GPU whose indices cannot overflow."""
    func = with_fused_products(with_wide_functions(hide_conversions(with_maxima(func))))
    if needs_wider_indices(func):
        # in wider indices TVM sees neither a reduction by several threads nor what is kept in
        # registers: both are lowered before
        func = without_blocks(func)
    return with_infinities_from_bits(with_safe_indices(func, C_CAST))


def pipelines_for(machine: Machine) -> tuple[Any, Any]:
    """TVM's pipelines for the function that calls the kernels, and for the kernels."""
    if machine.kind == "cuda":
        return kernels_as_they_are(), GPU_PIPELINE
    return "default", EXACT_PIPELINE if machine.exact_math else PIPELINE
