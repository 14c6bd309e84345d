"""Jacobians that are mostly zero: the entries that may be other than zero, in the order of CSR.

The other libraries have no such derivative: an expert maps the derivative of one row over all rows.
"""

from __future__ import annotations

from tvm import te

from .case import Case, Entry, Input


def stencil(points: int) -> Case:
    """Each row reads three neighbours: ``y[i] = x[i+1]²·(x[i] - 2·x[i+1] + x[i+2])``."""

    def ours(x):
        return te.compute(
            (points - 2,),
            lambda i: x[i + 1] * x[i + 1] * (x[i] - 2.0 * x[i + 1] + x[i + 2]),
            name="y",
        )

    def row(left, middle, right):
        return middle * middle * (left - 2.0 * middle + right)

    def in_torch(torch, x):
        of_row = torch.func.vmap(torch.func.grad(row, argnums=(0, 1, 2)))
        return torch.stack(of_row(x[:-2], x[1:-1], x[2:]), 1).reshape(-1)

    def in_jax(jax, x):
        of_row = jax.vmap(jax.grad(row, argnums=(0, 1, 2)))
        return jax.numpy.stack(of_row(x[:-2], x[1:-1], x[2:]), 1).reshape(-1)

    return Case({"x": Input((points,))}, ("x",), ours, in_torch, in_jax, derivative="csr")


def projection(points: int) -> Case:
    """Two residuals of each point: its image under a camera with radial distortion."""

    def ours(p, seen):
        u = te.compute((points,), lambda n: p[n, 0] / p[n, 2], name="u")
        v = te.compute((points,), lambda n: p[n, 1] / p[n, 2], name="v")
        square = te.compute((points,), lambda n: u[n] * u[n] + v[n] * v[n], name="square")
        bend = te.compute(
            (points,),
            lambda n: 1.0 + 0.1 * square[n] + 0.01 * square[n] * square[n],
            name="bend",
        )
        return te.compute(
            (points, 2),
            lambda n, c: bend[n] * te.if_then_else(c == 0, u[n], v[n]) - seen[n, c],
            name="residual",
        )

    def row(point, seen):
        image = point[:2] / point[2]
        square = (image * image).sum()
        return (1.0 + 0.1 * square + 0.01 * square * square) * image - seen

    def in_torch(torch, p, seen):
        return torch.func.vmap(torch.func.jacrev(row))(p, seen).reshape(-1)

    def in_jax(jax, p, seen):
        return jax.vmap(jax.jacrev(row))(p, seen).reshape(-1)

    inputs = {"p": Input((points, 3), scale=0.3, mean=3.0), "seen": Input((points, 2))}
    return Case(inputs, ("p",), ours, in_torch, in_jax, derivative="csr")


ENTRIES = [
    Entry(
        "stencil-csr",
        "stencil of 3 over 100,000 points, Jacobian in CSR",
        stencil,
        {"points": 100_000},
        {"points": 37},
    ),
    Entry(
        "projection-csr",
        "projection of 20,000 points, Jacobian in CSR",
        projection,
        {"points": 20_000},
        {"points": 23},
    ),
]
