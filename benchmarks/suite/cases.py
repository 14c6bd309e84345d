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

#: name → case
ENTRIES: dict[str, Entry] = {entry.name: entry for family in _FAMILIES for entry in family.ENTRIES}
