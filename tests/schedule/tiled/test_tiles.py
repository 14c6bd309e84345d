"""Regions written as loops over tiles compute what their stages compute."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tests.schedule.tiled.programs import Program, attention, later_sums, network
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.graph.graph import Graph, replace_tensors
from tvm_autodiff.graph.kinds.loop import loop_of
from tvm_autodiff.schedule.rewrites.table import BEFORE_KERNELS, rewritten
from tvm_autodiff.schedule.tiled.region import Region, region_around
from tvm_autodiff.schedule.tiled.tiles import Tiling, tiled

ROWS = 8
bias = te.placeholder((ROWS, 3), "float64", "bias")
mask = te.placeholder((2, 3), "int32", "mask")
one, many = Tiling(1, 1), Tiling(2, 2)


def scores(outer, score=lambda s, *place: s):
    return attention(outer, ROWS, 3, 2, score)


#: name → the program, how many outer axes it has, and the tiles
CASES: dict[str, tuple[Program, int, list[Tiling]]] = {
    "attention": (scores((2,)), 1, [one, Tiling(1, 4), Tiling(4, 1), many]),
    "heads": (scores((2, 3)), 2, [many]),
    "no outer axis": (scores(()), 0, [one, many]),
    "an outer axis as rows": (scores((2, 3)), 0, [Tiling(1, 2)]),
    "causal": (scores((2,), lambda s, n, i, j: te.if_then_else(j <= i, s, -1e30)), 1, [one, many]),
    "a bias of rows": (scores((2,), lambda s, n, i, j: s + bias[i, j]), 1, [many]),
    "a mask of the batch": (
        scores((2, 3), lambda s, b, h, i, j: te.if_then_else(mask[b, j] != 0, s, -1e30)),
        2,
        [Tiling(1, 4)],
    ),
    "positions as values": (scores((2,), lambda s, n, i, j: s * (n + 1.0) - i * 0.1), 1, [many]),
    "layers": (network(ROWS, 3), 0, [many]),
    "bounds with an axis": (later_sums(ROWS, 3), 0, [one, many]),
}


def region_of(program: Program, outer: int) -> tuple[list[te.Tensor], Region | None]:
    outputs, seed = program
    tensors = rewritten(outputs, BEFORE_KERNELS, "llvm")
    graph = Graph(tensors)
    [here] = [op.output(0) for op in graph.ops if op.name == seed.op.name]
    wanted = {tensor_key(tensor) for tensor in tensors}
    return tensors, region_around(graph, here, outer, wanted, lambda _: True)


def values_of(tensors: list[te.Tensor]) -> dict[te.Tensor, np.ndarray]:
    rng = np.random.default_rng(0)
    found = {}
    for tensor in Graph(tensors).placeholders():
        shape = tuple(map(int, tensor.shape))
        is_mask = str(tensor.dtype) == "int32"
        found[tensor] = (
            rng.integers(0, 2, shape).astype("int32") if is_mask else rng.standard_normal(shape)
        )
    return found


@pytest.mark.parametrize(
    ("name", "tiling"), [(name, tiling) for name, row in CASES.items() for tiling in row[2]]
)
def test_values(name: str, tiling: Tiling) -> None:
    program, outer, _ = CASES[name]
    tensors, region = region_of(program, outer)
    assert region is not None
    made = tiled(region, tiling)
    outputs = replace_tensors(tensors, list(zip(region.results, made, strict=True)))
    loops = [op for op in Graph(outputs).ops if loop_of(op) is not None]
    assert bool(loops) == (outer > 0 or tiling != one)
    values = values_of(tensors)
    for got, want in zip(
        evaluate_graph(outputs, values), evaluate_graph(tensors, values), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
