"""Which programs run tile by tile, and that their machine code is right and takes less memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import te, topi

import tvm_autodiff as ad
from tests.machines import avx512
from tests.schedule.tiled.programs import attention, network
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.kinds.loop import Loop, loop_of, step_of
from tvm_autodiff.schedule.loop_rows import steps_apart
from tvm_autodiff.schedule.tiled import choice
from tvm_autodiff.schedule.tiled.choice import with_tiles
from tvm_autodiff.schedule.tiled.region import Region
from tvm_autodiff.schedule.tiled.tiles import Tiling, tiled


def normed(rows: int, width: int):
    x = te.placeholder((rows, width), name="x")
    k = te.reduce_axis((0, width), "k")
    mean = te.compute((rows,), lambda i: te.sum(x[i, k] / width, axis=k), name="mean")
    return [te.compute((rows, width), lambda i, j: x[i, j] - mean[i], name="normed")], mean


PROGRAMS = {
    "long": (attention((4,), 2048, 2048, 64, dtype="float32"), True),
    "one head": (attention((), 4096, 4096, 64, dtype="float32"), True),
    "many heads": (attention((8, 8), 256, 256, 32, dtype="float32"), True),
    "short": (attention((2,), 64, 64, 32, dtype="float32"), False),  # fits the caches
    "deep": (attention((2,), 256, 256, 2048, dtype="float32"), False),  # products take longer
    "layers": (network(4096, 1024, "float32"), False),
    "norm": (normed(4096, 4096), False),  # no products
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("threads", [1, 2])
def test_choice(name: str, threads: int) -> None:
    (outputs, _), expected = PROGRAMS[name]
    machine = replace(avx512(threads, 2**20), last_cache_bytes=2**25)
    made = with_tiles(outputs, machine)
    assert any(loop_of(op) is not None for op in Graph(made).ops) == expected


def reference(q, k, v, head, masked):
    s = np.where(masked, -np.inf, np.einsum("nid,njd->nij", q, k))
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    dp = np.einsum("nid,njd->nij", head, v)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    return p @ v, ds @ k, np.swapaxes(ds, 1, 2) @ q, np.swapaxes(p, 1, 2) @ head


@pytest.mark.slow
@pytest.mark.parametrize(("heads", "threads", "gradient"), [(1, 2, True), (2, 1, False)])
def test_attention(heads: int, threads: int, gradient: bool) -> None:
    rows, depth = 2048 // heads, 8
    outputs, _ = attention(
        (heads,),
        rows,
        rows,
        depth,
        lambda s, n, i, j: te.if_then_else(j <= i, s, -1e30),
        "float32",
        gradient,
    )
    inputs = Graph(outputs).placeholders()
    built = ad.build(inputs, outputs, num_threads=threads, cache=False)
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((heads, rows, depth)) for name in ("q", "k", "v", "head")}
    got = built(*(arrays[t.op.name].astype("float32") for t in inputs))
    masked = np.triu(np.ones((rows, rows), bool), 1)
    want = reference(*arrays.values(), masked)
    for a, b in zip(got, want[: len(outputs)], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    assert built.memory().temporaries < 4 * heads * rows * rows  # less than the scores alone


@pytest.mark.parametrize(
    ("length", "threads", "runs"), [(8, 2, 2), (3, 2, 1), (1, 2, 1), (8, 1, 1), (21, 2, 2)]
)
def test_steps_of_a_loop_without_carries_are_shared(length: int, threads: int, runs: int) -> None:
    [y], _ = attention((), 64, 64, 64, dtype="float32", gradient=False)
    inputs = Graph([y]).placeholders()
    step = step_of([], [], inputs, [], [y])
    assert steps_apart(Loop(step, (), (), tuple(inputs), length), avx512(threads)) == runs


def test_one_tile_is_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a layer exchanges is larger than a cache, and half of it is not."""
    x, w = te.placeholder((64, 1, 28, 28), name="x"), te.placeholder((6, 1, 5, 5), name="w")
    b, y = te.placeholder((6,), name="b"), topi.nn.conv2d(x, w, strides=1, padding=2, dilation=1)
    y = topi.nn.relu(te.compute(y.shape, lambda n, f, i, j: y[n, f, i, j] + b[f], name="shifted"))
    output = topi.nn.pool2d(y, [2, 2], [2, 2], [1, 1], [0, 0, 0, 0], "max")
    made: list[Tiling] = []

    def one_tile(region: Region, tiling: Tiling) -> list[te.Tensor]:
        assert len(made) < 10, "the same stages again and again"
        made.append(tiling)
        return tiled(region, tiling)

    monkeypatch.setattr(choice, "tiled", one_tile)
    loss = topi.sum(topi.multiply(output, output))
    outputs = [loss, *ad.differentiate(loss, [w, b])]
    with_tiles(outputs, replace(avx512(1, 2**20), last_cache_bytes=2**25))
    assert made
    assert all(tiling.parts * tiling.tiles > 1 for tiling in made)
