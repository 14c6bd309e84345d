"""Who divides the loops of a program among threads: TVM's runtime, or what a caller puts there.

Kernels call a function by a pointer that TVM's runtime sets when it loads a module. Here it is
exchanged, for programs inside of a framework that has threads of its own.
"""

from __future__ import annotations

#: ``tvm_autodiff_exchange(args, result)``: the second argument of a call becomes the pointer, and
#: its result is the one before
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
