"""Handlers of XLA's foreign function interface: machine code that calls a compiled program.

XLA passes addresses and calls on its own threads, without Python. A handler needs no interpreter,
and divides the loops of the program among the threads of XLA's pool, because a second pool would
compete for the cores. Layouts are those of ``xla/ffi/api/c_api.h``, version 0, and of TVM's FFI.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from ...codegen.host.native_code import native_functions
from ...runtime.calls.native_call import NativeCall
from .xla_threads import LAUNCH


def handler_of(call: NativeCall, name: str) -> tuple[int, Any]:
    """The address of a handler, and the object that owns its machine code.

    Parameters
    ----------
    call : NativeCall
        The program. Its arrays are operands followed by results; an additional result is its
        workspace, if it has one.
    name : str
        A name for error messages.
    """
    message = f"{name}: a kernel failed".encode() + b"\0"
    text = (_TEXT + LAUNCH).format(
        arrays=len(call.dtypes),
        arguments=len(call.dtypes) + 3,
        dtypes=_list("i32", call.dtypes),
        words=len(call.table),
        table=_list("i64", call.table.tolist()),
        table_bytes=8 * len(call.table),
        args_bytes=16 * (len(call.dtypes) + 3),
        tensors_bytes=48 * (len(call.dtypes) + 3),
        workspace=call.workspace,
        threads=call.threads,
        main=call.main.__chandle__(),
        outside=call.exchange(0),
        key=_frame_key(),
        length=len(message),
        message="".join(f"\\{byte:02X}" for byte in message),
    )
    names = ["tvm_autodiff_handler", "tvm_autodiff_launch"]
    (handler, launch), code = native_functions(names, text)
    call.exchange(launch)
    return handler, (call, code)


def _list(kind: str, values: Sequence[int]) -> str:
    return f"[{len(values)} x {kind}] [{', '.join(f'{kind} {value}' for value in values)}]"


@functools.cache
def _frame_key() -> int:
    """The key under which a thread finds its current call."""
    key = ctypes.c_uint64()
    failed = ctypes.CDLL(None).pthread_key_create(ctypes.byref(key), None)
    if failed:
        raise OSError(failed, "pthread_key_create failed")
    return key.value


# offsets in bytes. A frame: extension 8, interface 16, context 24, operands 56 and 72, results 104
# and 112. An array: address 24, rank 32, shape 40. The interface: version 32 and 36, making of
# errors 48.
_TEXT = """
@dtypes = private constant {dtypes}
@table = private constant {table}
@message = private constant [{length} x i8] c"{message}"

