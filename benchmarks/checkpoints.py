"""A long loop under plans of checkpoints beside storing everything: ``python -m
benchmarks.checkpoints [--steps N] [--trajectories N] [--plans PLAN ...] [--threads N]``.

Lotka and Volterra's equations by Runge and Kutta's method, for some trajectories in float64: the
sum of squares of the last state with the gradients of the initial states and the rates. A plan is
``None``, a number k (every k-th state), ``recursive``, ``slots=N`` or a size such as ``64MB``. The
programs are called in turns; the table has the memory between inputs and outputs, the states that
are kept at a time, the steps that are computed again, and the least and the median time, in seconds
and over those of the first plan.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
from tvm import te

import tvm_autodiff as ad

DT, DTYPE = 1e-4, "float64"
RATES = np.array([1.1, 0.4, 0.1, 0.4])


def plan_of(text: str) -> Any:
    """What `checkpoint` of `scan` is, from an argument of the command line."""
    if text == "None":
        return None
    if text.startswith("slots="):
        return ad.Recursive(int(text.removeprefix("slots=")))
    return int(text) if text.isdigit() else text


def built(steps: int, trajectories: int, plan: Any, threads: int | None) -> tuple[Any, float]:
    """The function, and the seconds that differentiation and compilation take."""
    begin = time.perf_counter()
    y0 = te.placeholder((trajectories, 2), DTYPE, name="y0")
    p = te.placeholder((4,), DTYPE, name="p")

    def rate(y: te.Tensor) -> te.Tensor:
        def value(i: Any, c: Any) -> Any:
            met = y[i, 0] * y[i, 1]
            prey, hunters = p[0] * y[i, 0] - p[1] * met, p[2] * met - p[3] * y[i, 1]
            return te.if_then_else(c == 0, prey, hunters)

        return te.compute(y.shape, value, name="rate")

    def moved(y: te.Tensor, k: te.Tensor, h: float) -> te.Tensor:
        return te.compute(y.shape, lambda i, c: y[i, c] + h * k[i, c], name="moved")

    def step(y: te.Tensor, _: None) -> tuple[te.Tensor, None]:
        a = rate(y)
        b = rate(moved(y, a, DT / 2))
        c = rate(moved(y, b, DT / 2))
        d = rate(moved(y, c, DT))

        def value(i: Any, n: Any) -> Any:
            return y[i, n] + DT / 6 * (a[i, n] + 2 * b[i, n] + 2 * c[i, n] + d[i, n])

        return te.compute(y.shape, value, name="y"), None

    last, _ = ad.scan(step, y0, length=steps, checkpoint=plan)
    i, c = te.reduce_axis((0, trajectories), "i"), te.reduce_axis((0, 2), "c")
    loss = te.compute((), lambda: te.sum(last[i, c] * last[i, c], axis=[i, c]), name="loss")
    gradient = ad.differentiate(loss, [y0, p])
    function = ad.build([y0, p], [loss, *gradient], num_threads=threads, cache=False)
    return function, time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10**6)
    parser.add_argument("--trajectories", type=int, default=8)
    parser.add_argument("--plans", nargs="+", default=["None", "64MB", "recursive", "1000"])
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    values = 1.0 + rng.random((options.trajectories, 2)), RATES
    programs = {
        text: built(options.steps, options.trajectories, plan_of(text), options.threads)
        for text in options.plans
    }
    times: dict[str, list[float]] = {text: [] for text in programs}
    wanted: list[Any] | None = None
    for call in range(options.calls + 1):
        for text, (function, _) in programs.items():
            begin = time.perf_counter()
            results = function(*values)
            if call:  # the first one touches the memory for the first time
                times[text].append(time.perf_counter() - begin)
            wanted = wanted or results
            for one, other in zip(results, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-8)
    first = times[options.plans[0]]
    print(f"{options.steps:,} steps, {options.trajectories} trajectories, float64")
    print(f"{'plan':12}{'MB between':>12}{'states':>12}{'again':>12}", end="")
    print(f"{'least s':>10}{'median s':>10}{'least':>8}{'median':>8}{'build s':>9}")
    for text, (function, building) in programs.items():
        memory, spent = function.memory(), times[text]
        told = [(plan.states, plan.extra_steps) for plan in memory.loops] or [("", "")]
        states, again = (f"{n:,}" if isinstance(n, int) else "" for n in told[0])
        least, median = min(spent), statistics.median(spent)
        print(f"{text:12}{memory.temporaries / 1e6:12.2f}{states:>12}{again:>12}", end="")
        print(f"{least:10.3f}{median:10.3f}{least / min(first):8.2f}", end="")
        print(f"{median / statistics.median(first):8.2f}{building:9.2f}")


if __name__ == "__main__":
    main()
