"""Keeps answers about nodes of TVM for a while: many walks ask the same of the same node."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tvm_ffi import Object

Answer = TypeVar("Answer")

_address = Object.__hash__


def remembered(most: int) -> Callable[[Callable[[Any], Answer]], Callable[[Any], Answer]]:
    """Keep up to `most` answers of a function of one node, which must not change them.

    Answers are found by the node's address. The table holds the node, too, so no other one gets its
    address while the answer is kept. A full table begins anew.

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

    def decorate(function: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
        table: dict[int, tuple[Any, Answer]] = {}

        @functools.wraps(function)
        def answer(node: Any) -> Answer:
            known = table.get(_address(node))
            if known is None:
                if len(table) >= most:
                    table.clear()
                known = table[_address(node)] = (node, function(node))
            return known[1]

        return answer

    return decorate
