"""Elementary functions of float64: errors beside exact values, special values, where used."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tests.as_lowered import compiled_as_lowered
from tvm_autodiff.compile import build
from tvm_autodiff.schedule.elementary.functions import FLOAT64, with_own_functions
from tvm_autodiff.schedule.elementary.power import LITERAL_POWERS


@dataclass(frozen=True)
class Case:
    """A function, the exact one, by how many units in the last place it may be off, where it is
    tried, and numpy's.
    """

    ours: Callable[[Any], Any]
    exact: Callable[[Any], Any]
    limit: float
    intervals: list[tuple[float, float]]
    numpy: Callable[[Any], Any]


def exact_sigmoid(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


def numpy_sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


CASES = {
    "exp": Case(
        *(te.exp, mpmath.exp, 1.5),
        [(-745.1, -708.0), (-708.0, 709.7), (-1.0, 1.0), (-1e-8, 1e-8)],
        np.exp,
    ),
    "sigmoid": Case(
        *(te.sigmoid, exact_sigmoid, 2.5),
        [(-745.1, -708.0), (-40.0, 40.0), (-2.0, 2.0), (-1e-8, 1e-8)],
        numpy_sigmoid,
    ),
    "tanh": Case(
        *(te.tanh, mpmath.tanh, 3.5),
        [(-25.0, 25.0), (-1.0, 1.0), (-0.2, 0.2), (-1e-8, 1e-8), (0.0, 1e-308)],
        np.tanh,
    ),
    "sinh": Case(
        *(te.sinh, mpmath.sinh, 3.5),
        [(-711.0, 711.0), (-25.0, 25.0), (-1.0, 1.0), (-0.2, 0.2), (-1e-8, 1e-8), (0.0, 1e-308)],
        np.sinh,
    ),
    "cosh": Case(
        *(te.cosh, mpmath.cosh, 2.5),
        [(-711.0, 711.0), (-25.0, 25.0), (-1.0, 1.0), (-1e-8, 1e-8)],
        np.cosh,
    ),
    "log": Case(
        *(te.log, mpmath.log, 1.0),
        [(0.0, 1e-308), (1e-300, 1e300), (0.6, 1.6), (0.999, 1.001), (1.0, 50.0)],
        np.log,
    ),
    "erf": Case(
        *(te.erf, mpmath.erf, 4.0),
        [(-7.0, 7.0), (-1.1, 1.1), (0.9, 1.1), (-0.1, 0.1), (-1e-8, 1e-8)],
        np.vectorize(math.erf, otypes=[float]),
    ),
    "sin": Case(
        *(te.sin, mpmath.sin, 2.0),
        [(-4e6, 4e6), (-100.0, 100.0), (-2.0, 2.0), (-1e-8, 1e-8), (3.141592, 3.141593)],
        np.sin,
    ),
    "exp2": Case(
        *(tirx.exp2, lambda x: mpmath.power(2, x), 1.5),
        [(-1075.0, -1021.0), (-1021.0, 1023.9), (-1.0, 1.0), (-1e-8, 1e-8)],
        np.exp2,
    ),
    "exp10": Case(
        *(tirx.exp10, lambda x: mpmath.power(10, x), 1.5),
        [(-323.6, -307.0), (-307.0, 308.2), (-1.0, 1.0), (-1e-8, 1e-8)],
        lambda x: np.power(10.0, x),
    ),
    "log2": Case(
        *(tirx.log2, lambda x: mpmath.log(x, 2), 2.0),
        [(0.0, 1e-308), (1e-300, 1e300), (0.6, 1.6), (0.999, 1.001), (1.0, 50.0)],
        np.log2,
    ),
    "log10": Case(
        *(tirx.log10, mpmath.log10, 2.0),
        [(0.0, 1e-308), (1e-300, 1e300), (0.6, 1.6), (0.999, 1.001), (1.0, 50.0)],
        np.log10,
    ),
    "log1p": Case(
        *(tirx.log1p, mpmath.log1p, 1.5),
        [(-1.0, -0.9), (-0.5, 0.8), (-1e-8, 1e-8), (0.0, 1e-308), (1.0, 50.0), (1e10, 1e300)],
        np.log1p,
    ),
    "asinh": Case(
        *(tirx.asinh, mpmath.asinh, 3.5),
        [(-1e9, 1e9), (-50.0, 50.0), (-2.0, 2.0), (-1e-3, 1e-3), (0.0, 1e-308), (1e10, 1e300)],
        np.arcsinh,
    ),
    "acosh": Case(
        *(tirx.acosh, mpmath.acosh, 3.5),
        [(1.0, 1e9), (1.0, 50.0), (1.0, 1.001), (1e10, 1e300)],
        np.arccosh,
    ),
    "atanh": Case(
        *(tirx.atanh, mpmath.atanh, 3.5),
        [(-1.0, 1.0), (-0.5, 0.5), (-1e-3, 1e-3), (0.0, 1e-308), (0.999, 1.0)],
        np.arctanh,
    ),
    "tan": Case(
        *(te.tan, mpmath.tan, 4.0),
        [(-4e6, 4e6), (-100.0, 100.0), (-2.0, 2.0), (-1e-8, 1e-8), (1.570796, 1.570797)],
        np.tan,
    ),
    "asin": Case(
        *(te.asin, mpmath.asin, 4.0),
        [(-1.0, 1.0), (0.49, 0.51), (-0.1, 0.1), (0.999, 1.0), (-1e-8, 1e-8)],
        np.arcsin,
    ),
    "acos": Case(
        *(te.acos, mpmath.acos, 4.0),
        [(-1.0, 1.0), (0.49, 0.51), (-0.1, 0.1), (0.999, 1.0), (-1.0, -0.999)],
        np.arccos,
    ),
    "atan": Case(
        *(te.atan, mpmath.atan, 4.0),
        [(-1e6, 1e6), (-5.0, 5.0), (0.4, 0.42), (2.4, 2.42), (-1e-8, 1e-8), (0.0, 1e-308)],
        np.arctan,
    ),
    "cos": Case(
        *(te.cos, mpmath.cos, 2.0),
        [(-4e6, 4e6), (-100.0, 100.0), (-2.0, 2.0), (-1e-8, 1e-8), (1.570796, 1.570797)],
        np.cos,
    ),
}


def power_case(exponent: float) -> Case:
    """Literal powers, of negative numbers where they are whole."""
    whole = exponent == int(exponent)
    return Case(
        lambda x: te.power(x, tirx.const(exponent, "float64")),
        lambda x: mpmath.power(x, exponent),
        4.0,
        [(1e-30, 1e30), (0.01, 100.0), (0.9, 1.1), *([(-30.0, 30.0)] if whole else [])],
        lambda x: np.power(x, np.full_like(x, exponent)),  # by numbers, it takes other roots
    )


CASES |= {name: power_case(exponent) for exponent, (name, _) in LITERAL_POWERS.items()}

#: of two operands
PAIRS = {
    "power": Case(
        *(te.power, mpmath.power, 1.5),
        [
            *((0.0, 1e-308, -1.0, 1.0), (1e-300, 1e300, -1.0, 1.0), (0.01, 100.0, -150.0, 150.0)),
            *((0.99, 1.01, -1e5, 1e5), (1e-5, 1e5, -1e-3, 1e-3), (0.9999999, 1.0000001, -1e9, 1e9)),
        ],
        np.power,
    ),
    "atan2": Case(
        *(tirx.atan2, mpmath.atan2, 4.0),
        [
            *((-1.0, 1.0, -1.0, 1.0), (-1e-300, 1e-300, -1e-300, 1e-300)),
            *((-8e307, 8e307, -8e307, 8e307), (-1e-8, 1e-8, -1.0, 1.0)),
            *((-1.0, 1.0, -1e-8, 1e-8), (1.0, 1.1, -1.1, -1.0)),
        ],
        np.arctan2,
    ),
    "hypot": Case(
        *(tirx.hypot, mpmath.hypot, 2.0),
        [
            *((-1.0, 1.0, -1.0, 1.0), (-1e-300, 1e-300, -1e-300, 1e-300)),
            *((-8e307, 8e307, -8e307, 8e307), (-1e-8, 1e-8, -1.0, 1.0), (1.0, 1.1, -1.1, -1.0)),
        ],
        np.hypot,
    ),
}
COUNT = 2048
HOST = tvm.target.Target.from_device("cpu")
GENERIC = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64"})  # without fused products

SPECIAL = np.array(
    [0.0, 1.0, 5e-324, 2.2e-308, 1e-17, 709.782712893384, 709.7827128933841, 1000.0, 1.8e308]
    + [745.1332191019411, 745.1332191019412, 744.0, 708.4, 0.34657359027997264, np.inf, np.nan]
    + [2.0**-1022, 0.7071067811865476, 0.7071067811865475, 19.0, 20.5, 1e-300]
)
SPECIAL = np.concatenate([SPECIAL, -SPECIAL])


def map_of(name, count):
    x = te.placeholder((count,), "float64", name="x")
    return x, te.compute(x.shape, lambda i: CASES[name].ours(x[i]), name="y")


def function_of(name, count, target=HOST):
    return compiled_as_lowered(*map_of(name, count), target)


def truths_of(exact, *arguments):
    """The nearest numbers to the exact results that are finite, their places, and by how many units
    in the last place they are off.
    """
    with mpmath.workprec(200):
        given = zip(*arguments, strict=True)
        truths = [exact(*(mpmath.mpf(float(x)) for x in one)) for one in given]
        places = [n for n, truth in enumerate(truths) if abs(truth) < np.finfo(float).max]
        nearest = np.array([float(truths[n]) for n in places])
        units = np.spacing(np.abs(nearest))
        rests = [
            float((truths[n] - mpmath.mpf(float(near))) / mpmath.mpf(float(unit)))
            for n, near, unit in zip(places, nearest, units, strict=True)
        ]
    return nearest, np.array(places, int), np.array(rests)


def units_off(truths, values):
    """Errors in units of the last place of the exact results."""
    nearest, places, rests = truths
    units = np.spacing(np.abs(nearest))
    return np.abs((np.asarray(values)[places] - nearest) / units - rests)


def test_all_have_a_case():
    assert {*CASES, *PAIRS} == set(FLOAT64)


@functools.cache
def drawn(name):
    """Arguments of each interval and their exact results, which take most of the time."""
    rng = np.random.default_rng(0)
    found = [rng.uniform(low, high, COUNT) for low, high in CASES[name].intervals]
    return [(arguments, truths_of(CASES[name].exact, arguments)) for arguments in found]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", [HOST, GENERIC], ids=["host", "generic"])
def test_errors(target, name):
    function = function_of(name, COUNT, target)
    for arguments, truths in drawn(name):
        assert np.max(units_off(truths, function(arguments))) <= CASES[name].limit


@pytest.mark.parametrize("count", [1, 3, 8, 37])
@pytest.mark.parametrize("name", CASES)
def test_special_values_are_those_of_numpy_in_every_width(name, count):
    function = function_of(name, count)
    for first in range(0, len(SPECIAL), min(count, len(SPECIAL))):
        arguments = np.resize(np.roll(SPECIAL, -first), count)
        with np.errstate(all="ignore"):
            expected = CASES[name].numpy(arguments)
        found = function(arguments)
        np.testing.assert_array_max_ulp(found, expected, 4)
        zeros = expected == 0.0
        assert np.array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


def function_of_pairs(name, count, target=HOST):
    x, y = (te.placeholder((count,), "float64", name=name) for name in "xy")
    result = te.compute(x.shape, lambda i: PAIRS[name].ours(x(i), y(i)), name="z")
    return compiled_as_lowered([x, y], result, target)


@pytest.mark.slow
@pytest.mark.parametrize("target", [HOST, GENERIC], ids=["host", "generic"])
@pytest.mark.parametrize("name", PAIRS)
def test_errors_of_pairs(name, target):
    function = function_of_pairs(name, COUNT, target)
    rng = np.random.default_rng(0)
    for low, high, least, most in PAIRS[name].intervals:
        pair = rng.uniform(low, high, COUNT), rng.uniform(least, most, COUNT)
        errors = units_off(truths_of(PAIRS[name].exact, *pair), function(*pair))
        assert np.max(errors) <= PAIRS[name].limit


@pytest.mark.parametrize("name", PAIRS)
def test_special_pairs_are_those_of_numpy(name):
    edges = np.array([0.0, 0.5, 1.0, 2.0, 3.0, 2.5, 2.0**53, 2.0**53 + 2, 5e-324, 1.8e308, np.inf])
    edges = np.concatenate([edges, -edges, [np.nan]])
    x, y = (part.ravel().copy() for part in np.meshgrid(edges, edges))
    with np.errstate(all="ignore"):
        expected = PAIRS[name].numpy(x, y)
    found = function_of_pairs(name, x.size)(x, y)
    np.testing.assert_array_max_ulp(found, expected, 4)
    zeros = expected == 0.0
    assert np.array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


def test_other_functions_and_exact_math_are_those_of_c():
    x = te.placeholder((64,), "float64", name="x")
    y = te.compute(x.shape, lambda i: te.exp(x[i]) + te.floor(x[i]), name="y")
    script = with_own_functions(te.create_prim_func([x, y])).script()
    assert "tvm_autodiff_exp_float64(x" in script
    assert "T.floor(x" in script
    values = np.linspace(-700.0, 700.0, COUNT)
    own, exact = (
        function_of("exp", COUNT)(values),
        build(*map_of("exp", COUNT), exact_math=True)(values),
    )
    assert (own != exact).any()
    np.testing.assert_array_max_ulp(exact, of_c("exp", values), 0)


@pytest.mark.parametrize("name", ["tanh", "log"])
def test_exact_ones_are_those_of_c(name):
    values = np.linspace(0.01, 3.0, COUNT)
    exact = build(*map_of(name, COUNT), exact_math=True)(values)
    np.testing.assert_array_max_ulp(exact, of_c(name, values), 0)


def of_c(name, values):
    """The C library's function, called by itself."""
    x = te.placeholder(values.shape, "float64", name="x")
    call = lambda i: tirx.call_pure_extern("float64", name, x[i])  # noqa: E731
    return build(x, te.compute(x.shape, call, name="y"), cache=False)(values)
