"""The order of the loops over tiles: what they read again, against a cache that is simulated."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from tests.machines import avx512
from tests.schedule import cases
from tvm_autodiff.schedule.cpu.tiles.loop_order import TileOrders
from tvm_autodiff.schedule.cpu.tiles.nests import padded_extents
from tvm_autodiff.schedule.cpu.tiles.tile import Tile
from tvm_autodiff.schedule.cpu.tiles.tile_functions import nest_of_kernel
from tvm_autodiff.schedule.kernel import Kernel


def orders_of(n: int, m: int, k: int, tile: Tile, cache_bytes: int) -> TileOrders:
    machine = replace(avx512(1, cache_bytes), last_cache_bytes=1 << 30)
    nest = nest_of_kernel(Kernel(cases.matmul(n, m, k)[1].op), machine)
    assert nest is not None
    return TileOrders(nest, tile, padded_extents(nest, tile), machine)


def reads(n: int, m: int, k: int, rows: int, columns: int, order: list[int]) -> Iterator[object]:
    """What a product of n x k and k x m reads, tile by tile."""
    counts = (n // rows, m // columns)
    for outer, inner in product(*(range(counts[axis]) for axis in order)):
        place = dict(zip(order, (outer, inner), strict=True))
        for step in range(k):
            yield from (("A", place[0] * rows + row, step) for row in range(rows))
            yield from (("B", step, place[1] * columns + column) for column in range(columns))


def read_again(found: Iterator[object], held: int) -> int:
    """The elements that are not in a cache of the `held` ones used last, without the first time."""
    cache: OrderedDict[object, None] = OrderedDict()
    seen: set[object] = set()
    again = 0
    for one in found:
        if one in cache:
            cache.move_to_end(one)
            continue
        again += one in seen
        seen.add(one)
        cache[one] = None
        if len(cache) > held:
            cache.popitem(last=False)
    return again


SHAPES = [(12, 32, 16), (48, 16, 20), (8, 64, 9), (32, 32, 32)]


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
@pytest.mark.parametrize("held", [64, 300, 1000, 4000])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_read_again_is_that_of_a_cache(shape, held, order):
    """Half of the cache counts; where a little more is read than fits, some of it stays."""
    rows, columns = 4, 16
    tile = Tile(1, columns, 1, ((0, rows),))
    found = orders_of(*shape, tile, 2 * 4 * held).far_bytes(order) // 4
    want = read_again(reads(*shape, rows, columns, order), held)
    close = read_again(reads(*shape, rows, columns, order), held * 5 // 4)
    assert close <= found <= want or found == pytest.approx(want, rel=0.1)


@pytest.mark.parametrize(
    ("shape", "cache_bytes", "order"),
    [
        ((1024, 1024, 1024), 2 << 20, [1, 0]),  # a panel of B stays, rows of A pass by
        ((128, 2048, 256), 1 << 20, [1, 0]),  # all of A stays
        ((2048, 128, 256), 1 << 20, [0, 1]),  # all of B stays
        ((64, 128, 64), 1 << 20, [1, 0]),  # everything stays: the larger operand outside
    ],
)
def test_the_best_order_reads_least_again(shape, cache_bytes, order):
    orders = orders_of(*shape, Tile(1, 16, 4, ((0, 4),)), cache_bytes)
    assert orders.best() == order
    assert orders.far_bytes(order) <= orders.far_bytes(order[::-1])


def test_what_stays_in_the_cache_costs_nothing():
    tile = Tile(1, 16, 4, ((0, 4),))
    assert orders_of(64, 128, 64, tile, 1 << 20).far_cycles() == 0
    assert orders_of(1024, 1024, 1024, tile, 1 << 20).far_cycles() > 0
