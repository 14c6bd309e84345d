"""Writes absolute values of integers as maxima, which TVM simplifies in less time.

``te.abs(i - k)`` is a choice that holds its operand three times, and TVM simplifies each side of a
choice as if the condition held: conditions with nested distances took seconds to compile. LLVM has
one instruction for either.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm.ir import prim

from ...expr.build import absolute_of, neg
from ...expr.nodes import INDEX_DTYPES, binary, dtype_of
from ..functions import with_body


def with_maxima(func: Any) -> Any:
    """``select(i >= 0, i, 0 - i) → max(i, -i)`` for signed integers in a PrimFunc."""

    def maximum(node: Any) -> Any:
        inside = absolute_of(node) if dtype_of(node) in INDEX_DTYPES else None
        return node if inside is None else binary("max", inside, neg(inside))

    return with_body(func, tvm_ffi.structural_map(func.body, (prim.Select, maximum)))
