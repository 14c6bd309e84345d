"""Writes numbers that are vectors of conditions as choices.

TVM's code generator crashes on a variable bound to a conversion of such a vector, whose bounds it
computes for a scalar.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import prim

from ....expr.nodes import dtype_of
from ...functions import with_body


def _number(lanes: int, dtype: str, value: int) -> Any:
    return tirx.Broadcast(tirx.const(value, dtype), lanes)


def as_choice(node: Any) -> Any:
    """``float32x8(c) → select(c, 1, 0)`` for a vector c of conditions; other nodes as they are."""
    condition, number = dtype_of(node.value), dtype_of(node)
    if not condition.startswith("boolx"):
        return node
    dtype, _, lanes = number.rpartition("x")
    one, zero = (_number(int(lanes), dtype, value) for value in (1, 0))
    return tirx.Select(node.value, one, zero)


@tirx.transform.prim_func_pass(opt_level=0)
def without_vectors_as_numbers(func: Any, _module: Any, _context: Any) -> Any:
    """The function with choices instead of conversions."""
    body = tvm_ffi.structural_map(func.body, (prim.Cast, as_choice))
    return with_body(func, body)
