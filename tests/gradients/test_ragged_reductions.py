"""Reductions of every reducer, over boxes and over ranges that depend on the output axis, with a
condition or an initial value or both, in every dtype: values, and gradients at distinct numbers.

What is evaluated is the normal form, as it is lowered; a few are compiled. The oracle is a loop in
plain Python over float64 and central differences of it.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.schedule.rewrites.normal_form import normal_form

ROWS, COLUMNS = 3, 5
CONST = tirx.const

#: name → (te reducer, the same in Python, components)
REDUCERS = {
    "sum": (te.comm_reducer(lambda a, b: a + b, lambda t: CONST(0, t)), lambda a, b: a + b, 1),
    "max": (te.comm_reducer(lambda a, b: tirx.Max(a, b), te.min_value), max, 1),
    "min": (te.comm_reducer(lambda a, b: tirx.Min(a, b), te.max_value), min, 1),
    "product": (te.comm_reducer(lambda a, b: a * b, lambda t: CONST(1, t)), lambda a, b: a * b, 1),
    "user": (
        te.comm_reducer(lambda a, b: a + b + a * b, lambda t: CONST(0, t)),
        lambda a, b: a + b + a * b,
        1,
    ),
    "pair": (
        te.comm_reducer(
            lambda a, b: (a[0] + b[0], tirx.Max(a[1], b[1])),
            lambda s, t: (CONST(0, s), te.min_value(t)),
        ),
        lambda a, b: (a[0] + b[0], max(a[1], b[1])),
        2,
    ),
}
#: name → begin and end of the reduced range in row i
RANGES = {
    "box": (lambda i: 0, lambda i: COLUMNS),
    "below": (lambda i: 0, lambda i: i + 1),
    "above": (lambda i: i, lambda i: COLUMNS),
    "window": (lambda i: i, lambda i: i + 3),
}
TOLERANCES = {"float16": 4e-3, "bfloat16": 4e-2, "float32": 1e-5, "float64": 1e-11, "int32": 0}


class Case:
    """One reduction as te stages and as a function of arrays."""

    def __init__(self, reducer, ranges, where, init):
        self.combine, self.python, self.count = REDUCERS[reducer]
        self.begin, self.end = RANGES[ranges]
        self.where, self.init = where, init

    def stages(self, x, start):
        def body(i):
            k = te.reduce_axis((self.begin(i), self.end(i)), "k")
            options = {"where": k != 2} if self.where else {}
            if self.init:
                options["init"] = start[i] if self.count == 1 else [start[i]] * 2
            source = x[i, k] if self.count == 1 else (x[i, k], x[i, k] * x[i, k])
            return self.combine(source, axis=k, **options)

        made = te.compute((ROWS,), body, name="y")
        return list(made) if self.count > 1 else [made]

    def values(self, x, start):
        """The components of each row; NaN where nothing is reduced and there is no start."""
        rows = []
        for i in range(ROWS):
            found = [(start[i],) * self.count] if self.init else []
            found += [
                (x[i, k], x[i, k] * x[i, k])[: self.count]
                for k in range(self.begin(i), self.end(i))
                if not (self.where and k == 2)
            ]
            total = found[0] if found else (np.nan,) * self.count
            for item in found[1:]:
                both = (total, item) if self.count > 1 else (total[0], item[0])
                combined = self.python(*both)
                total = combined if self.count > 1 else (combined,)
            rows.append(total)
        return np.array(rows, "float64").T

    def derivatives(self, x, start, heads, step=1e-6):
        """Central differences of Σ heads·values by x and by the initial values."""
        results = []
        for array in (x, start):
            slopes = np.zeros(array.shape)
            for place in np.ndindex(*array.shape):
                ends = []
                for sign in (1, -1):
                    old, array[place] = array[place], array[place] + sign * step
                    ends.append(np.nansum(heads * self.values(x, start)))
                    array[place] = old
                slopes[place] = (ends[0] - ends[1]) / (2 * step)
            results.append(slopes)
        return results


def numbers(shapes, dtype):
    """Arrays of numbers that all differ, in bfloat16 too, so that every extreme has one winner."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    spread = 0.5 + np.random.default_rng(0).permutation(64)[: sum(sizes)] / 64
    if dtype == "int32":
        spread = np.floor(4 * spread)
    parts = np.split(spread, np.cumsum(sizes)[:-1])
    wanted = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return [part.reshape(shape).astype(wanted) for part, shape in zip(parts, shapes, strict=True)]


