"""Arithmetic and conversions that wrap: kept from TVM, which takes them for exact."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate
from tvm_autodiff.expr.integers.intervals import Intervals, range_intervals
from tvm_autodiff.expr.integers.wrapping import opaque_conversions, opaque_unsigned
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.expr.simplify import prove
from tvm_autodiff.graph.stage import data_axis, make_stage

i, n = te.var("i"), te.var("n")
PLACES = te.placeholder((16,), "int64", name="places")
INTERVALS = Intervals(range_intervals({i: (0, 16)}))


def narrowed(wide):
    return tirx.Cast("int32", wide)


def times(value, factor):
    return value.astype("int64") * tirx.const(factor, "int64")


#: expression → whether its conversion is hidden
CASES = {
    "wraps": (narrowed(times(i, 2**33 + 5)), True),
    "wraps below": (narrowed(times(i, -(2**31))), True),
    "fits": (narrowed(times(i, 2**26)), False),
    "a size": (narrowed(times(n, 2**33)), False),
    "data": (narrowed(PLACES[i]), False),
    "arithmetic on data": (narrowed(PLACES[i] * tirx.const(8, "int64")), True),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_hidden(name):
    expr, hidden = CASES[name]
    written = opaque_conversions(expr, INTERVALS)
    assert any(op_name(node) == "reinterpret" for node in postorder(written)) == hidden
    values = {i: np.arange(16, dtype="int32"), n: np.int32(3)}
    arrays = [(PLACES, np.arange(16) - 3)]
    np.testing.assert_array_equal(evaluate(written, values, arrays), evaluate(expr, values, arrays))


@pytest.mark.parametrize("factor", [2**33 + 5, 2**31 + 7, -(2**31) - 5, 2_000_000_000])
def test_gradient_behind_such_a_condition(factor):
    """The gradient has the condition at ``15 - i``, whose literal is too large for int32."""
    x = te.placeholder((16,), "float64", name="x")

    def body(i):
        chosen = narrowed(times(i, factor)) < 30
        return te.if_then_else(chosen, x[i] * x[i], x[15 - i])

    y, head = te.compute((16,), body, name="y"), te.placeholder((16,), "float64", name="head")
    run = ad.build([x, head], [y, *ad.differentiate(y, [x], head)], cache=False)
    rng = np.random.default_rng(1)
    array, cotangent = rng.uniform(-1, 1, (2, 16))
    chosen = (np.arange(16) * factor).astype("int32") < 30
    assert chosen.any()
    assert not chosen.all()
    value, gradient = run(array, cotangent)
    np.testing.assert_allclose(value, np.where(chosen, array**2, array[::-1]))
    back = np.where(chosen, 0, cotangent)[::-1]
    np.testing.assert_allclose(gradient, np.where(chosen, 2 * array * cotangent, 0) + back)


def unsigned(bits, value):
    return tirx.const(value, f"uint{bits}")


#: what is computed of an unsigned tensor, and the same in numpy; all of it is data
UNSIGNED = {
    "element": lambda a, bits: a,
    "difference": lambda a, bits: a - unsigned(bits, 5),
    "reversed difference": lambda a, bits: unsigned(bits, 5) - a,
    "sum": lambda a, bits: a + unsigned(bits, 5),
    "product": lambda a, bits: a * unsigned(bits, 3),
    "square": lambda a, bits: a * a,
    "remainder": lambda a, bits: tirx.floormod(a - unsigned(bits, 5), unsigned(bits, 3)),
    "bits": lambda a, bits: a & unsigned(bits, 3),
    "signed": lambda a, bits: a.astype(f"int{bits}"),
    "narrower": lambda a, bits: a.astype("int16"),
    "negative": lambda a, bits: a.astype("int8").astype(f"uint{bits}"),
}
NUMPY = {
    "difference": lambda a, const: a - const(5),
    "reversed difference": lambda a, const: const(5) - a,
    "sum": lambda a, const: a + const(5),
    "product": lambda a, const: a * const(3),
    "square": lambda a, const: a * a,
    "remainder": lambda a, const: (a - const(5)) % const(3),
    "bits": lambda a, const: a & const(3),
    "signed": lambda a, const: a.astype(f"i{a.itemsize}"),
    "narrower": lambda a, const: a.astype("int16"),
    "negative": lambda a, const: a.astype("int8").astype(a.dtype),
}
COMPARED = (("<", 7), (">=", 0), (">=", 2), ("<=", 2**14), ("==", 2))


def compared(value, sign, bound):
    return {"<": value < bound, ">=": value >= bound, "<=": value <= bound}.get(
        sign, value == bound
    )


@pytest.mark.slow
@pytest.mark.parametrize("bits", [32, 64])
def test_conditions_on_unsigned_data(bits):
    """TVM decides some of these comparisons as if nothing wrapped, and fails at others."""
    half = 2 ** (bits - 1)
    given = [0, 1, 4, 5, 7, 200, 2**16 + 3, half - 1, half, half + 3, 2 * half - 4, 2 * half - 1]
    array = np.array(given, f"uint{bits}")
    data = te.placeholder(array.shape, f"uint{bits}", name="data")
    outputs, wanted, at = [], [], data_axis("e", array.size)
    for name, of in UNSIGNED.items():
        values = NUMPY.get(name, lambda a, const: a)(array, array.dtype.type)
        for sign, bound in COMPARED:
            value = of(data(at.var), bits)
            chosen = compared(value, sign, tirx.const(bound, str(value.ty)))
            body = tirx.Select(chosen, tirx.const(1, "int32"), tirx.const(0, "int32"))
            outputs += make_stage(f"{name.replace(' ', '_')}", [at], [body])
            wanted.append(compared(values, sign, values.dtype.type(bound)))
    for output, got, want in zip(
        outputs, ad.build(data, outputs, cache=False)(array), wanted, strict=True
    ):
        np.testing.assert_array_equal(got, want, err_msg=f"{ad.show(output)}")


@pytest.mark.parametrize("bits", [32, 64])
def test_guarded_reads_at_signed_unsigned(bits):
    """``0 <= int32(uint32 data)`` is no truth, and the read behind it is not evaluated."""
    array = np.array([0, 7, 2 ** (bits - 1) + 3, 2**bits - 1, 8, 7], f"uint{bits}")
    data, x = te.placeholder((6,), f"uint{bits}", name="data"), te.placeholder((8,), name="x")

    def body(e):
        place = data[e].astype(f"int{bits}")
        return te.if_then_else(tirx.all(place >= 0, place < 8), x[place] * x[place], 0.0)

    y, head = te.compute((6,), body, name="y"), te.placeholder((6,), name="head")
    run = ad.build([data, x, head], [y, *ad.differentiate(y, [x], head)], cache=False)
    values = np.arange(1, 9, dtype="float32")
    got, gradient = run(array, values, np.ones(6, "float32"))
    np.testing.assert_array_equal(got, [1, 64, 0, 0, 0, 64])
    np.testing.assert_array_equal(gradient, [2, 0, 0, 0, 0, 0, 0, 32])


u16, u32, u64 = (tirx.Var(name, name) for name in ("uint16", "uint32", "uint64"))
k = te.var("k")
#: condition over 0 <= k < 9 and unknown a, b → whether it holds always
PROVED = {
    "int32 of uint32": (u32.astype("int32") >= 0, False),
    "int64 of uint64": (u64.astype("int64") >= 0, False),
    "int64 of uint32": (u32.astype("int64") >= 0, True),
    "negative uint64": ((k - 5).astype("uint64").astype("int64") >= 0, False),
    "int32 of uint32 in int64": (u32.astype("int64").astype("int32") >= 0, False),
    "int16 of uint16 in int32": (
        u16.astype("int32").astype("int16") >= tirx.const(0, "int16"),
        False,
    ),
    "positive uint64": ((k + 5).astype("uint64").astype("int64") >= 0, True),
}


@pytest.mark.parametrize("name", PROVED)
def test_what_is_proved_of_conversions(name):
    condition, holds = PROVED[name]
    assert prove(condition, {k: (0, 9)}) == holds


def test_conversions_of_two_tensors_are_told_apart():
    a, b = (te.placeholder((16,), "uint32", name=name)(i).astype("int32") for name in "ab")
    assert not prove(a >= b)
    assert prove(a - a >= 0)


def test_hiding_twice_is_hiding_once():
    expr = (u32 - unsigned(32, 5)).astype("int32") + 1
    once = opaque_unsigned(expr)
    assert str(opaque_unsigned(once)) == str(once)
