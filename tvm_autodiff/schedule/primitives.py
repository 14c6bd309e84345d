"""Wraps TVM's schedule primitives.

What TVM rejects becomes a `Declined`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tvm import s_tir
from tvm.error import InternalError
from tvm.s_tir.schedule import ScheduleError

from ..codegen.stages.primfunc import StageFunction, first_line
from ..expr.nodes import Tensor, const_value
from .declined import Declined, refused

Result = TypeVar("Result")


def schedule_of(unscheduled: StageFunction) -> tuple[Any, list[Any]]:
    """A schedule of a function and its blocks in order."""
    schedule = s_tir.Schedule(unscheduled.func)
    return schedule, list(schedule.get_child_blocks(schedule.get_sblock("root")))


def scheduled(
    schedule: Any, unscheduled: StageFunction, outputs: Sequence[Tensor] | None = None
) -> StageFunction:
    """The scheduled function, which replaces the unscheduled one.

    Parameters
    ----------
    outputs : sequence of Tensor, optional
        The tensors of the program that it computes, if they differ from those of its stages.
    """
    results = unscheduled.outputs if outputs is None else tuple(outputs)
    func = schedule.mod["main"].without_attr("global_symbol")
    return replace(unscheduled, func=func, outputs=results)


def extent_of(schedule: Any, loop: Any) -> int | None:
    """The extent of a loop; None when it is symbolic."""
    value = const_value(schedule.get(loop).extent)
    return None if value is None else int(value)


def output_loops(schedule: Any, block: Any) -> list[Any]:
    """The outermost loops of a block that run over its output."""
    found = []
    for loop, axis in zip(schedule.get_loops(block), schedule.get(block).iter_vars, strict=False):
        if int(axis.iter_type) != 0:
            break
        found.append(loop)
    return found


def by_tvm(apply: Callable[..., Result], *arguments: Any) -> Result | Declined:
    """The result of a schedule primitive, or TVM's reason for rejecting it.

    This is for calls whose conditions cannot be checked beforehand. A rejecting primitive leaves
    the schedule unchanged.
    """
    try:
        return apply(*arguments)
    except (ScheduleError, InternalError) as error:
        return refused(first_line(error))
