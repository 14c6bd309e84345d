"""Decides which launches may write results over an input, and in what order.

Every reader of an input's old value must run before the launch that writes the new value; if that
is impossible, the new value is copied at the end. Each launch thus reads only old values, whatever
new values the caller names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...codegen.passes.in_place import may_share
from ...codegen.stages.primfunc import StageFunction
from ...expr.nodes import Tensor, tensor_key
from ..fusion.groups import FusionGroup
from ..kernel import Kernel

Update = tuple[Tensor, Tensor]  #: an input and its new value


@dataclass(frozen=True)
class Step:
    """A launch and its origin.

    Attributes
    ----------
    launch : StageFunction
    kernel : Kernel or FusionGroup
        The kernel that it computes completely or partly.
    rule : str
        The schedule rule that made it.
    reasons : tuple of str
        Why no faster schedule applies; empty if one does.
    inner : tuple of Step
        The launches that a loop calls, with inner loops expanded.
    calls : int or None
        How often a launch that a loop calls runs; None if it is symbolic.
    """

    launch: StageFunction
    kernel: Kernel | FusionGroup
    rule: str
    reasons: tuple[str, ...] = ()
    inner: tuple[Step, ...] = ()
    calls: int | None = 1

    @property
    def launches(self) -> int:
        """The number of launches; those that a loop calls are counted separately."""
        return max(1, len(self.inner))


def order_updates(
    steps: Sequence[Step],
    updates: Sequence[Update],
    copy: Callable[[Tensor], tuple[Tensor, list[Step]]],
) -> tuple[list[Step], list[Update]]:
    """Steps and updates such that every new value can be written over its input when it is made.

    Parameters
    ----------
    steps, updates
        The launches and updates. Every new value is written by one launch, and none is also an
        output.
    copy
        Returns a copy of a tensor, and the steps that make it.
    """
    if not updates:
        return list(steps), []
    writer = {tensor_key(t): n for n, step in enumerate(steps) for t in step.launch.outputs}
    readers: dict[tuple[int, int], set[int]] = {}
    needs: list[set[int]] = []
    for number, step in enumerate(steps):
        keys = [tensor_key(tensor) for tensor in step.launch.inputs]
        needs.append({writer[key] for key in keys if key in writer})
        for key in keys:
            readers.setdefault(key, set()).add(number)
    waits: dict[int, set[int]] = {}
    late: list[Update] = []
    for old, new in updates:
        number = writer[tensor_key(new)]
        before = readers.get(tensor_key(old), set())
        if number in before and not _shares(steps[number].launch, old, new):
            late.append((old, new))
        else:
            waits.setdefault(number, set()).update(before - {number})
    order, stuck = _ordered(needs, waits)
    late_keys = {tensor_key(new) for _, new in late}
    late_keys |= {tensor_key(new) for _, new in updates if writer[tensor_key(new)] in stuck}
    ordered = [steps[number] for number in order]
    placed: list[Update] = []
    for old, new in updates:
        if tensor_key(new) in late_keys:
            new, made = copy(new)
            ordered += made
        placed.append((old, new))
    return ordered, placed


def _shares(launch: StageFunction, old: Tensor, new: Tensor) -> bool:
    params = list(launch.func.params)
    read = [tensor_key(tensor) for tensor in launch.inputs].index(tensor_key(old))
    written = [tensor_key(tensor) for tensor in launch.outputs].index(tensor_key(new))
    return may_share(launch.func, params[read], params[written - len(launch.outputs)])


def _ordered(needs: Sequence[set[int]], waits: dict[int, set[int]]) -> tuple[list[int], set[int]]:
    """An order in which each number follows those it needs and waits for.

    Numbers that wait for each other do not wait; they are returned as well.
    """
    order: list[int] = []
    done: set[int] = set()
    stuck: set[int] = set()
    remaining = list(range(len(needs)))
    while remaining:
        able = (n for n in remaining if needs[n] <= done)
        free = next((n for n in able if n in stuck or waits.get(n, set()) <= done), None)
        if free is None:
            stuck.add(next(n for n in remaining if needs[n] <= done))
            continue
        order.append(free)
        done.add(free)
        remaining.remove(free)
    return order, stuck
