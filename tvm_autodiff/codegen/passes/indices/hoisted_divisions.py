"""Computes divisions by sizes outside of loops that they do not depend on, and none by zero.

``if c then x[i % n]`` in a loop over j has a division under a condition, which LLVM does not move
itself: `n` may be zero. Its vectoriser then takes the remainder of the first lane for all, also
where the condition holds in other lanes only, and reads anywhere.

A CPU stops a program that divides an integer by zero. TVM evaluates both sides of an ``and``, and
steps before this one move divisions out of loops that may be empty, so that no divisor is trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import prim

from ....expr.build import add, compare, const, select, sub, variable
from ....expr.integers.intervals import is_index
from ....expr.nodes import (
    INTEGER_DIVISIONS,
    Expr,
    binary,
    const_value,
    dtype_of,
    is_integer,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import postorder, substituter
from ....expr.structural import StructuralKeys
from ...functions import with_body
from ...loop_nest import (
    PARALLEL,
    SERIAL,
    Local,
    Statement,
    allocated,
    bind,
    element,
    local,
    nested,
    sequence,
    store,
)

#: turns of loops, all in all, that LLVM may unroll: by default a body of up to 300 instructions is
#: unrolled completely, and a turn that divides by a size has at least five
_SHORT = 64

_BINDINGS = (tirx.Bind, prim.Let)
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
    return with_body(func, body)


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
    """A loop after the divisions in it that do not depend on it.

    Those that depend on short loops inside of it, which LLVM may unroll, are made for all of their
    turns: ``for i: for t < 5: if c: x[t % n] → for t < 5: r[t] = t % n; for i: ...x[r[t]]``.
    """
    if node.kind == PARALLEL:
        return node
    inside = _Inside(node)
    keys = StructuralKeys()
    found: dict[object, Expr] = {}
    buffers: list[Local] = []
    before: list[Statement] = []

    def divided(division: Expr) -> Expr:
        if not (_has_divisor(division) and is_index(division)):
            return division
        loops = inside.short_loops(division)
        if loops is None:
            return division
        key = keys.expr(division)
        if key not in found and not loops:
            quotient = variable("quotient", dtype_of(division))
            found[key] = quotient
            before.append(bind(quotient, division))
        elif key not in found:
            table = local("quotients", [_extent(one) for one in loops], dtype_of(division))
            buffers.append(table)
            before.append(_filled(table, division, loops))
            found[key] = element(table, [sub(one.loop_var, one.min) for one in loops])
        return found[key]

    body = tvm_ffi.structural_map(node.body, [(kind, divided) for kind in _DIVISIONS])
    if not before:
        return node
    loop = tirx.For(
        node.loop_var, node.min, node.extent, node.kind, body, node.thread_binding,
        node.annotations, node.step,
    )  # fmt: skip
    return allocated(buffers, sequence([*before, loop]))


class _Inside:
    """What is bound in a loop: its own variable, those of short loops in it, and others."""

    def __init__(self, node: Any) -> None:
        self._others: set[int] = {node_id(node.loop_var)}
        self._short: dict[int, Any] = {}
        binding = [(tirx.For, self._loop)]
        binding += [(kind, lambda one: self._others.add(node_id(one.var))) for kind in _BINDINGS]
        tvm_ffi.structural_walk(node.body, binding)

    def _loop(self, one: Any) -> None:
        if one.kind == SERIAL and const_value(one.min) is not None and 0 < _extent(one) <= _SHORT:
            self._short[node_id(one.loop_var)] = one
        else:
            self._others.add(node_id(one.loop_var))

    def short_loops(self, division: Expr) -> list[Any] | None:
        """The short loops on which a division depends, or None if it depends on more."""
        parts = postorder([division])
        if any(op_name(part) not in _ARITHMETIC or node_id(part) in self._others for part in parts):
            return None
        loops = [self._short[node_id(part)] for part in parts if node_id(part) in self._short]
        return loops if prod(map(_extent, loops)) <= _SHORT else None


def _extent(one: Any) -> int:
    """The extent of a loop; 0 if it is no literal."""
    return int(const_value(one.extent) or 0)


def _filled(table: Local, division: Expr, loops: Sequence[Any]) -> Statement:
    """``table[t - low] = division`` for all turns of some loops."""
    places = [variable(one.loop_var.name, dtype_of(one.loop_var)) for one in loops]
    values = [add(place, one.min) for place, one in zip(places, loops, strict=True)]
    rename = substituter({one.loop_var: value for one, value in zip(loops, values, strict=True)})
    pairs = [(place, _extent(one)) for place, one in zip(places, loops, strict=True)]
    return nested(pairs, store(table, rename(division), places))
