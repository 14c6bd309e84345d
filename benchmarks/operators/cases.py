"""All operators by name."""

from __future__ import annotations

from ..suite.case import Entry
from .data import inference, pairs, sequences, series, signals, statistics
from .networks import (
    attention,
    encodings,
    graphs,
    learning,
    losses,
    normalisation,
    retrieval,
)
from .space import bodies, grids, images, physics, points, rendering, waves

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
