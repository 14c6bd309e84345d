"""Addresses of arrays in functions that call others: offsets, a choice of two, copies.

TVM's own expressions cannot choose between two addresses. `with_pointers` completes functions that
use these expressions.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from ...expr.build import cast, const
from ...expr.nodes import Expr, Var, const_value
from ..functions import with_llvm_code
from ..loop_nest import Buffer, Statement, bind, loop, sequence, store
from ..stages.primfunc import PrimFunc

Pointer = Any  #: an expression of the type of an address

_EITHER = "tvm_autodiff_either"
_CODE = f"""
define linkonce_odr ptr @{_EITHER}(i32 %first, ptr %a, ptr %b) alwaysinline {{
  %is_first = icmp ne i32 %first, 0
  %pointer = select i1 %is_first, ptr %a, ptr %b
  ret ptr %pointer
}}
"""


def address_of(buffer: Buffer) -> Pointer:
    """The address of the elements of a buffer of any dtype."""
    return tirx.handle_add_byte_offset(buffer.data, const(0, "int64"))


def pointer(name: str) -> Var:
    """A variable for an address."""
    return tirx.Var(name, ir.PointerType(ir.PrimType("void")))


def moved(start: Pointer, offset: Expr | int) -> Pointer:
    """The address at an offset in bytes."""
    if const_value(offset) == 0 or offset == 0:
        return start
    wide = const(offset, "int64") if isinstance(offset, int) else cast("int64", offset)
    return tirx.handle_add_byte_offset(start, wide)


def either(condition: Expr, first: Pointer, second: Pointer) -> Pointer:
    """``condition ? first : second``."""
    value = const_value(condition)
    if value is not None:
        return first if value else second
    return tirx.call_extern("handle", _EITHER, cast("int32", condition), first, second)


def copied(target: Pointer, source: Pointer, size: Expr | int) -> Statement:
    """Copy bytes from one address to another."""
    count = const(size, "int64") if isinstance(size, int) else cast("int64", size)
    views, statements = [], []
    for name, start in (("target", target), ("source", source)):
        # TVM's passes do not look for shared parts in the address of a buffer
        var = pointer(name)
        views.append(tirx.decl_buffer([count], "uint8", name, data_alignment=1))
        statements += [bind(var, start), tirx.DeclBuffer(views[-1], data=var)]
    place = tirx.Var("byte", "int64")
    body = store(views[0], tirx.BufferLoad(views[1], [place]), [place])
    return sequence([*statements, loop(place, count, body)])


def with_pointers(func: PrimFunc) -> PrimFunc:
    """A function that uses these expressions, with the code that it needs."""
    return with_llvm_code(func, _CODE)
