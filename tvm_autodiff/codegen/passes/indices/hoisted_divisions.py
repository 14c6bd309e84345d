"""Computes divisions by sizes outside of loops that they do not depend on.

``if c then x[i % n]`` in a loop over j has a division under a condition, which LLVM does not move
itself: `n` may be zero. Its vectoriser then takes the remainder of the first lane for all, also
where the condition holds in other lanes only, and reads anywhere.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import prim

from ....expr.build import compare, const, select, variable
from ....expr.integers.intervals import is_index
from ....expr.nodes import (
    INTEGER_DIVISIONS,
    Expr,
    Var,
    binary,
    const_value,
    dtype_of,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import postorder
from ....expr.structural import StructuralKeys
from ...loop_nest import PARALLEL, Statement, bind, sequence

_DIVISIONS = (prim.FloorDiv, prim.FloorMod, prim.Div, prim.Mod)

#: of numbers that are known before a loop, the divisors made here among them
_ARITHMETIC = (
    *INTEGER_DIVISIONS, "add", "cast", "const", "eq", "max", "min", "mul", "reinterpret", "select",
    "sub", "var",
)  # fmt: skip


@tirx.transform.prim_func_pass(opt_level=0)
def with_hoisted_divisions(func: Any, _module: Any, _context: Any) -> Any:
    """``for j: if c: x[i % n] → r = i % select(n == 0, 1, n); for j: if c: x[r]``."""
    found: list[Expr] = []
    tvm_ffi.structural_walk(func.body, [(kind, found.append) for kind in _DIVISIONS])
    if all(map(_is_simple, found)):
        return func
    body = tvm_ffi.structural_map(func.body, (tirx.For, _hoisted))
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _is_simple(division: Expr) -> bool:
    """Whether LLVM may compute it anywhere, or it is no index."""
    return const_value(operands(division)[1]) is not None or not is_index(division)


def _hoisted(node: Any) -> Statement:
    if node.kind == PARALLEL:
        return node
    inside: set[int] = {node_id(node.loop_var)}
    binding = [(tirx.For, lambda one: inside.add(node_id(one.loop_var)))]
    binding += [(kind, lambda one: inside.add(node_id(one.var))) for kind in (tirx.Bind, prim.Let)]
    tvm_ffi.structural_walk(node.body, binding)
    keys = StructuralKeys()
    found: dict[object, Var] = {}
    before: list[Statement] = []

    def divided(division: Expr) -> Expr:
        dividend, divisor = operands(division)
        if _is_simple(division):
            return division
        parts = postorder([division])
        if any(op_name(part) not in _ARITHMETIC or node_id(part) in inside for part in parts):
            return division
        key = keys.expr(division)
        if key not in found:
            zero, one = (const(number, dtype_of(divisor)) for number in (0, 1))
            safe = select(compare("eq", divisor, zero), one, divisor)
            found[key] = variable("quotient", dtype_of(division))
            before.append(bind(found[key], binary(op_name(division), dividend, safe)))
        return found[key]

    body = tvm_ffi.structural_map(node.body, [(kind, divided) for kind in _DIVISIONS])
    if not before:
        return node
    loop = tirx.For(
        node.loop_var, node.min, node.extent, node.kind, body, node.thread_binding,
        node.annotations, node.step,
    )  # fmt: skip
    return sequence([*before, loop])
