"""Every scalar rule against sympy, finite differences, and the stated policy at singular points."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy
from tvm import tirx

from tests.rules.scalar_cases import (
    CASES,
    NOT_ON_LLVM,
    REAL,
    SEED,
    Case,
    X,
    Y,
    based,
    case_node,
    contribution,
    in_numpy,
    infix,
    intrinsic,
    on_llvm,
    partials,
    powered,
    rule_of,
    sample,
    unary,
)
from tests.to_sympy import to_sympy
from tvm_autodiff.expr.build import cast, if_then_else, select
from tvm_autodiff.expr.nodes import (
    FLOAT_DTYPES,
    binary,
    call_node,
    dtype_of,
    is_float,
    op_name,
    operands,
)
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.rules.scalar_rules import Branch

#: where TVM's own function on llvm has fewer digits than numpy's
TVM_DIGITS = {"exp10": 1e-10}  # exp(x*2.302585093)
#: generalised functions of sympy's derivatives, for points that are no jumps
AWAY_FROM_JUMPS = {"Heaviside": lambda t, at_zero=0: t > 0, "DiracDelta": lambda t: 0}


@pytest.mark.parametrize("case", [c for c in CASES if c.reference], ids=lambda c: c.id)
def test_rule_against_sympy(case: Case) -> None:
    """The node and its partials equal sympy's function and sympy's derivatives, to 14 digits."""
    node = case_node(case)
    x, y, g = sympy.symbols("x y g", real=True)
    symbols = {X: x, Y: y, SEED: g}
    wanted: tuple[Any, ...] = (X, Y)
    if case.id == "cast":
        narrow = operands(node)[0]
        symbols[narrow] = x
        wanted = (narrow, Y)
    value = case.reference(x, y)
    pairs = [(to_sympy(node, symbols), value)]
    for expr, symbol in zip(partials(node, SEED, wanted), (x, y), strict=True):
        pairs.append((to_sympy(expr, symbols), g * sympy.diff(value, symbol)))
    functions = [
        tuple(sympy.lambdify([x, y, g], side, [AWAY_FROM_JUMPS, "mpmath"]) for side in pair)
        for pair in pairs
    ]
    with mpmath.workdps(30):
        for at in zip(sample(case.x, 1), sample(case.y, 2), sample(REAL, 3), strict=True):
            exactly = [mpmath.mpf(number) for number in at]
            for ours, theirs in functions:
                expected = mpmath.mpf(theirs(*exactly))
                assert abs(ours(*exactly) - expected) <= 1e-14 * (1 + abs(expected)), (at, expected)


# values that pass through float32 have no smooth differences: the cast is proved above
@pytest.mark.parametrize("case", [c for c in CASES if c.id != "cast"], ids=lambda c: c.id)
def test_rule_against_finite_differences(case: Case) -> None:
    """Compiled partials equal five-point differences of the compiled node; numpy agrees."""
    build = case.build
    engines = [in_numpy(build)]
    if case.id.split("-")[0] not in NOT_ON_LLVM:
        engines.append(on_llvm(build))
    x, y, g = sample(case.x, 4), sample(case.y, 5), sample(REAL, 6)
    results = []
    for run in engines:
        value, *derivatives = run(x, y, g)
        h = 5e-4
        for ours, (dx, dy) in zip(derivatives, ((h, 0.0), (0.0, h)), strict=True):
            near, far = (
                run(x + k * dx, y + k * dy, g)[0] - run(x - k * dx, y - k * dy, g)[0]
                for k in (1, 2)
            )
            np.testing.assert_allclose(ours, g * (8 * near - far) / (12 * h), rtol=1e-8, atol=1e-8)
        results.append([value, *derivatives])
    for ours, theirs in zip(results[0], results[-1], strict=True):
        rtol = TVM_DIGITS.get(case.id, 1e-12)
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-14)


INF, NAN = math.inf, math.nan
SINGULAR = [
    # node, (x, y), (∂x, ∂y)
    (intrinsic("power"), (0.0, 2.0), (0.0, 0.0)),
    (intrinsic("power"), (0.0, 1.0), (1.0, 0.0)),
    (intrinsic("power"), (0.0, 0.5), (INF, 0.0)),
    (intrinsic("power"), (0.0, 0.0), (0.0, 0.0)),
    (intrinsic("power"), (0.0, -1.0), (-INF, -INF)),
    (intrinsic("power"), (2.0, 0.0), (0.0, math.log(2))),
    (intrinsic("power"), (-2.0, 3.0), (12.0, NAN)),
    (intrinsic("power"), (-2.0, 2.0), (-4.0, NAN)),
    (intrinsic("power"), (-2.0, -1.0), (-0.25, NAN)),
    (intrinsic("power"), (-2.0, 0.0), (0.0, NAN)),
    (intrinsic("power"), (-8.0, 0.5), (NAN, NAN)),
    (powered(0.0), (0.0, 0.0), (0.0, 0.0)),
    (powered(1.0), (0.0, 0.0), (1.0, 0.0)),
    (powered(2.0), (0.0, 0.0), (0.0, 0.0)),
    (powered(2.0), (-3.0, 0.0), (-6.0, 0.0)),
    (powered(3.0), (-2.0, 0.0), (12.0, 0.0)),
    (powered(4.0), (-2.0, 0.0), (-32.0, 0.0)),
    (powered(-1.0), (0.0, 0.0), (-INF, 0.0)),
    (powered(0.5), (0.0, 0.0), (INF, 0.0)),
    (powered(1.5), (0.0, 0.0), (0.0, 0.0)),
    (powered(0.5), (-1.0, 0.0), (NAN, 0.0)),
    (based(0.0), (0.0, 2.0), (0.0, 0.0)),
    (based(0.0), (0.0, 0.0), (0.0, 0.0)),
    (based(-2.0), (0.0, 2.0), (0.0, NAN)),
    (intrinsic("hypot"), (0.0, 0.0), (0.0, 0.0)),
    (intrinsic("hypot"), (0.0, -3.0), (0.0, -1.0)),
    (intrinsic("atan2"), (0.0, 0.0), (0.0, 0.0)),
    (intrinsic("atan2"), (0.0, -2.0), (-0.5, 0.0)),
    (unary("abs"), (0.0, 0.0), (0.0, 0.0)),
    (unary("abs"), (-0.0, 0.0), (0.0, 0.0)),
    (unary("sqrt"), (0.0, 0.0), (INF, 0.0)),
    (unary("sqrt"), (-1.0, 0.0), (NAN, 0.0)),
    (unary("rsqrt"), (0.0, 0.0), (-INF, 0.0)),
    (unary("log"), (0.0, 0.0), (INF, 0.0)),
    (unary("log1p"), (-1.0, 0.0), (INF, 0.0)),
    (unary("asin"), (1.0, 0.0), (INF, 0.0)),
    (unary("acos"), (-1.0, 0.0), (-INF, 0.0)),
    (unary("acosh"), (1.0, 0.0), (INF, 0.0)),
    (unary("atanh"), (-1.0, 0.0), (INF, 0.0)),
    (unary("sigmoid"), (1000.0, 0.0), (0.0, 0.0)),
    (unary("sigmoid"), (-1000.0, 0.0), (0.0, 0.0)),
    (unary("tanh"), (1000.0, 0.0), (0.0, 0.0)),
    (infix("div"), (0.0, 4.0), (0.25, 0.0)),
    (infix("max"), (1.0, 1.0), (1.0, 0.0)),
    (infix("min"), (1.0, 1.0), (1.0, 0.0)),
    (infix("max"), (0.0, -0.0), (1.0, 0.0)),
    (intrinsic("copysign"), (0.0, -1.0), (0.0, 0.0)),
    (intrinsic("copysign"), (-3.0, 2.0), (-1.0, 0.0)),
    (intrinsic("copysign"), (-3.0, -2.0), (1.0, 0.0)),
    (intrinsic("nextafter"), (1.0, 1.0), (1.0, 0.0)),
    (intrinsic("fmod"), (5.5, 2.0), (1.0, -2.0)),
    (intrinsic("fmod"), (-5.5, 2.0), (1.0, 2.0)),
    (intrinsic("fmod"), (5.5, -2.0), (1.0, 2.0)),
    (intrinsic("fmod"), (4.0, INF), (1.0, 0.0)),
    # 1/0.1 rounds up to 10, but the remainder is 0.0999...: nine times the divisor went
    (infix("truncmod"), (0.3, 0.1), (1.0, -2.0)),
    (infix("truncmod"), (1.0, 0.1), (1.0, -9.0)),
]


@pytest.mark.parametrize("row", range(len(SINGULAR)))
def test_values_at_singular_points(row: int) -> None:
    build, (x, y), expected = SINGULAR[row]
    node = build(X, Y)
    engines = [in_numpy(build)]
    if op_name(node) not in NOT_ON_LLVM:
        engines.append(on_llvm(build))
    for run in engines:
        _, *derivatives = run(np.array([x]), np.array([y]), np.array([1.0]))
        np.testing.assert_allclose(np.ravel(derivatives), expected, rtol=1e-12, err_msg=text(node))


FOLDED = [
    # node, what the rule says for x, for y
    (infix("add"), "g", "g"),
    (infix("sub"), "g", "-g"),
    (infix("mul"), "g*y", "g*x"),
    (infix("div"), "g/y", "-g*(x/y)/y"),
    (powered(0.0), None, None),
    (powered(1.0), "g", None),
    (powered(2.0), "g*2.0*x", None),
    (powered(3.0), "g*3.0*(x*x)", None),
    (powered(4.0), "g*4.0*x**3.0", None),
    (powered(0.5), "g*0.5/x**0.5", None),
    (powered(1.5), "g*1.5*sqrt(x)", None),
    (powered(-1.0), "(-g)*(x**-1.0*x**-1.0)", None),
    (powered(-2.0), "g*-2.0*x**-3.0", None),
    (based(1.0), None, None),
    (based(2.0), None, "g*0.6931471805599453*2.0**y"),
    (
        intrinsic("power"),
        "if y != 0.0: g*(y*x**(y - 1.0))",
        "if x != 0.0 or y < 0.0: g*(x**y*log(x))",
    ),
    (infix("max"), "if x >= y: g", "if x < y: g"),
    (infix("min"), "if x <= y: g", "if x > y: g"),
    (lambda x, y: select(x < y, x, y), "if x < y: g", "if not x < y: g"),
    (lambda x, y: if_then_else(x < y, x, y), "guard x < y: g", "guard not x < y: g"),
    (unary("exp"), "g*exp(x)", None),
    (unary("sqrt"), "g*0.5/sqrt(x)", None),
    (unary("tanh"), "g*(1.0 - tanh(x)*tanh(x))", None),
    (unary("log"), "g/x", None),
    (unary("floor"), None, None),
    (infix("lt"), None, None),
]


@pytest.mark.parametrize("row", range(len(FOLDED)))
def test_rules_fold(row: int) -> None:
    build, *expected = FOLDED[row]
    node = build(X, Y)
    entries = rule_of(node).pullback(SEED, operands(node), node)
    said = {
        part.name: entry
        for part, entry in zip(operands(node), entries, strict=True)
        if op_name(part) == "var"
    }

    def told(entry: Any) -> str | None:
        if not isinstance(entry, Branch):
            return None if entry is None else text(entry)
        word = "guard" if entry.guards else "if"
        return f"{word} {text(entry.condition)}: {text(entry.value)}"

    assert [told(said.get("x")), told(said.get("y"))] == expected


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_entries_have_the_dtype_of_their_operand(case: Case, dtype: str) -> None:
    if case.id in ("fma", "ldexp"):
        exponent = tirx.Var("n", "int32")
        x = tirx.Var("x", dtype)
        node = call_node(case.id, (x, exponent) if case.id == "ldexp" else (x, x, x), dtype)
    elif case.id == "cast":
        node = cast(dtype, tirx.Var("x", "float32" if dtype == "float64" else "float64"))
    elif case.id in ("select", "if_then_else"):
        choose = select if case.id == "select" else if_then_else
        node = choose(tirx.Var("c", "bool"), tirx.Var("x", dtype), tirx.Var("y", dtype))
    else:
        node = case.build(tirx.Var("x", dtype), tirx.Var("y", dtype))
    seed = tirx.Var("g", dtype)
    entries = rule_of(node).pullback(seed, operands(node), node)
    for part, entry in zip(operands(node), entries, strict=True):
        if entry is not None:
            assert dtype_of(contribution(entry)) == dtype_of(part)


def test_integers_and_conditions_get_no_derivative() -> None:
    i, c = tirx.Var("i", "int32"), tirx.Var("c", "bool")
    nodes = [
        cast("float32", i),
        cast("int32", X),
        binary("add", i, i),
        call_node("ldexp", (tirx.const(1.0, "float64"), i), "float64"),
        select(c, i, i),
        X < Y,
        call_node("isnan", (X,), "bool"),
    ]
    for node in nodes:
        entries = rule_of(node).pullback(SEED, operands(node), node)
        pairs = zip(operands(node), entries, strict=True)
        assert all(entry is None or is_float(part) for part, entry in pairs), node
        if not is_float(node):
            assert entries == (None,) * len(entries), node
