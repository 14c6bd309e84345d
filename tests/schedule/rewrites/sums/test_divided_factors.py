"""`divided_factors` by cases: which factor is divided; values stay."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import op_name, operands
from tvm_autodiff.expr.rewrite import postorder, variables_of
from tvm_autodiff.graph.stage import sources_of
from tvm_autodiff.schedule.nest.reductions.products import product_of
from tvm_autodiff.schedule.rewrites.sums.divided_factors import with_divided_factors

ROWS, INNER, COLUMNS = 7, 9, 5


def tensors(dtype="float64"):
    shapes = {"a": (ROWS, INNER), "b": (INNER, COLUMNS), "d": (INNER,), "r": (ROWS,)}
    return [te.placeholder(shape, dtype, name=name) for name, shape in shapes.items()]


#: the body of ``y[i, j] = Σ_k``, and how many loops the numerator of each quotient depends on
CASES = {
    "a product": (lambda a, b, d, r: a / d * b, [2]),
    "at the end": (lambda a, b, d, r: a * b / d, [2]),
    "by a factor of its own": (lambda a, b, d, r: a * d * b / (d + 1.0), [1]),
    "by one factor's loops": (lambda a, b, d, r: a * b / (a * a + 1.0), [2]),
    "by two": (lambda a, b, d, r: a * b / (a * a + 1.0) / (b * b + 1.0), [2, 2]),
    "by all loops": (lambda a, b, d, r: a * b / (a * b + 1.0), None),
    "by a row": (lambda a, b, d, r: a * b / r, None),
    "by a row and the other": (lambda a, b, d, r: a * b / r / d, [2, 3]),
    "by a number": (lambda a, b, d, r: a * b / 3.0, None),
    "under a condition": (
        lambda a, b, d, r: te.if_then_else(d > 1.0, a * b / d, tirx.const(0.0, "float64")),
        [2],
    ),
    "one factor": (lambda a, b, d, r: a / d, None),
}


def stage(body, dtype="float64"):
    a, b, d, r = given = tensors(dtype)
    k = te.reduce_axis((0, INNER), "k")
    y = te.compute(
        (ROWS, COLUMNS),
        lambda i, j: te.sum(body(a(i, k), b(k, j), d(k), r(i)), axis=k),
        name="y",
    )
    return given, y


@pytest.mark.parametrize("name", CASES)
def test_what_is_divided(name):
    body, loops = CASES[name]
    given, y = stage(body)
    [got] = with_divided_factors([y])
    if loops is None:
        assert got.same_as(y)
        return
    quotients = [n for n in postorder(sources_of(got.op)) if op_name(n) == "div"]
    assert sorted(len(variables_of(operands(node)[0])) for node in quotients) == loops
    rng = np.random.default_rng(0)
    arrays = {t: rng.uniform(0.5, 1.5, [int(n) for n in t.shape]) for t in given}
    [want], [found] = evaluate_graph([y], arrays), evaluate_graph([got], arrays)
    np.testing.assert_allclose(found, want, rtol=1e-13)


@pytest.mark.parametrize("inverted", [False, True])
def test_divisors_of_loops_that_no_factor_has_are_factors(inverted):
    """A product of matrices, one of which is computed from its places."""
    _, b, _, _ = tensors()
    k = te.reduce_axis((0, INNER), "k")

    def body(i, j):
        divisor = (i + k + 1).astype("float64")
        return b[k, j] * (1.0 / divisor) if inverted else b[k, j] / divisor

    y = te.compute((ROWS, COLUMNS), lambda i, j: te.sum(body(i, j), axis=k), name="y")
    [got] = with_divided_factors([y])
    product = product_of(got.op, of_loops=True)
    assert product is not None
    assert sorted(len(operand.variables()) for operand in product.operands) == [2, 2]
    given = {b: np.random.default_rng(0).standard_normal((INNER, COLUMNS))}
    [want], [found] = evaluate_graph([y], given), evaluate_graph([got], given)
    np.testing.assert_allclose(found, want, rtol=1e-14)


@pytest.mark.parametrize(("dtype", "moved"), [("float32", True), ("float16", False)])
def test_dtypes(dtype, moved):
    """A quotient may leave the range of float16."""
    _, y = stage(CASES["at the end"][0], dtype)
    assert with_divided_factors([y])[0].same_as(y) != moved


@pytest.mark.parametrize("name", ["at the end", "by two", "by a row and the other"])
def test_compiled_with_its_gradients(name):
    given, y = stage(CASES[name][0])
    head = te.placeholder((ROWS, COLUMNS), "float64", name="head")
    outputs = [y, *ad.differentiate(y, given[:2], head)]
    rng = np.random.default_rng(1)
    inputs = [*given, head]
    arrays = [rng.uniform(0.5, 1.5, [int(n) for n in t.shape]) for t in inputs]
    wanted = evaluate_graph(outputs, dict(zip(inputs, arrays, strict=True)))
    for got, want in zip(ad.build(inputs, outputs, cache=False)(*arrays), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_shared_sum_divides_a_factor():
    """The order of contractions writes the quotient at the factor, too."""
    (a, b, d, r), y = stage(lambda a, b, d, r: te.rsqrt(r) * a * d / (d + 1.0) * b)
    head = te.placeholder((ROWS, COLUMNS), "float64", name="head")
    built = ad.build([a, b, d, r, head], [y, *ad.differentiate(y, [b, r], head)], cache=False)
    rng = np.random.default_rng(2)
    arrays = [
        rng.uniform(0.5, 1.5, [int(n) for n in t.shape]) for t in (a, b, d, r, head)
    ]
    weights = arrays[0] * (arrays[2] / (arrays[2] + 1)) / np.sqrt(arrays[3])[:, None]
    value, of_b, of_r = built(*arrays)
    np.testing.assert_allclose(value, weights @ arrays[1], rtol=1e-12)
    np.testing.assert_allclose(of_b, weights.T @ arrays[4], rtol=1e-12)
    want = (arrays[4] * (weights @ arrays[1])).sum(1) / arrays[3] * -0.5
    np.testing.assert_allclose(of_r, want, rtol=1e-12)
