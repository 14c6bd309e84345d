"""Cuts a loop into segments, so that reverse mode keeps only their first states.

A loop over T steps becomes a loop over T//k segments of k steps each, and one over the rest. Its
reverse mode stacks T//k states, and recomputes one segment after the other, with k more states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...expr.build import add, compare, if_then_else, like, mul, sub
from ...expr.nodes import Expr, Tensor, binary, dtype_of, load
from ...graph.bounded_stage import elementwise_stage
from ...graph.kinds.loop import Loop, loop_stage, step_of
from ...graph.stage import Extent, placeholder, placeholder_like, shape_of


def segmented(name: str, loop: Loop, size: int) -> list[Tensor]:
    """The outputs of a loop, computed in segments of a number of steps.

    Parameters
    ----------
    name : str
        The name of the stages.
    loop : Loop
        The loop.
    size : int
        The number of steps in a segment, at least one.
    """
    if size == 1:
        return loop_stage(name, replace(loop, carries_only=True))
    length = loop.length
    if isinstance(length, int) and length <= size:
        return loop_stage(name, loop)
    if isinstance(length, int):
        count, rest = divmod(length, size)
    else:
        count, rest = (binary(op, length, like(length, size)) for op in ("floordiv", "floormod"))
    carried = len(loop.init)

    def whole(init: Sequence[Tensor]) -> list[Tensor]:
        return loop_stage(name, _over_segments(name, replace(loop, init=tuple(init)), size, count))

    def tail(init: Sequence[Tensor]) -> list[Tensor]:
        xs = tuple(_tail(x, size, count, rest) for x in loop.xs)
        return loop_stage(name, replace(loop, init=tuple(init), xs=xs, length=rest))

    if isinstance(rest, int) and not rest:
        made = whole(loop.init)
        flat = [_joined(many, None, size, length, count) for many in made[carried:]]
        return [*made[:carried], *flat]
    if loop.reverse:
        last = tail(loop.init)
        segments = whole(last[:carried])
        ends = segments[:carried]
    else:
        segments = whole(loop.init)
        last = tail(segments[:carried])
        ends = last[:carried]
    pairs = zip(segments[carried:], last[carried:], strict=True)
    return [*ends, *(_joined(many, end, size, length, count) for many, end in pairs)]


def _over_segments(name: str, loop: Loop, size: int, count: Extent) -> Loop:
    """``for t: step  →  for s: for j: step at (s, j)``."""
    step = loop.step
    carries = [placeholder_like(carry) for carry in step.carries]
    consts = [placeholder_like(tensor) for tensor in step.consts]
    xs = [placeholder([size, *shape_of(x)], dtype_of(x), x.op.name) for x in step.xs]
    inner = replace(loop, init=tuple(carries), xs=tuple(xs), consts=tuple(consts), length=size)
    made = loop_stage(name, inner)
    first = len(carries)
    return Loop(
        step_of(carries, xs, consts, made[:first], made[first:]),
        loop.init,
        tuple(_segments(x, size, count) for x in loop.xs),
        loop.consts,
        count,
        loop.reverse,
        carries_only=True,
    )


def _segments(x: Tensor, size: int, count: Extent) -> Tensor:
    """``x[s·k + j] → segments[s, j]``."""
    return elementwise_stage(
        f"{x.op.name}_segments",
        (count, size, *shape_of(x)[1:]),
        lambda place: load(x, [_time(place[0], place[1], size), *place[2:]]),
    )


def _tail(x: Tensor, size: int, count: Extent, rest: Extent) -> Tensor:
    """``x[count·k + j] → tail[j]``."""
    return elementwise_stage(
        f"{x.op.name}_rest",
        (rest, *shape_of(x)[1:]),
        lambda place: load(x, [_time(_expr(count, place[0]), place[0], size), *place[1:]]),
    )


def _joined(many: Tensor, last: Tensor | None, size: int, length: Extent, count: Extent) -> Tensor:
    """``segments[s, j], tail[j] → y[t]``."""

    def body(place: Sequence[Expr]) -> Expr:
        time, *rest = place
        segment, step = (binary(op, time, like(time, size)) for op in ("floordiv", "floormod"))
        inside = load(many, [segment, step, *rest])
        if last is None:
            return inside
        cut = mul(_expr(count, time), like(time, size))
        behind = load(last, [sub(time, cut), *rest])
        return if_then_else(compare("lt", time, cut), inside, behind)

    return elementwise_stage(f"{many.op.name}_all", (length, *shape_of(many)[2:]), body)


def _time(segment: Expr, step: Expr, size: int) -> Expr:
    return add(mul(segment, like(segment, size)), step)


def _expr(extent: Extent, index: Expr) -> Expr:
    return like(index, extent) if isinstance(extent, int) else extent
