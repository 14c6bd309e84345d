"""Lowered functions without checks of their arguments, which are most of their code.

TVM's virtual machine calls functions with arrays that it made itself or has checked. What such a
check would see, a wrong shape or dtype, is seen in the results, too.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

_NOTHING = (tirx.AssertStmt, lambda assertion: tirx.Evaluate(0))


@tvm.transform.module_pass(opt_level=0)
def without_assertions(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """The functions of a module without assertions."""
    for name, func in module.functions_items():
        if isinstance(func, tirx.PrimFunc):
            module[name] = func.with_body(tvm_ffi.structural_map(func.body, _NOTHING))
    return module
