"""Functions of two floats of different dtypes: values, gradients and tangents, each in the dtype of
its operand or result.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate_functions import numpy_dtype

#: function → the same in numpy, and its partial derivatives
FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "fmod": (np.fmod, lambda a, b: (np.ones_like(a), -np.trunc(a / b))),
    "atan2": (np.arctan2, lambda a, b: (b / (a * a + b * b), -a / (a * a + b * b))),
    "hypot": (np.hypot, lambda a, b: (a / np.hypot(a, b), b / np.hypot(a, b))),
    "copysign": (np.copysign, lambda a, b: (np.sign(a) * np.sign(b), np.zeros_like(a))),
}
PAIRS = (("float32", "float64"), ("float16", "float32"), ("float64", "float32"))
A, B = np.linspace(-3, 3, 6), np.array([0.4, -0.7, 0.3, 0.9, -0.45, 0.8])


def _at(function: Any, x: Any, y: Any, i: Any) -> Any:
    return function(x[i], y[i])


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_operands_of_two_dtypes(first: str, second: str) -> None:
    x, y = te.placeholder((6,), first, name="x"), te.placeholder((6,), second, name="y")
    head = te.placeholder((6,), first, name="head")
    dx, dy = te.placeholder((6,), first, name="dx"), te.placeholder((6,), second, name="dy")
    outputs, wanted = [], []
    a, b = A.astype(first).astype(float), B.astype(second).astype(float)
    for name, (value, partials) in FUNCTIONS.items():
        z = te.compute((6,), partial(_at, getattr(tirx, name), x, y), name=name)
        assert z.dtype == first
        outputs += [z, *ad.differentiate(z, [x, y], head)]
        outputs += ad.jvp(z, [x, y], [dx, dy])
        by_a, by_b = partials(a, b)
        wanted += [value(a, b), by_a, by_b, by_a + 2 * by_b]
    arrays = [A.astype(first), B.astype(second), *np.ones((2, 6), first), np.full(6, 2, second)]
    found = ad.build([x, y, head, dx, dy], outputs)(*arrays)
    dtypes = [first, first, second, first] * len(FUNCTIONS)
    assert [str(array.dtype) for array in found] == dtypes
    for number, (got, right) in enumerate(zip(found, wanted, strict=True)):
        # a gradient passes the dtype of the result
        close = 4 * max(np.finfo(first).eps, np.finfo(got.dtype).eps)
        np.testing.assert_allclose(got, right, rtol=close, atol=close, err_msg=str(number))


INTEGERS = np.array([2, 3, 1, 5, 4, 3])


@pytest.mark.parametrize("second", ["int32", "uint8", "int64"])
@pytest.mark.parametrize("first", ["float32", "float64", "float16"])
def test_an_integer_operand_is_a_float(first: str, second: str) -> None:
    x, n = te.placeholder((6,), first, name="x"), te.placeholder((6,), second, name="n")
    head, dx = (te.placeholder((6,), first, name=name) for name in ("head", "dx"))
    outputs, wanted = [], []
    a = A.astype(first).astype(float)
    for name, (value, partials) in FUNCTIONS.items():
        z = te.compute((6,), partial(_at, getattr(tirx, name), x, n), name=name)
        outputs += [z, *ad.differentiate(z, [x], head), *ad.jvp(z, [x], [dx])]
        by_a, _ = partials(a, INTEGERS.astype(float))
        wanted += [value(a, INTEGERS), by_a, 2 * by_a]
    arrays = [A.astype(first), INTEGERS.astype(second), np.ones(6, first), np.full(6, 2, first)]
    found = ad.build([x, n, head, dx], outputs)(*arrays)
    close = 4 * np.finfo(first).eps
    for number, (got, right) in enumerate(zip(found, wanted, strict=True)):
        assert got.dtype == first
        np.testing.assert_allclose(got, right, rtol=close, atol=close, err_msg=str(number))


@pytest.mark.parametrize("name", [*FUNCTIONS, "nextafter", "ldexp"])
def test_a_function_of_an_integer_first_is_refused(name: str) -> None:
    """TVM gives it the integer's dtype, and then has no code for it."""
    n, x = te.placeholder((6,), "int32", name="n"), te.placeholder((6,), "float64", name="x")
    z = te.compute((6,), partial(_at, getattr(tirx, name), n, x), name="z")
    with pytest.raises(ad.LoweringError, match=rf"{name}\(n\[i\], x\[i\]\).*int32.*'float64'"):
        ad.build([n, x], z)
    y = te.compute((6,), lambda i: _at(getattr(tirx, name), n, x, i).astype("float64"), name="y")
    for derivative in (ad.differentiate, lambda y, xs: ad.jvp(y, xs, xs)):
        with pytest.raises(ad.NotDifferentiableError, match=rf"y: {name}\(n\[i\].*'float64'"):
            derivative(y, [x])


