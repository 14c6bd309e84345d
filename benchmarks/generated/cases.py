"""Programs by name: "s0-07-window" is the eighth program of seed 0, of the family `window`.

Entries have the form of those in the suite. Families come in shuffled rounds, so that each is drawn
about equally often. Parameters come from a generator seeded with the seed, the number and the
family.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

from ..suite.case import Case, Entry
from . import indexed, pointwise, products, rows, windows

#: how many numbers the inputs and the head of a program have; a draw beyond is drawn again
LEAST, MOST = 2**15, 2**21
Family = tuple[Callable[[Random], dict[str, Any]], Callable[..., Case]]

#: name → (draws parameters, makes a case of them)
FAMILIES: dict[str, Family] = {
    name: family
    for module in (rows, windows, products, indexed, pointwise)
    for name, family in module.FAMILIES.items()
}


def programs(seed: int, count: int) -> list[Entry]:
    """The first programs of a seed; a larger count only appends to them.

    Both sizes have the same parameters: programs are small enough for tests.
    """
    order = Random(f"families {seed}")
    drawn: list[Entry] = []
    while len(drawn) < count:
        for family in order.sample(list(FAMILIES), len(FAMILIES)):
            draw, make = FAMILIES[family]
            number = len(drawn)
            rng = Random(f"{seed} {number} {family}")
            parameters = draw(rng)
            while not LEAST <= _elements(make(**parameters)) <= MOST:
                parameters = draw(rng)
            title = f"{family}: " + ", ".join(
                f"{key} {_shown(value)}" for key, value in parameters.items()
            )
            drawn.append(
                Entry(f"s{seed}-{number:02d}-{family}", title, make, parameters, parameters)
            )
    return drawn[:count]


def entry(name: str) -> Entry:
    """The program called `name`."""
    seed, number, _ = name.split("-", 2)
    return programs(int(seed[1:]), int(number) + 1)[-1]


def _elements(case: Case) -> int:
    specs = [*case.inputs.values(), *case.heads.values()]
    return sum(math.prod(spec.shape) for spec in specs)


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and all(isinstance(item, int) for item in value):
        return "×".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, list):
        return " ".join(map(_shown, value))
    if isinstance(value, tuple):
        return "-".join(map(str, value))
    return str(value)
