"""Collects the statements that a function writes into a single statement.

Functions of `graph` decide the order.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm.script.ir_builder import IRBuilder, tirx as T

from .loop_nest import Statement


def collected(write: Callable[[], None]) -> Statement:
    """The statements that a function writes, with the buffers that it allocates."""
    with IRBuilder() as builder, T.prim_func():
        T.func_name("collected")
        write()
    return builder.get().body


def put(statement: Statement) -> None:
    """Write a statement; its bindings are visible to the following statements."""
    T.add_to_parent(statement)
