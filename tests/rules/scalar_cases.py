"""One or more nodes for each scalar rule, and the ways to compute its value and its partials.

A case makes a node over two variables x and y, and the table of rules gives the partials. TVM and
numpy both compute the value and the partials. `test_scalar_rules` says what they must equal.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as S
import tvm
from tvm import te, tirx

from tests.evaluate import evaluate
from tvm_autodiff.expr.build import cast, if_then_else, like, select, zero_like
from tvm_autodiff.expr.nodes import binary, call_node, dtype_of, op_name, operands
from tvm_autodiff.graph.marks.checkpoint import checkpointed, recomputed
from tvm_autodiff.rules.registry import called_name
from tvm_autodiff.rules.scalar_rules import RULES, Branch, ScalarRule

X, Y, SEED = (tirx.Var(name, "float64") for name in ("x", "y", "g"))

POINTS = 24
REAL, POSITIVE, UNIT, ABOVE_ONE = (-2.5, 2.5), (0.2, 3.0), (-0.9, 0.9), (1.2, 4.0)


def unary(name: str) -> Callable[..., Any]:
    return lambda x, y: call_node(name, (x,), dtype_of(x))


def intrinsic(name: str) -> Callable[..., Any]:
    return lambda x, y: call_node(name, (x, y), dtype_of(x))


def by_name(name: str) -> Callable[..., Any]:
    """A function of C with one operand."""
    return lambda x, y: tirx.call_pure_extern(dtype_of(x), name, x)


def infix(name: str) -> Callable[..., Any]:
    return lambda x, y: binary(name, x, y)


def powered(exponent: float) -> Callable[..., Any]:
    return lambda x, y: call_node("power", (x, like(x, exponent)), dtype_of(x))


def based(base: float) -> Callable[..., Any]:
    return lambda x, y: call_node("power", (like(x, base), y), dtype_of(x))


@dataclass(frozen=True)
class Case:
    """One node over x and y, the same function in sympy, and the ranges of its operands."""

    id: str
    build: Callable[..., Any]
    reference: Callable[..., Any] | None
    x: tuple[float, float] = REAL
    y: tuple[float, float] = REAL


CASES = [
    Case("checkpoint", lambda x, y: checkpointed(x), lambda x, y: x),
    Case("recomputed", lambda x, y: recomputed(x, 2), lambda x, y: x),
    Case("add", infix("add"), lambda x, y: x + y),
    Case("sub", infix("sub"), lambda x, y: x - y),
    Case("mul", infix("mul"), lambda x, y: x * y),
    Case("div", infix("div"), lambda x, y: x / y, y=POSITIVE),
    Case("div-negative", infix("div"), lambda x, y: x / y, y=(-3.0, -0.2)),
    Case("fma", lambda x, y: call_node("fma", (x, y, x), "float64"), lambda x, y: x * y + x),
    Case("truncmod", infix("truncmod"), None, y=POSITIVE),
    Case("truncmod-negative", infix("truncmod"), None, y=(-1.0, -0.3)),
    Case("fmod", intrinsic("fmod"), None, y=POSITIVE),
    Case("fmod-negative", intrinsic("fmod"), None, y=(-1.0, -0.3)),
    Case("cast", lambda x, y: cast("float64", x), lambda x, y: x),
    Case("max", infix("max"), S.Max),
    Case("min", infix("min"), S.Min),
    Case(
        "select", lambda x, y: select(x < y, x, y), lambda x, y: S.Piecewise((x, x < y), (y, True))
    ),
    Case(
        "if_then_else",
        lambda x, y: if_then_else(x * 2.0 < y, x, y),
        lambda x, y: S.Piecewise((x, 2 * x < y), (y, True)),
    ),
    Case("abs", unary("abs"), lambda x, y: abs(x)),
    Case("copysign", intrinsic("copysign"), lambda x, y: abs(x) * S.sign(y)),
    Case("nextafter", intrinsic("nextafter"), None),
    Case(
        "ldexp",
        lambda x, y: call_node("ldexp", (x, tirx.const(-3, "int32")), "float64"),
        lambda x, y: x / 8,
    ),
    Case("hypot", intrinsic("hypot"), lambda x, y: S.sqrt(x**2 + y**2)),
    Case("power", intrinsic("power"), lambda x, y: x**y, x=POSITIVE),
    *(
        Case(f"power-x**{n}", powered(n), lambda x, y, n=n: x ** S.Rational(n))
        for n in (0.0, 1.0, 2.0, 3.0, 4.0, 7.0)
    ),
    *(
        Case(f"power-x**{n}{sign}", powered(n), lambda x, y, n=n: x ** S.Rational(n), x=domain)
        for n in (-1.0, -2.0, -3.0)
        for sign, domain in (("", POSITIVE), (" x<0", (-3.0, -0.2)))
    ),
    *(
        Case(f"power-x**{n}", powered(n), lambda x, y, n=n: x ** S.Rational(n), x=POSITIVE)
        for n in (0.5, -0.5, 1.5, 2.5, 0.3, -1.7)
    ),
    *(
        Case(f"power-{b}**y", based(b), lambda x, y, b=b: S.Rational(b) ** y)
        for b in (1.0, 2.0, 10.0, 0.25)
    ),
    Case("sqrt", unary("sqrt"), lambda x, y: S.sqrt(x), x=POSITIVE),
    Case("rsqrt", unary("rsqrt"), lambda x, y: 1 / S.sqrt(x), x=POSITIVE),
    Case("exp", unary("exp"), lambda x, y: S.exp(x)),
    Case("exp2", unary("exp2"), lambda x, y: 2**x),
    Case("exp10", unary("exp10"), lambda x, y: 10**x),
    Case("log", unary("log"), lambda x, y: S.log(x), x=POSITIVE),
    Case("log2", unary("log2"), lambda x, y: S.log(x, 2), x=POSITIVE),
    Case("log10", unary("log10"), lambda x, y: S.log(x, 10), x=POSITIVE),
    Case("log1p", unary("log1p"), lambda x, y: S.log(1 + x), x=(-0.8, 3.0)),
    Case("sigmoid", unary("sigmoid"), lambda x, y: 1 / (1 + S.exp(-x)), x=(-9.0, 9.0)),
    Case("tanh", unary("tanh"), lambda x, y: S.tanh(x)),
    Case("erf", unary("erf"), lambda x, y: S.erf(x)),
    Case("sin", unary("sin"), lambda x, y: S.sin(x)),
    Case("cos", unary("cos"), lambda x, y: S.cos(x)),
    Case("tan", unary("tan"), lambda x, y: S.tan(x), x=(-1.3, 1.3)),
    Case("asin", unary("asin"), lambda x, y: S.asin(x), x=UNIT),
    Case("acos", unary("acos"), lambda x, y: S.acos(x), x=UNIT),
    Case("atan", unary("atan"), lambda x, y: S.atan(x)),
    Case("sinh", unary("sinh"), lambda x, y: S.sinh(x)),
    Case("cosh", unary("cosh"), lambda x, y: S.cosh(x)),
    Case("asinh", unary("asinh"), lambda x, y: S.asinh(x)),
    Case("acosh", unary("acosh"), lambda x, y: S.acosh(x), x=ABOVE_ONE),
    Case("atanh", unary("atanh"), lambda x, y: S.atanh(x), x=UNIT),
    Case("atan2", intrinsic("atan2"), S.atan2),
    *(Case(name, unary(name), None) for name in ("floor", "ceil", "round", "trunc", "nearbyint")),
]
#: intrinsics that TVM 0.27 does not compile on llvm: numpy computes them
NOT_ON_LLVM = ("fmod",)


def rule_of(node: Any) -> ScalarRule:
    return RULES[called_name(node)]


def partials(node: Any, seed: Any, wanted: tuple[Any, ...]) -> list[Any]:
    """The seed times the derivative of a node with respect to each of the `wanted` operands."""
    parts = operands(node)
    entries = rule_of(node).pullback(seed, parts, node)
    assert len(entries) == len(parts)
    sums = [zero_like(var) for var in wanted]
    for part, entry in zip(parts, entries, strict=True):
        for place, var in enumerate(wanted):
            if entry is not None and part.same_as(var):
                sums[place] = sums[place] + contribution(entry)
    return sums


def contribution(entry: Any) -> Any:
    if not isinstance(entry, Branch):
        return entry
    choose = if_then_else if entry.guards else select
    return choose(entry.condition, entry.value, zero_like(entry.value))


def case_node(case: Case) -> Any:
    """The node of a case; the operand of the cast is float32, or no cast would be made."""
    return case.build(tirx.Var("x", "float32") if case.id == "cast" else X, Y)


def sample(bounds: tuple[float, float], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(*bounds, POINTS)


#: each function is called a few times: LLVM need not optimise it
TARGET = tvm.target.Target({"kind": "llvm", "opt-level": 0})


@functools.cache
def on_llvm(build: Callable[..., Any]) -> Callable[..., list[np.ndarray]]:
    """``f(x, y, g) → [value, ∂x, ∂y]``, float64, compiled by TVM."""
    shape = (te.var("n"),)
    x, y, g = (te.placeholder(shape, "float64", name) for name in "xyg")

    def body(i: Any) -> list[Any]:
        node = build(x(i), y(i))
        entries = rule_of(node).pullback(g(i), operands(node), node)
        out = [node, like(node, 0), like(node, 0)]
        for part, entry in zip(operands(node), entries, strict=True):
            if entry is not None and op_name(part) == "load":
                place = 1 if part.args[0].same_as(x) else 2
                out[place] = out[place] + contribution(entry)
        return out

    outputs = te.compute(shape, lambda i: tuple(body(i)), name="out")
    library = tvm.compile(te.create_prim_func([x, y, g, *outputs]), target=TARGET)

    def run(*arrays: np.ndarray) -> list[np.ndarray]:
        given = [tvm.runtime.tensor(np.ascontiguousarray(array, "float64")) for array in arrays]
        results = [tvm.runtime.empty(arrays[0].shape, "float64") for _ in range(3)]
        library(*given, *results)
        return [result.numpy() for result in results]

    return run


def in_numpy(build: Callable[..., Any]) -> Callable[..., list[np.ndarray]]:
    """The same function as that of `on_llvm`, evaluated in numpy."""
    node = build(X, Y)
    exprs = [node, *partials(node, SEED, (X, Y))]

    def run(x: np.ndarray, y: np.ndarray, g: np.ndarray) -> list[np.ndarray]:
        values = {X: x, Y: y, SEED: g}
        return [np.broadcast_to(evaluate(expr, values), x.shape) for expr in exprs]

    return run
