"""Gradients of maps whose index arithmetic needs more than 32 bits, evaluated at a few places.

No array of their size is made: a stage is evaluated where it is asked for, with the arithmetic of
its own types, and every integer on the way is compared with the exact one. What is wanted comes
from the definition: the heads of all points that the map sends to a place. A few are compiled, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.gradients.checked_values import value_at

Map = Callable[..., Any]

#: name → extent of the input, shape of the output, index
MAPS: dict[str, tuple[int, tuple[int, ...], Map]] = {
    "circular": (100_003, (100_003,), lambda i: (5 - i) % 100_003),
    "circular, twice": (1_000_003, (1_000_003,), lambda i: (7 * i) % 1_000_003),
    "circular, large step": (1_000_003, (200_000,), lambda i: (70_001 * i) % 1_000_003),
    "circular, negative": (2_000_000, (800_000,), lambda i: (1_999_999 - 3001 * i) % 2_000_000),
    "frames": (6_001_024, (13_606, 100), lambda i, j: 441 * i + j),
    "dilated": (4_000_000, (1_000_000, 5), lambda i, j: 2 * i + 10_007 * j),
    "resampled": (10_000_000, (3_000_000,), lambda i: i * 441 // 160),
    "resampled down": (1_500_000, (4_000_000,), lambda i: i * 160 // 441),
    "strided windows": (9_000_000, (15_000, 40), lambda i, k: 512 * i + 7 * k),
    "two axes, modulo": (9973, (70_000, 20), lambda i, j: (i * 40_001 + j * 30_011) % 9973),
    "nested": (50_000, (1_000_000,), lambda i: ((5000 * i) % 99_991) // 2),
    "from the end": (1_800_000_100, (3_000_000,), lambda i: 1_800_000_099 - 600 * i),
    "near the end of the type": (2_147_483_000, (2_000_000,), lambda i: 1073 * i + 7),
    "mixed radix": (100_000_000, (1000, 2000), lambda i, j: i * 50_000 + j * 3 % 50_000),
}


def places(name: str) -> np.ndarray:
    """Elements of the input to look at: the ends, some that are read, some at random."""
    extent, shape, index = MAPS[name]
    rng = np.random.default_rng(0)
    points = [rng.integers(0, n, 20) for n in shape]
    ends = np.array([0, 1, extent // 2, extent - 2, extent - 1])
    last = index(*(np.array([n - 1]) for n in shape))
    return np.unique(np.concatenate([ends, last, index(*points), rng.integers(0, extent, 20)]))


def head(indices: Sequence[Any]) -> np.ndarray:
    """The cotangent as a function of its indices."""
    return (
        sum(np.asarray(i, np.int64) * p for i, p in zip(indices, (7, 31), strict=False)) % 101 + 1.0
    )


def wanted(name: str, at: np.ndarray) -> np.ndarray:
    """``Σ head[a]`` over all points a with ``index(a)`` at the places."""
    extent, shape, index = MAPS[name]
    total = np.zeros(len(at))
    for first in range(0, shape[0], 1 + 2_000_000 // max(shape[1:], default=1)):
        rows = np.arange(first, min(first + 1 + 2_000_000 // max(shape[1:], default=1), shape[0]))
        point = np.meshgrid(rows, *map(np.arange, shape[1:]), indexing="ij")
        reached = np.broadcast_to(index(*point), point[0].shape)
        assert reached.min() >= 0
        assert reached.max() < extent
        found = np.isin(reached, at)
        places = np.searchsorted(at, reached[found])
        np.add.at(total, places, head([axis[found] for axis in point]))
    return total


def gradient_of(name: str) -> tuple[Any, Any, Any, Any]:
    extent, shape, index = MAPS[name]
    x = te.placeholder((extent,), "float64", name="x")
    out = te.compute(shape, lambda *axes: x[index(*axes)], name="out")
    h = te.placeholder(shape, "float64", name="h")
    return x, out, h, ad.gradient(out, [x], h)[0]


@pytest.mark.parametrize("name", MAPS)
def test_every_intermediate_fits_and_the_value_is_right(name: str) -> None:
    *_, gradient = gradient_of(name)
    at = places(name)
    assert np.array_equal(value_at(gradient, [at], head), wanted(name, at))


@pytest.mark.parametrize("name", ["circular", "circular, twice", "two axes, modulo", "nested"])
def test_compiled(name: str) -> None:
    x, out, h, gradient = gradient_of(name)
    extent, shape, index = MAPS[name]
    reached = np.broadcast_to(index(*np.indices(shape, sparse=True)), shape)
    cotangent = head(np.indices(shape))
    data = np.random.default_rng(0).random(extent)
    y, dx = ad.build([x, h], [out, gradient], cache=False)(data, cotangent)
    assert np.array_equal(y, data[reached])
    assert np.array_equal(dx, np.bincount(reached.ravel(), cotangent.ravel(), extent))


def test_small_programs_are_int32_alone() -> None:
    for stride, extent in ((441, 4000), (7, 1_000_003)):
        x = te.placeholder((extent,), "float64", name="x")
        out = te.compute((9, 3), lambda i, j: x[(stride * i + j) % extent], name="out")  # noqa: B023
        assert "int64" not in ad.show(ad.gradient(out, [x], te.placeholder((9, 3), "float64"))[0])


def test_data_times_a_large_step() -> None:
    """Positions of a scatter are data in a stage of its own, and indices all the same."""
    extent, points = 1_000_003, 500
    x = te.placeholder((extent,), "float64", name="x")
    first, second = (te.placeholder((points,), "int32", name=name) for name in "IJ")
    out = te.compute((points,), lambda n: x[(first[n] * 441 + second[n] * 1000) % extent])
    h = te.placeholder((points,), "float64", name="h")
    rng = np.random.default_rng(0)
    given = rng.integers(0, 2**31 - 1, (2, points)).astype("int32")
    reached = (given[0].astype(np.int64) * 441 + given[1].astype(np.int64) * 1000) % extent
    data, heads = rng.random(extent), rng.random(points)
    [gradient] = ad.gradient(out, [x], h)
    y, dx = ad.build([x, first, second, h], [out, gradient], cache=False)(data, *given, heads)
    assert np.array_equal(y, data[reached])
    np.testing.assert_allclose(dx, np.bincount(reached, heads, extent))
