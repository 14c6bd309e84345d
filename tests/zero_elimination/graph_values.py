"""Values of tensors before and after a transformation, in numpy."""

from __future__ import annotations

import numpy as np

from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import dtype_of
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import shape_of


def assert_equal_values(before, after, seed=0):
    """Equal shapes, dtypes and values, for random inputs; integers are in [0, 5)."""
    assert [(shape_of(t), dtype_of(t)) for t in before] == [
        (shape_of(t), dtype_of(t)) for t in after
    ]
    rng = np.random.default_rng(seed)

    def draw(tensor):
        shape = shape_of(tensor)
        return rng.integers(0, 5, shape) if "int" in dtype_of(tensor) else rng.normal(size=shape)

    values = [(x, draw(x)) for x in Graph([*before, *after]).placeholders()]
    old, new = evaluate_graph(before, values), evaluate_graph(after, values)
    for expected, value in zip(old, new, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9)
