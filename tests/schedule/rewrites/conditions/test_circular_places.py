"""Places modulo a symbolic size: how they are written, and equal values."""

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
from tvm_autodiff.graph.stage import sources_of
from tvm_autodiff.schedule.rewrites.conditions.circular_places import with_circular_places

n = te.var("n")
m = te.var("m")
x = te.placeholder((n,), "float64", "x")
longer = te.placeholder((n + 3,), "float64", "longer")
w = te.placeholder((4,), "float64", "w")
place = te.placeholder((4,), "int32", "place")
Place = Callable[[Any, Any], Any]


def window(at: Place, of: Any = n, read: Any = x) -> Any:
    """``y[i] = Σ_k w[k]*read[at(i, k)]``."""
    k = te.reduce_axis((0, 4), "k")
    return te.compute((of,), lambda i: te.sum(w[k] * read[at(i, k)], axis=k), name="y")


#: name → the stage, and how many comparisons its index has; None if it stays a remainder
CASES: dict[str, tuple[Any, int | None]] = {
    "to the right": (window(lambda i, k: (i + k) % n), 1),
    "to the left": (window(lambda i, k: (i - k) % n), 1),
    "to the left, and one turn more": (window(lambda i, k: (i - k + n) % n), 1),
    "to both sides": (window(lambda i, k: (i + k - 2) % n), 2),
    "several turns": (window(lambda i, k: (i + k - 2 + 3 * n) % n), 2),
    "backward": (window(lambda i, k: (k - i) % n), 1),
    "backward, from the end": (window(lambda i, k: (n - 1 - i - k) % n), 1),
    "with a stride": (window(lambda i, k: (2 * i + k) % (2 * n) // 2), 1),
    "a shorter loop": (window(lambda i, k: (i + k) % (n + 3), n, longer), 0),
    "a longer loop": (window(lambda i, k: (i - k) % n, n + 2), 2),
    "the whole loop": (window(lambda i, k: i % n), 0),
    "half of the turns": (window(lambda i, k: (2 * i + k) % n), None),
    "another size": (window(lambda i, k: (i + k) % m % n), None),
    "by data": (window(lambda i, k: (i + place[k]) % n), None),
    "of a literal": (window(lambda i, k: (i + k) % 5 % n), None),
}


def compared(stage: Any) -> int | None:
    """How many comparisons the index has; None if it is a remainder."""
    nodes = postorder(sources_of(stage.op))
    names = [op_name(node) for node in nodes]
    if "floormod" in names and "if_then_else" not in names:
        return None
    return sum(name in ("lt", "ge") for name in names)


@pytest.mark.parametrize("name", CASES)
def test_how_it_is_written(name: str) -> None:
    stage, expected = CASES[name]
    [made] = with_circular_places([stage])
    assert compared(made) == expected
    assert (expected is None) == made.same_as(stage)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 11])
def test_equal_values(name: str, size: int) -> None:
    stage, _ = CASES[name]
    [made] = with_circular_places([stage])
    rng = np.random.default_rng(size)
    arrays = [(x, rng.normal(size=size)), (longer, rng.normal(size=size + 3))]
    arrays.append((w, rng.normal(size=4)))
    arrays.append((place, np.array([2, 0, 7, 1], "int32")))
    sizes = {n: size, m: 7}
    [want], [got] = (evaluate_graph([one], arrays, sizes) for one in (stage, made))
    np.testing.assert_array_equal(got, want)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, 2, 7, 40, 101])
def test_a_periodic_stencil_and_its_gradient(size: int) -> None:
    """Compiled: loops that are shorter than both borders, and longer ones in vectors."""
    h, v = te.var("h"), te.var("v")
    u = te.placeholder((h, v), "float64", "u")

    def body(i: Any, j: Any) -> Any:
        return u[(i + 1) % h, j] * u[i, (j + 2) % v] - u[(i - 1) % h, (j - 1) % v]

    y = te.compute((h, v), body, name="y")
    head = te.placeholder((h, v), "float64", "head")
    [du] = ad.differentiate(y, [u], head)
    run = ad.build([u, head], [y, du])
    rng = np.random.default_rng(0)
    a, g = rng.normal(size=(3, size)), rng.normal(size=(3, size))
    got, gradient = map(np.asarray, run(a, g))
    below, right, corner = np.roll(a, -1, 0), np.roll(a, -2, 1), np.roll(a, (1, 1), (0, 1))
    np.testing.assert_allclose(got, below * right - corner, rtol=1e-12)
    want = np.roll(g * right, 1, 0) + np.roll(g * below, 2, 1) - np.roll(g, (-1, -1), (0, 1))
    np.testing.assert_allclose(gradient, want, rtol=1e-12, atol=1e-12)
