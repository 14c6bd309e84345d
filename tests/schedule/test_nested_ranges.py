"""Reductions over ranges that follow an outer reduce axis: values and tangents, by Python loops."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from tvm_autodiff import build, differentiate, jvp

pytestmark = pytest.mark.filterwarnings("ignore::tvm_autodiff.PlainScheduleWarning")

N = 16
X = te.placeholder((N,), "float64", "X")

Range = Callable[[Any, Any, Any], tuple[Any, Any]]  #: from row i and outer k, with min and max

#: the outer range in row i, and the inner one for its index k
RANGES: dict[str, tuple[Range, Range]] = {
    "clamped ends": (lambda i, k, f: (2, 7), lambda i, k, f: (f[0](k, 2), f[0](k + 1, 2))),
    "from a row on": (
        lambda i, k, f: (f[1](i - 2, 0), f[0](i + 3, 7)),
        lambda i, k, f: (f[0](k, 2), f[0](k + 1, 2)),
    ),
    "from the outer index on": (lambda i, k, f: (3, 9), lambda i, k, f: (k, 11)),
    "a window": (lambda i, k, f: (i // 4, 7), lambda i, k, f: (k + 1, k + 4)),
    "below": (lambda i, k, f: (1, 8), lambda i, k, f: (0, f[1](8 - k, 0))),
}
#: reducer of te, the same in Python, and the value of an empty range
REDUCERS = {
    "sum": (te.sum, lambda a, b: a + b, 0.0),
    "max": (te.max, max, -np.inf),
    "product": (
        te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t)), lambda a, b: a * b, 1.0
    ),
}


@pytest.mark.parametrize("columns", [0, 2, 5, 33])
@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize("name", RANGES)
def test_values(name: str, reducer: str, columns: int) -> None:
    outer, inner = RANGES[name]
    combine, plain, empty = REDUCERS[reducer]

    def body(i: Any, *_: Any) -> Any:
        k = te.reduce_axis(outer(i, None, (te.min, te.max)), "k")
        m = te.reduce_axis(inner(i, k.var, (te.min, te.max)), "m")
        # no element twice: LLVM takes minutes for a maximum of few elements that repeat
        return combine(X[m] * 0.5 + k.var.astype("float64") * 0.125, axis=[k, m])

    y = te.compute((17, columns) if columns else (17,), body, name="y")
    values = np.random.default_rng(0).uniform(0.5, 3.0, N)
    found = build([X], y, num_threads=1, cache=False)(values)
    for i in range(17):
        points = [
            values[m] * 0.5 + k * 0.125
            for k in range(*outer(i, None, (min, max)))
            for m in range(*inner(i, k, (min, max)))
        ]
        if points or reducer != "max":
            np.testing.assert_allclose(found[i], reduce(plain, points, empty), rtol=1e-12)


def test_tangents_of_a_pair_over_rows_of_different_lengths() -> None:
    """Prefix sums whose places depend on the results have no shape."""
    A, B = te.placeholder((19, 33), "float64", "A"), te.placeholder((19,), "float64", "B")
    tangents = [te.placeholder(t.shape, "float64", f"t{t.op.name}") for t in (A, B)]
    pair = te.comm_reducer(
        lambda a, b: (te.max(a[0], b[0]), a[1] + b[1]),
        lambda s, t: (te.min_value(s), tirx.const(0.0, t)),
    )

    def body(i: Any, j: Any) -> Any:
        k = te.reduce_axis((0, 4 - j), "k")
        m = te.reduce_axis((0, te.min(k.var, 19)), "m")
        return pair((A[m, i], B[m]), axis=[k, m])

    most, total = te.compute((33, 3), body, name="o")
    p = te.compute(
        (33, 3),
        lambda i, j: te.if_then_else(most[i, j] > -1.0, most[i, j] * total[i, j], 0.0),
        name="p",
    )
    head = te.placeholder((33, 3), "float64", "head")
    [tangent] = jvp([p], [A, B], tangents)
    gradients = list(differentiate(p, [A, B], head))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s) for s in ((19, 33), (19,), (19, 33), (19,), (33, 3))]
    function = build([A, B, *tangents, head], [tangent, *gradients], cache=False)
    found, dA, dB = function(*arrays)
    tA, tB, weights = arrays[2:]
    np.testing.assert_allclose((found * weights).sum(), (dA * tA).sum() + (dB * tB).sum())
