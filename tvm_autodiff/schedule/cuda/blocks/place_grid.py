"""A grid of blocks over places, each of which several threads of a block share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....codegen.loop_nest import Local, Statement, allocated, loop
from ....codegen.thread_loops import bound
from ....expr.build import add, cast, compare, const, mul, true, variable
from ....expr.nodes import Expr, Var, binary, const_value, dtype_of
from ...machine import Machine


@dataclass(frozen=True)
class BlockShape:
    """Threads of a block: places beside each other, and threads that share one."""

    places: int
    together: int
    rows: bool  #: whether neighbouring threads share a place


@dataclass(frozen=True)
class Thread:
    """What a thread works on.

    Attributes
    ----------
    place : Expr
        The place; it may be beyond the last one.
    inside : Expr
        Whether it is not.
    part : Var
        The position among the threads that share the place.
    beside : Var
        The position of the place in the block.
    again : bool
        Whether a block works on several places, one after the other.
    """

    place: Expr
    inside: Expr
    part: Var
    beside: Var
    again: bool


def place_grid(
    total: Expr,
    shape: BlockShape,
    machine: Machine,
    body: Callable[[Thread], tuple[Sequence[Local], Statement]],
) -> Statement:
    """Blocks of threads over `total` places.

    For a symbolic total the number of blocks is fixed, and each goes on with further places.

    Parameters
    ----------
    body : callable
        Gives the shared buffers of a block and what a thread does, which may have barriers.
    """
    count, dtype = const_value(total), dtype_of(total)
    block, beside, part = (variable(name) for name in ("block", "beside", "part"))
    grid = 4 * machine.multiprocessors if count is None else -(-int(count) // shape.places)
    again, first = variable("again", dtype), cast(dtype, block)
    if count is None:
        first = add(mul(again, const(grid, dtype)), first)
    place = add(mul(first, const(shape.places, dtype)), cast(dtype, beside))
    thread = Thread(place, below(place, total, shape.places), part, beside, count is None)
    shared, inner = body(thread)
    if count is None:
        inner = loop(again, rounds(total, grid * shape.places), inner)
    axes = [(part, shape.together), (beside, shape.places)]
    tags = ("threadIdx.x", "threadIdx.y") if shape.rows else ("threadIdx.y", "threadIdx.x")
    for (var, extent), tag in zip(axes, tags, strict=True):
        inner = bound(var, extent, tag, inner)
    return bound(block, grid, "blockIdx.x", allocated(shared, inner))


def rounds(count: Expr, together: int) -> Expr:
    """``ceil(count / together)``."""
    dtype, known = dtype_of(count), const_value(count)
    if known is not None:
        return const(-(-int(known) // together), dtype)
    return binary("floordiv", add(count, const(together - 1, dtype)), const(together, dtype))


def below(place: Expr, extent: Expr, multiple: int) -> Expr:
    """``place < extent``, for places below the next multiple."""
    known = const_value(extent)
    whole = known is not None and int(known) % multiple == 0
    return true() if whole else compare("lt", place, extent)
