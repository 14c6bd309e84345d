"""Sums over circular dimensions: what is copied, and equal values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.rewrites.windows.unrolled_circles import over_unrolled_circles

D = "float64"
X, G = te.placeholder((6, 40), D, name="x"), te.placeholder((6, 80), D, name="g")
I = te.placeholder((7,), "int32", name="at")  # noqa: E741
RNG = np.random.default_rng(0)
ARRAYS = [(X, RNG.normal(size=(6, 40))), (G, RNG.normal(size=(6, 80)))]
ARRAYS.append((I, np.array([3, 0, 39, 7, 12, 5, 1], "int32")))


def taps(place: Callable[[Any, Any], Any], count: int = 7, terms: int = 40) -> Any:
    """``dk[r] = Σ_{b, t} g[b, t]*x[b, place(t, r)]``, the gradient of a filter."""
    b, t = te.reduce_axis((0, 6), "b"), te.reduce_axis((0, terms), "t")
    return te.compute(
        (count,), lambda r: te.sum(G[b, t] * X[b, place(t, r)], axis=[b, t]), name="dk"
    )


def rows(place: Callable[[Any, Any], Any]) -> Any:
    """A dimension that is not the last one."""
    b, t = te.reduce_axis((0, 40), "b"), te.reduce_axis((0, 60), "t")
    return te.compute((4,), lambda r: te.sum(G[0, b] * X[place(t, r), b], axis=[b, t]), name="dk")


def both() -> Any:
    """Two reads of one dimension."""
    b, t = te.reduce_axis((0, 6), "b"), te.reduce_axis((0, 40), "t")
    return te.compute(
        (7,),
        lambda r: te.max(X[b, (t + r) % 40] - X[b, (t - 2 * r + 40) % 40], axis=[b, t]),
        name="dk",
    )


def filtered(terms: Any) -> Any:
    """``y[r] = Σ_t s[t]*x[0, (7*t + r)%40]``, whose places exceed int32."""
    s, t = te.placeholder((terms,), D, name="s"), te.reduce_axis((0, terms), "t")
    return te.compute((9,), lambda r: te.sum(s[t] * X[0, (7 * t + r) % 40], axis=t), name="y")


#: name → the stage, and the extents of copies
CASES: dict[str, tuple[Callable[[], Any], list[list[int]] | None]] = {
    "to the right": (lambda: taps(lambda t, r: (t + r) % 40), [[6, 46]]),
    "to the left": (lambda: taps(lambda t, r: (t - r + 40) % 40), [[6, 46]]),
    "as the solver writes it": (lambda: taps(lambda t, r: (t + r * 39 + 3) % 40), [[6, 46]]),
    "strided": (lambda: taps(lambda t, r: (t * 2 + r) % 40), [[6, 85]]),
    "a dilation": (lambda: taps(lambda t, r: (t + (r + 1) * (t // 20 - 1) + 80) % 40), [[6, 47]]),
    "two reads": (lambda: both(), [[6, 58]]),
    "rows": (lambda: rows(lambda t, r: (t % 6 + r) % 6), [[9, 40]]),
    "many turns": (lambda: taps(lambda t, r: (t * 3 + r) % 40), [[6, 124]]),
    "of the taps alone": (lambda: taps(lambda t, r: (r * 9) % 40), [[6, 55]]),
    "by data": (lambda: taps(lambda t, r: (t + I[r]) % 40), None),
    "a part of the dimension": (lambda: taps(lambda t, r: (t + r) % 39), None),
    "few points": (lambda: taps(lambda t, r: (t + r) % 40, 1), None),
    "no circle": (lambda: taps(lambda t, r: t, 7), None),
    "of a symbolic number": (lambda: filtered(te.var("n")), None),
    "of too many turns": (lambda: filtered(10**9), None),
}


@pytest.mark.parametrize("name", CASES)
def test_copies_and_values(name: str) -> None:
    make, extents = CASES[name]
    stage = make()
    found = over_unrolled_circles(Kernel(stage.op))
    if extents is None:
        assert found is None
        return
    copies, whole = found
    assert [list(shape_of(copy.outputs[0])) for copy in copies] == extents
    [want], [got] = (evaluate_graph([s], ARRAYS) for s in (stage, whole.outputs[0]))
    np.testing.assert_allclose(got, want, rtol=1e-13)


def test_what_ends_a_sum_follows_it() -> None:
    stage = taps(lambda t, r: (t + r) % 40)
    end = te.compute((7,), lambda r: te.exp(stage[r]) + 1.0, name="end")
    _, whole = over_unrolled_circles(Kernel(stage.op, end.op))
    [want], [got] = (evaluate_graph([s], ARRAYS) for s in (end, whole.outputs[0]))
    np.testing.assert_allclose(got, want, rtol=1e-13)
