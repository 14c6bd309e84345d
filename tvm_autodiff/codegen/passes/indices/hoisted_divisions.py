"""Computes divisions by sizes outside of loops that they do not depend on, and none by zero.

``if c then x[i % n]`` in a loop over j has a division under a condition, which LLVM does not move
itself: `n` may be zero. Its vectoriser then takes the remainder of the first lane for all, also
where the condition holds in other lanes only, and reads anywhere.

A CPU stops a program that divides an integer by zero. TVM evaluates both sides of an ``and``, and
steps before this one move divisions out of loops that may be empty, so that no divisor is trusted.
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
    is_integer,
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
    if not any(map(_has_divisor, found)):
        return func
    body = tvm_ffi.structural_map(func.body, [(kind, _safe) for kind in _DIVISIONS])
    body = tvm_ffi.structural_map(body, (tirx.For, _hoisted))
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _has_divisor(division: Expr) -> bool:
    """Whether it divides integers by what is no literal."""
    return is_integer(division) and const_value(operands(division)[1]) is None


def _safe(division: Expr) -> Expr:
    """``i % n → i % select(n == 0, 1, n)``."""
    if not _has_divisor(division):
        return division
    dividend, divisor = operands(division)
    zero, one = (const(number, dtype_of(divisor)) for number in (0, 1))
    safe = select(compare("eq", divisor, zero), one, divisor)
    return binary(op_name(division), dividend, safe)


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
        if not (_has_divisor(division) and is_index(division)):
            return division
        parts = postorder([division])
        if any(op_name(part) not in _ARITHMETIC or node_id(part) in inside for part in parts):
            return division
        key = keys.expr(division)
        if key not in found:
            found[key] = variable("quotient", dtype_of(division))
            before.append(bind(found[key], division))
        return found[key]

    body = tvm_ffi.structural_map(node.body, [(kind, divided) for kind in _DIVISIONS])
    if not before:
        return node
    loop = tirx.For(
        node.loop_var, node.min, node.extent, node.kind, body, node.thread_binding,
        node.annotations, node.step,
    )  # fmt: skip
    return sequence([*before, loop])
