"""Rows that are gathered under conditions are read without branches, and hold what they held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.graph.stage import bodies
from tvm_autodiff.schedule.rewrites.conditions.clamped_gathers import with_clamped_gathers
from tvm_autodiff.schedule.rewrites.normal_form import normal_form

N, E, C = 7, 20, 5
x = te.placeholder((N, C), "float64", "x")
more = te.placeholder((300, C), "float64", "more")
scale = te.placeholder((N,), "float64", "scale")
place = te.placeholder((E,), "int32", "place")
other = te.placeholder((E,), "int64", "other")
small = te.placeholder((E,), "uint8", "small")


def rows(body: Callable[[Any, Any], Any]) -> Any:
    return te.compute((E, C), body, name="rows")


def inside(index: Any, n: int = N) -> Any:
    return te.all(index >= 0, index < n)


def chosen(condition: Any, value: Any) -> Any:
    return te.if_then_else(condition, value, te.const(0.0, "float64"))


#: name → the stage, and how many branches it has left
CASES: dict[str, tuple[Any, int]] = {
    "rows": (rows(lambda e, c: chosen(inside(place[e]), x[place[e], c])), 0),
    "times a scale": (
        rows(lambda e, c: chosen(inside(place[e]), x[place[e], c] * scale[place[e]]) * 2.0),
        0,
    ),
    "of int64": (rows(lambda e, c: chosen(inside(other[e]), x[other[e], c])), 0),
    "of bytes, of more rows": (
        rows(lambda e, c: chosen(small[e] >= 3, more[small[e].astype("int32"), c])),
        0,
    ),
    "another condition": (rows(lambda e, c: chosen(place[e] > 2, x[place[e] % N, c])), 0),
    "a condition of columns": (
        rows(lambda e, c: chosen(te.all(inside(place[e]), c < 3), x[place[e], c])),
        1,
    ),
    "a function": (rows(lambda e, c: chosen(inside(place[e]), te.exp(x[place[e], c]))), 1),
    "no gather": (rows(lambda e, c: chosen(e < N, x[e, c])), 1),
}


def branches(tensor: Any) -> int:
    return sum(op_name(node) == "if_then_else" for node in postorder(bodies(tensor.op)))


@pytest.mark.parametrize("name", CASES)
def test_branches_and_values(name: str) -> None:
    stage, left = CASES[name]
    [plain] = normal_form([stage])
    [made] = with_clamped_gathers([plain])
    assert branches(made) == left
    rng = np.random.default_rng(0)
    values = [
        *((one, rng.normal(size=[int(n) for n in one.shape])) for one in (x, more, scale)),
        (place, rng.integers(-4, N + 4, E).astype("int32")),
        (other, rng.integers(-(2**40), 2**40, E) * (rng.random(E) < 0.3)),
        (small, rng.integers(0, 256, E).astype("uint8")),
    ]
    want, got = evaluate_graph([plain, made], values, {})
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_gradient_of_a_sum_over_edges(threads: int) -> None:
    """The cotangent of each edge is a row of that of its node, if there is one; numbers of nodes
    that are far outside read nothing.
    """
    nodes, many, width = 701, 5003, 45
    edges = te.placeholder((many, width), name="edges")
    node = te.placeholder((many,), "int32", "node")
    head = te.placeholder((nodes, width), name="head")
    total = ad.segment_sum(edges * 2.0, node, nodes)
    gradients = ad.differentiate(total, [edges], head)
    built = ad.build([node, head], gradients, num_threads=threads, cache=False)
    rng = np.random.default_rng(0)
    places = rng.integers(-3, nodes + 3, many).astype("int32")
    places[::7], places[3::11] = 900_000_000, -900_000_000
    rows = rng.random((nodes, width)).astype("float32")
    inside = (places >= 0) & (places < nodes)
    want = np.where(inside[:, None], 2 * rows[places.clip(0, nodes - 1)], 0)
    np.testing.assert_array_equal(built(places, rows)[0], want)
