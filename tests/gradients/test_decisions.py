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
