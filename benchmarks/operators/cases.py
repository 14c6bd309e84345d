"""All operators by name."""

from __future__ import annotations

from ..suite.case import Entry
from . import attention, encodings, graphs, images, losses, pairs, physics, signals

#: name → a function that makes the case
CASES = {
    name: make
    for module in (pairs, attention, encodings, graphs, images, signals, physics, losses)
    for name, make in module.CASES.items()
}


def entry(name: str) -> Entry:
    """The operator of a name, in the form of the suite; it has one size."""
    return Entry(name, name, CASES[name], {}, {})