EXPONENTS = np.array([-3, 0, 2, 5, -1, 4])


@pytest.mark.parametrize("second", ["int8", "int32", "int64", "uint8", "uint32", "uint64"])
@pytest.mark.parametrize("first", ["float16", "bfloat16", "float32", "float64"])
def test_ldexp(first: str, second: str) -> None:
    x, n = te.placeholder((6,), first, name="x"), te.placeholder((6,), second, name="n")
    z = te.compute((6,), partial(_at, tirx.ldexp, x, n), name="z")
    head = te.placeholder((6,), first, name="head")
    gradients = ad.differentiate(z, [x], head)
    exponents = abs(EXPONENTS) if second.startswith("u") else EXPONENTS
    kind = numpy_dtype(first)
    found = ad.build([x, n, head], [z, *gradients])(
        A.astype(kind), exponents.astype(second), np.ones(6, kind)
    )
    wanted = (np.exp2(exponents) * A.astype(kind).astype(float), np.exp2(exponents))
    for got, right in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got.astype(float), right)


def test_exponents_of_ldexp_beyond_an_int() -> None:
    """The C function takes an int: 2**32 is no 0 of it."""
    x, n = te.placeholder((3,), "float64", name="x"), te.placeholder((3,), "int64", name="n")
    z = te.compute((3,), partial(_at, tirx.ldexp, x, n), name="z")
    found = ad.build([x, n], z)(np.ones(3), np.array([2**32, -(2**32), 2**33 + 1]))
    np.testing.assert_array_equal(found, [np.inf, 0, np.inf])


def test_an_exponent_of_ldexp_that_is_a_float_is_refused() -> None:
    """TVM passes it to the C function as it is, which reads another register."""
    x, n = (te.placeholder((6,), "float32", name=name) for name in "xn")
    z = te.compute((6,), partial(_at, tirx.ldexp, x, n), name="z")
    message = r"the exponent in ldexp\(x\[i\], n\[i\]\) is a float32.*'int32'"
    with pytest.raises(ad.LoweringError, match=message):
        ad.build([x, n], z)
    for derivative in (ad.differentiate, lambda z, xs: ad.jvp(z, xs, xs)):
        with pytest.raises(ad.NotDifferentiableError, match=f"z: {message}"):
            derivative(z, [x])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_added_in_a_wider_dtype_is_rounded_once(dtype: str) -> None:
    """Each reader of `x` widens it by itself: of 1 and -1 + ε, rounded apart, nothing is left."""
    x = te.placeholder((4,), dtype, name="x")
    a, b = (te.placeholder((4,), "float32", name=name) for name in "ab")
    head = te.placeholder((4,), "float32", name="head")
    first = te.compute((4,), lambda i: x[i].astype("float32") * a[i], name="first")
    second = te.compute((4,), lambda i: x[i].astype("float32") * b[i], name="second")
    y = te.compute((4,), lambda i: first[i] + second[i], name="y")
    [dx] = ad.differentiate(y, [x], head)
    arrays = [np.ones(4, "float32"), np.float32([-1, -1 + 2**-12, 1, 2**-12])]
    [got] = ad.build([a, b, head], [dx], cache=False)(*arrays, np.ones(4, "float32"))
    np.testing.assert_array_equal(got.astype(float), [0, 2**-12, 2, 1])
