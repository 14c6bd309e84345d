"""What sizes of a call have to satisfy so that reads stay inside of their tensors."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, topi

import tvm_autodiff as ad
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.size_limits import size_limits

n, m = te.var("n"), te.var("m")
x, z = te.placeholder((n,), "float64", "x"), te.placeholder((m,), "float64", "z")
k = te.reduce_axis((0, m), "k")


def stage(body, shape=(n,)):
    return te.compute(shape, body, name="y")


#: name → (stage, limits as text: the tensor, and the last place and the size of a dimension)
CASES = {
    "of one size": (stage(lambda i: x[i] * 2.0), []),
    "of two sizes": (stage(lambda i: x[i] + z[i]), [("z", "n - 1", "m")]),
    "shifted": (stage(lambda i: x[i + m] + z[0]), [("x", "n - 1 + m", "n")]),
    "a window": (
        stage(lambda i: te.sum(x[i + k] * z[k], axis=k), (n - m + 1,)),
        [],
    ),
    "a literal length": (stage(lambda i: x[i], (5,)), [("x", "4", "n")]),
    "guarded": (stage(lambda i: te.if_then_else(i < m, z[i], 0.0)), []),
    "clamped": (stage(lambda i: z[te.min(i, m - 1)]), []),
    "from the end": (stage(lambda i: x[n - 1 - i]), []),
    "so far from the end": (stage(lambda i: x[n - 1 - i * 7], (3,)), [("x", "-1 + n", "n")]),
}


@pytest.mark.parametrize("name", CASES)
def test_limits(name):
    tensor, wanted = CASES[name]
    found = size_limits(Graph([tensor]).ops)
    text = [(one.tensor, str(one.most).replace("T.", ""), str(one.dim)) for one in found]
    assert text == wanted


def sums(left, right):
    return topi.sum(left * right, axis=0)


def test_calls_that_read_before_the_beginning_are_refused():
    last = te.compute((3,), lambda i: x[n - 1 - i * 7], name="last")
    run = ad.build(x, last)
    np.testing.assert_array_equal(run(np.arange(15.0)), [14, 7, 0])
    message = "last reads x from element -1 of a dimension that has 14 for n = 14"
    with pytest.raises(ad.CallError, match=message):
        run(np.arange(14.0))


@pytest.mark.parametrize("cached", [False, True])
def test_calls_are_refused(cached, tmp_path):
    """Axes of two symbolic sizes, which topi takes for equal."""
    a, b = te.placeholder((n, 4), "float64", "a"), te.placeholder((m, 4), "float64", "b")
    folder = tmp_path if cached else False
    for _ in range(2):  # the second one comes from the folder
        run = ad.build([a, b], sums(a, b), cache=folder)
        rng = np.random.default_rng(0)
        left, right = rng.standard_normal((2, 5, 4))
        np.testing.assert_allclose(run(left, right), (left * right).sum(0))
        message = "reads b up to element 4 of a dimension that has 3 for n = 5, m = 3"
        with pytest.raises(ad.CallError, match=message):
            run(left, right[:3].copy())
        with pytest.raises(ad.CallError, match="reads .* up to element 4 .* for n = 0, m = 5"):
            run(left[:0].copy(), right)
        np.testing.assert_allclose(run(left[:0].copy(), right[:0].copy()), np.zeros(4))


def test_of_a_function_with_dynamic_axes():
    run = ad.jit(sums, dynamic={"left": (0,), "right": (0,)})
    ones = np.ones((4, 4))
    np.testing.assert_array_equal(run(ones, ones), [4, 4, 4, 4])
    with pytest.raises(ad.CallError, match="reads right up to element 3"):
        run(ones, ones[:1].copy())
