"""The gradients whose work is recorded are right: a wrong one could be cheap.

Each is compared with the difference of the output along a random direction, in numpy.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tests.zero_elimination.cost_cases import CASES
from tvm_autodiff import DenseSumWarning, build, differentiate
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import is_extern, shape_of

#: what topi computes in float32 whatever comes in
SINGLE = ("resize: nearest, 2x, 1-D", "resize: nearest, 3x, 2-D", "resize: nearest, half")
SINGLE += tuple(f"normalise: {kind} norm" for kind in ("layer", "RMS", "instance", "group"))


def values_of(tensors, pairs):
    """Values in numpy; compiled where a stage is a scatter, which numpy knows nothing of."""
    graph = Graph(tensors)
    if not any(is_extern(op) for op in graph.ops):
        return evaluate_graph(tensors, pairs)
    known = {tensor_key(tensor): array.astype(str(tensor.dtype)) for tensor, array in pairs}
    inputs = graph.placeholders()
    return build(inputs, tensors)(*(known[tensor_key(tensor)] for tensor in inputs))


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_the_slope_along_a_direction(name):
    case = CASES[name]
    inputs, output, data = case.tensors("float32" if name in SINGLE else "float64")
    head = None if case.identity else te.placeholder(output.shape, str(output.dtype), name="head")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DenseSumWarning)
        gradients = list(differentiate(output, inputs, head))
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(shape_of(output))
    points = [rng.uniform(0.5, 1.5, shape_of(tensor)) for tensor in inputs]
    ways = [rng.standard_normal(point.shape) for point in points]

    def at(step):
        moved = [point + step * way for point, way in zip(points, ways, strict=True)]
        values = [*data.items(), *zip(inputs, moved, strict=True)]
        return (evaluate_graph([output], values)[0] * weights).sum()

    step, tolerance = (1e-2, 2e-3) if name in SINGLE else (1e-5, 1e-7)
    slope = (at(step) - at(-step)) / (2 * step)
    values = [*data.items(), *zip(inputs, points, strict=True)]
    if head is not None:
        values.append((head, weights))
    found = values_of(gradients, values)
    if head is None:
        found = [np.tensordot(weights, jacobian, weights.ndim) for jacobian in found]
    along = sum((gradient * way).sum() for gradient, way in zip(found, ways, strict=True))
    size = sum(abs(gradient * way).sum() for gradient, way in zip(found, ways, strict=True))
    assert abs(along - slope) <= tolerance * size
