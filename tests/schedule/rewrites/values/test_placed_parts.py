"""`with_placed_parts`: where storing parts pays, and that exact math keeps the order of sums."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, topi

from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.schedule.rewrites.table import BEFORE_KERNELS, rewritten
from tvm_autodiff.schedule.rewrites.values.placed_parts import (
    with_ordered_placed_parts,
    with_placed_parts,
)

image = te.placeholder((1, 2, 17, 17), "float64", name="image")


def resized(size: int, method: str) -> te.Tensor:
    return topi.image.resize2d(image, (0.0,) * 4, (size, size), "NCHW", method, "align_corners")


def four_terms(size: int) -> te.Tensor:
    """Weights 0 to 3 of quarters along both axes."""

    def body(c, i, j):
        u, v = ((n % 4).astype("float64") for n in (i, j))
        rows, columns = ([te.min(n // 4 + k, 16) for k in range(2)] for n in (i, j))
        parts = [image[0, c, r, s] for r in rows for s in columns]
        top = (4.0 - u) * (4.0 - v) * parts[0] + (4.0 - u) * v * parts[1]
        return top + u * (4.0 - v) * parts[2] + u * v * parts[3]

    return te.compute((2, size, size), body, name="y")


#: a stage, the shapes of stages of parts, and those where factors may be taken out of sums
CASES = {
    "linear": (lambda: resized(40, "linear"), [(1, 2, 17, 40)], [(1, 2, 17, 40)]),
    "cubic": (lambda: resized(40, "cubic"), [(1, 2, 17, 40)], [(1, 2, 17, 40)]),
    "few more results": (lambda: resized(19, "linear"), [], []),
    "four terms": (lambda: four_terms(64), [], [(2, 17, 64)]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_stored(name: str) -> None:
    make, exact, ordered = CASES[name]
    y = make()
    values = [(image, np.random.default_rng(0).normal(size=(1, 2, 17, 17)))]
    [want] = evaluate_graph([y], values)
    for rewrite, shapes in ((with_placed_parts, exact), (with_ordered_placed_parts, ordered)):
        found = rewrite([y])
        stages = [op.output(0) for op in topological(found) if "placed" in op.name]
        assert [tuple(map(int, shape_of(stage))) for stage in stages] == shapes
        [got] = evaluate_graph(found, values)
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)


def test_exact_math_keeps_the_order_of_sums() -> None:
    for exact_math, stages in ((True, 1), (False, 2)):
        found = rewritten([four_terms(64)], BEFORE_KERNELS, "llvm", exact_math)
        assert sum("y" in op.name for op in topological(found)) == stages
