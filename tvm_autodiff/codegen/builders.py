"""Statements written one after the other in an order that functions of `graph` give.

In: a function that writes statements. Out: one statement of all that it wrote.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .loop_nest import Statement


def collected(write: Callable[[], None]) -> Statement:
    """What a function writes, with the buffers that it allocates."""
    with IRBuilder() as builder, T.prim_func():
        T.func_name("collected")
        write()
    return builder.get().body


def put(statement: Statement) -> None:
    """Write a statement; what it binds is bound for those that follow."""
    T.add_to_parent(statement)
