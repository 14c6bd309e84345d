"""bfloat16 by its bits: every value, roundings, and functions that hold one in a variable."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm_ffi
from tvm import ir, te, tirx
from tvm.ir import prim

import tvm_autodiff as ad
from tvm_autodiff.codegen.passes.narrow_floats import with_float32_inside
from tvm_autodiff.expr.nodes import dtype_of
from tvm_autodiff.schedule.backends import rules_for
from tvm_autodiff.schedule.machine import as_target, machine_of
from tvm_autodiff.schedule.plan import Plan


def converted(source: str, target: str, values: np.ndarray) -> np.ndarray:
    x = te.placeholder(values.shape, source, name="x")
    y = te.compute(values.shape, lambda i: tirx.Cast(target, x[i]), name="y")
    [found] = ad.build([x], [y], cache=False)(values)
    return np.asarray(found)


def test_every_bfloat16_is_read_as_it_is() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    values = bits.view(ml_dtypes.bfloat16)
    expected = (bits.astype(np.uint32) << 16).view(np.float32)
    found = converted("bfloat16", "float32", values)
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_float32_is_rounded_to_nearest_even() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 100_000, dtype=np.uint32)
    ties = (bits[:1000] & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    values = np.concatenate([bits, ties]).view(np.float32)
    values = np.where(np.isnan(values), np.float32(np.nan), values)
    found = converted("float32", "bfloat16", values)
    number = ~np.isnan(values)
    assert not number.all()
    assert np.isnan(found[~number].astype(np.float32)).all()
    expected = values[number].astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found[number].view(np.uint16), expected.view(np.uint16))


def test_a_cast_on_the_way_rounds() -> None:
    x = te.placeholder((64,), "float32", name="x")
    lost = te.compute(
        (64,), lambda i: x[i] - tirx.Cast("float32", tirx.Cast("bfloat16", x[i])), name="lost"
    )
    values = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    [found] = ad.build([x], [lost], cache=False)(values)
    expected = values - values.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(found), expected)


def kept_between() -> tuple[Any, Any]:
    """A function with a buffer of its own and tuple components, both of bfloat16."""
    x = te.placeholder((2, 8), "bfloat16", name="x")
    half = te.compute((2, 8), lambda i, j: x[i, j] * tirx.const(0.5, "bfloat16"), name="half")
    k = te.reduce_axis((0, 8), "k")
    largest = te.comm_reducer(
        lambda a, b: (
            tirx.Select(a[1] >= b[1], a[0], b[0]),
            tirx.Select(a[1] >= b[1], a[1], b[1]),
        ),
        lambda t, u: (tirx.const(-1, t), te.min_value(u)),
    )
    place, value = te.compute(
        (2,), lambda i: largest((k.var, half[i, k]), axis=k), name="largest"
    )
    return x, (place, value)


def test_nothing_but_arrays_is_bfloat16() -> None:
    x, outputs = kept_between()
    func = with_float32_inside(te.create_prim_func([x, *outputs]), "bfloat16")
    arrays = {param.name for param in func.params}
    left = []

    def variable(var: Any) -> None:
        dtype = getattr(var.ty, "dtype", None)
        if str(dtype) == "bfloat16" and var.name not in arrays:
            left.append(var.name)

    tvm_ffi.structural_walk(func.body, (ir.Var, variable))
    assert left == []
    assert "bfloat16" in func.script()


def test_a_guarded_read_below_functions_keeps_its_value() -> None:
    """TVM took its bits for an integer where the schedule binds the read to a variable."""
    x = te.placeholder((1, 5), "bfloat16", name="x")
    b = te.placeholder((3,), "float32", name="b")
    k = te.reduce_axis((0, 5), "k")

    def body(i: Any) -> Any:
        read = te.if_then_else(b[i + 1] >= 0.25, tirx.Cast("float32", x[0, k]), 1.25)
        return te.max(te.max(te.exp(te.tanh(read)), tirx.const(-0.5, "float32")), axis=k)

    y = te.compute((2,), body, name="y")
    head = te.placeholder((2,), "float32", name="head")
    gradients = ad.differentiate(y, [x], head)
    rng = np.random.default_rng(2)
    X = rng.standard_normal((1, 5)).astype(ml_dtypes.bfloat16)
    B = np.array([0.0, 1.0, -1.0], np.float32)
    H = np.array([1.0, 2.0], np.float32)
    found, gradient = ad.build([x, b, head], [y, *gradients], cache=False)(X, B, H)
    wide = X.astype(np.float64)[0]
    best = np.argmax(wide)
    expected = [np.exp(np.tanh(wide[best])), np.exp(np.tanh(1.25))]
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)
    slopes = np.zeros((1, 5))
    slopes[0, best] = expected[0] * (1 - np.tanh(wide[best]) ** 2)
    np.testing.assert_allclose(np.asarray(gradient).astype(float), slopes, rtol=2**-8)


@pytest.mark.parametrize("exact", [False, True])
def test_float16_is_rounded_where_it_is_stored(exact: bool) -> None:
    """Exact math rounds the product, which a sum then cancels."""
    x = te.placeholder((64,), "float16", name="x")
    y = te.compute((64,), lambda i: x[i] * x[i] - te.const(1.0, "float16"), name="y")
    values = (1 + np.arange(64) / 1024).astype(np.float16)
    [found] = ad.build([x], [y], exact_math=exact, cache=False)(values)
    wide = values.astype(np.float32)
    product = wide * wide
    expected = (product.astype(np.float16) if exact else product) - np.float32(1)
    np.testing.assert_array_equal(np.asarray(found), expected.astype(np.float16))


@pytest.mark.parametrize(
    ("name", "dtype"), [("sapphirerapids", "float16"), ("znver4", "float32")]
)
def test_instructions_of_float16_are_used_where_there_are_some(name: str, dtype: str) -> None:
    x = te.placeholder((64,), "float16", name="x")
    y = te.compute((64,), lambda i: x[i] * x[i] + x[i], name="y")
    machine = machine_of(as_target({"kind": "llvm", "mcpu": name}), 1)
    [step] = Plan([x], [y], (), machine, rules_for(machine)).steps()
    found: set[str] = set()
    tvm_ffi.structural_walk(
        step.launch.func.body, (prim.Mul, lambda node: found.add(dtype_of(node).split("x")[0]))
    )
    assert {one for one in found if one.startswith("float")} == {dtype}
