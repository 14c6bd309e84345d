"""Each function of the vocabulary builds in every dtype of floats, and is as exact as the dtype."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tvm import te

from tests.evaluate_functions import CALLS
from tvm_autodiff.compile import build
from tvm_autodiff.expr.build import call
from tvm_autodiff.expr.costly import EXPENSIVE

COUNT = 64
TWO = ("atan2", "copysign", "fmod", "hypot", "nextafter", "power")
ROUNDED = ("ceil", "floor", "nearbyint", "round", "trunc")
NAMES = sorted(EXPENSIVE | {*TWO, *ROUNDED, "abs", "fma", "rsqrt", "sqrt"})

#: name → where it is defined
DOMAINS = {
    "acosh": (1.1, 3.0),
    **dict.fromkeys(("acos", "asin", "atanh"), (-0.9, 0.9)),
    **dict.fromkeys(("log", "log10", "log1p", "log2", "power", "rsqrt", "sqrt"), (0.1, 3.0)),
}


def number_type(dtype):
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def functions(dtype):
    inputs, outputs = [], []
    for name in NAMES:
        given = [te.placeholder((COUNT,), dtype, name=f"{name}{k}") for k in range(arity(name))]
        inputs += given
        outputs.append(applied(name, given))
    return inputs, outputs


def applied(name, given):
    return te.compute(given[0].shape, lambda i: call(name, *(x(i) for x in given)), name=name)


def arity(name):
    return 3 if name == "fma" else 2 if name in TWO else 1


@pytest.mark.slow
@pytest.mark.parametrize("exact", [False, True], ids=["own", "exact"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_on_a_cpu(dtype, exact):
    inputs, outputs = functions(dtype)
    kind, rng = number_type(dtype), np.random.default_rng(0)
    arrays = {}
    for name in NAMES:
        low, high = DOMAINS.get(name, (-2.0, 2.0))
        arrays[name] = [rng.uniform(low, high, COUNT).astype(kind) for _ in range(arity(name))]
    given = [array for name in NAMES for array in arrays[name]]
    results = build(inputs, outputs, exact_math=exact, cache=False)(*given)
    for name, got in zip(NAMES, results, strict=True):
        operands = arrays[name]
        if name != "nextafter":
            operands = [x.astype("float64") for x in operands]
        want = np.asarray(CALLS[name](*operands)).astype("float64")
        error = np.abs(np.asarray(got).astype("float64") - want)
        # near a zero of the function the argument's rounding counts
        limit = 0 if name == "nextafter" else 4 * float(ml_dtypes.finfo(kind).eps)
        assert (error <= limit * (np.abs(want) + 0.1)).all(), name


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_next_numbers(dtype):
    kind = number_type(dtype)
    values = np.array([0.0, -0.0, 1.0, -1.0, 65504.0, np.inf, -np.inf, np.nan, 6e-8], kind)
    x, y = (part.reshape(-1) for part in np.meshgrid(values, values))
    X, Y = (te.placeholder(x.shape, dtype, name=name) for name in "XY")
    got = build([X, Y], applied("nextafter", [X, Y]), exact_math=True, cache=False)(x, y)
    with np.errstate(all="ignore"):
        want = np.nextafter(x, y)
    np.testing.assert_array_equal(got.astype("float64"), want.astype("float64"))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_on_a_gpu(dtype):
    build(*functions(dtype), "cuda", cache=False)
