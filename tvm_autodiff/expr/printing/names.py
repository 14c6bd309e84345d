"""Assigns distinct names to distinct objects, in the order in which they are requested.

The second and later objects with the same preferred name get a number suffix. The same requests in
the same order give the same names in every process.
"""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """Distinct names for distinct objects: the first ``i`` is ``i``, the second ``i_1``.

    Parameters
    ----------
    taken : iterable of str
        Names that are not assigned.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._names: dict[object, str] = {}
        self._alive: list[object] = []  # keys hold addresses: keep what they belong to

    def name(self, key: object, wanted: str, owner: object = None) -> str:
        """The name of `key`, made from `wanted` on the first call."""
        if key not in self._names:
            self._names[key] = self.fresh(wanted)
            self._alive.append(owner)
        return self._names[key]

    def fresh(self, wanted: str) -> str:
        """`wanted`, or `wanted` with the first free number; reserved from then on."""
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name

    def inner(self) -> Names:
        """An inner scope: it sees these names, and names added to it stay in it."""
        scope = Names(self._taken)
        scope._names = dict(self._names)
        return scope

    @property
    def taken(self) -> set[str]:
        """All assigned or reserved names."""
        return set(self._taken)
