"""TVM's lowering without two of its steps: compaction where it changes nothing, and common
subexpressions.

A schedule of primitives leaves whole stages as buffers of which one block needs a part, and TVM's
compaction makes them small. Functions that are written as loops allocate what they need; there the
pass changes nothing, and its time is quadratic in the number of integers that are bound. Common
subexpressions are LLVM's and nvcc's to find: TVM's pass defines what occurs in a let and in a later
statement behind the let, and refuses its own result.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

_COMPACTION = "s_tir.CompactBufferAllocation"

#: what TVM does up to the compaction; none of it changes anything the second time
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
    """The lowering, without the compaction of functions that have no block but the outermost, and
    without common subexpressions.
    """

    @tvm.transform.module_pass(opt_level=0)
    def lowered(module: Any, context: Any) -> Any:
        nested = {name: f for name, f in module.functions_items() if _has_nested_blocks(f)}
        module.update(_UP_TO_COMPACTION(tvm.IRModule(nested)))
        with tvm.transform.PassContext(
            opt_level=context.opt_level,
            required_pass=list(context.required_pass),
            disabled_pass=[*context.disabled_pass, _COMPACTION],
            instruments=list(context.instruments or []),
            config={**context.config, "tirx.disable_cse_tir": True},
        ):
            return lower(module)

    return lowered


def _has_nested_blocks(func: Any) -> bool:
    if not isinstance(func, tirx.PrimFunc):
        return False
    blocks: list[Any] = []
    tvm_ffi.structural_walk(func.body, [(s_tir.SBlock, blocks.append)])
    return len(blocks) > 1
