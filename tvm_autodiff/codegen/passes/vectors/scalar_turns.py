"""Makes plain loops of vectorised ones whose statements TVM would take apart.

TVM writes a statement as a loop of its own if it calls, for each lane, a function that has no
vectors. A variable that such a statement binds is unknown to the statements that follow.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from ....expr.nodes import Expr, Var, node_id, op_name, operands
from ...functions import with_body
from ...loop_nest import SERIAL, VECTORIZED
from ...stages.primfunc import PrimFunc

_CHOICE = "if_then_else"  #: a branch, unless all lanes take the same side


@tirx.transform.prim_func_pass(opt_level=0)
def with_scalar_turns(func: PrimFunc, _module: Any, _context: Any) -> PrimFunc:
    """``for l in vectorised(4): v = atan(x[l]); y[l] = v  →  for l in 0 .. 3: v = atan(x[l]); y[l]
    = v``.
    """

    def loop(node: Any) -> Any:
        if node.kind != VECTORIZED or not _binds(node.body):
            return node
        if not _takes_turns(node):
            return node
        return tirx.For(node.loop_var, node.min, node.extent, SERIAL, node.body)

    body = tvm_ffi.structural_map(func.body, (tirx.For, loop))
    return with_body(func, body)


def _binds(body: Any) -> bool:
    found: list[Any] = []
    tvm_ffi.structural_walk(body, (tirx.Bind, found.append))
    return bool(found)


def _takes_turns(loop: Any) -> bool:
    """Whether something in a loop is computed for one lane after the other."""
    lanes: list[Var] = [loop.loop_var]  # what differs from lane to lane, at most
    tvm_ffi.structural_walk(
        loop.body,
        ((tirx.Bind, prim.Let), lambda node: lanes.append(node.var)),
    )
    keys = {node_id(var) for var in lanes}
    calls: list[Any] = []
    tvm_ffi.structural_walk(loop.body, (ir.Call, calls.append))
    return any(_differs(_deciding(call), keys) for call in calls)


def _deciding(call: Any) -> list[Expr]:
    """The operands of a call that have to be the same in all lanes."""
    if op_name(call) == _CHOICE:
        return list(operands(call)[:1])
    if op_name(call) == "reinterpret":
        return []
    vectorises = isinstance(call.op, ir.Op) and call.op.get_attr("TVectorizable")
    return [] if vectorises else list(operands(call))


def _differs(exprs: list[Expr], keys: set[int]) -> bool:
    """Whether an expression may differ from lane to lane."""
    used: list[Var] = []
    for expr in exprs:
        tvm_ffi.structural_walk(expr, (tirx.Var, used.append))
    return any(node_id(var) in keys for var in used)
