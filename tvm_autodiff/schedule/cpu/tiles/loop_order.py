"""Orders the loops around a register tile, so that what they read again is still in a cache."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from math import prod

from ...cost import MAX_SEARCHED, MEMORY_BYTE, SHARED_BYTE
from ...machine import Machine
from .nests import Nest, ranges_of
from .packing import packed_size
from .tile import Tile


class TileOrders:
    """What the orders of the loops over tiles read again from beyond the cache of a core.

    Parameters
    ----------
    nest : Nest
    tile : Tile
    padded : mapping from the id of a variable to int
        The extents of whole tiles.
    machine : Machine
    """

    def __init__(
        self, nest: Nest, tile: Tile, padded: Mapping[int, int], machine: Machine
    ) -> None:
        self._nest, self._tile, self._padded, self._machine = nest, tile, padded, machine
        self._factors = {nest.spatial[axis]: count for axis, count in tile.factors.items()}
        self._variables = [operand.variables() for operand in nest.body.operands]
        self._sizes: dict[tuple[int, frozenset[int]], int] = {}
        self._held: dict[frozenset[int], int] = {}
        self._far: dict[tuple[int, ...], int] = {}

    def best(self) -> list[int]:
        """The output axes, outermost first, in the order that reads least again; among equal ones
        those that move through the most memory are outside.
        """
        return min(self._orders(), key=self.far_bytes)

    def with_outermost(self, axes: Collection[int]) -> list[int] | None:
        """The best order in which some axes are outermost, if it reads no more again than others.
        """
        orders = self._orders()
        least = min(map(self.far_bytes, orders))
        moved = [
            [*(one for one in order if one in axes), *(one for one in order if one not in axes)]
            for order in orders
        ]
        best = min(moved, key=self.far_bytes)
        return best if self.far_bytes(best) <= least else None

    def far_cycles(self, order: Sequence[int] | None = None) -> float:
        """The cycles in which a core reads again from beyond its cache, in an order or the best."""
        if self._fits(self._nest.spatial):
            return 0.0
        return min(map(self.far_bytes, self._orders() if order is None else [order])) * self._price

    def first_cycles(self) -> float:
        """The cycles in which a core reads everything once that its cache does not hold."""
        everything = self._nest.spatial
        return 0.0 if self._fits(everything) else self._bytes(everything) * self._price

    def near_bytes(self, order: Sequence[int]) -> int:
        """The bytes that come from beyond the first cache, those that are read again included."""
        first = replace(self._machine, cache_bytes=self._machine.first_cache_bytes)
        orders = TileOrders(self._nest, self._tile, self._padded, first)
        everything = self._nest.spatial
        once = 0 if orders._fits(everything) else orders._bytes(everything)
        return once + orders.far_bytes(order)

    @property
    def _price(self) -> float:
        """The cycles in which a core reads a byte from beyond its cache."""
        held = self._bytes(self._nest.spatial) <= self._machine.last_cache_bytes
        tiles = prod(self._turns(key) for key in self._nest.spatial)
        return (SHARED_BYTE if held else MEMORY_BYTE) / min(self._machine.threads, tiles)

    def far_bytes(self, order: Sequence[int]) -> int:
        """The bytes that are read again from beyond the cache.

        ``for j: for i: C[i, j] += A[i, :]*B[:, j]``: B[:, j] is read again for each i, from the
        cache if it fits in there beside A[i, :]. All of A is read again for each j, and comes from
        beyond the cache if it does not fit beside B[:, j].
        """
        known = self._far.get(tuple(order))
        if known is not None:
            return known
        keys = [self._nest.spatial[axis] for axis in order]
        total = 0
        for number, variables in enumerate(self._variables):
            again = 1
            for place, key in enumerate(keys):
                if key not in variables and not self._fits(keys[place + 1 :]):
                    again *= self._turns(key)
            total += (again - 1) * (self._size(number, self._nest.spatial) or 0)
        return self._far.setdefault(tuple(order), total * self._nest.itemsize)

    @property
    def _near(self) -> int:
        # the other half is for what is written, and lost to lines that fall into the same sets
        return self._machine.cache_bytes // 2

    def _orders(self) -> list[list[int]]:
        """All orders to choose from, the one to prefer among equals first."""
        nest = self._nest
        axes = sorted(range(len(nest.spatial)), key=lambda axis: -self._memory(nest.spatial[axis]))
        long = [axis for axis in axes if self._turns(nest.spatial[axis]) > 1]
        if len(long) > MAX_SEARCHED or self._fits(nest.spatial):
            return [axes]
        once = [axis for axis in axes if axis not in long]
        return [[*order, *once] for order in permutations(long)]

    def _memory(self, key: int) -> int:
        """The elements of the operands that a loop moves through."""
        mine = (number for number, keys in enumerate(self._variables) if key in keys)
        return sum(self._size(number, self._nest.spatial) for number in mine)

    def _turns(self, key: int) -> int:
        extent = self._padded.get(key, self._nest.symbolic)
        return max(1, extent // self._factors.get(key, 1))

    def _fits(self, loops: Collection[int]) -> bool:
        """Whether the cache holds what all turns of some loops over tiles read."""
        return self._bytes(loops) <= self._near

    def _bytes(self, loops: Collection[int]) -> int:
        """The bytes that all turns of some loops over tiles read."""
        known = frozenset(loops)
        if known not in self._held:
            sizes = [self._size(number, known) for number in range(len(self._variables))]
            self._held[known] = sum(sizes) * self._nest.itemsize
        return self._held[known]

    def _size(self, number: int, loops: Collection[int]) -> int:
        """The elements of an operand that all turns of some loops over tiles read."""
        key = number, self._variables[number].intersection(loops)
        if key not in self._sizes:
            outside = (one for one in self._nest.spatial if one not in key[1])
            still = {one: self._factors.get(one, 1) for one in outside}
            ranges = ranges_of({**self._padded, **still})
            operand = self._nest.body.operands[number]
            self._sizes[key] = packed_size(operand, ranges, self._nest.symbolic)
        return self._sizes[key]


def streamed_bytes(
    nest: Nest, tile: Tile, machine: Machine, padded: Mapping[int, int]
) -> int:
    """The bytes that each tile reads from beyond the first cache: those of operands of which it
    reads more than stays in there until the next tile.
    """
    here = {nest.spatial[axis]: count for axis, count in tile.factors.items()}
    ranges = ranges_of({**padded, **dict.fromkeys(nest.spatial, 1), **here})
    sizes = (packed_size(one, ranges, nest.symbolic) for one in nest.body.operands)
    read = (size * nest.itemsize for size in sizes)
    return sum(one for one in read if one > machine.first_cache_bytes // 2)


def reduction_order(nest: Nest, tile: Tile, machine: Machine) -> list[int]:
    """Reduced loops, innermost last: one that goes through lines of memory in order, and none along
    which unrolled reads slide.

    Such a loop reads `x[i + r]` for each `i` of the tile, and most of it again in the next
    iteration. LLVM unrolls it to keep the values, runs out of registers and spills accumulators.
    """
    unrolled = {nest.spatial[axis] for axis, _ in tile.unrolled}

    def slides(axis: int) -> bool:
        return any(
            nest.reduced[axis] in keys and keys & unrolled
            for operand in nest.body.operands
            for keys in ({key for key, _ in atom} for atom in operand.atoms)
        )

    order = list(range(len(nest.reduced)))
    def apart(axis: int) -> int:
        strides = (nest.stride(operand, nest.reduced[axis]) for operand in nest.body.operands)
        far = machine.line_bytes // nest.itemsize
        return sum(far if stride is None else min(abs(stride), far) for stride in strides)

    still = [axis for axis in order if not slides(axis)]
    if still:
        last = still[-1] if machine.exact_math else min(reversed(still), key=apart)
        order.append(order.pop(last))
    return order
