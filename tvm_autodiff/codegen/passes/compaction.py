"""TVM's lowering without the passes that have no effect, and without common subexpressions.

A schedule of primitives leaves whole stages as buffers of which one block needs a part, and TVM's
compaction shrinks them. Functions written as loops allocate what they need, so the pass changes
nothing, but its time is quadratic in the number of bound integers. LLVM and nvcc find common
subexpressions; TVM's pass places a definition used in a let and in a later statement behind the
let, and rejects its own result. LLVM also hoists conditions out of loops, and TVM's pass for it
simplifies every function once more. Splits of indices are written another way only in schedules of
primitives.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from .indices.size_divisions import with_rounding_to_zero

_WITHOUT = ("s_tir.CompactBufferAllocation", "s_tir.HoistIfThenElse")

#: what schedules of primitives leave to do, and functions written as loops do not
_FOR_PRIMITIVES = ("s_tir.RenormalizeSplitPattern",)

#: TVM's passes up to the compaction; they are idempotent
_UP_TO_COMPACTION = tvm.transform.Sequential(
    [
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
    ]
)


def compacting_blocks(lower: Any) -> Any:
    """The lowering, without the passes for blocks for functions whose only block is the outermost
    one, and without common subexpressions.
    """

    @tvm.transform.module_pass(opt_level=0)
    def lowered(module: Any, context: Any) -> Any:
        nested = {name: f for name, f in module.functions_items() if _has_nested_blocks(f)}
        module.update(_UP_TO_COMPACTION(tvm.IRModule(nested)))
        without = () if nested else _FOR_PRIMITIVES
        functions = [(n, f) for n, f in module.functions_items() if isinstance(f, tirx.PrimFunc)]
        module.update(tvm.IRModule({name: with_rounding_to_zero(f) for name, f in functions}))
        with tvm.transform.PassContext(
            opt_level=context.opt_level,
            required_pass=list(context.required_pass),
            disabled_pass=[*context.disabled_pass, *_WITHOUT, *without],
            instruments=list(context.instruments or []),
            config={**context.config, "tirx.disable_cse_tir": True},
        ):
            return lowered_by_tvm(lower, module)

    return lowered


def lowered_by_tvm(lower: Any, module: Any) -> Any:
    """The module after TVM's own lowering, whose failures are no faults of this library."""
    return lower(module)


def _has_nested_blocks(func: Any) -> bool:
    if not isinstance(func, tirx.PrimFunc):
        return False
    blocks: list[Any] = []
    tvm_ffi.structural_walk(func.body, [(s_tir.SBlock, blocks.append)])
    return len(blocks) > 1
