"""What the reverse loops of a program keep and recompute, as numbers for reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..expr.dtypes import itemsize
from ..expr.nodes import Tensor, dtype_of
from .graph import topological
from .kinds.binomial import extra_steps, repeats_of
from .kinds.kind import kind_of
from .kinds.rewind import Rewind, loops_in
from .stage import Extent, Operation, shape_of


@dataclass(frozen=True)
class LoopPlan:
    """The plan of one reverse loop.

    Attributes
    ----------
    name : str
        The name of the stage.
    length : int or None
        The number of steps, or None if it is symbolic.
    states : int
        The number of states that are kept at a time, including the first one.
    state_bytes : int or None
        The size of one state in bytes, or None if it is symbolic.

    Examples
    --------
    >>> print(LoopPlan("dsmooth", 1000, 10, 8))
    dsmooth: 1,000 backward steps, 10 states of 8 bytes at a time, 2,637 recomputed steps
    """

    name: str
    length: int | None
    states: int
    state_bytes: int | None

    @property
    def bytes(self) -> int | None:
        """The size of all states in bytes."""
        return None if self.state_bytes is None else self.states * self.state_bytes

    @property
    def extra_steps(self) -> int | None:
        """The steps that are recomputed to reach states, the minimum for this number of states."""
        return None if self.length is None else extra_steps(self.length, self.states)

    @property
    def repeats(self) -> int | None:
        """The maximum number of times that a step is computed before it is reversed."""
        return None if self.length is None else repeats_of(self.length, self.states)

    def __str__(self) -> str:
        steps = "any number of" if self.length is None else f"{self.length:,}"
        size = "" if self.state_bytes is None else f" of {self.state_bytes:,} bytes"
        again = "" if self.length is None else f", {self.extra_steps:,} recomputed steps"
        return f"{self.name}: {steps} backward steps, {self.states:,} states{size} at a time{again}"


def loops_back(tensors: Sequence[Tensor]) -> Iterator[tuple[Operation, Rewind]]:
    """The reverse loops that compute some tensors, including those in steps of loops."""
    for op in topological(tensors):
        kind = kind_of(op)
        if isinstance(kind, Rewind):
            yield op, kind
        for loop in loops_in(kind):
            yield from loops_back(loop.step.outputs)


def size_of_state(rewind: Rewind) -> Extent:
    """The size of one state in bytes: an int, or an expression if sizes are symbolic."""
    total: Extent = 0
    for carry in rewind.ahead.step.carries:
        size: Extent = itemsize(dtype_of(carry))
        for extent in shape_of(carry):
            size = extent * size
        total = size + total
    return total


def plan_of(op: Operation, rewind: Rewind) -> LoopPlan:
    """The plan of a reverse loop."""
    length, state = rewind.ahead.length, size_of_state(rewind)
    return LoopPlan(
        str(op.name),
        length if isinstance(length, int) else None,
        rewind.slots,
        state if isinstance(state, int) else None,
    )
