"""Determines how many states a loop keeps under its plan."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...errors import InvalidArgumentError
from ...expr.dtypes import itemsize
from ...expr.nodes import Tensor, dtype_of
from ...graph.graph import topological
from ...graph.kinds.binomial import slots_for
from ...graph.kinds.checkpoints import Budget, Recursive
from ...graph.kinds.kind import kind_of
from ...graph.kinds.loop import Loop
from ...graph.kinds.rewind import loops_in
from ...graph.stage import is_placeholder, outputs_of, shape_of

#: the maximum padding of a tensor in bytes
_GAP = 384
_POSITION = 8  #: bytes of the number of a step, which is kept with each state


def slots_of(name: str, loop: Loop, ahead: Loop, back: Loop) -> int:
    """The number of states that are kept at a time, including the first one.

    Parameters
    ----------
    name : str
        The name of the loop, for messages.
    loop : Loop
        The loop with its plan.
    ahead, back : Loop
        The loop from one kept state to the next, and the reverse loop.

    Raises
    ------
    InvalidArgumentError
        If a budget is too small for one state, or sizes are symbolic.
    """
    plan, length = loop.plan, loop.length
    match plan:
        case Recursive(slots=None):
            if not isinstance(length, int):
                raise InvalidArgumentError(
                    f"the loop {name} has a symbolic length, which does not determine the number "
                    "of slots: pass that number, as in checkpoint=Recursive(slots=32)"
                )
            slots = slots_for(length, 2)
        case Recursive(slots=int(slots)):
            pass
        case Budget(size=size):
            slots = _within(name, size, ahead, back)
        case _:
            raise AssertionError("a loop without a plan has no slots")
    # the state before the last step needs no slot
    return min(slots, max(length - 1, 1)) if isinstance(length, int) else slots


def _within(name: str, size: int, ahead: Loop, back: Loop) -> int:
    """The number of states that fit into the bytes, beside all tensors of one step ahead and one
    back.
    """
    state = sum(_bytes(name, carry) for carry in ahead.step.carries) + _POSITION
    beside = sum(_bytes(name, tensor) + _GAP for tensor in _of_one_step(ahead, back))
    slots = (size - beside) // state
    if slots < 1:
        raise InvalidArgumentError(
            f"a budget of {size:,} bytes is too small for the loop {name}: one state takes "
            f"{state:,} bytes, and one step {beside:,} more; pass at least {state + beside:,}"
        )
    return slots


def bytes_between(results: Sequence[Tensor], given: Sequence[Tensor]) -> int | None:
    """The bytes of all stages between given tensors and results, without sharing memory.

    None if sizes are symbolic.
    """
    before = {hash(op) for op in topological(given)}
    tensors: list[Tensor] = []
    for op in topological(results):
        if hash(op) not in before:
            tensors += outputs_of(op)
            for loop in loops_in(kind_of(op)):
                tensors += _of_one_step(loop)
    if not all(isinstance(n, int) for tensor in tensors for n in shape_of(tensor)):
        return None
    return sum(_bytes("", tensor) + _GAP for tensor in tensors)


def _of_one_step(*loops: Loop) -> list[Tensor]:
    """The memory needed at a time beside the states, for steps of some loops.

    It covers the carries before and after, the computed tensors, and constants in another layout.
    """
    found: list[Tensor] = []
    pending = list(loops)
    for loop in pending:  # which grows by the loops in their steps
        found += [*loop.step.carries, *loop.step.carries, *loop.step.consts]
        for op in topological(list(loop.step.outputs)):
            found += [] if is_placeholder(op) else outputs_of(op)
            pending += loops_in(kind_of(op))
    return found


def _bytes(name: str, tensor: Tensor) -> int:
    shape = shape_of(tensor)
    if not all(isinstance(extent, int) for extent in shape):
        raise InvalidArgumentError(
            f"the loop {name} has a tensor of symbolic size, {tensor.op.name}, so a budget in "
            "bytes does not determine the number of states: pass that number, as in "
            "checkpoint=Recursive(slots=32)"
        )
    return prod(shape) * itemsize(dtype_of(tensor))
