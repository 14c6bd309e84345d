"""Errors of the elementary functions of float32: ``python benchmarks/math_accuracy.py``.

Every float32 is an argument (2**32 of them, 80 minutes on two cores; ``--step 67`` takes every
67th, in two minutes), and the truth is the C library's function of float64. `power` gets pairs:
these float32 to exponents drawn at random, most of them such that the result is neither zero nor
infinite. An error is counted in units of the last place of the true value, rounded to float32;
results beyond the largest float32 count as 2**128. A NaN in the wrong place and a zero of the wrong
sign are counted apart.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import te, tirx

from tvm_autodiff import build

CHUNK = 1 << 22
WRONG = 1e30  # the error of a NaN or of a sign


def library(name: str) -> Callable[..., Any]:
    """A function of the C library, of float64."""
    return lambda *args: tirx.call_pure_extern("float64", name, *args)


#: name → (arity, TVM's function of float32, the truth in float64)
FUNCTIONS: dict[str, tuple[int, Callable[..., Any], Callable[..., Any]]] = {
    "exp": (1, te.exp, library("exp")),
    "exp2": (1, tirx.exp2, library("exp2")),
    "exp10": (1, tirx.exp10, library("exp10")),
    "sigmoid": (1, te.sigmoid, lambda x: 1.0 / (1.0 + library("exp")(x * -1.0))),
    "tanh": (1, te.tanh, library("tanh")),
    "sinh": (1, te.sinh, library("sinh")),
    "cosh": (1, te.cosh, library("cosh")),
    "log": (1, te.log, library("log")),
    "log2": (1, te.log2, library("log2")),
    "log10": (1, te.log10, library("log10")),
    "log1p": (1, tirx.log1p, library("log1p")),
    "sin": (1, te.sin, library("sin")),
    "cos": (1, te.cos, library("cos")),
    "tan": (1, te.tan, library("tan")),
    "asin": (1, te.asin, library("asin")),
    "acos": (1, te.acos, library("acos")),
    "atan": (1, te.atan, library("atan")),
    "erf": (1, te.erf, library("erf")),
    "power": (2, te.power, library("pow")),
}


def error_of(got: Any, truth: Any) -> Any:
    """The error of a float32 expression in units of the last place of a float64 expression."""

    def bits(value: Any, dtype: str) -> Any:
        return tirx.reinterpret(dtype, value)

    exponent = ((bits(truth, "int64") >> 52) & 0x7FF) - 1023
    exponent = te.max(te.min(exponent, tirx.const(127, "int64")), tirx.const(-126, "int64"))
    unit = bits((exponent - 23 + 1023) << 52, "float64")

    def finite(value: Any) -> Any:
        return te.max(te.min(value, tirx.const(2.0**128, "float64")), tirx.const(-(2.0**128)))

    far = te.abs(finite(got.astype("float64")) - finite(truth)) / unit
    rounded = truth.astype("float32")
    signs = (bits(got, "int32") >> 31).equal(bits(rounded, "int32") >> 31)
    zero = tirx.const(0.0, "float32")
    zeros = tirx.all(got.equal(zero), rounded.equal(zero), tirx.Not(signs))
    # TVM takes x != x for false
    nan = (bits(got, "int32") & 0x7FFFFFFF) > 0x7F800000
    true_nan = (bits(rounded, "int32") & 0x7FFFFFFF) > 0x7F800000
    wrong = tirx.const(WRONG, "float64")
    far = tirx.Select(zeros, wrong, far)
    both = tirx.Select(tirx.all(nan, true_nan), tirx.const(0.0, "float64"), wrong)
    return tirx.Select(tirx.any(nan, true_nan), both, far).astype("float32")


def kernel(name: str, step: int, exact: bool, target: Any) -> Any:
    """A function from the number of the first argument (and exponents) to errors."""
    arity, ours, truth = FUNCTIONS[name]
    start = te.placeholder((1,), name="start", dtype="int32")
    others = [te.placeholder((CHUNK,), name=f"y{n}") for n in range(arity - 1)]
    values = te.compute(
        (CHUNK,), lambda i: tirx.reinterpret("float32", (start[0] + i) * step), name="x"
    )
    got = te.compute((CHUNK,), lambda i: ours(values[i], *(y[i] for y in others)), name="got")

    def error(i: Any) -> Any:
        args = [array[i].astype("float64") for array in (values, *others)]
        return error_of(got[i], truth(*args))

    errors = te.compute((CHUNK,), error, name="errors")
    return build([start, *others], errors, target, exact_math=exact)


def exponents(step: int, first: int, rng: np.random.Generator) -> np.ndarray:
    """Exponents for which most powers are neither zero nor infinite, and a few of all kinds."""
    numbers = (np.arange(first, first + CHUNK, dtype="int64") * step).astype("uint32")
    with np.errstate(all="ignore"):
        logs = np.log2(np.abs(numbers.view("float32").astype("float64")))
        scale = np.where(np.isfinite(logs) & (logs != 0), 150.0 / np.abs(logs), 1.0)
    result = rng.uniform(-1.0, 1.0, CHUNK) * scale
    result[::3] = np.rint(result[::3])
    numbers = rng.integers(0, 2**32, len(result[::17]), dtype="uint32")
    with np.errstate(invalid="ignore"):  # NaN that signal
        result[::17] = numbers.view("float32")
    result[::19] = rng.choice(
        [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 2.0, 0.5], len(result[::19])
    )
    return result.astype("float32")


def measure(name: str, step: int, exact: bool, target: Any) -> tuple[float, float, int, int]:
    """The largest error, its argument, how many results are worse than 4 units, and how many are
    wrong.
    """
    call = kernel(name, step, exact, target)
    rng = np.random.default_rng(0)
    worst, where, bad, wrong = 0.0, 0.0, 0, 0
    for first in range(0, -(-(2**32) // step), CHUNK):
        arguments = [np.array([first & 0xFFFFFFFF], "uint32").view("int32")]
        if FUNCTIONS[name][0] == 2:
            arguments.append(exponents(step, first, rng))
        errors = np.asarray(call(*arguments))
        wrong += int((errors >= WRONG).sum())
        errors = np.where(errors >= WRONG, 0.0, errors)
        bad += int((errors > 4.0).sum())
        place = int(errors.argmax())
        if errors[place] > worst:
            worst = float(errors[place])
            number = np.array([(first + place) * step & 0xFFFFFFFF], "uint32")
            where = float(number.view("float32")[0])
    return worst, where, bad, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("functions", nargs="*", choices=[*FUNCTIONS, []], default=[])
    parser.add_argument("--step", type=int, default=1, help="take every so many float32 (1)")
    parser.add_argument(
        "--exact", action="store_true", help="of TVM's and the C library's functions"
    )
    parser.add_argument("--generic", action="store_true", help="compiled for any x86-64")
    options = parser.parse_args()
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64"}) if options.generic else None
    print("| function | largest error (ulp) | at | above 4 | wrong NaN or sign |")
    print("|---|---|---|---|---|")
    for name in options.functions or FUNCTIONS:
        begin = time.perf_counter()
        worst, where, bad, wrong = measure(name, options.step, options.exact, target)
        print(f"| {name} | {worst:.2f} | {where:.9g} | {bad} | {wrong} |", flush=True)
        print(f"{name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
