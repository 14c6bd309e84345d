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
    inference,
    learning,
    losses,
    normalisation,
    pairs,
    physics,
    points,
    rendering,
    retrieval,
    sequences,
    series,
    signals,
    statistics,
    waves,
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
    inference,
    normalisation,
    points,
    retrieval,
    waves,
)
#: name → a function that makes the case
CASES = {name: make for module in _MODULES for name, make in module.CASES.items()}


def entry(name: str) -> Entry:
    """The operator of a name, in the form of the suite; it has one size."""
    return Entry(name, name, CASES[name], {}, {})
