"""Kernels that compute the two sides of a choice decide it alike, at ties too.

Relaxations to a fixed point have ties everywhere: a value is compared with what it was computed
from. A side that both kernels take, or neither takes, makes an adjoint twice as large or zero.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad

N, STEPS = 64, 2


def mean(p, q, f):
    return 0.4 * p + 0.6 * q + f * f


def distance(root, larger):
    """Godunov's candidate of the eikonal equation."""
    return lambda p, q, f: 0.5 * (p + q + root(larger(2 * f * f - (p - q) * (p - q), 1e-8)))


def smallest(u, candidate):
    return te.min(u, candidate)


def chosen(u, candidate):
    return te.if_then_else(u <= candidate, u, candidate)


FORMULAS = {
    "mean": (mean, mean),
    "distance": (
        distance(te.sqrt, lambda v, low: te.max(v, te.const(low, "float32"))),
        distance(jnp.sqrt, jnp.maximum),
    ),
}


def relaxed(u, f, formula, choose):
    """One relaxation over a grid whose edges repeat."""

    def body(i, j):
        up, down = te.max(i - 1, 0), te.min(i + 1, N - 1)
        left, right = te.max(j - 1, 0), te.min(j + 1, N - 1)
        p, q = te.min(u[up, j], u[down, j]), te.min(u[i, left], u[i, right])
        return choose(u[i, j], formula(p, q, f[i, j]))

    return te.compute((N, N), body, name="u")


def relaxed_by_jax(u, f, formula):
    padded = jnp.pad(u, 1, mode="edge")
    p = jnp.minimum(padded[:-2, 1:-1], padded[2:, 1:-1])
    q = jnp.minimum(padded[1:-1, :-2], padded[1:-1, 2:])
    return jnp.minimum(u, formula(p, q, f))


# planning their borders takes seconds
@pytest.mark.slow
@pytest.mark.parametrize(
    ("formula", "choose"), [("mean", smallest), ("distance", smallest), ("distance", chosen)]
)
def test_relaxations(formula, choose):
    ours, theirs = FORMULAS[formula]
    x, f, head = (te.placeholder((N, N), name=name) for name in ("x", "f", "head"))
    u = x
    for _ in range(STEPS):
        u = relaxed(u, f, ours, choose)
    function = ad.build([x, f, head], ad.vjp([u], [x, f], [head]), num_threads=1, cache=False)
    rng = np.random.default_rng(0)
    data = [rng.uniform(*ends, (N, N)).astype("float32") for ends in ((0, 8), (0.5, 1))]
    got = function(*data, np.ones((N, N), "float32"))

    def by_jax(u, f):
        for _ in range(STEPS):
            u = relaxed_by_jax(u, f, theirs)
        return u.sum()

    with jax.enable_x64(True):
        want = jax.grad(by_jax, (0, 1))(*(np.asarray(one, "float64") for one in data))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3)


ROWS, COLUMNS, SIZE = 40, 11, 7


def averages(x):
    """The means of the numbers and of their squares over rows, which have one length each."""
    k, count = te.reduce_axis((0, SIZE), "k"), te.placeholder((ROWS,), name="count")
    s = te.compute((ROWS, COLUMNS), lambda i, d: te.sum(x[i, d, k], axis=k), name="s")
    square = te.compute(x.shape, lambda *at: x(*at) * x(*at), name="square")
    q = te.compute((ROWS, COLUMNS), lambda i, d: te.sum(square[i, d, k], axis=k), name="q")
    mean = te.compute((ROWS, COLUMNS), lambda i, d: s[i, d] / te.max(count[i], 1.0), name="mean")
    return count, mean, q


def by_count(i, d, mean, q, count):
    return q[i, d] / te.max(count[i], 1.0) - mean[i, d] * mean[i, d]


def by_literal(i, d, mean, q, count):
    return q[i, d] / float(SIZE) - mean[i, d] * mean[i, d]


def by_product(i, d, mean, q, count):
    return q[i, d] * (1 / SIZE) - mean[i, d] * mean[i, d]


CLAMPS = {
    "max": lambda v: te.max(v, 0.0),
    "if_then_else": lambda v: te.if_then_else(v > 0.0, v, 0.0),
}


@pytest.mark.parametrize("clamp", CLAMPS)
@pytest.mark.parametrize("variance", [by_count, by_literal, by_product])
def test_derivatives_that_cancel_are_all_there_or_none_is(variance, clamp):
    """The variance of equal numbers is zero up to rounding, whose derivative is zero."""
    x = te.placeholder((ROWS, COLUMNS, SIZE), name="x")
    count, mean, q = averages(x)
    sd = te.compute(
        (ROWS, COLUMNS),
        lambda i, d: te.sqrt(CLAMPS[clamp](variance(i, d, mean, q, count)) + 1e-3),
        name="sd",
    )
    both = te.compute(  # where both are read twice, they are computed in different kernels
        (ROWS, 4 * COLUMNS),
        lambda i, j: te.if_then_else(
            j < 2 * COLUMNS,
            te.if_then_else(j < COLUMNS, mean[i, j], sd[i, te.max(j - COLUMNS, 0)]),
            te.log(count[i] + 1.0)
            * te.if_then_else(
                j < 3 * COLUMNS,
                mean[i, te.max(j - 2 * COLUMNS, 0)],
                sd[i, te.max(j - 3 * COLUMNS, 0)],
            ),
        ),
        name="both",
    )
    head = te.placeholder((ROWS, 4 * COLUMNS), name="head")
    [dx] = ad.vjp([both], [x], [head])
    function = ad.build([x, count, head], dx, num_threads=1, cache=False)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(ROWS, COLUMNS, 1)).astype("float32")
    data = np.repeat(rows, SIZE, 2)
    heads = rng.normal(size=(ROWS, 4 * COLUMNS)).astype("float32")
    got = function(data, np.full(ROWS, SIZE, "float32"), heads)
    by_mean = heads[:, :COLUMNS] + np.log(SIZE + 1) * heads[:, 2 * COLUMNS : 3 * COLUMNS]
    want = np.repeat(by_mean[:, :, None] / SIZE, SIZE, 2)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-3)
