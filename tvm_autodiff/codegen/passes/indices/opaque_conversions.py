"""Hides integers that become floats in the values of lets.

TVM bounds the values of lets. Where it multiplies or divides floats between two literals by a
number that it does not know, it creates an integer literal of their dtype, and rejects that: ``let
u = float(k)/b in u*u`` cannot be compiled for ``0 <= k < 16``. It does not bound bitwise operations
of integers, and LLVM and CUDA's compiler remove those with zero.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm.ir import prim

from ....expr.build import like
from ....expr.nodes import binary, is_float, is_integer, op_name
from ...functions import with_body


def hide_conversions(func: Any) -> Any:
    """``let u = float(k)/b in u*u → let u = float(k | 0)/b in u*u`` in a PrimFunc."""
    body = tvm_ffi.structural_map(func.body, (prim.Let, _with_hidden_integers))
    return with_body(func, body)


def _with_hidden_integers(node: Any) -> Any:
    if not is_float(node.value):
        return node
    value = tvm_ffi.structural_map(node.value, (prim.Cast, _hidden))
    return node if value.same_as(node.value) else prim.Let(node.var, value, node.body)


def _hidden(node: Any) -> Any:
    number = node.value
    if not is_float(node) or not is_integer(number) or op_name(number) == "bitwise_or":
        return node
    return prim.Cast(node.ty, binary("bitwise_or", number, like(number, 0)))
