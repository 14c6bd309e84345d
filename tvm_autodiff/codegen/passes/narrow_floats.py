"""Computes bfloat16 and float16 on CPUs in float32, and reads and writes bfloat16 by its bits.

TVM's legalisation of bfloat16 does not enter the values of variables, and treats the bits of a
variable as an integer. A cast of a branch between bfloat16 values crashes the process. LLVM rounds
each operation on float16 to it and makes float32 of it again, which takes three times as long.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from ...expr.nodes import Expr, Var, call_node, const_value, dtype_of, node_id, op_name, operands
from ..functions import with_body
from ..stages.primfunc import PrimFunc

_BINARY = (prim.Add, prim.Sub, prim.Mul, prim.Div, prim.Min, prim.Max)


def with_float32_inside(func: PrimFunc, dtype: str) -> PrimFunc:
    """``B[i] = exp(A[i])*A[i]`` → ``B[i] = narrow(exp(wide(A[i]))*wide(A[i]))``, for bfloat16 or
    float16.

    Local buffers of the function hold float32. Values are rounded where the function casts to the
    dtype, and where it stores to an array of it.
    """
    found: list[Any] = []
    visitors = [(kind, found.append) for kind in (ir.TensorLoad, prim.Cast, prim.FloatImm)]
    visitors.append((tirx.BufferStore, lambda node: found.append(node.value)))
    tvm_ffi.structural_walk(func.body, visitors)
    mapped = _Mapped(func, dtype)
    if not any(map(mapped.is_narrow, found)):
        return func
    body = tvm_ffi.structural_map(func.body, mapped.visitors)
    return with_body(func, body)


def wide(value: Expr) -> Expr:
    """``float32(value)``, of a bfloat16 by its bits."""
    lanes = _lanes(value)
    if not dtype_of(value).startswith("bfloat16"):
        return tirx.Cast("float32" + lanes, value)
    bits = tirx.Cast("int32" + lanes, call_node("reinterpret", [value], "uint16" + lanes))
    return call_node("reinterpret", [bits << _number(16, lanes)], "float32" + lanes)


def narrow(value: Expr, dtype: str) -> Expr:
    """``bfloat16(value)`` or ``float16(value)`` of a float32, rounded to nearest, ties to even.

    A NaN stays a NaN as a bfloat16 if its upper seven bits of significand are not all zero, as in
    NaNs that processors produce. Handling others would repeat the value twice more.
    """
    lanes = _lanes(value)
    if dtype != "bfloat16":
        return tirx.Cast(dtype + lanes, value)
    bits = call_node("reinterpret", [value], "int32" + lanes)
    odd = (bits >> _number(16, lanes)) & _number(1, lanes)
    rounded = (bits + (odd + _number(0x7FFF, lanes))) >> _number(16, lanes)
    half = tirx.Cast("uint16" + lanes, rounded & _number(0xFFFF, lanes))
    return call_node("reinterpret", [half], dtype + lanes)


class _Mapped:
    """Rewrites nodes whose parts have been rewritten."""

    def __init__(self, func: PrimFunc, dtype: str) -> None:
        self._dtype = dtype
        self._own: dict[int, Var] = {}  #: the float32 replacements of narrow nodes
        self._kept: list[Any] = []  #: keeps what is named by its id
        self._sources: dict[int, Expr] = {}  #: result → what it was made of
        buffers: list[Any] = []
        tvm_ffi.structural_walk(
            func.body,
            [
                (s_tir.SBlock, lambda node: buffers.extend(node.alloc_buffers)),
                (tirx.AllocBuffer, lambda node: buffers.append(node.buffer)),
            ],
        )
        for buffer in buffers:
            if buffer.ty.dtype == self._dtype:
                copied = tirx.decl_buffer(
                    buffer.shape, "float32", buffer.name, scope=buffer.scope()
                )
                self._take(buffer, copied)
        self.visitors = [
            (ir.Var, self._variable),
            (ir.TensorLoad, self._load),
            (tirx.BufferStore, self._store),
            (ir.Call, self._call),
            (prim.Cast, self._cast),
            (prim.FloatImm, self._literal),
            (prim.Select, self._select),
            (prim.Broadcast, lambda node: prim.Broadcast(node.value, node.lanes)),
            (prim.Shuffle, lambda node: prim.Shuffle(list(node.vectors), list(node.indices))),
            (prim.Let, lambda node: prim.Let(node.var, node.value, node.body)),
            *((kind, self._binary) for kind in _BINARY),
        ]

    def is_narrow(self, node: Any) -> bool:
        """Whether a node has the dtype."""
        return isinstance(node.ty, ir.PrimType) and dtype_of(node).startswith(self._dtype)

    def _take(self, old: Var, new: Var) -> None:
        self._own[node_id(old)] = new
        self._kept.append(old)

    def _made(self, result: Expr, source: Expr) -> Expr:
        self._sources[node_id(result)] = source
        self._kept.append(result)
        return result

    def _variable(self, var: Var) -> Var:
        if node_id(var) not in self._own and self.is_narrow(var):
            self._take(var, tirx.Var(var.name, "float32" + _lanes(var)))
        return self._own.get(node_id(var), var)

    def _load(self, node: Any) -> Expr:
        if not self.is_narrow(node):
            return node
        read = tirx.BufferLoad(node.source, list(node.indices))
        return self._made(wide(read), read) if self.is_narrow(read) else read

    def _store(self, node: Any) -> Any:
        if node.buffer.ty.dtype != self._dtype or self.is_narrow(node.value):
            return node
        value = self._sources.get(node_id(node.value), node.value)
        value = value if self.is_narrow(value) else narrow(value, self._dtype)
        return tirx.BufferStore(node.buffer, value, list(node.indices))

    def _cast(self, node: Any) -> Expr:
        if self.is_narrow(node):
            lanes = _lanes(node)
            value = node.value
            if dtype_of(value) != "float32" + lanes:
                value = tirx.Cast("float32" + lanes, value)
            return self._made(wide(narrow(value, self._dtype)), value)
        return node.value if dtype_of(node.value) == dtype_of(node) else node

    def _call(self, node: Any) -> Expr:
        if op_name(node) == "reinterpret":
            [value] = operands(node)
            if self.is_narrow(node):
                return wide(node)
            whole = dtype_of(node).startswith("uint16") and dtype_of(value).startswith("float32")
            if not whole:
                return node
            return call_node("reinterpret", [narrow(value, self._dtype)], dtype_of(node))
        if not self.is_narrow(node):
            return node
        args, types = list(node.args), list(node.ty_args) or None
        wider = ir.PrimType("float32" + _lanes(node))
        return ir.Call(node.op, args, node.attrs, types, ret_ty=wider)

    def _literal(self, node: Any) -> Expr:
        return tirx.const(const_value(node), "float32") if self.is_narrow(node) else node

    def _select(self, node: Any) -> Expr:
        return tirx.Select(*operands(node)) if self.is_narrow(node) else node

    def _binary(self, node: Any) -> Expr:
        return type(node)(node.a, node.b) if self.is_narrow(node) else node


def _lanes(node: Expr) -> str:
    """``x8`` for a vector of eight, nothing for a scalar."""
    _, sign, count = dtype_of(node).partition("x")
    return sign + count


def _number(value: int, lanes: str) -> Expr:
    number = tirx.const(value, "int32")
    return prim.Broadcast(number, int(lanes[1:])) if lanes else number
