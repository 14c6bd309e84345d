"""exp of float64: errors beside exact values, special values, and where it is used."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tvm_autodiff.compile import build
from tvm_autodiff.schedule.cpu.elementary.functions import with_own_functions

LIMIT = 1.5  # units in the last place
COUNT = 4096
HOST = tvm.target.Target.from_device("cpu")
GENERIC = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64"})  # without fused products

SPECIAL = np.array(
    [0.0, 1.0, 5e-324, 2.2e-308, 1e-17, 709.782712893384, 709.7827128933841, 1000.0, 1.8e308]
    + [745.1332191019411, 745.1332191019412, 744.0, 708.4, 0.34657359027997264, np.inf, np.nan]
)
SPECIAL = np.concatenate([SPECIAL, -SPECIAL])


def exp_of(count, target=None, **options):
    x = te.placeholder((count,), "float64", name="x")
    y = te.compute(x.shape, lambda i: te.exp(x[i]), name="y")
    return build(x, y, target, cache=False, num_threads=1, **options)


def units_off(values, arguments):
    """Errors in units of the last place of the exact results."""
    with mpmath.workprec(200):
        exact = [mpmath.exp(float(argument)) for argument in arguments]
        return [
            float(abs(mpmath.mpf(float(value)) - truth) / np.spacing(float(truth)))
            for value, truth in zip(values, exact, strict=True)
        ]


@pytest.mark.parametrize("target", [HOST, GENERIC], ids=["host", "generic"])
def test_errors(target):
    function = exp_of(COUNT, target)
    rng = np.random.default_rng(0)
    for low, high in [(-745.1, -708.0), (-708.0, 709.7), (-1.0, 1.0), (-1e-8, 1e-8)]:
        arguments = rng.uniform(low, high, COUNT)
        assert max(units_off(function(arguments), arguments)) <= LIMIT


@pytest.mark.parametrize("count", [1, 3, 8, 37])
def test_special_values_are_those_of_c_in_every_width(count):
    function = exp_of(count)
    for first in range(len(SPECIAL)):
        arguments = np.resize(np.roll(SPECIAL, -first), count)
        with np.errstate(all="ignore"):
            expected = np.exp(arguments)
        np.testing.assert_array_max_ulp(function(arguments), expected, 2)


def test_other_functions_and_exact_math_are_those_of_c():
    x = te.placeholder((64,), "float64", name="x")
    y = te.compute(x.shape, lambda i: te.exp(x[i]) + te.log(x[i]), name="y")
    script = with_own_functions(te.create_prim_func([x, y])).script()
    assert "tvm_autodiff_exp_float64(x" in script
    assert "T.log(x" in script
    values = np.linspace(-700.0, 700.0, COUNT)
    own, exact = exp_of(COUNT)(values), exp_of(COUNT, exact_math=True)(values)
    assert (own != exact).any()
    np.testing.assert_array_max_ulp(exact, c_exp(values), 0)


def c_exp(values):
    """The C library's function, called by itself."""
    x = te.placeholder(values.shape, "float64", name="x")
    call = lambda i: tirx.call_pure_extern("float64", "exp", x[i])  # noqa: E731
    return build(x, te.compute(x.shape, call, name="y"), cache=False)(values)
