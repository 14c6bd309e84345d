"""Hides remainders by powers of two from LLVM's vectors of loops.

LLVM takes ``x[(i + 15) & 15]`` of a loop over 16 elements for a run of memory from x[15] on: it
assumes that the remainder does not wrap and drops the check of that. It does not look through a
choice or a division by multiplication. The remainder of the variable of a loop that LLVM makes no
vectors of stays as it is: schedules split such loops there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from ....expr.build import cast, compare, const, mul, select, sub
from ....expr.integers.intervals import Interval, Intervals, is_index
from ....expr.nodes import Expr, Var, binary, const_value, dtype_of, node_id, op_name, operands
from ....expr.rewrite import contains, rewrite
from ...functions import with_body

#: turns of a loop that LLVM may unroll: by default a body of up to 300 instructions is unrolled
#: completely
_UNROLLED = 300
_VECTORS = tirx.ForKind.VECTORIZED
_SHIFT = 32  #: bits of the fraction that a division is multiplied by


def choose_remainders(func: Any, variable: Callable[[Var], Interval]) -> Any:
    """``x[a%16] → x[select(a < 16, a, a - 16)]`` for ``0 <= a < 32``, and for other powers of two.

    Remainders that wrap more than once become ``a - 16*(a*(2**32/16 + 1) >> 32)``, which is exact
    for ``0 <= a < 2**32/16``.

    Parameters
    ----------
    func : PrimFunc
    variable : callable
        The interval of a variable of the function.
    """
    bounds = Intervals(variable)
    plain = _plain_variables(func)

    def choice(node: Expr) -> Expr | None:
        if not _by_power_of_two(node):
            return None
        if op_name(operands(node)[0]) == "var" and node_id(operands(node)[0]) not in plain:
            return None
        numerator, divisor = operands(node)
        d = int(const_value(divisor) or 1)
        low, high = (end // d for end in bounds.of(numerator))
        dtype = dtype_of(numerator)
        if high - low == 1:
            first, second = (sub(numerator, const(turn * d, dtype)) for turn in (low, high))
            return select(compare("lt", numerator, const(high * d, dtype)), first, second)
        if not 1 < high - low < 2**_SHIFT // d**2:
            return None
        positive = sub(numerator, const(low * d, dtype))
        scaled = mul(cast("int64", positive), const(2**_SHIFT // d + 1, "int64"))
        turns = cast(dtype, binary("shift_right", scaled, const(_SHIFT, "int64")))
        return sub(positive, mul(turns, const(d, dtype)))

    def index(old: Expr) -> Expr:
        return rewrite(old, choice) if contains(old, _by_power_of_two) else old

    def read(node: Any) -> Any:
        old = list(node.indices)
        new = [index(one) for one in old]
        return node if _same(old, new) else tirx.BufferLoad(node.source, new)

    def write(node: Any) -> Any:
        old = list(node.indices)
        new = [index(one) for one in old]
        return node if _same(old, new) else tirx.BufferStore(node.buffer, node.value, new)

    body = tvm_ffi.structural_map(func.body, [(ir.TensorLoad, read), (tirx.BufferStore, write)])
    return with_body(func, body)


def _plain_variables(func: Any) -> set[int]:
    """The variables of loops of which LLVM may make vectors: no loop in them has vectors, or is
    too long to be unrolled.
    """
    loops: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tirx.For, loops.append))
    found: set[int] = set()
    for one in loops:
        inside: list[Any] = []
        tvm_ffi.structural_walk(one.body, (tirx.For, inside.append))
        if one.kind != _VECTORS and all(map(_is_unrolled, inside)):
            found.add(node_id(one.loop_var))
    return found


def _is_unrolled(loop: Any) -> bool:
    """Whether LLVM may unroll a loop completely."""
    extent = const_value(loop.extent)
    return loop.kind != _VECTORS and extent is not None and extent <= _UNROLLED


def _by_power_of_two(node: Expr) -> bool:
    if op_name(node) != "floormod" or not is_index(node) or "x" in dtype_of(node):
        return False
    d = const_value(operands(node)[1])
    return isinstance(d, int) and d > 1 and d & (d - 1) == 0


def _same(old: list[Expr], new: list[Expr]) -> bool:
    return all(node_id(a) == node_id(b) for a, b in zip(old, new, strict=True))
