"""Reductions over a size, in blocks that the second cache holds.

Values are small whole numbers, so every order of summation gives the same.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.machines import avx512
from tests.schedule.cases import placeholder
from tvm_autodiff.schedule.cpu.contraction import contraction
from tvm_autodiff.schedule.cpu.tiles.reduced_blocks import blocks_of
from tvm_autodiff.schedule.cpu.tiles.tile_functions import nest_of_kernel
from tvm_autodiff.schedule.fusion.kernels import cut
from tvm_autodiff.schedule.rewrites.normal_form import normal_form

#: with 64 KiB of operands for each, more than one block in second caches of up to 3 MiB
SIZES = (0, 1, 3, 4, 5, 8, 9, 26)
PLACES = 1024


def parts(rows, columns, index="int32", dtype="float32"):
    """What the gradient of a convolution over time with respect to its weights reads."""
    n = te.var("n", index)
    x = placeholder("x", n, columns, PLACES + 4, dtype=dtype)
    h = placeholder("h", n, rows, PLACES, dtype=dtype)
    b, t = te.reduce_axis((0, n), "b"), te.reduce_axis((0, PLACES), "t")
    return h, x, b, t


def moved(x):
    """``[r, n, j, t]``"""
    return np.stack([x[:, :, r : r + PLACES] for r in range(5)])


def weights(rows=8, columns=8, **kinds):
    h, x, b, t = parts(rows, columns, **kinds)
    y = te.compute(
        (rows, columns, 5),
        lambda i, j, r: te.sum(h[b, i, t] * x[b, j, t + r], axis=[b, t]),
        name="y",
    )
    return [h, x], y, lambda h, x: np.einsum("bit,rbjt->ijr", h, moved(x))


def with_epilogue():
    inputs, y, want = weights()
    z = te.compute(y.shape, lambda i, j, r: te.max(y[i, j, r], 0.0) + i, name="z")
    return inputs, z, lambda h, x: np.maximum(want(h, x), 0) + np.arange(8)[:, None, None]


def largest():
    """Another reducer, whose identity is not zero."""
    h, x, b, t = parts(8, 8)
    y = te.compute(
        (8, 8, 5), lambda i, j, r: te.max(h[b, i, t] + x[b, j, t + r], axis=[b, t]), name="y"
    )
    low = np.finfo("float32").min

    def want(h, x):
        found = np.full((8, 8, 5), low)
        for r, one in enumerate(moved(x)):
            for i in range(8):
                found[i, :, r] = (h[:, i, None] + one).max((0, 2), initial=low)
        return found

    return [h, x], y, want


CASES = {
    "weights": weights,
    "beyond the last tile": lambda: weights(7, 11),
    "int64 size": lambda: weights(index="int64"),
    "float64": lambda: weights(dtype="float64"),
    "epilogue": with_epilogue,
    "largest": largest,
}


def launch_of(output, machine):
    [kernel] = cut(normal_form([output]))[0]
    made = contraction(kernel, machine)
    assert made, made.reason
    return made[-1]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_accumulators_are_kept_between_blocks(name, threads):
    _, output, _ = CASES[name]()
    assert "kept0" in launch_of(output, avx512(threads)).func.script()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_every_block_counts(name, threads):
    inputs, output, want = CASES[name]()
    function = ad.build(inputs, output, num_threads=threads, cache=False)
    rng = np.random.default_rng(0)
    for size in SIZES:
        shapes = [[size, *map(int, one.shape[1:])] for one in inputs]
        pairs = zip(shapes, inputs, strict=True)
        arrays = [rng.integers(-2, 3, s).astype(str(tensor.dtype)) for s, tensor in pairs]
        np.testing.assert_array_equal(function(*arrays), want(*arrays), err_msg=f"n = {size}")


#: rows and columns, and bytes of the cache → places of a block
BLOCKS = {
    "half of the cache": (8, 8, 512 << 10, 3),
    "a small cache": (8, 8, 192 << 10, 1),
    "one place of the outer axis is too much": (8, 8, 64 << 10, 2),
    "a cache for all": (8, 8, 16 << 20, None),
    "too many results": (128, 128, 512 << 10, None),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_the_places_of_a_block(name):
    rows, columns, cache, expected = BLOCKS[name]
    _, output, _ = weights(rows, columns)
    [kernel] = cut(normal_form([output]))[0]
    machine = avx512(cache_bytes=cache)
    found = blocks_of(nest_of_kernel(kernel, machine), machine)
    assert (None if found is None else found.size) == expected
