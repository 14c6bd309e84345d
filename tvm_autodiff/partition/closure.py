"""Finds the cheapest closed set of a graph by a minimum cut.

Elements have costs, which may be negative, and implications ``x → y`` require y wherever x is
included. All arithmetic is exact.

References
----------
J.-C. Picard, "Maximal closure of a graph and applications to combinatorial problems", Management
Science 22 (1976), for the reduction; Y. Dinitz, Soviet Math. Doklady 11 (1970), for the flow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


def cheapest_closure(
    costs: Sequence[int], implications: Sequence[tuple[int, int]], required: Sequence[int] = ()
) -> set[int]:
    """The smallest of the cheapest closed sets that contain the required elements.

    Examples
    --------
    An element that saves 5 and needs two others, which cost 2 each:

    >>> sorted(cheapest_closure([-5, 2, 2], [(0, 1), (0, 2)]))
    [0, 1, 2]
    >>> sorted(cheapest_closure([-3, 2, 2], [(0, 1), (0, 2)]))
    []
    """
    count = len(costs)
    source, sink = count, count + 1
    infinite = 1 + sum(abs(cost) for cost in costs)
    network = _Network(count + 2)
    forced = set(required)
    for place, cost in enumerate(costs):
        if place in forced or cost < 0:
            network.add(source, place, infinite if place in forced else -cost)
        if cost > 0:
            network.add(place, sink, cost)
    for first, second in implications:
        network.add(first, second, infinite)
    network.saturate(source, sink)
    return network.reached(source) - {source}


class _Network:
    """A flow network; flow is pushed along shortest paths until none is left."""

    def __init__(self, count: int) -> None:
        self._ways: list[list[int]] = [[] for _ in range(count)]
        self._ends: list[int] = []
        self._left: list[int] = []

    def add(self, first: int, second: int, capacity: int) -> None:
        """Add an edge and its reverse without capacity, numbered in pairs."""
        for place, end, left in ((first, second, capacity), (second, first, 0)):
            self._ways[place].append(len(self._ends))
            self._ends.append(end)
            self._left.append(left)

    def reached(self, start: int) -> set[int]:
        """The nodes reachable with remaining capacity."""
        return set(self._distances(start))

    def saturate(self, source: int, sink: int) -> None:
        """Push flow until no capacity is left from source to sink."""
        while True:
            distances = self._distances(source)
            if sink not in distances:
                return
            following = [0] * len(self._ways)
            while self._push(source, sink, distances, following):
                pass

    def _distances(self, start: int) -> dict[int, int]:
        distances = {start: 0}
        pending = deque([start])
        while pending:
            place = pending.popleft()
            for way in self._ways[place]:
                end = self._ends[way]
                if self._left[way] > 0 and end not in distances:
                    distances[end] = distances[place] + 1
                    pending.append(end)
        return distances

    def _push(
        self, source: int, sink: int, distances: dict[int, int], following: list[int]
    ) -> bool:
        """Push flow along one shortest path; `following` are the edges not yet found useless."""
        path: list[int] = []
        place = source
        while place != sink:
            ways = self._ways[place]
            while following[place] < len(ways):
                way = ways[following[place]]
                end = self._ends[way]
                if self._left[way] > 0 and distances.get(end) == distances[place] + 1:
                    path.append(way)
                    place = end
                    break
                following[place] += 1
            else:
                if not path:
                    return False
                place = self._ends[path.pop() ^ 1]
                following[place] += 1
        amount = min(self._left[way] for way in path)
        for way in path:
            self._left[way] -= amount
            self._left[way ^ 1] += amount
        return True
