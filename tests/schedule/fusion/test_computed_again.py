"""Stages of pairs that no cache holds: which are computed where they are read, equal values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tests.machines import avx512
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import is_placeholder, shape_of
from tvm_autodiff.schedule.fusion.computed_again import with_pairs_computed_again

N, M, COLUMNS = 96, 80, 24
x, z = te.placeholder((N, 2), name="x"), te.placeholder((M, 2), name="z")
w, v = te.placeholder((N, M), name="w"), te.placeholder((M, COLUMNS), name="v")
SMALL = replace(avx512(), last_cache_bytes=4 * N * M)  # twice of which does not hold the pairs


def pairs(name: str = "pairs") -> Any:
    return te.compute((N, M), lambda i, j: te.exp(x[i, 0] * z[j, 0] - x[i, 1] * z[j, 1]), name=name)


def along(tensor: Any, name: str) -> Any:
    k = te.reduce_axis((0, M), "k")
    return te.compute((N,), lambda i: te.sum(tensor[i, k] * z[k, 0], axis=k), name=name)


def across(tensor: Any, name: str) -> Any:
    k = te.reduce_axis((0, N), "k")
    return te.compute((M,), lambda j: te.sum(tensor[k, j] * x[k, 0], axis=k), name=name)


def chain() -> list[Any]:
    first = pairs()
    second = te.compute((N, M), lambda i, j: te.sin(first[i, j]) * x[i, 1], name="second")
    return [along(first, "rows"), across(second, "columns"), along(second, "others")]


def product() -> list[Any]:
    first, k = pairs(), te.reduce_axis((0, M), "k")
    return [
        te.compute((N, COLUMNS), lambda i, c: te.sum(first[i, k] * v[k, c], axis=k), name="out")
    ]


def weighed() -> list[Any]:
    first = te.compute((N, M), lambda i, j: te.exp(w[i, j]) * x[i, 0], name="weighed")
    return [along(first, "rows"), across(first, "columns")]


def result() -> list[Any]:
    first = pairs()
    return [first, along(first, "rows")]


def both() -> list[Any]:
    first = pairs()
    return [along(first, "rows"), across(first, "columns")]


#: name → the outputs, and the stages that are left beside sums
CASES = {
    "two sums": (both, []),
    "a function of pairs of a function of pairs": (chain, []),
    "each is read for many columns": (product, ["pairs"]),
    "it reads as many elements": (weighed, ["weighed"]),
    "it is a result": (result, ["pairs"]),
}


@pytest.mark.parametrize("name", CASES)
def test_which_are_computed_again(name: str) -> None:
    make, left = CASES[name]
    outputs = make()
    found = with_pairs_computed_again(outputs, SMALL)
    stages = [op for op in Graph(found).ops if not is_placeholder(op)]
    assert [op.name for op in stages if len(op.axis) == 2 and op.name != "out"] == left
    rng = np.random.default_rng(0)
    data = [(one, rng.normal(size=shape_of(one)).astype("float32")) for one in (x, z, w, v)]
    for got, want in zip(evaluate_graph(found, data), evaluate_graph(outputs, data), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_what_the_cache_holds_stays(name: str) -> None:
    outputs = CASES[name][0]()
    machine = replace(SMALL, last_cache_bytes=2 * SMALL.last_cache_bytes)
    found = with_pairs_computed_again(outputs, machine)
    assert list(map(tensor_key, found)) == list(map(tensor_key, outputs))
