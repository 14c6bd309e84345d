"""Which stages share leading axes: members, sums over rows, and what is left outside."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import te

from tests.schedule.tiled.programs import attention, network
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.schedule.tiled.region import Region, region_around

N, ROWS, WIDTH = 2, 6, 4
x = te.placeholder((N, ROWS, WIDTH), name="x")
w = te.placeholder((WIDTH, WIDTH), name="w")
k = te.reduce_axis((0, WIDTH), "k")
a = te.reduce_axis((0, ROWS), "a")
n = te.reduce_axis((0, N), "n")


def stage(name: str, body: Callable, shape: tuple[int, ...] = (N, ROWS, WIDTH)) -> te.Tensor:
    return te.compute(shape, body, name=name)


p = stage("p", lambda i, r, j: te.sum(x[i, r, k] * w[k, j], axis=k))
late = stage("late", lambda i, j: te.sum(p[i, a, j], axis=a), (N, WIDTH))


def region(*outputs: te.Tensor, outer: int = 1) -> Region | None:
    graph = Graph(outputs)
    return region_around(graph, p, outer, set(map(tensor_key, outputs)), lambda _: True)


def names(found: Region | None) -> str:
    return "" if found is None else " ".join(str(op.name) for op in found.members)


@pytest.mark.parametrize(
    ("output", "members"),
    [
        (stage("q", lambda i, r, j: p[i, r, j] + 1.0), "p q"),
        (stage("q", lambda i, r, j: p[i, r, WIDTH - 1 - j]), "p q"),
        (stage("q", lambda i, r: te.max(p[i, r, k], axis=k), (N, ROWS)), "p q"),
        (stage("q", lambda r, i, j: p[i, r, j], (ROWS, N, WIDTH)), ""),  # not its leading axes
        (stage("q", lambda i, r, j: p[i, ROWS - 1 - r, j]), ""),  # of another row
        (stage("q", lambda i, r, j: p[i, r, j] + p[i, 0, j]), ""),
        (stage("q", lambda i, j: te.max(p[i, a, j], axis=a), (N, WIDTH)), ""),  # not a sum
        (stage("q", lambda r, j: te.sum(p[n, r, j], axis=n), (ROWS, WIDTH)), ""),
        (late, "p late"),
        # complete after the last tile, and nothing else is left inside
        (stage("q", lambda i, r, j: p[i, r, WIDTH - 1 - j] - late[i, j]), ""),
    ],
)
def test_members(output: te.Tensor, members: str) -> None:
    assert names(region(output)) == members


def test_a_result_that_others_read_is_written() -> None:
    inside = stage("inside", lambda i, r, j: p[i, r, j] * 2.0)
    other = stage("other", lambda i, r, j: p[i, ROWS - 1 - r, j])
    found = region(inside, other)
    assert found is None  # nothing is kept
    both = stage("both", lambda i, r, j: inside[i, r, j] + 1.0)
    found = region(both, other)
    assert names(found) == "p inside both"
    assert found is not None
    assert [t.op.name for t in found.results] == ["p", "both"]
    assert [t.op.name for t in found.kept] == ["inside"]


def test_what_depends_on_stages_outside_stays_outside() -> None:
    inside = stage("inside", lambda i, r, j: p[i, r, j] * 2.0)
    turned = stage("turned", lambda i, r, j: inside[i, ROWS - 1 - r, j])
    after = stage("after", lambda i, r, j: inside[i, r, j] + turned[i, r, j])
    assert names(region(after)) == "p inside"


def test_attention_with_its_gradient_is_one_region() -> None:
    outputs, seed = attention((2,), 8, 3, 2)
    found = region_around(Graph(outputs), seed, 1, set(map(tensor_key, outputs)), lambda _: True)
    assert found is not None
    assert found.extents == (2, 8)
    sums = {str(op.name) for op in found.members if hash(op) in found.sums}
    assert sums == {"dk", "dv"}
    assert {t.op.name for t in found.results} == {"y", "dq", "dk", "dv"}


def test_weights_are_sums_over_the_batch() -> None:
    outputs, seed = network(8, 3)
    found = region_around(Graph(outputs), seed, 0, set(map(tensor_key, outputs)), lambda _: True)
    assert found is not None
    assert {str(op.name) for op in found.members if hash(op) in found.sums} == {"dw", "du", "db"}
