"""Writes bfloat16 infinities for CUDA as calls on their bits, because TVM emits ``-inff``, which is
not valid C.
"""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import prim

from ...expr.nodes import const_value, dtype_of
from ..functions import with_body
from ..stages.primfunc import PrimFunc

_FROM_BITS = "__ushort_as_bfloat16"  #: of cuda_bf16.h
_POSITIVE, _NEGATIVE, _NOT_A_NUMBER = 0x7F80, 0xFF80, 0x7FC0


def with_infinities_from_bits(func: PrimFunc) -> PrimFunc:
    """``bfloat16(-inf) → __ushort_as_bfloat16(0xff80)``, and similarly for NaN."""

    def literal(node: Any) -> Any:
        value = const_value(node)
        if dtype_of(node) != "bfloat16" or value is None or math.isfinite(value):
            return node
        bits = _POSITIVE if value > 0 else _NEGATIVE if value < 0 else _NOT_A_NUMBER
        return tirx.call_pure_extern("bfloat16", _FROM_BITS, tirx.const(bits, "uint16"))

    body = tvm_ffi.structural_map(func.body, (prim.FloatImm, literal))
    return with_body(func, body)