declare i32 @pthread_setspecific(i64, ptr)
declare i32 @TVMFFIFunctionCall(ptr, ptr, i32, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal void @set(ptr %object, i64 %offset, i64 %value) {{
  %place = getelementptr i8, ptr %object, i64 %offset
  store i64 %value, ptr %place
  ret void
}}

define internal void @link(ptr %object, i64 %offset, ptr %value) {{
  %place = getelementptr i8, ptr %object, i64 %offset
  store ptr %value, ptr %place
  ret void
}}

define internal i64 @number(ptr %object, i64 %offset) {{
  %place = getelementptr i8, ptr %object, i64 %offset
  %value = load i64, ptr %place
  ret i64 %value
}}

define internal ptr @pointer(ptr %object, i64 %offset) {{
  %place = getelementptr i8, ptr %object, i64 %offset
  %value = load ptr, ptr %place
  ret ptr %value
}}

define ptr @tvm_autodiff_handler(ptr %frame) {{
  %extension = call ptr @pointer(ptr %frame, i64 8)
  %is_plain = icmp eq ptr %extension, null
  br i1 %is_plain, label %run, label %extended

extended:
  %kind = call i64 @number(ptr %extension, i64 8)
  %low = trunc i64 %kind to i32
  %is_asked = icmp eq i32 %low, 1
  br i1 %is_asked, label %describe, label %run

describe:  ; the version is the caller's own, of which nothing newer is used
  %described = call ptr @pointer(ptr %extension, i64 24)
  %api = call ptr @pointer(ptr %frame, i64 16)
  %version = call i64 @number(ptr %api, i64 32)
  call void @set(ptr %described, i64 24, i64 %version)
  %traits = getelementptr i8, ptr %described, i64 32
  store i32 0, ptr %traits
  ret ptr null

run:
  %error = call ptr @run(ptr %frame)
  ret ptr %error
}}

define internal ptr @run(ptr %frame) {{
begin:
  %table = alloca [{words} x i64], align 16
  %args = alloca [{arguments} x [2 x i64]], align 16
  %tensors = alloca [{arguments} x [6 x i64]], align 16
  %sizes = alloca [2 x i64]
  %result = alloca [2 x i64]
  call void @llvm.memcpy.p0.p0.i64(ptr %table, ptr @table, i64 {table_bytes}, i1 false)
  call void @llvm.memset.p0.i64(ptr %args, i8 0, i64 {args_bytes}, i1 false)
  call void @llvm.memset.p0.i64(ptr %tensors, i8 0, i64 {tensors_bytes}, i1 false)
  call void @llvm.memset.p0.i64(ptr %result, i8 0, i64 16, i1 false)
  %operands = call i64 @number(ptr %frame, i64 56)
  %first = call ptr @pointer(ptr %frame, i64 72)
  %second = call ptr @pointer(ptr %frame, i64 112)
  br label %arrays

arrays:
  %i = phi i64 [ 0, %begin ], [ %i_next, %array ]
  %more = icmp ult i64 %i, {arrays}
  br i1 %more, label %array, label %in_front

array:
  %is_operand = icmp ult i64 %i, %operands
  %behind = sub i64 %i, %operands
  %place = select i1 %is_operand, i64 %i, i64 %behind
  %list = select i1 %is_operand, ptr %first, ptr %second
  %bytes = mul i64 %place, 8
  %buffer = call ptr @pointer(ptr %list, i64 %bytes)
  %memory = call ptr @pointer(ptr %buffer, i64 24)
  %rank = call i64 @number(ptr %buffer, i64 32)
  %shape = call ptr @pointer(ptr %buffer, i64 40)
  %dtype_place = getelementptr i32, ptr @dtypes, i64 %i
  %dtype = load i32, ptr %dtype_place
  %slot = add i64 %i, 3
  call void @put(ptr %args, ptr %tensors, i64 %slot, ptr %memory, i64 %rank, i32 %dtype, ptr %shape)
  %i_next = add i64 %i, 1
  br label %arrays

in_front:
  call void @set(ptr %args, i64 0, i64 1)
  call void @set(ptr %args, i64 8, i64 -1)
  call void @set(ptr %sizes, i64 0, i64 {words})
  call void @set(ptr %sizes, i64 8, i64 {workspace})
  call void @put(ptr %args, ptr %tensors, i64 1, ptr %table, i64 1, i32 81920, ptr %sizes)
  %space_shape = getelementptr i64, ptr %sizes, i64 1
  %has_space = icmp ne i64 {workspace}, 0
  br i1 %has_space, label %with_space, label %call

with_space:
  %results = sub i64 {arrays}, %operands
  %space_place = mul i64 %results, 8
  %space_buffer = call ptr @pointer(ptr %second, i64 %space_place)
  %given_space = call ptr @pointer(ptr %space_buffer, i64 24)
  br label %call

call:
  %space = phi ptr [ null, %in_front ], [ %given_space, %with_space ]
  call void @put(ptr %args, ptr %tensors, i64 2, ptr %space, i64 1, i32 67585, ptr %space_shape)
  %entered = call i32 @pthread_setspecific(i64 {key}, ptr %frame)
  %main = inttoptr i64 {main} to ptr
  %code = call i32 @TVMFFIFunctionCall(ptr %main, ptr %args, i32 {arguments}, ptr %result)
  %left = call i32 @pthread_setspecific(i64 {key}, ptr null)
  %status = call i64 @number(ptr %result, i64 8)
  %wide = zext i32 %code to i64
  %wrong = or i64 %wide, %status
  %is_fine = icmp eq i64 %wrong, 0
  br i1 %is_fine, label %fine, label %failed

fine:
  ret ptr null

failed:
  %described = alloca [4 x i64]
  call void @set(ptr %described, i64 0, i64 28)
  call void @set(ptr %described, i64 8, i64 0)
  call void @link(ptr %described, i64 16, ptr @message)
  call void @set(ptr %described, i64 24, i64 13)
  %api = call ptr @pointer(ptr %frame, i64 16)
  %make = call ptr @pointer(ptr %api, i64 48)
  %error = call ptr %make(ptr %described)
  ret ptr %error
}}

; an argument that is an array on a CPU
define internal void @put(
    ptr %args, ptr %tensors, i64 %slot, ptr %memory, i64 %rank, i32 %dtype, ptr %shape) {{
  %tensor = getelementptr [6 x i64], ptr %tensors, i64 %slot
  %wide_dtype = zext i32 %dtype to i64
  %high = shl i64 %wide_dtype, 32
  %kind = or i64 %high, %rank
  call void @link(ptr %tensor, i64 0, ptr %memory)
  call void @set(ptr %tensor, i64 8, i64 1)
  call void @set(ptr %tensor, i64 16, i64 %kind)
  call void @link(ptr %tensor, i64 24, ptr %shape)
  %arg = getelementptr [2 x i64], ptr %args, i64 %slot
  call void @set(ptr %arg, i64 0, i64 7)
  call void @link(ptr %arg, i64 8, ptr %tensor)
  ret void
}}
"""
