"""Divides loops among the threads of PyTorch's OpenMP runtime.

After an operation, OpenMP's threads wait actively for milliseconds, so a second pool would compete
for the cores. `torch.set_num_threads` sets the number of threads for kernels as well.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch

from ...codegen.host.native_code import native_functions

_NAMES = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")

# offsets in bytes of a job: function 0, data 8, failed 16
_TEXT = """
define i32 @tvm_autodiff_launch(ptr %function, ptr %data, i32 %wanted) {{
  %job = alloca [3 x i64]
  store ptr %function, ptr %job
  %data_place = getelementptr i8, ptr %job, i64 8
  store ptr %data, ptr %data_place
  %failed_place = getelementptr i8, ptr %job, i64 16
  store i64 0, ptr %failed_place
  %parallel = inttoptr i64 {GOMP_parallel} to ptr
  call void %parallel(ptr @tvm_autodiff_part, ptr %job, i32 0, i32 0)
  %failed = load atomic i32, ptr %failed_place acquire, align 4
  ret i32 %failed
}}

define internal void @tvm_autodiff_part(ptr %job) {{
  %function = load ptr, ptr %job
  %data_place = getelementptr i8, ptr %job, i64 8
  %data = load ptr, ptr %data_place
  %ask_number = inttoptr i64 {omp_get_thread_num} to ptr
  %ask_count = inttoptr i64 {omp_get_num_threads} to ptr
  %number = call i32 %ask_number()
  %count = call i32 %ask_count()
  %group = alloca [2 x i64]
  store i64 0, ptr %group
  %count_place = getelementptr i8, ptr %group, i64 8
  store i32 %count, ptr %count_place
  %code = call i32 %function(i32 %number, ptr %group, ptr %data)
  %is_fine = icmp eq i32 %code, 0
  br i1 %is_fine, label %end, label %failed

failed:
  %failed_place = getelementptr i8, ptr %job, i64 16
  store atomic i32 %code, ptr %failed_place release, align 4
  br label %end

end:
  ret void
}}
"""


@functools.cache
def launch() -> tuple[int, Any] | None:
    """The address of the function that divides a loop, and the object that owns its code.

    None for runtimes other than GNU's.
    """
    library = Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"
    if not library.exists():
        return None
    found = ctypes.CDLL(str(library))
    if not all(hasattr(found, name) for name in _NAMES):
        return None
    addresses = {
        name: ctypes.cast(getattr(found, name), ctypes.c_void_p).value for name in _NAMES
    }
    [address], code = native_functions(["tvm_autodiff_launch"], _TEXT.format(**addresses))
    return address, code
