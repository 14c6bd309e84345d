"""Chooses which stages of a program run tile by tile, and the tiles.

Between products, tensors that are larger than the caches of the cores pass through the cache that
all cores share, or through memory: once when they are written, and once for each reader. Tiles keep
them in the cache of a core. They cost the reads and writes of what is added up from tile to tile,
and smaller kernels. They pay where products do little work for each element of what they exchange,
such as the scores of attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from ...expr.nodes import Tensor, dtype_of, tensor_key
from ...graph.graph import Graph, replace_tensors, tensors_read_by
from ...graph.stage import Operation, is_compute, outputs_of, reduction_of, shape_of
from ..cost import KERNEL_CALL, MARGIN, MEMORY_BYTE, SHARED_BYTE, STORE
from ..kernel import iterations, size_of
from ..machine import Machine
from ..work import bytes_of
from .region import Key, Region, region_around
from .tiles import Tiling, outer_loops, tiled


def with_tiles(tensors: Sequence[Tensor], machine: Machine) -> list[Tensor]:
    """Equal tensors, whose stages run tile by tile where that pays."""
    current = list(tensors)
    seen: set[Key] = set()
    while True:
        graph = Graph(current)
        wanted = {tensor_key(tensor) for tensor in current}
        chosen: _Candidate | None = None
        for seed in _seeds(graph, machine):
            if tensor_key(seed) not in seen and chosen is None:
                seen.add(tensor_key(seed))
                chosen = _best(graph, seed, wanted, machine)
        if chosen is None:
            return current
        made = tiled(chosen.region, chosen.tiling)
        current = replace_tensors(current, list(zip(chosen.region.results, made, strict=True)))


@dataclass(frozen=True)
class _Candidate:
    region: Region
    tiling: Tiling
    gain: float  #: cycles


def _seeds(graph: Graph, machine: Machine) -> Iterator[Tensor]:
    """Large tensors that products write or read, and that take a while beside these."""
    for op in graph.ops:
        for tensor in outputs_of(op) if is_compute(op) else ():
            if not _is_large(tensor, machine):
                continue
            near = [op, *graph.consumers(tensor)]
            products = [one for one in near if _is_product(one)]
            if products and _is_large_beside(tensor, near, products, machine):
                yield tensor


def _is_large_beside(
    tensor: Tensor, near: Sequence[Operation], products: Sequence[Operation], machine: Machine
) -> bool:
    """Whether tensors as large as one that products exchange would take a while from memory."""
    tensors = max(len(tensors_read_by(one)) + one.num_outputs for one in products)
    passes = (bytes_of(tensor) or 0) * len(near)
    return tensors * passes * MEMORY_BYTE > _least_gain(products, machine)


def _least_gain(products: Sequence[Operation], machine: Machine) -> float:
    """The cycles that tiles have to save beside products."""
    lanes = machine.lanes(dtype_of(products[0].output(0))) if products else 1
    # half a margin: a part of what tiles save is hidden behind the products
    return (MARGIN - 1) / 2 * sum(map(iterations, products)) / (2 * lanes)


def _is_large(tensor: Tensor, machine: Machine) -> bool:
    size = bytes_of(tensor)
    return size is not None and size >= machine.cache_bytes


def _is_product(op: Operation) -> bool:
    """Whether a reduction reads each element many times."""
    if not is_compute(op) or reduction_of(op) is None:
        return False
    largest = max((size_of(shape_of(tensor)) for tensor in tensors_read_by(op)), default=0)
    return iterations(op) >= STORE * largest


def _best(graph: Graph, seed: Tensor, wanted: set[Key], machine: Machine) -> _Candidate | None:
    found: list[_Candidate] = []
    for outer in range(len(shape_of(seed)) - 1):
        region = region_around(graph, seed, outer, wanted, lambda t: _is_large(t, machine))
        candidate = None if region is None else _candidate(graph, region, machine)
        if candidate is not None:
            found.append(candidate)
    return max(found, key=lambda one: one.gain, default=None)


def _candidate(graph: Graph, region: Region, machine: Machine) -> _Candidate | None:
    """The tiles of a region, or None if they do not pay."""
    exchanged = passes = 0
    for tensor in region.kept:
        size, readers = bytes_of(tensor) or 0, graph.consumers(tensor)
        if any(map(_is_product, [tensor.op, *readers])):
            exchanged += size
            passes += size * (1 + len(readers))
    whole = passes * _byte_cycles(exchanged, machine, machine.threads)
    least = _least_gain([op for op in region.members if _is_product(op)], machine)
    if whole <= least:
        return None
    outer, rows = prod(region.extents[:-1]), region.extents[-1]
    # half of what a tile computes is needed at a time
    row = sum(bytes_of(tensor) or 0 for tensor in region.kept) // (2 * outer * rows)
    sums = sum(bytes_of(t) or 0 for t in region.results if hash(t.op) in region.sums)
    found: list[_Candidate] = []
    for tiling in _tilings(region, machine):
        tiles = tiling.parts * tiling.tiles
        added = 2 * sums * (tiles if tiling.tiles > 1 else tiling.parts - 1)
        cycles = passes * _byte_cycles(rows // tiles * row, machine)
        cycles += added * _byte_cycles(2 * sums // outer, machine)
        cycles += KERNEL_CALL * outer * tiles * len(region.members)
        found.append(_Candidate(region, tiling, whole - cycles))
    best = max(found, key=lambda one: one.gain, default=None)
    return best if best is not None and best.gain > least else None


def _byte_cycles(held: int, machine: Machine, cores: int = 1) -> float:
    """The cycles to reach a byte of what some cores hold, above those of a core's own cache."""
    if held <= cores * machine.cache_bytes:
        return 0.0
    near = 2 * held * machine.threads <= cores * machine.last_cache_bytes
    return SHARED_BYTE if near else MEMORY_BYTE


def _tilings(region: Region, machine: Machine) -> Iterator[Tiling]:
    """Rows in tiles, the largest first, and in parts for threads where outer axes are too few."""
    rows, parts, outer = region.extents[-1], 1, prod(region.extents[:-1])
    least = 2 * min(machine.lanes(dtype_of(tensor)) for tensor in region.results)
    if region.sums and not any(machine.is_even(extent) for extent in outer_loops(region)):
        parts = machine.threads
    if rows % parts:
        return
    for tiles in range(1, rows // parts + 1):
        size = rows // (parts * tiles)
        if outer * parts * tiles == 1:
            continue  # one tile is the program as it is
        if size * parts * tiles == rows and (size >= least or tiles * parts == 1):
            yield Tiling(parts, tiles)
