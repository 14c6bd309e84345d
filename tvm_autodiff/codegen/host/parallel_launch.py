"""Exchanges the function that divides the loops of a program among threads.

Kernels call it by a pointer that TVM's runtime sets when it loads a module. Programs inside a
framework with its own threads get another function.
"""

from __future__ import annotations

#: ``tvm_autodiff_exchange(args, result)``: the second argument of a call becomes the pointer, and
#: the result is the previous one
CODE = """
@__TVMBackendParallelLaunch = linkonce global ptr null

define i32 @tvm_autodiff_exchange(ptr %args, ptr %result) {
  %place = getelementptr i8, ptr %args, i64 24
  %new = load i64, ptr %place
  %pointer = inttoptr i64 %new to ptr
  %old = load ptr, ptr @__TVMBackendParallelLaunch
  store ptr %pointer, ptr @__TVMBackendParallelLaunch
  %number = ptrtoint ptr %old to i64
  store i64 1, ptr %result
  %value = getelementptr i8, ptr %result, i64 8
  store i64 %number, ptr %value
  ret i32 0
}
"""
