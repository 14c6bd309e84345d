"""Reads vectors of elements that lie apart as whole vectors, from which a shuffle picks them.

TVM reads such a vector one element after the other: 16 loads and as many insertions, each of which
LLVM optimises, for what takes two loads and a shuffle.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

from ....expr.build import add, const
from ....expr.nodes import Expr, const_value, dtype_of
from ...functions import with_body
from ...vectors import contiguous, picked


def as_whole_vectors(read: Expr) -> Expr:
    """``x[i + 2*(0 .. 4)] → shuffle(x[i .. i + 4], x[i + 3 .. i + 7]; 0, 2, 5, 7)``.

    Nothing is read beyond the first and the last element. Elements that lie further apart than half
    the lanes take as many loads and shuffles as alone; these reads remain as they are.
    """
    *outer, last = read.indices
    if not isinstance(last, tirx.Ramp):
        return read
    stride, lanes = const_value(last.stride), const_value(last.lanes)
    if not isinstance(stride, int) or not isinstance(lanes, int):
        return read
    if stride == 1 or not 0 < 2 * abs(stride) <= lanes or dtype_of(read).startswith("bool"):
        return read
    distance = abs(stride) * (lanes - 1)
    first = last.base if stride > 0 else add(last.base, const(-distance, dtype_of(last.base)))
    starts = [*range(0, distance + 1 - lanes, lanes), distance + 1 - lanes]
    numbers = []
    for lane in range(lanes):
        place = stride * lane + (0 if stride > 0 else distance)
        vector = min(place // lanes, len(starts) - 1)
        numbers.append(vector * lanes + place - starts[vector])
    places = [add(first, const(start, dtype_of(first))) for start in starts]
    return picked([contiguous(read, [*outer, place], lanes) for place in places], numbers)


@tirx.transform.prim_func_pass(opt_level=0)
def without_strided_reads(func: Any, _module: Any, _context: Any) -> Any:
    """The function with shuffles of whole vectors."""
    body = tvm_ffi.structural_map(func.body, (ir.TensorLoad, as_whole_vectors))
    return with_body(func, body)
