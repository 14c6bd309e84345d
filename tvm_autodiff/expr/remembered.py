"""Keeps answers about nodes of TVM for a while: many walks ask the same of the same node."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tvm_ffi import Object

Answer = TypeVar("Answer")

_address = Object.__hash__


def remembered(most: int) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Keep up to `most` answers of a function of nodes, which nobody must change.

    Answers are found by the nodes' addresses. The table holds the nodes, too, so no others get
    their addresses while the answer is kept. A full table begins anew.

    Examples
    --------
    >>> from tvm import te
    >>> @remembered(100)
    ... def name_of(var):
    ...     print("asked")
    ...     return var.name
    >>> i = te.var("i")
    >>> name_of(i), name_of(i)
    asked
    ('i', 'i')
    """

    def decorate(function: Callable[..., Answer]) -> Callable[..., Answer]:
        table: dict[tuple[int, ...], tuple[Any, Answer]] = {}

        @functools.wraps(function)
        def answer(*nodes: Any) -> Answer:
            key = tuple(map(_address, nodes))
            known = table.get(key)
            if known is None:
                if len(table) >= most:
                    table.clear()
                known = table[key] = (nodes, function(*nodes))
            return known[1]

        return answer

    return decorate
