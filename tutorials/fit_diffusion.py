"""Fit diffusion coefficients by gradient descent.

A rod consists of two halves with different coefficients, which follow from its temperature at the
beginning and at the end. The simulation is a `scan` over time steps. Its gradient with respect to
the coefficients is a scan that runs backward. Run it: ``python tutorials/fit_diffusion.py``.
"""

from __future__ import annotations

import argparse

import numpy as np
from tvm import te, topi

import tvm_autodiff as ad

POINTS, STEPS = 32, 40


def simulate(start: te.Tensor, log_coefficients: te.Tensor) -> te.Tensor:
    """The temperature after `STEPS` explicit steps; each half of the rod has its coefficient."""
    rows = start.shape[0]

    def step(state: te.Tensor) -> te.Tensor:
        def cell(n: te.Var, i: te.Var) -> object:
            here = state[n, i]
            left = te.if_then_else(i > 0, state[n, i - 1], here)
            right = te.if_then_else(i < POINTS - 1, state[n, i + 1], here)
            return here + te.exp(log_coefficients[i // (POINTS // 2)]) * (left + right - here * 2.0)

        return te.compute((rows, POINTS), cell, name="temperature")

    return ad.scan(lambda state, _: (step(state), None), start, length=STEPS)[0]


def main() -> None:
    """Make measurements with known coefficients, then recover these from the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=200)
    iterations = parser.parse_args().iterations

    start = te.placeholder((4, POINTS), "float64", name="start")
    measured = te.placeholder((4, POINTS), "float64", name="measured")
    logs = te.placeholder((2,), "float64", name="logs")
    final = simulate(start, logs)
    apart = te.compute((4, POINTS), lambda n, i: final[n, i] - measured[n, i], name="apart")
    loss = topi.sum(te.compute((4, POINTS), lambda n, i: apart[n, i] * apart[n, i], name="square"))
    [gradient] = ad.differentiate(loss, [logs])
    forward = ad.build([start, logs], final)
    loss_and_gradient = ad.build([start, measured, logs], [loss, gradient])

    random = np.random.default_rng(0)
    truth = np.array([0.05, 0.30])
    begin = random.normal(size=(4, POINTS))
    end = np.asarray(forward(begin, np.log(truth))) + random.normal(scale=1e-3, size=(4, POINTS))

    guess = np.log([0.15, 0.15])
    mean, spread = np.zeros(2), np.zeros(2)
    for iteration in range(iterations):  # Adam, in numpy
        value, slope = (np.asarray(part) for part in loss_and_gradient(begin, end, guess))
        mean, spread = 0.9 * mean + 0.1 * slope, 0.99 * spread + 0.01 * slope**2
        corrected = mean / (1 - 0.9 ** (iteration + 1))
        scale = np.sqrt(spread / (1 - 0.99 ** (iteration + 1))) + 1e-12
        guess = guess - 0.05 * corrected / scale
        if iteration % 50 == 0 or iteration == iterations - 1:
            print(f"iteration {iteration:3}  loss {float(value):.6f}")
    print("\nhalf of the rod  true    found")
    for half, true, found in zip(("left", "right"), truth, np.exp(guess), strict=True):
        print(f"{half:<15}  {true:.4f}  {found:.4f}")


if __name__ == "__main__":
    main()
