"""Hides the conditions of choices from TVM where it would change what is read.

Both sides of a choice are evaluated, but TVM simplifies each as if the condition decided it:
``select(0 <= d[i] < 5, g[max(min(d[i], 4), 0)], 0)`` would read ``g[d[i]]`` for any d, and
``select(i < n, g[min(i, n - 1)], 0)`` would read ``g[i]``. TVM does not look into calls.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from ...expr.intrinsics import itself
from ...expr.nodes import Expr, op_name
from ...expr.rewrite import contains

#: what an index may hold that is another under a condition
_BENT = frozenset(
    ("min", "max", "select", "if_then_else", "floordiv", "floormod", "truncdiv", "truncmod")
    + ("tensorload",)
)


def hide_choices(func: Any) -> Any:
    """``select(c, x[max(i, 0)], 0) → select(itself(c), x[max(i, 0)], 0)`` in a PrimFunc."""
    body = tvm_ffi.structural_map(func.body, (prim.Select, _hidden))
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _hidden(node: Any) -> Any:
    if not any(map(_reads_at_bent_index, (node.true_value, node.false_value))):
        return node
    return tirx.Select(itself(node.condition), node.true_value, node.false_value)


def _reads_at_bent_index(side: Any) -> bool:
    found: list[bool] = []

    def read(node: Any) -> None:
        found.append(any(contains(index, _is_bent) for index in node.indices))

    tvm_ffi.structural_walk(side, [(ir.TensorLoad, read)])
    return any(found)


def _is_bent(node: Expr) -> bool:
    return op_name(node) in _BENT
