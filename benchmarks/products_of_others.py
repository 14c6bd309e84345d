"""The gradient of a product by its own rule beside that of any other reducer: ``python
benchmarks/products_of_others.py``.

The product's rule (`rules/reductions/product.py`) divides one product by each factor, the general
rule (`rules/reductions/general_reducer.py`) takes the products before and after each factor by two
scans. Both are built once, called in turns on one thread, and the least time of each is kept. With
--check, how many of some products of extreme factors are wrong.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from tvm import te, tirx

sys.path.insert(0, str(Path(__file__).parent.parent))

import tvm_autodiff as ad
from tvm_autodiff.rules.reductions import reducers
from tvm_autodiff.rules.reductions.general_reducer import general

PRODUCT = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="product")
Make = Callable[[Any, str], Any]


def rows(x: Any, dtype: str) -> Any:
    """A product along the last axis."""
    k = te.reduce_axis((0, x.shape[1]), "k")
    return te.compute((x.shape[0],), lambda i: PRODUCT(x[i, k], axis=k), name="y")


def columns(x: Any, dtype: str) -> Any:
    """A product along the first axis."""
    k = te.reduce_axis((0, x.shape[0]), "k")
    return te.compute((x.shape[1],), lambda i: PRODUCT(x[k, i], axis=k), name="y")


def images(x: Any, dtype: str) -> Any:
    """A product over the last two axes."""
    a, b = (
        te.reduce_axis((0, extent), name) for extent, name in zip(x.shape[1:], "ab", strict=True)
    )
    return te.compute((x.shape[0],), lambda i: PRODUCT(x[i, a, b], axis=[a, b]), name="y")


def guarded(x: Any, dtype: str) -> Any:
    """A product of the factors that a condition leaves."""
    k, one = te.reduce_axis((0, x.shape[1]), "k"), tirx.const(1, dtype)
    body = lambda i: PRODUCT(te.if_then_else((i + k) % 3 != 0, x[i, k], one), axis=k)  # noqa: E731
    return te.compute((x.shape[0],), body, name="y")


def shifted(x: Any, dtype: str) -> Any:
    """A product of ``1 + x``: the factor is an expression."""
    k, one = te.reduce_axis((0, x.shape[1]), "k"), tirx.const(1, dtype)
    return te.compute((x.shape[0],), lambda i: PRODUCT(one + x[i, k], axis=k), name="y")


def ragged(x: Any, dtype: str) -> Any:
    """A product of the first factors of a row, more in each."""

    def body(i: Any) -> Any:
        k = te.reduce_axis((0, i % x.shape[1] + 1), "k")
        return PRODUCT(x[i, k], axis=k)

    return te.compute((x.shape[0],), body, name="y")


#: name → shape of the factors, computation
CASES: dict[str, tuple[tuple[int, ...], Make]] = {
    "rows of 3": ((100_000, 3), rows),
    "rows of 8": ((50_000, 8), rows),
    "rows of 64": ((10_000, 64), rows),
    "rows of 1024": ((500, 1024), rows),
    "one row of 100000": ((1, 100_000), rows),
    "8 rows, along columns": ((8, 50_000), columns),
    "500 rows, along columns": ((500, 1000), columns),
    "4 x 4 of each image": ((20_000, 4, 4), images),
    "32 x 32 of each image": ((500, 32, 32), images),
    "rows of 64 with a guard": ((10_000, 64), guarded),
    "rows of 64, 1 + x": ((10_000, 64), shifted),
    "ragged rows up to 64": ((10_000, 64), ragged),
}
#: rows of factors whose products of others are no longer than their range
EXTREMES = {
    "float32": [[1e-30, 1e-30, 1e30, 1e30], [1e30, 1e30, 1e-30, 1e-30], [1e-30, 1e-30, 1e30, 1.0]],
    "float64": [[1e-200, 1e-200, 1e200, 1e200], [1e300, 1e300, 1e-300, 1e-300], [1e-310, 2, 3, 4]],
}


@contextmanager
def by_scans() -> Iterator[None]:
    """Products differentiated as any other reducer."""
    own = reducers._RULES["product"]
    reducers._RULES["product"] = general
    try:
        yield
    finally:
        reducers._RULES["product"] = own


def built(case: tuple[tuple[int, ...], Make], dtype: str, value: bool) -> Any:
    """The gradient as a function of factors and cotangents, with the value where asked."""
    shape, make = case
    x = te.placeholder(shape, dtype, name="x")
    y = make(x, dtype)
    head = te.placeholder(y.shape, dtype, name="head")
    gradient = list(ad.differentiate(y, [x], head))
    return ad.build([x, head], [y, *gradient] if value else gradient, num_threads=1)


def least_times(functions: list[Any], arguments: list[Any], seconds: float) -> list[float]:
    """The least time of each function, called in turns."""
    best = [math.inf] * len(functions)
    for function in functions:
        function(*arguments)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for number, function in enumerate(functions):
            start = time.perf_counter()
            function(*arguments)
            best[number] = min(best[number], time.perf_counter() - start)
    return best


def measure(seconds: float, parts: list[str]) -> None:
    """A line a case: microseconds of both, and their ratio."""
    print(
        f"{'case':28}{'dtype':9}{'computes':18}"
        f"{'own, us':>10}{'general, us':>13}{'own/general':>13}"
    )
    ratios = []
    for name, case in CASES.items():
        if parts and not any(part in name for part in parts):
            continue
        for dtype in ("float32", "float64"):
            rng = np.random.default_rng(0)
            for value in (False, True):
                own = built(case, dtype, value)
                with by_scans():
                    scans = built(case, dtype, value)
                factors = rng.uniform(0.9, 1.1, case[0]).astype(dtype)
                results = case[0][1 if case[1] is columns else 0]
                heads = rng.normal(size=results).astype(dtype)
                times = least_times([own, scans], [factors, heads], seconds)
                ratios.append(times[0] / times[1])
                what = "value, gradient" if value else "gradient"
                print(
                    f"{name:28}{dtype:9}{what:18}{times[0] * 1e6:>10.0f}{times[1] * 1e6:>13.0f}"
                    f"{ratios[-1]:>13.2f}",
                    flush=True,
                )
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(
        f"own/general: geometric mean {mean:.2f}, least {min(ratios):.2f}, most {max(ratios):.2f}"
    )


def check() -> None:
    """How many products of others are wrong by more than their rounding."""
    for dtype, given in EXTREMES.items():
        values = np.array(given, dtype)
        wanted = np.zeros(values.shape, dtype)
        for i, k in np.ndindex(*values.shape):
            others = [Fraction(float(number)) for number in np.delete(values[i], k)]
            wanted[i, k] = float(math.prod(others, start=Fraction(1)))
        case = (values.shape, rows)
        heads = np.ones(len(values), dtype)
        own = built(case, dtype, False)(values, heads)
        with by_scans():
            scans = built(case, dtype, False)(values, heads)
        for name, got in (("own", own), ("general", scans)):
            got = got[0] if isinstance(got, (list, tuple)) else got
            wrong = ~np.isclose(got, wanted, rtol=1e-5, atol=0)
            print(f"{dtype}: {name}: {int(wrong.sum())} of {wanted.size} wrong")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3, help="of calls for each case")
    parser.add_argument("--case", nargs="*", default=[], help="parts of names")
    parser.add_argument("--check", action="store_true", help="extreme factors, nothing measured")
    options = parser.parse_args()
    if options.check:
        check()
    else:
        measure(options.seconds, options.case)
