"""Splits something again and again until no part of it can be split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Part = TypeVar("Part")


def fully_split(
    whole: Part, split: Callable[[Part], Sequence[Part] | None], most: int
) -> list[Part] | None:
    """The parts in order; None if there are more than `most`, or if the whole stays as it is.

    Examples
    --------
    >>> halves = lambda n: None if n % 2 else [n // 2, n // 2]
    >>> fully_split(12, halves, 9), fully_split(3, halves, 9), fully_split(12, halves, 3)
    ([3, 3, 3, 3], None, None)
    """
    pending, plain = [whole], []
    while pending:
        current = pending.pop()
        parts = split(current)
        if parts is None:
            plain.append(current)
        else:
            pending += reversed(parts)
        if len(pending) + len(plain) > most:
            return None
    return None if len(plain) == 1 and plain[0] is whole else plain
