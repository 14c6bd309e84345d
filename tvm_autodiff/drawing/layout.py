"""Positions for the nodes of a directed graph without cycles, in layers from top to bottom.

The method is that of K. Sugiyama, S. Tagawa and M. Toda (1981): layers by longest paths, bends
where an edge passes a layer, an order within each layer with few crossings, then positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Edge = tuple[int, int]  #: from a node to one that stands lower
#: the distance between the sides of neighbours, and the width of an edge that passes a layer
GAP, BEND = 22.0, 10.0
_SWEEPS = 12


@dataclass(frozen=True)
class Layout:
    """Where nodes stand, and where edges bend."""

    centres: list[float]  #: the horizontal centre of each node
    layers: list[int]  #: the layer of each node, 0 at the top
    routes: dict[Edge, list[tuple[float, int]]]  #: centre and layer of each point of an edge


def layered(widths: Sequence[float], edges: Sequence[Edge]) -> Layout:
    """Place nodes so that every edge runs downward.

    The numbers of the nodes are a topological order: an edge is a pair of ascending numbers. The
    leftmost side is at 0, and no two nodes of a layer overlap.

    Examples
    --------
    >>> layered([40, 40, 40], [(0, 1), (1, 2), (0, 2)]).layers
    [0, 1, 2]
    """
    edges = list(dict.fromkeys(edges))
    layers = _layers(len(widths), edges)
    spans, layer_of, bends = list(widths), list(layers), dict[Edge, list[int]]()
    for start, stop in edges:
        passed = range(layers[start] + 1, layers[stop])
        bends[start, stop] = [start, *range(len(spans), len(spans) + len(passed)), stop]
        spans += [BEND] * len(passed)
        layer_of += passed
    links = [pair for route in bends.values() for pair in pairwise(route)]
    rows: list[list[int]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    for node, layer in enumerate(layer_of):
        rows[layer].append(node)
    above: dict[int, list[int]] = {node: [] for node in range(len(spans))}
    below: dict[int, list[int]] = {node: [] for node in range(len(spans))}
    for upper, lower in links:
        above[lower].append(upper)
        below[upper].append(lower)
    rows = _ordered(rows, above, below)
    centre = _centres(rows, spans, above, below)
    left = min((centre[n] - spans[n] / 2 for n in range(len(spans))), default=0.0)
    centre = [value - left for value in centre]
    routes = {edge: [(centre[n], layer_of[n]) for n in route] for edge, route in bends.items()}
    return Layout(centre[: len(widths)], layers, routes)


def _layers(count: int, edges: Sequence[Edge]) -> list[int]:
    """The length of the longest path to each node; sources stand directly above a reader."""
    layers = [0] * count
    for start, stop in sorted(edges):
        layers[stop] = max(layers[stop], layers[start] + 1)
    read = {start for start, _ in edges}
    sources = read - {stop for _, stop in edges}
    for node in sources:
        layers[node] = min(layers[stop] for start, stop in edges if start == node) - 1
    return layers


def _ordered(
    rows: list[list[int]], above: Mapping[int, list[int]], below: Mapping[int, list[int]]
) -> list[list[int]]:
    """The order of each layer: sorted by the mean place of neighbours, down and up in turn."""
    best, fewest = rows, _crossings(rows, above)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        rows = [list(row) for row in rows]
        places = {node: place for row in rows for place, node in enumerate(row)}
        for row in rows if down else reversed(rows):
            near = above if down else below
            means = {
                n: sum(places[m] for m in near[n]) / len(near[n]) if near[n] else places[n]
                for n in row
            }
            row.sort(key=means.__getitem__)
            places.update({node: place for place, node in enumerate(row)})
        crossings = _crossings(rows, above)
        if crossings < fewest:
            best, fewest = rows, crossings
    return best


def _crossings(rows: Sequence[Sequence[int]], above: Mapping[int, list[int]]) -> int:
    """How many pairs of edges between neighbouring layers cross."""
    total = 0
    for upper, lower in pairwise(rows):
        places = {node: place for place, node in enumerate(upper)}
        ends = [place for node in lower for place in sorted(places[m] for m in above[node])]
        total += sum(a > b for n, a in enumerate(ends) for b in ends[n + 1 :])
    return total


def _centres(
    rows: Sequence[Sequence[int]],
    spans: Sequence[float],
    above: Mapping[int, list[int]],
    below: Mapping[int, list[int]],
) -> list[float]:
    """Horizontal centres for which the sum of the squared widths of edges is small.

    The bends of a long edge weigh more, so that it is straight. One layer moves at a time.
    """
    centre = [0.0] * len(spans)
    for sweep in range(5 * _SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = []
            for n in row:
                near = above[n] + below[n]
                pulls = [(8.0 if spans[n] == spans[m] == BEND else 1.0, centre[m]) for m in near]
                weight = sum(w for w, _ in pulls) or 1.0
                wanted.append((sum(w * x for w, x in pulls) / weight, weight))
            _spread(row, spans, wanted, centre)
    return centre


def _spread(
    row: Sequence[int], spans: Sequence[float], wanted: Sequence[tuple[float, float]], centre: list
) -> None:
    """Write the centres nearest to those wanted, in weighted least squares, without overlap."""
    offsets = [0.0] * min(len(row), 1)
    for previous, node in pairwise(row):
        offsets.append(offsets[-1] + (spans[previous] + spans[node]) / 2 + GAP)
    blocks: list[tuple[float, float, int]] = []  # nodes side by side: their mean, weight, number
    for (want, weight), offset in zip(wanted, offsets, strict=True):
        mean, count = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, more, others = blocks.pop()
            mean = (mean * weight + other * more) / (weight + more)
            weight, count = weight + more, count + others
        blocks.append((mean, weight, count))
    means = [mean for mean, _, count in blocks for _ in range(count)]
    for node, mean, offset in zip(row, means, offsets, strict=True):
        centre[node] = mean + offset
