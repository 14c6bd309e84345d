"""Results are stored through the epilogue: in vectors, unless a branch guards what it reads."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tvm_autodiff import build, lower

M, N, K = 24, 40, 32


def case(epilogue, across: bool):
    """A product, or a sum of columns, and what is made of each element."""
    a, q = te.placeholder((M, K), name="a"), te.placeholder((M, N), name="q")
    b, c = te.placeholder((K, N), name="b"), te.placeholder((M, K, N), name="c")
    k = te.reduce_axis((0, K), "k")
    source = (lambda i, j: a[i, k] * b[k, j]) if across else (lambda i, j: c[i, k, j] * 2.0)
    total = te.compute((M, N), lambda i, j: te.sum(source(i, j), axis=k), name="total")
    out = te.compute((M, N), lambda i, j: epilogue(total, q, i, j), name="out")
    return ([a, b, q] if across else [c, q]), out


def elu(total, q, i, j):
    positive = q[i, j] > 0.0
    return tirx.if_then_else(positive, total[i, j], total[i, j] * te.exp(q[i, j]))


def two_choices(total, q, i, j):
    negative = tirx.if_then_else(q[i, j] <= 0.0, total[i, j] * te.exp(q[i, j]), 0.0)
    return negative + tirx.if_then_else(q[i, j] > 0.0, total[i, j], 0.0)


def neighbour(total, q, i, j):
    return total[i, j] + tirx.if_then_else(j + 1 < N, q[i, j + 1], 0.0)


def neighbour_by_data(total, q, i, j):
    safe = tirx.all(q[i, j] > 0.5, j + 1 < N)
    return total[i, j] + tirx.if_then_else(safe, q[i, j + 1], 0.0)


@pytest.mark.parametrize(
    ("epilogue", "branches"),
    [(elu, False), (two_choices, False), (neighbour, True), (neighbour_by_data, True)],
)
@pytest.mark.parametrize("across", [True, False], ids=["product", "columns"])
def test_only_what_guards_reads_is_a_branch(epilogue, branches: bool, across: bool) -> None:
    inputs, out = case(epilogue, across)
    text = lower(inputs, [out]).script()
    assert ("if_then_else" in text) == branches
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=[int(n) for n in t.shape]).astype("float32") for t in inputs]
    [expected] = evaluate_graph([out], list(zip(inputs, arrays, strict=True)))
    [found] = build(inputs, [out])(*arrays)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
