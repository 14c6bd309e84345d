"""Expressions as text: notation, parentheses that keep the meaning, names, limits, depth."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import prim

from tests.evaluate import evaluate
from tvm_autodiff.expr.build import cast, const, if_then_else, negate, select
from tvm_autodiff.expr.nodes import binary, call_node
from tvm_autodiff.expr.printing.literals import literal
from tvm_autodiff.expr.printing.names import Names
from tvm_autodiff.expr.printing.sharing import shared_parts
from tvm_autodiff.expr.printing.text import text

A, B = te.placeholder((9, 9), name="A"), te.placeholder((9, 9), name="B")
V, LOSS = te.placeholder((9,), name="head"), te.placeholder((), name="loss")
I, J, K = (te.var(name) for name in "ijk")  # noqa: E741
X, Y, Z = (te.var(name, "float32") for name in "xyz")
R = te.reduce_axis((0, 5), "k")
S = te.reduce_axis((1, 5), "l")
F32 = "float32"


def c(value: float) -> Any:
    return const(value, F32)


def power(base: Any, exponent: Any) -> Any:
    return call_node("power", (base, exponent), F32)


NOTATION = [
    # reads and indices
    (A(I, K) * B(K, J), "A[i, k]*B[k, j]"),
    (V(I - 1), "head[i - 1]"),
    (LOSS() * 2.0, "loss*2.0"),
    (A(I // 2, I % 2 * 3 + J), "A[i//2, i%2*3 + j]"),
    # precedence and association
    (X + Y * Z, "x + y*z"),
    ((X + Y) * Z, "(x + y)*z"),
    (X - (Y - Z), "x - (y - z)"),
    (X - Y - Z, "x - y - z"),
    (X + (Y + Z), "x + (y + z)"),
    (X / (Y * Z), "x/(y*z)"),
    (X / Y * Z, "x/y*z"),
    (X * (Y / Z), "x*(y/z)"),
    (I // 2 // 3, "i//2//3"),
    (I // (J // 3), "i//(j//3)"),
    (I * (J % 2), "i*(j%2)"),
    ((I + J) % 2, "(i + j)%2"),
    (binary("truncdiv", I, J), "truncdiv(i, j)"),
    (binary("truncmod", I, J), "truncmod(i, j)"),
    (power(X, c(2)), "x**2.0"),
    (power(X + Y, c(-0.5)), "(x + y)**-0.5"),
    (power(power(X, Y), Z), "(x**y)**z"),
    (power(X, power(Y, Z)), "x**y**z"),
    (power(X, Y + Z), "x**(y + z)"),
    (power(c(-2), X), "(-2.0)**x"),
    (power(X * -1.0, c(2)), "(-x)**2.0"),
    (te.exp(X + Y) * Z, "exp(x + y)*z"),
    (te.max(X, Y, 1.0), "max(max(x, y), 1.0)"),
    # signs
    (X + Y * -1.0, "x - y"),
    (X - Y * -1.0, "x + y"),
    (X + Y * -2.0, "x - y*2.0"),
    (X - Y * -2.0, "x + y*2.0"),
    (X + c(-2.0) * Y, "x - 2.0*y"),
    (prim.Add(I, const(-1, "int32")), "i - 1"),
    (prim.Sub(X, c(-1)), "x + 1.0"),
    (X * -1.0, "-x"),
    (X * -1.0 + Y, "-x + y"),
    (X * Y * -1.0 + Z, "-x*y + z"),
    (X * -1.0 * Y, "(-x)*y"),
    (X * (Y * -1.0), "x*(-y)"),
    (X * (Y * -2.0), "x*(y*-2.0)"),
    ((X + Y) * -1.0, "-(x + y)"),
    (X - (Y + Z) * -1.0, "x + (y + z)"),
    (X + (Y * -2.0) * -1.0, "x + y*2.0"),
    (prim.Mul(prim.Mul(X, c(-1)), c(-1)), "x"),
    (te.exp(X * -1.0), "exp(-x)"),
    (I // 2 * -1, "-(i//2)"),
    (I % 2 * J * -1, "-(i%2*j)"),
    (I * (J % 2) * -1 + K, "-i*(j%2) + k"),
    (K + I // 2 * -1, "k - i//2"),
    # conditions and choices
    (te.all(I >= 1, I < 5), "i >= 1 and i < 5"),
    (te.all(I >= 1, te.any(J < 2, J > 3)), "i >= 1 and (j < 2 or j > 3)"),
    (te.any(I >= 1, te.all(J < 2, J > 3)), "i >= 1 or j < 2 and j > 3"),
    (te.all(I > 1, te.all(J > 2, K > 3)), "i > 1 and j > 2 and k > 3"),
    (prim.Not(te.all(I > 1, J > 1)), "not (i > 1 and j > 1)"),
    (te.all(prim.Not(X < Y), I > 1), "not x < y and i > 1"),
    (negate(I < J), "i >= j"),
    (binary("eq", I, J), "i == j"),
    (binary("ne", I % 2, const(0, "int32")), "i%2 != 0"),
    (binary("eq", I < J, J < K), "(i < j) == (j < k)"),
    (if_then_else(I >= 1, V(I - 1), c(0)), "if i >= 1 then head[i - 1] else 0.0"),
    (if_then_else(I > 1, X, Y) + Z, "(if i > 1 then x else y) + z"),
    (
        if_then_else(I > 1, if_then_else(J > 1, X, Y), if_then_else(K > 1, Y, Z)),
        "if i > 1 then (if j > 1 then x else y) else if k > 1 then y else z",
    ),
    (
        if_then_else(if_then_else(I > 1, J > 1, K > 1), X, Y),
        "if (if i > 1 then j > 1 else k > 1) then x else y",
    ),
    (select(X > Y, X, Y * 2.0), "select(x > y, x, y*2.0)"),
    (const(True, "bool"), "true"),
    (tirx.likely(I < 5), "likely(i < 5)"),
    # dtypes
    (cast("float16", X + Y), "float16(x + y)"),
    (cast(F32, I) * X, "float32(i)*x"),
    (tirx.reinterpret("int32", X), "reinterpret_int32(x)"),
    (tirx.call_pure_extern(F32, "foo", X), 'call_pure_extern("foo", x)'),
    (prim.Let(Y, X * X, Y + Y), "let y = x*x in y + y"),
    # reductions
    (te.sum(A[I, R] * B[R, J], axis=R), "Σ_{k<5} A[i, k]*B[k, j]"),
    (te.sum(A[I, R] + B[R, J], axis=R), "Σ_{k<5} (A[i, k] + B[k, j])"),
    (te.sum(if_then_else(R > I, V(R), c(0)), axis=R), "Σ_{k<5} if k > i then head[k] else 0.0"),
    (te.sum(A[S, R], axis=[S, R], where=R > 1), "Σ_{1<=l<5, k<5 | k > 1} A[l, k]"),
    (te.max(A[I, R], axis=R), "max_{k<5} A[i, k]"),
    (te.min(A[I, R], axis=R, init=1.0), "min_{k<5} A[i, k], init 1.0"),
    (
        te.comm_reducer(lambda a, b: a * b, lambda t: const(1, t))(A[I, R], axis=R),
        "Π_{k<5} A[i, k]",
    ),
    (
        te.comm_reducer(lambda a, b: a * b, lambda t: const(2, t))(A[I, R], axis=R),
        "reduce[a, b → a*b; identity 2.0]_{k<5} A[i, k]",
    ),
    (
        te.comm_reducer(lambda a, b: a + b * a, lambda t: const(0, t))(A[I, R], axis=R),
        "reduce[a, b → a + b*a; identity 0.0]_{k<5} A[i, k]",
    ),
]


@pytest.mark.parametrize("row", range(len(NOTATION)))
def test_notation(row: int) -> None:
    expr, expected = NOTATION[row]
    assert text(expr) == expected


LITERALS = [
    (0.1, "float32", "0.1"),
    (1 / 3, "float64", "0.3333333333333333"),
    (1 / 3, "float32", "0.33333334"),
    (1 / 3, "float16", "0.3333"),
    (1 / 3, "bfloat16", "0.3333"),
    (3.0, "bfloat16", "3.0"),
    (-0.0, "float32", "-0.0"),
    (1e10, "float32", "10000000000.0"),
    (1e20, "float32", "1e+20"),
    (float("inf"), "float32", "inf"),
    (float("-inf"), "bfloat16", "-inf"),
    (float("nan"), "float64", "nan"),
    (-7, "int64", "-7"),
    (False, "bool", "false"),
]


@pytest.mark.parametrize(("value", "dtype", "expected"), LITERALS)
def test_literals(value: float, dtype: str, expected: str) -> None:
    assert literal(const(value, dtype)) == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_literals_read_back_as_the_same_number(dtype: str) -> None:
    kind = np.dtype(dtype if dtype != "bfloat16" else __import__("ml_dtypes").bfloat16)
    values = np.random.default_rng(0).normal(size=300).astype(kind)
    for value in values:
        assert np.asarray(float(literal(const(float(value), dtype)))).astype(kind) == value


def test_distinct_things_have_distinct_names() -> None:
    i, other, twin = te.var("i"), te.var("i"), te.placeholder((9, 9), name="A")
    assert text(A(i, other) + twin(other, i)) == "A[i, i_1] + A_1[i_1, i]"
    names = Names({"t"})
    assert [names.name(1, "t"), names.name(2, "u"), names.name(1, "t")] == ["t_1", "u", "t_1"]
    inner = names.inner()
    assert inner.name(3, "u") == "u_1"
    assert inner.name(2, "u") == names.name(2, "u") == "u"
    assert names.name(4, "u") == "u_1"


def doubled(times: int, start: Any = X) -> Any:
    expr = start
    for _ in range(times):
        expr = prim.Add(prim.Mul(expr, Y), expr)
    return expr


def test_shared_parts_are_named_only_when_they_blow_up() -> None:
    few = te.exp(X)
    assert text(few * few) == "exp(x)*exp(x)"
    assert text(doubled(4)).startswith("let t1 = (x*y + x)*y + (x*y + x); t2 = t1*y + t1 in ")
    # 2^200 nodes written out; a name for each doubling after the second
    assert len(shared_parts([doubled(200)])) == 198
    long = text(doubled(200), limit=None)
    assert "t198" in long
    assert len(long) < 200 * 30
    assert text(doubled(4, te.var("t1", F32))).startswith("let t1_1 = (t1*y + t1)")


def test_names_of_shared_parts_stay_in_the_scope_of_a_let() -> None:
    inner = te.var("v", F32)
    body = doubled(5, inner * inner)
    assert text(prim.Let(inner, X, body)).startswith("let v = x in ")


@pytest.mark.parametrize(
    "step",
    [
        lambda e: te.exp(e),
        lambda e: prim.Mul(e, c(-1)),
        lambda e: prim.Add(X, e),
        lambda e: prim.Not(e) if str(e.ty) == "bool" else e < Y,
        lambda e: if_then_else(X < Y, X, e),
    ],
)
def test_deep_expressions_print(step: Callable[[Any], Any]) -> None:
    expr: Any = X
    for _ in range(5000):
        expr = step(expr)
    full, cut = text(expr, limit=None), text(expr)
    assert cut == full if len(full) <= 2000 else cut == full[:2000] + "…"


def random_expression(rng: random.Random, depth: int, boolean: bool = False) -> Any:
    """Operators, signs and constants in every nesting; integers, as Python has them."""

    def again(truth: bool = False) -> Any:
        return random_expression(rng, depth - 1, truth)

    if boolean:
        if depth <= 1 or rng.random() < 0.5:
            return binary(rng.choice(["eq", "ne", "lt", "le", "gt", "ge"]), again(), again())
        if rng.random() < 0.2:
            return prim.Not(again(True))
        return binary(rng.choice(["and", "or"]), again(True), again(True))
    if depth <= 0 or rng.random() < 0.1:
        return rng.choice([I, J, K, const(rng.randint(-3, 3), "int32")])
    kind = rng.choice(
        ["add", "sub", "mul", "neg", "scale", "floordiv", "floormod", "max", "select"]
    )
    if kind == "neg":
        return prim.Mul(again(), const(-1, "int32"))
    if kind == "scale":
        return prim.Mul(again(), const(rng.randint(-3, 3), "int32"))
    if kind == "select":
        return prim.Select(again(True), again(), again())
    if kind in ("floordiv", "floormod"):
        return binary(kind, again(), const(rng.choice([-3, -2, 2, 3, 5]), "int32"))
    return binary(kind, again(), again())


@pytest.mark.parametrize("seed", range(10))
def test_python_reads_the_same_value(seed: int) -> None:
    """Parentheses and signs keep the meaning: Python reads the text as the same value."""
    rng = random.Random(seed)
    meaning = {"max": max, "select": lambda c, a, b: a if c else b, "true": True, "false": False}
    for _ in range(60):
        expr = random_expression(rng, 5, rng.random() < 0.3)
        values = {name: rng.randint(-9, 9) for name in "ijk"}
        written = text(expr, limit=None)
        assert not written.startswith("let "), written
        expected = evaluate(expr, {I: values["i"], J: values["j"], K: values["k"]})
        said = eval(written, {"__builtins__": {}}, {**meaning, **values})
        assert int(said) == int(expected), written
