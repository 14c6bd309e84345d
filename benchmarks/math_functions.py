"""Speed of elementary functions: ``python benchmarks/math_functions.py``.

A map over float32 (``--dtype float64``) that fits in the cache, on one thread, with the arithmetic
that vectorises and with the C library (``exact_math=True``), rounds alternating: nanoseconds for an
element, and the ratio. The arguments are normally distributed, or positive where the function wants
that.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te, tirx

from tvm_autodiff import build
from tvm_autodiff.expr.build import like

SIZE = 1 << 16
REPEATS = 20  # calls in a round
ROUNDS = 7

REAL: Callable[[np.ndarray], np.ndarray] = lambda x: x  # noqa: E731
POSITIVE: Callable[[np.ndarray], np.ndarray] = np.abs
ABOVE: Callable[[np.ndarray], np.ndarray] = lambda x: 1.0 + np.abs(x)  # noqa: E731
INSIDE: Callable[[np.ndarray], np.ndarray] = lambda x: np.clip(x / 4, -1, 1)  # noqa: E731

#: name → (a function of one argument, where its arguments lie)
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "exp": (te.exp, REAL),
    "exp2": (tirx.exp2, REAL),
    "exp10": (tirx.exp10, REAL),
    "sigmoid": (te.sigmoid, REAL),
    "tanh": (te.tanh, REAL),
    "sinh": (te.sinh, REAL),
    "cosh": (te.cosh, REAL),
    "log": (te.log, POSITIVE),
    "log2": (te.log2, POSITIVE),
    "log10": (te.log10, POSITIVE),
    "log1p": (tirx.log1p, POSITIVE),
    "power": (lambda x: te.power(x, like(x, 1.7)), POSITIVE),
    "power, to the 3": (lambda x: te.power(x, like(x, 3.0)), REAL),
    "power, to the 0.5": (lambda x: te.power(x, like(x, 0.5)), POSITIVE),
    "sin": (te.sin, REAL),
    "cos": (te.cos, REAL),
    "tan": (te.tan, REAL),
    "asin": (te.asin, INSIDE),
    "acos": (te.acos, INSIDE),
    "atan": (te.atan, REAL),
    "atan2": (lambda x: tirx.atan2(x, like(x, 0.5)), REAL),
    "asinh": (tirx.asinh, REAL),
    "acosh": (tirx.acosh, ABOVE),
    "atanh": (tirx.atanh, INSIDE),
    "erf": (te.erf, REAL),
    "sqrt": (te.sqrt, POSITIVE),
    "rsqrt": (te.rsqrt, POSITIVE),
}


def times(calls: list[Callable[[], Any]]) -> list[float]:
    """The median time of each call, over alternating rounds."""
    rounds: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, kept in zip(calls, rounds, strict=True):
            call()
            begin = time.perf_counter()
            for _ in range(REPEATS):
                call()
            kept.append((time.perf_counter() - begin) / REPEATS)
    return [statistics.median(kept) for kept in rounds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("functions", nargs="*", choices=[*FUNCTIONS, []], default=[])
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    options = parser.parse_args()
    rng, dtype = np.random.default_rng(0), options.dtype
    out = np.empty(SIZE, dtype)
    rows: dict[str, list[Callable[[], Any]]] = {}
    for name in options.functions or FUNCTIONS:
        function, domain = FUNCTIONS[name]
        data = domain(rng.standard_normal(SIZE)).astype(dtype)
        argument = te.placeholder((SIZE,), dtype, name="x")
        result = te.compute((SIZE,), lambda i: function(argument(i)), name="y")  # noqa: B023
        built = [
            build(argument, result, num_threads=1, exact_math=exact) for exact in (False, True)
        ]
        rows[name] = [lambda f=f, data=data: f(data, out=out) for f in built]
    print("| function | ns an element | C library | ratio |")
    print("|---|---|---|---|")
    for name, calls in rows.items():
        ours, exact = (1e9 * seconds / SIZE for seconds in times(calls))
        print(f"| {name} | {ours:.2f} | {exact:.2f} | {exact / ours:.1f} |", flush=True)


if __name__ == "__main__":
    main()
