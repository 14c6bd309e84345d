"""All cases, in the order of the tables."""

from __future__ import annotations

from . import (
    attention,
    convolution,
    dense,
    estimation,
    jacobians,
    networks,
    pooling,
    recurrent,
    tensors,
)
from .case import Entry

_FAMILIES = (
    *(dense, convolution, pooling, attention, networks, tensors, recurrent, estimation),
    jacobians,
)

#: name → case; other sets of cases are modules with the function `entry`
ENTRIES: dict[str, Entry] = {entry.name: entry for family in _FAMILIES for entry in family.ENTRIES}


def entry(name: str) -> Entry:
    """The case of a name."""
    return ENTRIES[name]
