"""All operators by name."""

from __future__ import annotations

from ..suite.case import Entry
from . import (
    attention,
    bodies,
    encodings,
    graphs,
    grids,
    images,
    learning,
    losses,
    pairs,
    physics,
    rendering,
    sequences,
    series,
    signals,
    statistics,
)

_MODULES = (
    pairs,
    attention,
    encodings,
    graphs,
    images,
    signals,
    physics,
    losses,
    grids,
    rendering,
    bodies,
    sequences,
    series,
    statistics,
    learning,
)
#: name → a function that makes the case
CASES = {name: make for module in _MODULES for name, make in module.CASES.items()}


def entry(name: str) -> Entry:
    """The operator of a name, in the form of the suite; it has one size."""
    return Entry(name, name, CASES[name], {}, {})
