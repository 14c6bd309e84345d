"""Orders launches to need less memory: a launch that frees more than it allocates runs at once.

In a training step the gradient of a layer's weights then runs as early as possible, which frees its
activations and cotangents for the following layers.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from ...expr.nodes import tensor_key
from ..work import bytes_of
from .updates import Step

Key = tuple[int, int]


@dataclass(frozen=True)
class _Unit:
    """The launches of one kernel, which run one after the other."""

    steps: list[Step]
    reads: frozenset[Key]
    writes: frozenset[Key]


def in_order_of_memory(steps: Sequence[Step], kept: Container[Key]) -> list[Step]:
    """``a; b; c; d → a; c; b; d`` where `c` reads only what `a` wrote and all that it writes is a
    result, or takes less than what nothing reads any more. At no time more is taken than the most
    that the given order takes.

    Parameters
    ----------
    steps
        Launches; those of one kernel stay together.
    kept
        Keys of the results of the program, whose memory is the caller's.
    """
    units = _units(steps)
    sizes = _sizes(steps, kept)
    if sizes is None:
        return list(steps)
    writer = {key: n for n, unit in enumerate(units) for key in unit.writes}
    readers: dict[Key, set[int]] = {}
    for number, unit in enumerate(units):
        for key in unit.reads:
            readers.setdefault(key, set()).add(number)
    waits = [len({writer[key] for key in unit.reads if key in writer}) for unit in units]
    order: list[int] = []
    done: set[int] = set()
    live = most = 0

    def takes(number: int) -> int:
        return sum(sizes[key] for key in units[number].writes if key in sizes and readers.get(key))

    def frees(number: int) -> int:
        own = (key for key in units[number].reads if key in sizes)
        return sum(sizes[key] for key in own if readers[key] == {number})

    def run(number: int) -> list[int]:
        """Append a unit, and return the units that it may have made ready."""
        nonlocal live, most
        order.append(number)
        done.add(number)
        unit = units[number]
        live += takes(number)
        most = max(most, live)
        live -= frees(number)
        for follower in sorted({n for key in unit.writes for n in readers.get(key, ())}):
            waits[follower] -= 1
        touched: set[int] = set()
        for key in unit.reads:
            readers[key].discard(number)
            touched |= readers[key] if key in sizes else set()
        touched |= {n for key in unit.writes for n in readers.get(key, ())}
        return sorted(touched - done)

    for first in range(len(units)):
        pending = [] if first in done else run(first)
        while pending:
            number = pending.pop(0)
            if number in done or waits[number]:
                continue
            taken = takes(number)
            if taken == 0 or (frees(number) > taken and live + taken <= most):
                pending = run(number) + pending
    return [step for number in order for step in units[number].steps]


def _units(steps: Sequence[Step]) -> list[_Unit]:
    groups: list[list[Step]] = []
    for step in steps:
        if groups and groups[-1][-1].kernel is step.kernel:
            groups[-1].append(step)
        else:
            groups.append([step])
    units = []
    for group in groups:
        writes = frozenset(tensor_key(t) for step in group for t in step.launch.outputs)
        reads = frozenset(tensor_key(t) for step in group for t in step.launch.inputs)
        units.append(_Unit(group, reads - writes, writes))
    return units


def _sizes(steps: Sequence[Step], kept: Container[Key]) -> dict[Key, int] | None:
    """The bytes of the temporaries; None if one is unknown."""
    sizes: dict[Key, int] = {}
    for step in steps:
        for tensor in step.launch.outputs:
            if tensor_key(tensor) in kept:
                continue
            size = bytes_of(tensor)
            if size is None:
                return None
            sizes[tensor_key(tensor)] = size
    return sizes
