"""Colours the columns (or rows) of a pattern: columns that share no row get one colour.

Greedy colouring in several orders keeps the number of colours small. One product with the sum of
the unit vectors of a colour computes all of its columns, since each row meets at most one of them.

References
----------
A. H. Gebremedhin, F. Manne, A. Pothen, "What color is your Jacobian? Graph coloring for computing
derivatives", SIAM Review 47(4), 2005: algorithms 3.1 (distance 2) and 4.1 (star colouring).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .pattern import Entries, joined
from .points import Array

#: the number of vertices from which only the natural order is tried
_MANY = 100_000
_SEED = 0  #: of the random order


@dataclass(frozen=True)
class Colouring:
    """A colour for each column, from zero.

    Attributes
    ----------
    colours : array of int64
        The colour of each column.
    count : int
        The number of colours.
    order : str
        The order of vertices that produced it.
    """

    colours: Array
    count: int
    order: str


@dataclass(frozen=True)
class Neighbours:
    """Adjacent vertices in compressed rows."""

    starts: Array
    vertices: Array

    def of(self, vertex: int) -> Array:
        """The neighbours of one vertex."""
        return self.vertices[self.starts[vertex] : self.starts[vertex + 1]]

    @property
    def degrees(self) -> Array:
        """The number of neighbours of each vertex."""
        return np.diff(self.starts)


def transposed(entries: Entries) -> Entries:
    """The entries of the transpose."""
    return Entries.of(entries.shape[::-1], [entries.columns * entries.shape[0] + entries.rows])


def colour_columns(entries: Entries) -> Colouring:
    """A distance-2 colouring: columns of one colour share no row.

    Examples
    --------
    >>> i = np.arange(5)
    >>> tridiagonal = Entries.of((5, 5), [i * 5 + i, i[1:] * 5 + i[:-1], i[:-1] * 5 + i[1:]])
    >>> colour_columns(tridiagonal).colours
    array([0, 1, 2, 0, 1])
    """
    least = int(np.bincount(entries.rows).max(initial=0))
    if least == entries.shape[1]:  # a row is full
        return Colouring(np.arange(least), least, "natural")
    return _best(conflicts(entries), least, _greedy)


def colour_symmetric(entries: Entries) -> Colouring:
    """A star colouring of a symmetric pattern.

    Every entry can be read from the product of the columns of one colour, at its own or at the
    transposed position.
    """
    off = entries.rows != entries.columns
    keys = entries.keys[off]
    graph = Entries.of(entries.shape, [keys])
    return _best(Neighbours(graph.starts(), graph.columns), 1, _star)


def conflicts(entries: Entries) -> Neighbours:
    """The other columns that share a row with each column."""
    other = transposed(entries)
    pairs = joined(other.rows, other.columns, entries)
    rows, columns = np.divmod(pairs, max(entries.shape[1], 1))
    own = rows != columns
    found = Entries.of((entries.shape[1], entries.shape[1]), [pairs[own]])
    return Neighbours(found.starts(), found.columns)


def _best(graph: Neighbours, least: int, colour: Callable[[Neighbours, Array], Array]) -> Colouring:
    """The colouring with the fewest colours over several orders of vertices."""
    best: Colouring | None = None
    for name, order in _orders(graph):
        colours = colour(graph, order)
        count = int(colours.max(initial=-1)) + 1
        if best is None or count < best.count:
            best = Colouring(colours, count, name)
        if best.count <= least:  # no colouring has fewer
            break
    assert best is not None
    return best


def _orders(graph: Neighbours) -> Iterator[tuple[str, Array]]:
    """Orders of vertices, each made on demand."""
    count = len(graph.starts) - 1
    yield "natural", np.arange(count)
    if count > _MANY:
        return
    yield "largest first", np.argsort(-graph.degrees, kind="stable")
    yield "smallest last", _smallest_last(graph)
    yield "random", np.random.default_rng(_SEED).permutation(count)


def _smallest_last(graph: Neighbours) -> Array:
    """Remove vertices of smallest degree one after the other; the last one comes first."""
    degrees = graph.degrees.tolist()
    buckets: list[list[int]] = [[] for _ in range(max(degrees, default=0) + 1)]
    for vertex in reversed(range(len(degrees))):
        buckets[degrees[vertex]].append(vertex)
    order: list[int] = []
    level, taken = 0, [False] * len(degrees)
    while len(order) < len(degrees):
        while not buckets[level]:
            level += 1
        vertex = buckets[level].pop()
        if taken[vertex] or degrees[vertex] != level:
            continue
        taken[vertex] = True
        order.append(vertex)
        for other in graph.of(vertex).tolist():
            if not taken[other]:
                degrees[other] -= 1
                buckets[degrees[other]].append(other)
                level = min(level, degrees[other])
    return np.array(order[::-1], np.int64)


def _greedy(graph: Neighbours, order: Array) -> Array:
    """Give each vertex the smallest colour that no neighbour has."""
    starts, vertices = graph.starts.tolist(), graph.vertices.tolist()
    colours = [-1] * (len(starts) - 1)
    for vertex in order.tolist():
        near = {colours[other] for other in vertices[starts[vertex] : starts[vertex + 1]]}
        colour = 0
        while colour in near:
            colour += 1
        colours[vertex] = colour
    return np.array(colours, np.int64)


def _star(graph: Neighbours, order: Array) -> Array:
    """Give each vertex the smallest colour such that no path of four vertices has only two colours.
    """
    starts, vertices = graph.starts.tolist(), graph.vertices.tolist()
    near = [vertices[a:b] for a, b in pairwise(starts)]
    colours = [-1] * len(near)
    for vertex in order.tolist():
        forbidden: set[int] = set()
        seen: dict[int, int] = {}  # colours of neighbours, and one neighbour of each
        for other in near[vertex]:
            colour = colours[other]
            if colour < 0:
                # two coloured vertices around an uncoloured one: they may not be equal later
                forbidden.update(colours[third] for third in near[other] if third != vertex)
                continue
            forbidden.add(colour)
            first = seen.setdefault(colour, other)
            repeated = [other] if first == other else [first, other]
            if first != other:
                for middle in repeated:
                    forbidden.update(colours[third] for third in near[middle] if third != vertex)
            # vertex - other - third - fourth with fourth of other's colour: third's is forbidden
            for third in near[other]:
                if (
                    third != vertex
                    and colours[third] >= 0
                    and any(fourth != other and colours[fourth] == colour for fourth in near[third])
                ):
                    forbidden.add(colours[third])
        choice = 0
        while choice in forbidden:
            choice += 1
        colours[vertex] = choice
    return np.array(colours, np.int64)
