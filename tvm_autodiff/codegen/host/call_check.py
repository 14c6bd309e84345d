"""Checks the arrays of a call in compiled code: a loop over a table, in LLVM IR.

One function checks every array and stores its address in the table; others return what it found.
TVM's own checks generate code for each array, which took LLVM minutes for several hundred arrays.
The check is the same for all programs. It is compiled once in a process, and programs call it by
its address in the table: with a copy in each, half of the time of a small build went into it.

A table is a list of 64-bit words and serves one call at a time: the numbers of arrays, of those
with memory and of those with memory that are written; the address of the check; six words for each
array (dtype, rank, bytes, position of its shape, mask of its alignment, position among the spans,
in which written arrays come first and arrays without memory last); the addresses; the starts of the
spans; their ends; the shapes. What else a program reads, such as the values of its symbolic sizes,
follows.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from math import prod
from typing import Any

import numpy as np
import tvm_ffi

from .native_code import native_functions

#: the results of the check
FITS, MISMATCH, OVERLAP = 0, 1, 2

_HEAD, _SPEC = 4, 6  #: words
ADDRESS = 3  #: the word with the address of the check


def address_word(count: int, number: int) -> int:
    """The position of an array's address in the table of `count` arrays."""
    return _HEAD + _SPEC * count + number


def further_words(ranks: Sequence[int]) -> int:
    """The position of what follows the table of arrays of some ranks."""
    return _HEAD + (_SPEC + 3) * len(ranks) + sum(ranks)


