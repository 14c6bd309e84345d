"""Transformed tensors compile, and compute what numpy computes for the originals."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, topi

from tests.evaluate import evaluate_graph
from tvm_autodiff import (
    build,
    differentiate,
    inline_tensors,
    merge_equal_stages,
    remove_unused_dims,
    simplify_reductions,
)
from tvm_autodiff.expr.nodes import dtype_of, tensor_key
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import shape_of

D = "float64"
A, C = te.placeholder((8,), D, name="A"), te.placeholder((8, 8), D, name="C")
I = te.placeholder((8,), "int32", name="I")  # noqa: E741 - an index


def total(shape, reduce, body, name="S"):
    inner = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(reduce)]
    return te.compute(
        shape, lambda *axes: te.sum(body(*axes, *(k.var for k in inner)), axis=inner), name=name
    )


def where(condition, value):
    return te.if_then_else(condition, value, te.const(0.0, D))


def everything(tensors):
    """All transformations, one after the other."""
    return simplify_reductions(
        remove_unused_dims(inline_tensors(merge_equal_stages(simplify_reductions(tensors))))
    )


def one_hot():
    return total((8, 8), (8,), lambda i, j, k: where(k == I[i], C[k, j] * A[k]))


def out_of_range():
    """Some positions lie outside: the sum over them is empty, and nothing is read there."""
    return total((8,), (8,), lambda i, k: where(k == I[i] * 1000000 - 1000000, A[k]))


def window():
    return total((20,), (8, 5), lambda b, i, k: where(2 * i + k == b, A[i] * C[i, k]))


def diagonal():
    return total((8, 8), (8,), lambda i, j, k: where(i == j, C[i, k] * A[k]))


def guarded_neighbours():
    return total((8,), (8,), lambda i, k: where(k < i, where(A[i - k - 1] > 0.0, A[k] * C[i, k])))


def terms():
    return total((8,), (8,), lambda i, k: where(k < 2, C[i, k]) + where(k == 7 - i, A[k] * 2.0))


def hessian():
    y = total((), (8,), lambda k: te.tanh(A[k]) * A[7 - k])
    [gradient] = differentiate(y, [A])
    return differentiate(gradient, [A])[0]


def convolution():
    x = topi.reshape(C, (1, 1, 8, 8))
    weights = te.placeholder((2, 1, 3, 3), D, name="W")
    y = topi.nn.conv2d_nchw(x, weights, stride=2, padding=1, dilation=1)
    return differentiate(topi.sum(y * y), [C])[0]


CASES = [one_hot, out_of_range, window, diagonal, guarded_neighbours, terms, hessian, convolution]


@pytest.mark.parametrize("transform", [simplify_reductions, everything])
@pytest.mark.parametrize("make", CASES)
def test_compiled(make, transform):
    before = make()
    after = transform([before])
    inputs = Graph([before]).placeholders()
    rng = np.random.default_rng(0)
    values = [
        rng.integers(0, 8, shape_of(x)).astype("int32")
        if "int" in dtype_of(x)
        else rng.normal(size=shape_of(x))
        for x in inputs
    ]
    [expected] = evaluate_graph([before], zip(inputs, values, strict=True))
    used = {tensor_key(x) for x in Graph(after).placeholders()}
    given = [(x, value) for x, value in zip(inputs, values, strict=True) if tensor_key(x) in used]
    [result] = build([x for x, _ in given], after)(*(value for _, value in given))
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-9, atol=1e-9)
