"""Reductions whose literals have other dtypes than what they reduce: values and derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate_functions import numpy_dtype

X = np.random.default_rng(0).uniform(0.5, 1.5, (4, 6))


def reducer(function: Any, identity: Any) -> Any:
    return te.comm_reducer(function, identity, name="reducer")


def total(identity: Any) -> Any:
    return reducer(lambda a, b: a + b, identity)


product = reducer(lambda a, b: a * b, lambda t: tirx.const(1, t))
sum_and_max = reducer(lambda a, b: (a[0] + b[0], te.max(a[1], b[1])), lambda t, u: (0, -9.0))
WIDE_HALF = tirx.const(0.5, "float64")
#: the second component is made of literals alone
sum_and_one = reducer(lambda a, b: (a[0] + b[0], 1), lambda t, u: (0.0, 1))


def slopes_of_product(x: np.ndarray) -> np.ndarray:
    return 3 * x.prod(1)[:, None] / x


#: name, dtype, reducer, its init, and its value and gradient in numpy
CASES: list[tuple[str, str, Any, Any, Callable[..., Any], Callable[..., Any]]] = [
    ("sum", "float64", te.sum, 0.1, lambda x: x.sum(1) + 0.1, np.ones_like),
    ("sum from an integer", "float32", te.sum, 1, lambda x: x.sum(1) + 1, np.ones_like),
    ("short sum", "float16", te.sum, 0.5, lambda x: x.sum(1) + 0.5, np.ones_like),
    ("brain sum", "bfloat16", te.sum, 2, lambda x: x.sum(1) + 2, np.ones_like),
    ("maximum", "float64", te.max, 2, lambda x: np.full(4, 2.0), np.zeros_like),
    ("minimum", "float32", te.min, 0, lambda x: np.zeros(4), np.zeros_like),
    ("product", "float64", product, 3, lambda x: 3 * x.prod(1), slopes_of_product),
    ("wider value", "float32", te.sum, WIDE_HALF, lambda x: x.sum(1) + 0.5, np.ones_like),
    ("identity", "float64", total(lambda t: 0.0), None, lambda x: x.sum(1), np.ones_like),
    ("integer identity", "float32", total(lambda t: 0), None, lambda x: x.sum(1), np.ones_like),
    ("short identity", "float16", total(lambda t: 0.0), None, lambda x: x.sum(1), np.ones_like),
    ("both", "float64", total(lambda t: 0), 1.5, lambda x: x.sum(1) + 1.5, np.ones_like),
    ("pair", "float64", sum_and_max, None, lambda x: x.sum(1), np.ones_like),
    ("pair with init", "float64", sum_and_max, (1, 2.5), lambda x: x.sum(1) + 1, np.ones_like),
    ("literal result", "float64", sum_and_one, None, lambda x: x.sum(1), np.ones_like),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_literals_of_other_dtypes(case: Any) -> None:
    _, dtype, reduce, init, value, gradient = case
    x, h = te.placeholder((4, 6), dtype, name="x"), te.placeholder((4,), dtype, name="h")
    k = te.reduce_axis((0, 6), "k")

    def body(i: Any) -> Any:
        source = x[i, k] if reduce not in (sum_and_max, sum_and_one) else (x[i, k], x[i, k])
        return reduce(source, axis=k, init=init)

    made = te.compute((4,), body, name="y")
    y = made if isinstance(made, te.Tensor) else made[0]
    [dx] = ad.differentiate(y, [x], h)
    [tangent] = ad.jvp(y, [x], [x])
    batch = te.placeholder((2, 4, 6), dtype, name="batch")
    [batched] = ad.vmap([y], {x: batch})
    assert ad.estimate_cost(y).iterations >= 24
    kind = numpy_dtype(dtype)
    given = X.astype(kind)
    run = ad.build([x, h, batch], [y, dx, tangent, batched], cache=False)
    found = run(given, np.ones(4, kind), np.stack([given, given]))
    exact = given.astype("float64")
    slope = gradient(exact)
    wanted = [value(exact), slope, (slope * exact).sum(1), [value(exact)] * 2]
    error = {"float64": 1e-14, "float32": 1e-5}.get(dtype, 3e-2)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a).astype("float64"), b, rtol=error, atol=error)


def test_an_integer_sum_from_an_integer_of_another_width() -> None:
    x, k = te.placeholder((4, 6), "int64", name="x"), te.reduce_axis((0, 6), "k")
    y = te.compute((4,), lambda i: te.sum(x[i, k], axis=k, init=7), name="y")
    given = np.arange(24).reshape(4, 6) * 2**33
    np.testing.assert_array_equal(ad.build(x, y, cache=False)(given), given.sum(1) + 7)


def test_a_start_that_is_data_of_another_dtype_has_a_gradient() -> None:
    x, z = te.placeholder((4, 6), "float64", name="x"), te.placeholder((4,), "float32", name="z")
    h, k = te.placeholder((4,), "float64", name="h"), te.reduce_axis((0, 6), "k")
    y = te.compute((4,), lambda i: te.sum(x[i, k], axis=k, init=z[i]), name="y")
    [dz] = ad.differentiate(y, [z], h)
    start, head = np.arange(4, dtype="float32"), np.linspace(1, 2, 4)
    found, slope = ad.build([x, z, h], [y, dz], cache=False)(X, start, head)
    np.testing.assert_allclose(found, X.sum(1) + start, rtol=1e-14)
    np.testing.assert_allclose(slope, head, rtol=1e-6)


#: name, init and identity of a sum of int8
NOT_HELD: list[tuple[str, Any, Any]] = [
    ("fraction", 2.5, lambda t: 0),
    ("out of range", 300, lambda t: 0),
    ("infinity", None, lambda t: float("-inf")),
    ("fraction as identity", None, lambda t: 0.5),
]


@pytest.mark.parametrize("case", NOT_HELD, ids=lambda case: case[0])
def test_literals_that_integers_do_not_hold_are_refused(case: Any) -> None:
    x, k = te.placeholder((4, 6), "int8", name="x"), te.reduce_axis((0, 6), "k")
    y = te.compute((4,), lambda i: total(case[2])(x[i, k], axis=k, init=case[1]), name="y")
    with pytest.raises(ad.InvalidArgumentError, match="stage y reduces int8 from .*tirx.const"):
        ad.build(x, y, cache=False)