def call_table(
    arrays: Sequence[tuple[str, Sequence[int]]],
    written: Collection[int],
    further: Sequence[int] = (),
) -> np.ndarray:
    """The table of a program.

    Parameters
    ----------
    arrays
        The dtype and shape of each array.
    written
        The numbers of written arrays, whose memory no other array may share.
    further
        What the program reads in addition.

    Examples
    --------
    >>> table = call_table([("float32", (2, 3)), ("int8", ())], {1})
    >>> table[:3].tolist(), table[-2:].tolist()
    ([2, 2, 1], [2, 3])
    >>> int(table[ADDRESS]) == check_address()
    True
    """
    count = len(arrays)
    specs = [(tvm_ffi.dtype(dtype), shape) for dtype, shape in arrays]
    sizes = [prod(shape) * ((kind.bits * kind.lanes + 7) // 8) for kind, shape in specs]
    order = sorted(range(count), key=lambda n: (not sizes[n], n not in written))
    places = {number: place for place, number in enumerate(order)}
    full = [number for number in range(count) if sizes[number]]
    words = [count, len(full), sum(number in written for number in full), check_address()]
    position = _HEAD + (_SPEC + 3) * count
    for number, (kind, shape) in enumerate(specs):
        code = kind.type_code | kind.bits << 8 | kind.lanes << 16
        mask = max(1, kind.bits // 8) - 1
        words += [code, len(shape), sizes[number], position, mask, places[number]]
        position += len(shape)
    words += [0] * (3 * count)
    words += [size for _, shape in arrays for size in shape]
    words += further
    return np.array(words, "int64")


def check_address() -> int:
    """The address of the check in this process."""
    return _compiled_check()[0]


@functools.cache
def _compiled_check() -> tuple[int, Any]:
    (address,), code = native_functions(["tvm_autodiff_check"], CHECK_CODE)
    return address, code


# DLTensor: data 0, device 8, rank 16, dtype 20, shape 24, strides 32, byte offset 40; an argument:
# type 0, value 8; type 7 is a pointer to a DLTensor, 70 an object with one behind its head of 24
_TENSOR = """
define ptr @tvm_autodiff_tensor(ptr %args, i64 %number) {
  %arg = getelementptr { i32, i32, ptr }, ptr %args, i64 %number
  %type = load i32, ptr %arg
  %place = getelementptr i8, ptr %arg, i64 8
  %value = load ptr, ptr %place
  %inside = getelementptr i8, ptr %value, i64 24
  %is_object = icmp eq i32 %type, 70
  %is_tensor = icmp eq i32 %type, 7
  %other = select i1 %is_tensor, ptr %value, ptr null
  %tensor = select i1 %is_object, ptr %inside, ptr %other
  ret ptr %tensor
}
"""

#: what a program uses
CODE = f"""{_TENSOR}
define ptr @tvm_autodiff_memory(ptr %args, i32 %number) {{
  %wide = zext i32 %number to i64
  %tensor = call ptr @tvm_autodiff_tensor(ptr %args, i64 %wide)
  %memory = load ptr, ptr %tensor
  ret ptr %memory
}}

define i32 @tvm_autodiff_launch(ptr %args) {{
  %place = getelementptr i8, ptr %args, i64 8
  %launch = load i32, ptr %place
  ret i32 %launch
}}

define ptr @tvm_autodiff_array(ptr %table, i32 %word) {{
  %wide = zext i32 %word to i64
  %place = getelementptr i64, ptr %table, i64 %wide
  %array = load ptr, ptr %place
  ret ptr %array
}}

define i64 @tvm_autodiff_word(ptr %table, i32 %word) {{
  %wide = zext i32 %word to i64
  %place = getelementptr i64, ptr %table, i64 %wide
  %value = load i64, ptr %place
  ret i64 %value
}}

define ptr @tvm_autodiff_part(ptr %memory, i64 %offset) {{
  %part = getelementptr i8, ptr %memory, i64 %offset
  ret ptr %part
}}

define i32 @tvm_autodiff_checked(ptr %args, i32 %given, ptr %table, i32 %first, ptr %result) {{
  %place = getelementptr i64, ptr %table, i64 {ADDRESS}
  %check = load ptr, ptr %place
  %status = call i32 %check(ptr %args, i32 %given, ptr %table, i32 %first, ptr %result)
  ret i32 %status
}}
"""

#: the check
CHECK_CODE = f"""{_TENSOR}
define i32 @tvm_autodiff_check(ptr %args, i32 %given, ptr %table, i32 %first, ptr %result) {{
begin:
  %count = load i64, ptr %table
  %full_place = getelementptr i64, ptr %table, i64 1
  %full = load i64, ptr %full_place
  %written_place = getelementptr i64, ptr %table, i64 2
  %written = load i64, ptr %written_place
  %addresses_word = mul i64 %count, {_SPEC}
  %addresses_at = add i64 %addresses_word, {_HEAD}
  %addresses = getelementptr i64, ptr %table, i64 %addresses_at
  %starts = getelementptr i64, ptr %addresses, i64 %count
  %ends = getelementptr i64, ptr %starts, i64 %count
  %skip = zext i32 %first to i64
  %expected = add i64 %count, %skip
  %given_wide = zext i32 %given to i64
  %enough = icmp eq i64 %expected, %given_wide
  br i1 %enough, label %arrays, label %mismatch

arrays:
  %i = phi i64 [ 0, %begin ], [ %i_next, %array_end ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %array, label %search

array:
  %number = add i64 %i, %skip
  %tensor = call ptr @tvm_autodiff_tensor(ptr %args, i64 %number)
  %is_none = icmp eq ptr %tensor, null
  br i1 %is_none, label %mismatch, label %head

head:
  %spec_word = mul i64 %i, {_SPEC}
  %spec_at = add i64 %spec_word, {_HEAD}
  %spec = getelementptr i64, ptr %table, i64 %spec_at
  %want_type = load i64, ptr %spec
  %rank_place = getelementptr i64, ptr %spec, i64 1
  %want_rank = load i64, ptr %rank_place
  %bytes_place = getelementptr i64, ptr %spec, i64 2
  %bytes = load i64, ptr %bytes_place
  %shape_word_place = getelementptr i64, ptr %spec, i64 3
  %shape_word = load i64, ptr %shape_word_place
  %want_shape = getelementptr i64, ptr %table, i64 %shape_word
  %mask_place = getelementptr i64, ptr %spec, i64 4
  %mask = load i64, ptr %mask_place
  %span_place = getelementptr i64, ptr %spec, i64 5
  %span = load i64, ptr %span_place
  %data = load i64, ptr %tensor
  %device_place = getelementptr i8, ptr %tensor, i64 8
  %device = load i32, ptr %device_place
  %is_cpu = icmp eq i32 %device, 1
  %have_rank_place = getelementptr i8, ptr %tensor, i64 16
  %have_rank_narrow = load i32, ptr %have_rank_place
  %have_rank = sext i32 %have_rank_narrow to i64
  %same_rank = icmp eq i64 %have_rank, %want_rank
  %have_type_place = getelementptr i8, ptr %tensor, i64 20
  %have_type_narrow = load i32, ptr %have_type_place
  %have_type = zext i32 %have_type_narrow to i64
  %same_type = icmp eq i64 %have_type, %want_type
  %have_shape_place = getelementptr i8, ptr %tensor, i64 24
  %have_shape = load ptr, ptr %have_shape_place
  %strides_place = getelementptr i8, ptr %tensor, i64 32
  %strides = load ptr, ptr %strides_place
  %offset_place = getelementptr i8, ptr %tensor, i64 40
  %offset = load i64, ptr %offset_place
  %address = add i64 %data, %offset
  %below = and i64 %address, %mask
  %is_aligned = icmp eq i64 %below, 0
  %is_empty = icmp eq i64 %bytes, 0
  %is_there = icmp ne i64 %data, 0
  %has_memory = or i1 %is_empty, %is_there
  %fits1 = and i1 %is_cpu, %same_rank
  %fits2 = and i1 %same_type, %is_aligned
  %fits3 = and i1 %fits1, %fits2
  %fits = and i1 %fits3, %has_memory
  %dense = icmp eq ptr %strides, null
  %any_strides = or i1 %dense, %is_empty
  br i1 %fits, label %dims, label %mismatch

dims:
  %left = phi i64 [ %want_rank, %head ], [ %d, %dim_end ]
  %step = phi i64 [ 1, %head ], [ %step_next, %dim_end ]
  %no_dim = icmp eq i64 %left, 0
  br i1 %no_dim, label %array_end, label %dim

dim:
  %d = add i64 %left, -1
  %have_place = getelementptr i64, ptr %have_shape, i64 %d
  %have = load i64, ptr %have_place
  %want_place = getelementptr i64, ptr %want_shape, i64 %d
  %want = load i64, ptr %want_place
  %step_next = mul i64 %step, %want
  %same = icmp eq i64 %have, %want
  br i1 %same, label %stride, label %mismatch

stride:
  %single = icmp eq i64 %want, 1
  %free = or i1 %any_strides, %single
  br i1 %free, label %dim_end, label %compare

compare:
  %stride_place = getelementptr i64, ptr %strides, i64 %d
  %have_stride = load i64, ptr %stride_place
  %same_stride = icmp eq i64 %have_stride, %step
  br i1 %same_stride, label %dim_end, label %mismatch

dim_end:
  br label %dims

array_end:
  %address_place = getelementptr i64, ptr %addresses, i64 %i
  store i64 %address, ptr %address_place
  %start_place = getelementptr i64, ptr %starts, i64 %span
  store i64 %address, ptr %start_place
  %end = add i64 %address, %bytes
  %end_place = getelementptr i64, ptr %ends, i64 %span
  store i64 %end, ptr %end_place
  %i_next = add i64 %i, 1
  br label %arrays

search:
  %a = phi i64 [ 0, %arrays ], [ %a_next, %search_end ]
  %a_more = icmp ult i64 %a, %written
  br i1 %a_more, label %search_one, label %fine

search_one:
  %a_next = add i64 %a, 1
  %a_start_place = getelementptr i64, ptr %starts, i64 %a
  %a_start = load i64, ptr %a_start_place
  %a_end_place = getelementptr i64, ptr %ends, i64 %a
  %a_end = load i64, ptr %a_end_place
  br label %others

others:
  %b = phi i64 [ %a_next, %search_one ], [ %b_next, %other ]
  %met = phi i1 [ false, %search_one ], [ %met_next, %other ]
  %b_more = icmp ult i64 %b, %full
  br i1 %b_more, label %other, label %search_end

other:
  %b_start_place = getelementptr i64, ptr %starts, i64 %b
  %b_start = load i64, ptr %b_start_place
  %b_end_place = getelementptr i64, ptr %ends, i64 %b
  %b_end = load i64, ptr %b_end_place
  %before = icmp ult i64 %a_start, %b_end
  %after = icmp ult i64 %b_start, %a_end
  %meet = and i1 %before, %after
  %met_next = or i1 %met, %meet
  %b_next = add i64 %b, 1
  br label %others

search_end:
  br i1 %met, label %overlap, label %search

fine:
  ret i32 {FITS}

mismatch:
  br label %refused

overlap:
  br label %refused

refused:
  %status = phi i64 [ {MISMATCH}, %mismatch ], [ {OVERLAP}, %overlap ]
  store i32 1, ptr %result
  %zero_place = getelementptr i8, ptr %result, i64 4
  store i32 0, ptr %zero_place
  %status_place = getelementptr i8, ptr %result, i64 8
  store i64 %status, ptr %status_place
  %narrow = trunc i64 %status to i32
  ret i32 %narrow
}}
"""
