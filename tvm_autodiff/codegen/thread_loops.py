"""Writes loops over the threads of a GPU as statements, in phases.

A phase is a separate loop over all threads, so the function has the same meaning with plain loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tvm import tirx

from ..expr.build import const
from ..expr.nodes import Expr, Var, dtype_of
from .loop_nest import Local, Statement

SHARED, REGISTERS = "shared", "local"
WARP = 32  #: threads that run in step
BLOCK = 256  #: the default number of threads of a block: two warps for each of four schedulers


#: loops that are to be unrolled are left to CUDA's compiler, so that the source stays short
UNROLLED_BY_CUDA = {"pragma_auto_unroll_max_step": 0, "pragma_unroll_explicit": 0}


def bound(
    var: Var, extent: int, tag: str, body: Statement, notes: Mapping[str, int] | None = None
) -> Statement:
    """``for var in threads along tag``: ``"blockIdx.x"``, ``"threadIdx.x"``..."""
    axis = tirx.IterVar(None, var, tirx.IterVar.ThreadIndex, tag)
    dtype = dtype_of(var)
    kind = tirx.ForKind.THREAD_BINDING
    return tirx.For(var, const(0, dtype), const(extent, dtype), kind, body, axis, dict(notes or {}))


def barrier() -> Statement:
    """Every thread of a block waits for all others."""
    return tirx.Evaluate(tirx.call_intrin("void", "tirx.tvm_storage_sync", "shared"))


def buffer_in(scope: str, name: str, shape: Sequence[int], dtype: str) -> Local:
    """A buffer of constant shape that a block shares, or that is private to each thread."""
    flat = tirx.decl_buffer([max(1, prod(shape))], dtype, name, scope=scope)
    return Local(flat, tuple(shape))


def value_of_lane(value: Expr, below: int) -> Expr:
    """The value that the lane `below` places behind the own one has; all lanes of a warp ask."""
    mask = tirx.const(0xFFFFFFFF, "uint32")
    number, warp = const(below, "int32"), const(WARP, "int32")
    call = "tirx.tvm_warp_shuffle_down"
    return tirx.call_intrin(dtype_of(value), call, mask, value, number, warp, warp)
