"""Writes vectors explicitly: contiguous elements in memory, and elements picked from them.

TVM splits a vector of every second element into single reads; here it is two whole vectors and a
shuffle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from ..expr.build import const
from ..expr.nodes import Expr, dtype_of
from .loop_nest import Local, Statement


def widened_read(read: Expr, lanes: int) -> Expr:
    """``x[..., i] → x[..., i .. i + lanes]`` for a read of a buffer."""
    return contiguous(read, list(read.indices), lanes)


def contiguous(read: Expr, indices: Sequence[Expr], lanes: int) -> Expr:
    """The elements from an index of the buffer of a read on, as one vector."""
    *outer, last = indices
    return tirx.BufferLoad(read.source, [*outer, _run(last, lanes)])


def widened_store(statement: Statement, value: Expr, lanes: int) -> Statement:
    """``x[..., i] = any → x[..., i .. i + lanes] = value``."""
    *outer, last = statement.indices
    return tirx.BufferStore(statement.buffer, value, [*outer, _run(last, lanes)])


def filled_with(place: Local, value: Expr) -> Statement:
    """``place[:] = value`` for a buffer of one vector."""
    start = const(0, "int32")
    return tirx.BufferStore(place.buffer, value, [_run(start, place.elements)])


def whole(place: Local) -> Expr:
    """``place[:]`` of a buffer of one vector."""
    return tirx.BufferLoad(place.buffer, [_run(const(0, "int32"), place.elements)])


def run_of(place: Local, start: Expr, lanes: int) -> Expr:
    """``place[start .. start + lanes]`` of a buffer in memory order."""
    return tirx.BufferLoad(place.buffer, [_run(start, lanes)])


def stored_run(place: Local, start: Expr, value: Expr, lanes: int) -> Statement:
    """``place[start .. start + lanes] = value`` of a buffer in memory order."""
    return tirx.BufferStore(place.buffer, value, [_run(start, lanes)])


def picked(vectors: Sequence[Expr], numbers: Sequence[int]) -> Expr:
    """Elements of the concatenation of the vectors, as one vector."""
    return tirx.Shuffle(list(vectors), [const(number, "int32") for number in numbers])


def _run(start: Any, lanes: int) -> Expr:
    return tirx.Ramp(start, const(1, dtype_of(start)), lanes)
