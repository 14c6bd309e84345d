"""Ends loops where the elements end, in place of a condition on each element.

A loop in parts has such a condition if its extent is not a multiple of the number of parts. LLVM
keeps it in the loop, and computes elements one by one if the target has no masked stores.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from ...expr.build import all_of, conjuncts, const, sub
from ...expr.nodes import Expr, Var, binary, const_value, dtype_of, node_id, op_name, operands
from ...expr.rewrite import depends_on
from ..stages.primfunc import PrimFunc


def with_ended_loops(func: PrimFunc) -> PrimFunc:
    """``for j in 0 .. e: if i*e + j < n: f(i, j)  →  for j in 0 .. min(e, n - i*e): f(i, j)``."""

    def loop(node: Any) -> Any:
        inner: list[Var] = []
        body = node.body
        while isinstance(body, tirx.For):
            inner.append(body.loop_var)
            body = body.body
        if not isinstance(body, s_tir.SBlockRealize) or const_value(node.min) != 0:
            return node
        kept, extent = [], node.extent
        for condition in conjuncts(body.predicate):
            end = _end(condition, node.loop_var)
            if end is None or depends_on(end, inner):
                kept.append(condition)
            else:
                extent = binary("min", extent, binary("max", end, const(0, dtype_of(end))))
        if extent is node.extent:
            return node
        realize = s_tir.SBlockRealize(body.iter_values, all_of(kept), body.block)
        return _with_block(node, extent, realize)

    return tirx.PrimFunc(
        func.params, tvm_ffi.structural_map(func.body, (tirx.For, loop)), func.ret_type, func.attrs
    )


def _end(condition: Expr, var: Var) -> Expr | None:
    """``start + var < n  →  n - start``: where a condition ends a loop, None for any other."""
    if op_name(condition) != "lt":
        return None
    place, limit = operands(condition)
    if op_name(place) != "add" or node_id(operands(place)[1]) != node_id(var):
        return None
    start = operands(place)[0]
    return None if depends_on(start, [var]) or depends_on(limit, [var]) else sub(limit, start)


def _with_block(node: Any, extent: Expr, realize: Any) -> Any:
    """A loop of another extent, around another block behind the loops inside of it."""
    inner = node.body
    body = _with_block(inner, inner.extent, realize) if isinstance(inner, tirx.For) else realize
    return tirx.For(
        node.loop_var, node.min, extent, node.kind, body, node.thread_binding, node.annotations
    )
