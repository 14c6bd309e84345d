"""Newton's method with a sparse Jacobian.

The script solves a boundary value problem with a nonlinear term. The pattern of
the Jacobian follows from the expressions, and only its nonzeros are computed.
Run it: ``python tutorials/sparse_jacobian.py``.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.sparse.linalg import spsolve
from tvm import te

import tvm_autodiff as ad


def residual(u: te.Tensor, source: te.Tensor) -> te.Tensor:
    """The residual of ``-u'' + u³ = source`` on the unit interval, with u = 0 at both ends."""
    points = int(u.shape[0])
    inverse = float((points + 1) ** 2)

    def row(i: te.Var) -> object:
        left = te.if_then_else(i > 0, u[i - 1], 0.0)
        right = te.if_then_else(i < points - 1, u[i + 1], 0.0)
        return (u[i] * 2.0 - left - right) * inverse + u[i] * u[i] * u[i] - source[i]

    return te.compute((points,), row, name="residual")


def main() -> None:
    """Show the pattern on eight points, then solve the problem on a fine grid."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=2000, help="inner points of the grid")
    points = parser.parse_args().points

    small = te.placeholder((8,), "float64", name="u")
    r = residual(small, te.placeholder((8,), "float64", name="source"))
    print("Each row of the residual reads three neighbours, so the Jacobian has three diagonals:\n")
    print(ad.sparsity(r, small))
    print("\nIts values, a vector of the nonzeros:\n")
    print(ad.show(ad.jacobian(r, small, format="csr").values))

    u = te.placeholder((points,), "float64", name="u")
    source = te.placeholder((points,), "float64", name="source")
    r = residual(u, source)
    jacobian = ad.jacobian(r, u, format="csr")
    print(f"\n{points} points: {jacobian.nnz} nonzeros of {points * points} elements\n")
    evaluate = ad.build([u, source], [r, jacobian])

    # a problem whose solution is known: u(x) = sin(πx)
    x = np.linspace(0, 1, points + 2)[1:-1]
    exact = np.sin(np.pi * x)
    given = np.pi**2 * exact + exact**3
    guess = np.zeros(points)
    for step in range(20):
        value, matrix = evaluate(guess, given)
        change = spsolve(matrix.tocsc(), -np.asarray(value))
        guess = guess + change
        print(f"step {step + 1}: largest change {np.abs(change).max():.1e}")
        if np.abs(change).max() < 1e-9:
            break
    error = np.abs(guess - exact).max()
    print(f"\nlargest error against sin(πx): {error:.1e}, grid spacing squared: {x[0] ** 2:.1e}")


if __name__ == "__main__":
    main()
