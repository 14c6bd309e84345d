"""How much of its forward pass a loop keeps for reverse mode: a number of states, or of bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from ...errors import InvalidArgumentError

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kMG]i?|Ki)?B\s*")


@dataclass(frozen=True)
class Recursive:
    """Keep a number of states, and place them so that the fewest steps are computed again.

    Parameters
    ----------
    slots : int, optional
        How many states are kept at a time, the first one included. Without it, as many as it takes
        so that no step is computed more than once again: about the square root of twice the length.

    Examples
    --------
    >>> Recursive(10)
    Recursive(slots=10)
    """

    slots: int | None = None

    def __post_init__(self) -> None:
        whole = isinstance(self.slots, int) and not isinstance(self.slots, bool)
        if self.slots is not None and (not whole or self.slots < 1):
            raise InvalidArgumentError(
                f"Recursive: slots must be a number of at least 1, got {self.slots!r}: the states "
                "that are kept at a time, the first one included"
            )


@dataclass(frozen=True)
class Budget:
    """Keep all that is needed where some bytes hold it, else as many states as they hold, with all
    that one step needs beside them.

    Parameters
    ----------
    size : int or str
        Bytes: ``64_000_000``, ``"64MB"``, ``"64MiB"``.

    Examples
    --------
    >>> Budget("64MB")
    Budget(size=64000000)
    """

    size: int

    def __init__(self, size: int | str) -> None:
        object.__setattr__(self, "size", _bytes(size))


#: how a loop is reversed whose states are kept in part
Plan: TypeAlias = Recursive | Budget


def _bytes(size: int | str) -> int:
    if isinstance(size, str):
        found = _SIZE.fullmatch(size)
        value = int(float(found[1]) * _UNITS[found[2] or ""]) if found is not None else 0
    else:
        value = size if isinstance(size, int) and not isinstance(size, bool) else 0
    if value > 0:
        return value
    raise InvalidArgumentError(
        f"Budget: a size must be a positive number of bytes or a text such as '64MB' or '1.5GiB', "
        f"got {size!r}"
    )
