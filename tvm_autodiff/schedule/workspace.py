"""Where the temporaries of a program of constant sizes lie: pieces of one workspace.

In: for each temporary its size, and the launches between which it is needed. Out: storages, each
for tensors that do not live at the same time, and the place of each temporary in bytes from the
start. Who allocates the workspace is told in `runtime`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .memory_plan import PlannedStorage


@dataclass(frozen=True)
class Temporary:
    """A tensor between launches.

    Attributes
    ----------
    name : str
    size : int
        Bytes.
    first, last : int
        The launch that writes it, and the last that reads it.
    """

    name: str
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class Workspace:
    """Storages, the place of each temporary, and the size of all, in bytes."""

    storages: tuple[PlannedStorage, ...]
    offsets: tuple[int, ...]
    size: int


def plan_workspace(temporaries: Sequence[Temporary], alignment: int) -> Workspace:
    """Places for temporaries, in the order in which they are written.

    Each takes the smallest free storage that holds it, else the largest one, which grows.

    Examples
    --------
    >>> a, b, c = Temporary("a", 8, 0, 1), Temporary("b", 8, 1, 2), Temporary("c", 4, 2, 3)
    >>> plan = plan_workspace([a, b, c], 64)
    >>> [storage.tensors for storage in plan.storages], plan.offsets, plan.size
    ([['a', 'c'], ['b']], (0, 64, 0), 128)
    """
    storages: list[PlannedStorage] = []
    sizes: list[int] = []
    busy_until: list[int] = []
    chosen: list[int] = []
    for temporary in temporaries:
        free = [n for n, last in enumerate(busy_until) if last < temporary.first]
        fitting = [n for n in free if sizes[n] >= temporary.size]
        if fitting:
            number = min(fitting, key=lambda n: sizes[n])
        elif free:
            number = max(free, key=lambda n: sizes[n])
        else:
            number = len(storages)
            storages.append(PlannedStorage(0))
            sizes.append(0)
            busy_until.append(0)
        sizes[number] = max(sizes[number], temporary.size)
        busy_until[number] = temporary.last
        storages[number].tensors.append(temporary.name)
        chosen.append(number)
    starts = []
    position = 0
    for storage, size in zip(storages, sizes, strict=True):
        storage.size = size
        starts.append(position)
        position += -(-size // alignment) * alignment
    return Workspace(tuple(storages), tuple(starts[number] for number in chosen), position)
