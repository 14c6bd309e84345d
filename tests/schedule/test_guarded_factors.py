"""Factors that may be infinite stay under the conditions that exclude that, in sums of any form.

Every program has rows in which the excluded factor is infinite, or no number. The sizes are those
of register tiles. The oracle evaluates conditions as they are written.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff import build, differentiate

N, M, K = 37, 24, 19
x, y = te.placeholder((N, M), "float64", "x"), te.placeholder((N, K), "float64", "y")
w, z = te.placeholder((M, K), "float64", "w"), te.placeholder((N,), "float64", "z")
mask = te.placeholder((N, M), "float64", "mask")
INPUTS = [x, y, w, z, mask]


def zero_unless(condition, value):
    return te.if_then_else(condition, value, 0.0)


def rows(body):
    """A sum over the rows of x and y."""
    i = te.reduce_axis((0, N), "i")
    return te.compute((M, K), lambda j, d: te.sum(body(i.var, j, d), axis=i), name="out")


def columns(body):
    """A sum over the columns of x."""
    j = te.reduce_axis((0, M), "j")
    return te.compute((N, K), lambda i, d: te.sum(body(i, j.var, d), axis=j), name="out")


def everything(body):
    """A sum over two axes."""
    i, j = te.reduce_axis((0, N), "i"), te.reduce_axis((0, M), "j")
    return te.compute((K,), lambda d: te.sum(body(i.var, j.var, d), axis=[i, j]), name="out")


inverse = te.compute((N,), lambda i: 1.0 / z[i], name="inverse")

PROGRAMS = {
    "a quotient": rows(lambda i, j, d: y[i, d] * zero_unless(z[i] > 0.0, x[i, j] / z[i])),
    "a root": rows(lambda i, j, d: y[i, d] * zero_unless(z[i] > 0.0, x[i, j] * te.sqrt(z[i]))),
    "both inside": rows(lambda i, j, d: zero_unless(z[i] > 0.0, y[i, d] * x[i, j] / z[i])),
    "two conditions": rows(
        lambda i, j, d: zero_unless(i > 2, y[i, d]) * zero_unless(z[i] > 0.0, x[i, j] / z[i])
    ),
    "of loops": rows(
        lambda i, j, d: y[i, d] * zero_unless(i % 3 > 0, x[i, j] / (i % 3).astype("float64"))
    ),
    "fewer loops than the condition": columns(
        lambda i, j, d: zero_unless(mask[i, j] * z[i] > 0.0, x[i, j] * w[j, d] / z[i])
    ),
    "a logarithm of a row": columns(
        lambda i, j, d: zero_unless(z[i] > 0.0, te.log(z[i])) * x[i, j] * w[j, d]
    ),
    "no result depends on it": everything(
        lambda i, j, d: zero_unless(z[i] > 0.0, x[i, j] * te.sqrt(z[i])) * 1.0
    ),
    "a stage of its own": rows(
        lambda i, j, d: y[i, d] * zero_unless(z[i] > 0.0, x[i, j] * inverse(i))
    ),
    "a condition of no loop": rows(
        lambda i, j, d: y[i, d] * zero_unless(z[1] > 0.0, te.log(z[1]) * x[i, j])
    ),
    "summed apart": everything(
        lambda i, j, d: y[i, d] * zero_unless(z[i] > 0.0, x[i, j] / z[i])
    ),
}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name, exact):
    out = PROGRAMS[name]
    head = te.placeholder(out.shape, "float64", "head")
    inputs = [*INPUTS, head]
    outputs = [out, *differentiate(out, [x, y, w], head)]
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.5, 2.0, list(map(int, t.shape))) for t in inputs]
    arrays[3][::3], arrays[4][1::2] = 0.0, 0.0
    arrays[3][1] = -1.0
    wanted = evaluate_graph(outputs, list(zip(inputs, arrays, strict=True)))
    assert np.isfinite(wanted[0]).all()
    for threads in (1, 2):
        found = build(inputs, outputs, num_threads=threads, exact_math=exact)(*arrays)
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
