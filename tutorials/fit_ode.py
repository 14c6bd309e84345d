"""Fit a differential equation to data.

The Hudson's Bay Company counted the pelts of hares and lynxes for two decades. The equations of
Lotka and Volterra describe the two populations. Gradient descent through the solver finds their
four rates and the populations of the first year. The solver is a `scan` over steps of Runge and
Kutta's method; the step is written once and compiled as a loop. Run it with
``python tutorials/fit_ode.py``. The picture needs matplotlib (the extra ``demo``).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from tvm import te

import tvm_autodiff as ad

# Thousands of pelts in each year from 1900 to 1920 (E. P. Odum, Fundamentals of Ecology, 1953;
# J. M. Mahaffy, San Diego State University, 2010, has the table).
HARES = """30.0 47.2 70.2 77.4 36.3 20.6 18.1 21.4 22.0 25.4 27.1
           40.3 57.0 76.6 52.3 19.5 11.2 7.6 14.6 16.2 24.7"""
LYNXES = """4.0 6.1 9.8 35.2 59.4 41.7 19.0 13.0 8.3 9.1 7.4
            8.0 12.3 19.5 45.7 51.1 29.7 15.8 9.7 10.1 8.6"""
FIRST_YEAR = 1900
PELTS = np.array(list(zip(HARES.split(), LYNXES.split(), strict=True)), "float64")  # [21, 2]

STEPS = 20  #: of the solver in a year
YEARS = len(PELTS) - 1
# All six parameters are positive, so their logarithms are learned. The first guess has periods of
# 2π/√(0.4·0.7), about twelve years, around 23 (thousand) hares and 20 lynxes.
NAMES = ("birth of hares", "hares eaten", "death of lynxes", "lynxes fed", "hares", "lynxes")
START = np.log([0.4, 0.02, 0.7, 0.03, 20.0, 10.0])


# 1. The model ------------------------------------------------------------------------------------


def slope(now: te.Tensor, logs: te.Tensor) -> te.Tensor:
    """``u' = αu - βuv, v' = -γv + δuv`` for the populations ``now = (u, v)``."""
    rates = [te.exp(logs[n]) for n in range(4)]

    def value(species: Any) -> Any:
        met = now[0] * now[1]
        hares = rates[0] * now[0] - rates[1] * met
        lynxes = rates[3] * met - rates[2] * now[1]
        return te.if_then_else(species == 0, hares, lynxes)

    return te.compute((2,), value, name="slope")


def solve(logs: te.Tensor, years: int) -> te.Tensor:
    """The populations after each step of the solver, [years·STEPS, 2]."""

    def moved(now: te.Tensor, slope: te.Tensor, by: float) -> te.Tensor:
        return te.compute((2,), lambda i: now[i] + by * slope[i], name="moved")

    def step(now: te.Tensor, _: None) -> tuple[te.Tensor, te.Tensor]:
        # `logs` is read from outside: the loop differentiates with respect to it as well
        a = slope(now, logs)
        b = slope(moved(now, a, 0.5 / STEPS), logs)
        c = slope(moved(now, b, 0.5 / STEPS), logs)
        d = slope(moved(now, c, 1.0 / STEPS), logs)
        after = te.compute(
            (2,),
            lambda i: now[i] + (a[i] + 2.0 * b[i] + 2.0 * c[i] + d[i]) / (6.0 * STEPS),
            name="after",
        )
        return after, after

    start = te.compute((2,), lambda i: te.exp(logs[4 + i]), name="start")
    _, path = ad.scan(step, start, length=years * STEPS)
    return path


def misfit(logs: te.Tensor, pelts: te.Tensor) -> te.Tensor:
    """The mean square of the differences of logarithms: the errors of counts are relative."""
    path = solve(logs, YEARS)

    def difference(year: Any, species: Any) -> Any:
        # a guard: for year 0 the path is not read, and receives no gradient
        later = te.exp(logs[4 + species])
        model = te.if_then_else(year > 0, path[year * STEPS - 1, species], later)
        return te.log(model) - te.log(pelts[year, species])

    shape = (YEARS + 1, 2)
    differences = te.compute(shape, difference, name="differences")
    n, s = te.reduce_axis((0, YEARS + 1), "n"), te.reduce_axis((0, 2), "s")
    square = differences[n, s] * differences[n, s] / (2.0 * (YEARS + 1))
    return te.compute((), lambda: te.sum(square, axis=[n, s]), name="loss")


# 2. The gradient, and the step -------------------------------------------------------------------


def make_step() -> Any:
    """Compile ``step(pelts, rate, logs, mean, square) → loss`` with Adam's update in place.

    Its two moving averages are tensors like the parameters (D. Kingma and J. Ba, Adam, 2015); the
    correction for their start at zero is part of the rate.
    """
    pelts = te.placeholder(PELTS.shape, "float64", name="pelts")
    rate = te.placeholder((), "float64", name="rate")
    logs, mean, square = (
        te.placeholder((len(START),), "float64", name=name) for name in ("logs", "mean", "square")
    )
    loss = misfit(logs, pelts)

    # The gradient runs the loop of the solver backwards; the forward loop stores what it reads.
    [gradient] = ad.differentiate(loss, [logs])

    new_mean = te.compute(mean.shape, lambda i: 0.9 * mean[i] + 0.1 * gradient[i], name="m")
    new_square = te.compute(
        mean.shape, lambda i: 0.99 * square[i] + 0.01 * gradient[i] * gradient[i], name="v"
    )
    new_logs = te.compute(
        mean.shape,
        lambda i: logs[i] - rate() * new_mean[i] / (te.sqrt(new_square[i]) + 1e-8),
        name="new_logs",
    )
    return ad.build(
        [pelts, rate, logs, mean, square],
        loss,
        updates={logs: new_logs, mean: new_mean, square: new_square},
    )


def fit(iterations: int) -> tuple[np.ndarray, list[float]]:
    """The logarithms of the parameters, and the loss of each iteration."""
    step = make_step()
    logs, mean, square = START.copy(), np.zeros_like(START), np.zeros_like(START)
    losses = []
    for n in range(1, iterations + 1):
        fade = 0.5 * (1.0 + np.cos(np.pi * n / iterations))
        rate = 0.02 * fade * np.sqrt(1.0 - 0.99**n) / (1.0 - 0.9**n)
        losses.append(float(step(PELTS, rate, logs, mean, square)))
        if n == 1 or n % (iterations // 5) == 0:
            print(f"iteration {n:5}: loss {losses[-1]:.4f}")
    return logs, losses


# 3. The result -----------------------------------------------------------------------------------


def path_of(logs: np.ndarray, years: int) -> np.ndarray:
    """The populations at every step of the solver."""
    tensor = te.placeholder((len(START),), "float64", name="logs")
    return ad.build([tensor], solve(tensor, years))(logs)


def draw(logs: np.ndarray, file: Path) -> None:
    """The counts, the fitted curves, and the first guess."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    times = FIRST_YEAR + np.arange(1, YEARS * STEPS + 1) / STEPS
    for species, (name, colour) in enumerate([("hares", "tab:blue"), ("lynxes", "tab:orange")]):
        years = FIRST_YEAR + np.arange(len(PELTS))
        axes.plot(years, PELTS[:, species], "o", color=colour, label=f"{name}, counted")
        axes.plot(times, path_of(logs, YEARS)[:, species], color=colour, label=f"{name}, fitted")
        guess = path_of(START, YEARS)[:, species]
        axes.plot(times, guess, ":", color=colour, alpha=0.6, label=f"{name}, first guess")
    axes.set_xticks(range(FIRST_YEAR, FIRST_YEAR + YEARS + 1, 4))
    axes.set_ylabel("thousands of pelts")
    figure.legend(ncols=2, frameon=False, loc="outside upper center")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def main() -> None:
    """Fit, and print and draw the result."""
    parser = argparse.ArgumentParser(description="Fit a differential equation to data.")
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("fitted_ode.png"), help="the picture")
    options = parser.parse_args()
    print(f"{YEARS * STEPS} steps of the solver, {len(START)} parameters")
    logs, _ = fit(options.iterations)
    print("\n                 first guess    fitted")
    for name, first, last in zip(NAMES, np.exp(START), np.exp(logs), strict=True):
        print(f"{name:16} {first:11.4f} {last:9.4f}")
    draw(logs, options.out)
    print(f"\nThe picture is {options.out}")


if __name__ == "__main__":
    main()
