"""Plans the temporaries of a program as pieces of one workspace, for known sizes.

Tensors that do not live at the same time share storage. `runtime` allocates the workspace.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...expr.nodes import Expr

Bytes = TypeVar("Bytes")

# storages of a power of two would all begin at the same place of a page, where reading several of
# them at once is slow; an odd number of steps leads to every place
_GAP = 5  #: steps of the alignment between storages


@dataclass
class PlannedStorage:
    """Memory for tensors that do not live at the same time; a symbolic size is over the dimensions
    of the parameters.
    """

    size: int | Expr
    tensors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Temporary(Generic[Bytes]):
    """A tensor between launches.

    Attributes
    ----------
    name : str
    size
        The size in bytes: a number, or what gives it at a call.
    first, last : int
        The launch that writes it, and the last launch that reads it.
    """

    name: str
    size: Bytes
    first: int
    last: int


@dataclass(frozen=True)
class Workspace:
    """The storages, the position of each temporary, and the total size in bytes."""

    storages: tuple[PlannedStorage, ...]
    offsets: tuple[int, ...]
    size: int


def plan_workspace(temporaries: Sequence[Temporary[int]], alignment: int) -> Workspace:
    """Assign positions to temporaries.

    The largest come first; each takes the smallest existing storage that is free during its
    lifetime.

    Examples
    --------
    >>> a, b, c = Temporary("a", 8, 0, 1), Temporary("b", 8, 1, 2), Temporary("c", 4, 2, 3)
    >>> plan = plan_workspace([a, b, c], 64)
    >>> [storage.tensors for storage in plan.storages], plan.offsets, plan.size
    ([['a', 'c'], ['b']], (0, 384, 0), 768)
    """
    groups: list[list[tuple[int, int, int]]] = []  # first, last, number; in order of time
    for number in sorted(range(len(temporaries)), key=lambda n: -temporaries[n].size):
        life = (temporaries[number].first, temporaries[number].last, number)
        found = next((group for group in reversed(groups) if _is_free(group, life)), None)
        if found is None:
            groups.append([life])
        else:
            bisect.insort(found, life)
    storages = []
    offsets = [0] * len(temporaries)
    position = 0
    for group in groups:
        numbers = [number for _, _, number in group]
        size = max(temporaries[number].size for number in numbers)
        for number in numbers:
            offsets[number] = position
        storages.append(PlannedStorage(size, [temporaries[number].name for number in numbers]))
        position += (-(-size // alignment) + _GAP) * alignment
    return Workspace(tuple(storages), tuple(offsets), position)


def _is_free(group: Sequence[tuple[int, int, int]], life: tuple[int, int, int]) -> bool:
    """Whether no lifetime of a group of disjoint ones overlaps another one."""
    place = bisect.bisect(group, life)
    before, after = group[max(place - 1, 0) : place], group[place : place + 1]
    return all(last < life[0] for _, last, _ in before) and all(
        life[1] < first for first, _, _ in after
    )
