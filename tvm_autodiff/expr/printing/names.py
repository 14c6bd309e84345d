"""Distinct names for distinct things, in the order in which they are asked for.

In: keys and the names they would like to have. Out: those names, with a number behind the second
and later owner of one. The same questions in the same order give the same names in every process.
"""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """Distinct names for distinct things: the first ``i`` is ``i``, another one ``i_1``.

    Parameters
    ----------
    taken : iterable of str
        Names that are not given to anything.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._names: dict[object, str] = {}
        self._alive: list[object] = []  # keys hold addresses: keep what they belong to

    def name(self, key: object, wanted: str, owner: object = None) -> str:
        """The name of `key`, made from `wanted` at the first call."""
        if key not in self._names:
            self._names[key] = self.fresh(wanted)
            self._alive.append(owner)
        return self._names[key]

    def fresh(self, wanted: str) -> str:
        """`wanted`, or with the first free number behind it; taken from then on."""
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name

    def inner(self) -> Names:
        """A scope inside: it knows these names, and what it adds stays in it."""
        scope = Names(self._taken)
        scope._names = dict(self._names)
        return scope

    @property
    def taken(self) -> set[str]:
        """All names that are given or reserved."""
        return set(self._taken)
