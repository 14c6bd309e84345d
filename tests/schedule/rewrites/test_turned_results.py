"""Reductions with a short last axis, over a symbolic one last: which are, and equal values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.rewrites.turned_results import turned_results

F = "float64"
n, m = te.var("n"), te.var("m")
a, b = te.placeholder((n, 3), F, name="a"), te.placeholder((m, 3), F, name="b")


def pairs(shape: Any, body: Callable[..., Any]) -> Any:
    j = te.reduce_axis((0, m), "j")
    return te.compute(shape, lambda *i: te.sum(body(*i, j), axis=j), name="d")


#: name → the stage, and the place of each axis afterwards
CASES: dict[str, tuple[Callable[[], Any], list[int] | None]] = {
    "components of points": (
        lambda: pairs((n, 3), lambda i, c, j: (a[i, c] - b[j, c]) * b[j, 0]),
        [1, 0],
    ),
    "of two symbolic axes, the last one": (
        lambda: pairs((n, m, 2), lambda i, k, c, j: a[i, c] * b[k, 0] - b[j, c]),
        [0, 2, 1],
    ),
    "as many as a vector": (lambda: pairs((n, 4), lambda i, c, j: a[i, 0] * b[j, 0] * c), None),
    "a symbolic axis last": (lambda: pairs((3, n), lambda c, i, j: a[i, c] - b[j, c]), None),
    "no symbolic axis": (lambda: pairs((2, 3), lambda i, c, j: b[j, c] * b[j, i]), None),
}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_order_and_values(name: str, after: bool) -> None:
    make, order = CASES[name]
    stage = make()
    output = te.compute(stage.shape, lambda *i: te.exp(stage(*i)), name="y") if after else stage
    found = turned_results(Kernel(stage.op, output.op if after else None))
    if order is None:
        assert found is None
        return
    assert found is not None
    whole, reader = found
    shapes = [shape_of(t) for t in (stage, whole.root.output(0), reader.outputs[0])]
    assert [str(extent) for extent in shapes[1]] == [str(shapes[0][place]) for place in order]
    assert list(map(str, shapes[2])) == list(map(str, shapes[0]))
    rng = np.random.default_rng(0)
    values = [(a, rng.normal(size=(5, 3))), (b, rng.normal(size=(4, 3)))]
    want, got = evaluate_graph([output, reader.outputs[0]], values, {n: 5, m: 4})
    np.testing.assert_allclose(got, want, rtol=1e-14)
