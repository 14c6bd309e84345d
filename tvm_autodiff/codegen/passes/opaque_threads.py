"""Binds the outermost parallel loops of a te.extern to the threads of a GPU.

Statements beside or outside these loops run on one thread, in order. A body that calls host
functions is rejected, and bodies that bind their loops themselves are unchanged.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx

from ...expr.build import add, compare, const, mul, variable
from ...expr.dtypes import itemsize
from ...expr.nodes import const_value, dtype_of, node_id

_BLOCK = 256
_HOST_CALLS = ("call_extern", "call_pure_extern", "packed", "cpacked", "tvm_call")


def bind_parallel(func: Any) -> Any | None:
    """The function with parallel loops as thread loops, or None if its body calls the host.

    ``for i in parallel(n): f(i)  →  for b, t in threads(blocks, 256): if b*256 + t < n: f(b*256 +
    t)``
    """
    if _calls_host(func.body):
        return None
    return tirx.PrimFunc(func.params, _inside_block(func.body), func.ret_type, func.attrs)


def allocated_bytes(func: Any) -> int:
    """The bytes of the buffers that a function allocates, each once."""
    total = 0

    def add_bytes(allocated: Any) -> None:
        nonlocal total
        kind = allocated.buffer.ty
        total += itemsize(str(kind.dtype)) * prod(int(const_value(n) or 0) for n in kind.shape)

    tvm_ffi.structural_walk(func.body, (tirx.AllocBuffer, add_bytes))
    return int(total)


def _calls_host(body: Any) -> bool:
    found = False

    def visit(call: Any) -> None:
        nonlocal found
        name = str(getattr(call.op, "name", ""))
        found |= any(part in name for part in _HOST_CALLS)

    tvm_ffi.structural_walk(body, (ir.Call, visit))
    return found


def _inside_block(stmt: Any) -> Any:
    if not isinstance(stmt, s_tir.SBlockRealize):
        return _bound(stmt)
    block = stmt.block
    inner = s_tir.SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        _inside_block(block.body),
        block.init,
        block.alloc_buffers,
        block.match_buffers,
        {},
    )
    return s_tir.SBlockRealize(stmt.iter_values, stmt.predicate, inner)


def _bound(stmt: Any) -> Any:
    if isinstance(stmt, tirx.SeqStmt) and all(isinstance(part, tirx.For) for part in stmt.seq):
        return tirx.SeqStmt([_bound(part) for part in stmt.seq])
    if not isinstance(stmt, tirx.For) or stmt.kind != tirx.ForKind.PARALLEL:
        return _one_thread(_serial(stmt))
    dtype = dtype_of(stmt.loop_var)
    extent = const_value(stmt.extent)
    blocks = (
        tirx.max(const(1, dtype), (stmt.extent + (_BLOCK - 1)) // _BLOCK)
        if extent is None
        else const(max(1, -(-int(extent) // _BLOCK)), dtype)
    )
    block, thread = variable("block", dtype), variable("thread", dtype)
    place = add(mul(block, const(_BLOCK, dtype)), thread)
    index = add(place, stmt.min)
    body = tvm_ffi.structural_map(
        _serial(stmt.body), (tirx.Var, lambda var: index if var.same_as(stmt.loop_var) else var)
    )
    guarded = tirx.IfThenElse(compare("lt", place, stmt.extent), body, None)
    loop = _thread_loop(thread, const(_BLOCK, dtype), "threadIdx.x", guarded)
    return _thread_loop(block, blocks, "blockIdx.x", loop)


def _one_thread(stmt: Any) -> Any:
    for tag in ("threadIdx.x", "blockIdx.x"):
        stmt = _thread_loop(variable("one"), const(1, "int32"), tag, stmt)
    return stmt


def _thread_loop(var: Any, extent: Any, tag: str, body: Any) -> Any:
    binding = tirx.IterVar(None, tirx.Var("", dtype_of(var)), tirx.IterVar.ThreadIndex, tag)
    kind = tirx.ForKind.THREAD_BINDING
    return tirx.For(var, const(0, dtype_of(var)), extent, kind, body, binding)


def _serial(stmt: Any) -> Any:
    """The statement as one thread runs it: parallel loops become plain ones, and buffers local
    ones.
    """
    own: dict[int, Any] = {}

    def renew(allocated: Any) -> None:
        buffer = allocated.buffer
        own[node_id(buffer)] = tirx.decl_buffer(
            buffer.ty.shape, buffer.ty.dtype, buffer.name, scope="local"
        )

    def plain(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.PARALLEL:
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    tvm_ffi.structural_walk(stmt, (tirx.AllocBuffer, renew))
    if own:
        stmt = tvm_ffi.structural_map(stmt, (tirx.Var, lambda var: own.get(node_id(var), var)))
    return tvm_ffi.structural_map(stmt, (tirx.For, plain))