COMPILED = [
    ("sum", "below", False, True, "float32"),
    ("sum", "above", False, False, "float16"),
    ("max", "window", True, True, "bfloat16"),
    ("product", "below", True, True, "float64"),
    ("sum", "window", True, True, "int32"),
]


def check(case, dtype, compiled):
    x = te.placeholder((ROWS, COLUMNS), dtype, name="x")
    start = te.placeholder((ROWS,), dtype, name="start")
    heads = [te.placeholder((ROWS,), dtype, name=f"head{n}") for n in range(case.count)]
    arrays = numbers([tuple(map(int, t.shape)) for t in (x, start, *heads)], dtype)
    outputs = case.stages(x, start)
    results = list(outputs)
    if dtype != "int32":
        for output, head in zip(outputs, heads, strict=True):
            results += ad.differentiate(output, [x, start] if case.init else [x], head)
    inputs = [x, start, *heads]
    if compiled:
        got = ad.build(inputs, results, cache=False)(*arrays)
    else:
        pairs = list(zip(inputs, arrays, strict=True))
        got = evaluate_graph(normal_form(results), pairs)
    plain = [array.astype("float64") for array in arrays]
    want = list(case.values(*plain[:2]))
    if dtype != "int32":
        for n in range(case.count):
            weights = np.zeros((case.count, ROWS))
            weights[n] = plain[2 + n]
            want += case.derivatives(*plain[:2], weights)[: 1 + case.init]
    tolerance = TOLERANCES[dtype]
    for array, expected in zip(got, want, strict=True):
        known = ~np.isnan(expected)
        difference = max(tolerance, 1e-8) if expected.ndim else tolerance
        np.testing.assert_allclose(
            array.astype("float64")[known], expected[known], rtol=2 * difference, atol=difference
        )


@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize(
    ("ranges", "dtype"),
    [
        *((ranges, "float64") for ranges in RANGES),
        *(("below", dtype) for dtype in TOLERANCES if dtype != "float64"),
    ],
)
def test_normal_form(reducer, ranges, dtype):
    for where, init in itertools.product([False, True], repeat=2):
        check(Case(reducer, ranges, where, init), dtype, compiled=False)


@pytest.mark.parametrize("case", COMPILED, ids=lambda case: "-".join(map(str, case)))
def test_compiled(case):
    *options, dtype = case
    check(Case(*options), dtype, compiled=True)


@pytest.mark.filterwarnings("ignore::tvm_autodiff.PlainScheduleWarning")  # numbers, not speed
@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("outputs", [1, 2, 40])
def test_bounds_by_other_summed_axes(outputs, guarded):
    """``y[n] = Σ_{i<5, j<i+1, k<max(3-j, 0)} x[i, j+k]*w[n]``: loops in order, in any rule."""
    x = te.placeholder((5, 7), "float64", name="x")
    w = te.placeholder((outputs,), "float64", name="w")
    i = te.reduce_axis((0, 5), "i")
    j = te.reduce_axis((0, i + 1), "j")
    k = te.reduce_axis((0, te.max(3 - j, 0)), "k")

    def body(n):
        value = x[i, j + k] * w[n]
        return te.sum(te.if_then_else(n == 1, value, 0.0) if guarded else value, axis=[i, j, k])

    y = te.compute((outputs,), body, name="y")
    rng = np.random.default_rng(0)
    values, factors = rng.standard_normal((5, 7)), rng.standard_normal(outputs)
    every = sum(values[i, j + k] for i in range(5) for j in range(i + 1) for k in range(3 - j))
    want = every * np.where(np.arange(outputs) == 1, factors, 0.0) if guarded else every * factors
    got = ad.build([x, w], y, cache=False)(values, factors)
    np.testing.assert_allclose(got, want, rtol=1e-12)
