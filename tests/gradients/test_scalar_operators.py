"""Every row of the table of scalar rules, used in a stage and taken through the whole pipeline.

The rows themselves are proved in tests/calculus; here a compute stage holds the operator, and its
gradient is transposed, lowered, run and compared with finite differences, twice.
"""

from __future__ import annotations

import pytest
from tvm import te, tirx

from tests.gradient_case import Case
from tvm_autodiff.expr.build import call, compare, if_then_else, select
from tvm_autodiff.expr.nodes import binary, call_node
from tvm_autodiff.graph.marks.value_marks import MARKS
from tvm_autodiff.rules.scalar_rules import RULES

REAL, UNIT, ABOVE_ONE = (-2.5, 2.5), (-0.9, 0.9), (1.2, 4.0)


def f(value):
    return tirx.const(value, "float64")


def elementwise(function):
    """A stage out[i] = function(x[i], y[i])."""
    return lambda x, y: te.compute(x.shape, lambda i: function(x(i), y(i)), name="out")


def unary(name):
    # read through a product, so that the chain rule has something to do on both sides
    return lambda x, y: call(name, x) * y


def when(condition):
    """A condition that does not move with x: what it chooses between has the derivative."""
    return lambda x, y: if_then_else(condition(x, y), x * y, x - y)


#: operator → (expression in x and y, domain)
ROWS = {
    "add": (lambda x, y: x + y * y, REAL),
    "sub": (lambda x, y: x * x - y, REAL),
    "mul": (lambda x, y: x * y, REAL),
    "div": (lambda x, y: x / y, (0.25, 1.25)),
    "fma": (lambda x, y: call_node("fma", (x, y, x), "float64"), REAL),
    "truncmod": (lambda x, y: binary("truncmod", x, y) * x, (0.3, 2.0)),
    "fmod": (lambda x, y: call_node("fmod", (x, y), "float64") * y, (0.3, 2.0)),
    "cast": (lambda x, y: (x * y).astype("float64") * x, REAL),
    "max": (lambda x, y: tirx.Max(x * x, y) * y, REAL),
    "min": (lambda x, y: tirx.Min(x, y * y) * x, REAL),
    "select": (lambda x, y: select(x < y, x * x, y * x), REAL),
    "if_then_else": (lambda x, y: if_then_else(x < y, x * y, y * y), REAL),
    "likely": (lambda x, y: when(lambda x, y: call_node("likely", (x < y,), "bool"))(x, y), REAL),
    "abs": (unary("abs"), REAL),
    "copysign": (lambda x, y: call("copysign", x, y) * x, REAL),
    "power": (lambda x, y: call("power", x, y), (0.25, 2.0)),
    "sqrt": (unary("sqrt"), (0.25, 2.0)),
    "rsqrt": (unary("rsqrt"), (0.25, 2.0)),
    "exp": (unary("exp"), REAL),
    "exp2": (unary("exp2"), REAL),
    "exp10": (unary("exp10"), UNIT),
    "log": (unary("log"), (0.25, 2.0)),
    "log2": (unary("log2"), (0.25, 2.0)),
    "log10": (unary("log10"), (0.25, 2.0)),
    "log1p": (unary("log1p"), (-0.5, 2.0)),
    "ldexp": (
        lambda x, y: call_node("ldexp", (x * y, tirx.const(-2, "int32")), "float64") * x,
        REAL,
    ),
    "hypot": (lambda x, y: call("hypot", x, y), (0.25, 2.0)),
    "sigmoid": (unary("sigmoid"), REAL),
    "tanh": (unary("tanh"), REAL),
    "erf": (unary("erf"), REAL),
    "sin": (unary("sin"), REAL),
    "cos": (unary("cos"), REAL),
    "tan": (unary("tan"), UNIT),
    "asin": (unary("asin"), UNIT),
    "acos": (unary("acos"), UNIT),
    "atan": (unary("atan"), REAL),
    "sinh": (unary("sinh"), REAL),
    "cosh": (unary("cosh"), REAL),
    "asinh": (unary("asinh"), REAL),
    "acosh": (unary("acosh"), ABOVE_ONE),
    "atanh": (unary("atanh"), UNIT),
    "atan2": (lambda x, y: call("atan2", y, x), (0.25, 2.0)),
    "nextafter": (lambda x, y: call("nextafter", x * x, y), REAL),
    "floor": (lambda x, y: x * call("floor", y), REAL),
    "ceil": (lambda x, y: x * call("ceil", y), REAL),
    "round": (lambda x, y: x * call("round", y), REAL),
    "trunc": (lambda x, y: x * call("trunc", y), REAL),
    "nearbyint": (lambda x, y: x * call("nearbyint", y), REAL),
    "eq": (when(lambda x, y: compare("eq", x, y)), REAL),
    "ne": (when(lambda x, y: compare("ne", x, y)), REAL),
    "lt": (when(lambda x, y: x < y), REAL),
    "le": (when(lambda x, y: x <= y), REAL),
    "gt": (when(lambda x, y: x > y), REAL),
    "ge": (when(lambda x, y: x >= y), REAL),
    "and": (when(lambda x, y: te.all(x < y, x > f(-1))), REAL),
    "or": (when(lambda x, y: te.any(x < y, x > f(1))), REAL),
    "not": (when(lambda x, y: tirx.Not(x < y)), REAL),
    "isnan": (when(lambda x, y: te.isnan(x)), REAL),
    "isinf": (when(lambda x, y: te.isinf(x)), REAL),
    "isfinite": (when(lambda x, y: te.isfinite(x)), REAL),
}


def test_every_rule_has_a_row():
    assert set(ROWS) == set(RULES) - MARKS  # a mark's derivative is what it says


@pytest.mark.parametrize("name", ROWS)
def test_operator(name):
    function, domain = ROWS[name]
    Case(name, [(5,), (5,)], elementwise(function), order=2, domain=domain).check()
