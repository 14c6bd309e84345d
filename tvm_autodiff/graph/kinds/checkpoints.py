"""How much of its forward pass a loop keeps for reverse mode: a number of states, or a number of
bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from ...errors import InvalidArgumentError

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_UNITS["K"] = _UNITS["k"]  # as it is often written
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKMG]|[KMG]i)?B\s*")


@dataclass(frozen=True)
class Recursive:
    """Keep a fixed number of states, placed so that as few steps as possible are recomputed.

    Pass it as the `checkpoint` argument of `scan`.

    Parameters
    ----------
    slots : int, optional
        The number of states that are kept at a time, including the first one. By default, as many
        as are needed so that no step is recomputed more than once: about the square root of twice
        the length.

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
    """Keep as much of a loop's forward pass as fits into a number of bytes.

    If everything that reverse mode needs fits, all of it is kept. Otherwise as many states are kept
    as fit beside what one step needs. Pass it as the `checkpoint` argument of `scan`.

    Parameters
    ----------
    size : int or str
        The number of bytes: ``64_000_000``, ``"64MB"``, ``"64MiB"``.

    Examples
    --------
    >>> Budget("64MB")
    Budget(size=64000000)
    """

    size: int

    def __init__(self, size: int | str) -> None:
        object.__setattr__(self, "size", _bytes(size))


#: how a loop is reversed when only some of its states are kept
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
        "Budget: size must be a positive number of bytes or a string such as '64MB' or '1.5GiB', "
        f"got {size!r}"
    )
