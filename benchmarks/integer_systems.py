"""Time of the integer solver: ``python benchmarks/integer_systems.py``.

Random systems of twelve variables and twelve conditions, and the systems of convolution gradients;
each solved by `domain.solve_linear_equations`, and simplified to a box by `domain.simplify_domain`,
in one process on one core. Medians, and the slowest of a kind.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from time import process_time
from typing import Any

from tvm import te

from tvm_autodiff.domain import Domain, simplify_domain, solve_linear_equations
from tvm_autodiff.expr import build


def dense_system(seed: int) -> Domain:
    """Twelve variables, six equations and six inequalities, a quarter of the coefficients not
    zero.
    """
    rng = random.Random(seed)
    variables = [te.var(f"x{n}") for n in range(12)]
    parameters = [te.var(f"b{n}") for n in range(6)]
    ranges = {var: (0, rng.randint(2, 9)) for var in variables}
    ranges.update(dict.fromkeys(parameters, (0, 20)))
    conditions = []
    for n in range(12):
        form: Any = build.const(rng.randint(-5, 5), "int32")
        for var in variables:
            if rng.random() < 0.25:
                form = form + var * rng.choice([-3, -2, -1, 1, 1, 1, 2, 3])
        right = parameters[n] if n < 6 else build.const(rng.randint(0, 30), "int32")
        conditions.append(build.compare("eq" if n < 6 else "le", form, right))
    return Domain(tuple(variables), ranges, tuple(conditions))


def convolution(stride: int, dilation: int) -> Domain:
    """The input gradient of a 3x3 convolution: seven variables, four equations, a padded border."""
    names = ("n", "co", "h", "w", "ci", "kh", "kw")
    n, _co, h, w, ci, kh, kw = variables = tuple(te.var(name) for name in names)
    b = [te.var(f"b{axis}") for axis in range(4)]
    extents = dict(zip(variables, (8, 32, 16, 16, 32, 3, 3), strict=True))
    ranges = {var: (0, extent) for var, extent in extents.items()}
    ranges.update(dict(zip(b, ((0, 8), (0, 32), (0, 32), (0, 32)), strict=True)))
    row, column = (stride * x + dilation * k - 1 for x, k in ((h, kh), (w, kw)))
    pairs = zip((n, ci, row, column), b, strict=True)
    equations = [build.compare("eq", left, right) for left, right in pairs]
    return Domain(variables, ranges, (*equations, row >= 0, row < 32, column >= 0, column < 32))


def milliseconds(solve: Callable[[Domain], Any], domain: Domain, runs: int = 5) -> float:
    """The median time of one system."""
    times = []
    for _ in range(runs):
        start = process_time()
        solve(domain)
        times.append(process_time() - start)
    return statistics.median(times) * 1e3


def main() -> None:
    """Measure and print a line a kind."""
    kinds = {
        "12 variables, 12 conditions": [dense_system(seed) for seed in range(40)],
        "convolution gradients": [convolution(s, d) for s in (1, 2, 3) for d in (1, 2)],
    }
    print(f"{'':30}{'':14}{'systems':>8}{'median ms':>11}{'slowest ms':>12}")
    for name, systems in kinds.items():
        for step, solve in (("equations", solve_linear_equations), ("to a box", simplify_domain)):
            solve(systems[0])
            times = [milliseconds(solve, domain) for domain in systems]
            middle, slowest = statistics.median(times), max(times)
            print(f"{name:30}{step:14}{len(times):>8}{middle:>11.2f}{slowest:>12.2f}")


if __name__ == "__main__":
    main()
