"""check_grads finds what is wrong, and says which entry."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff.check as check_module
from tvm_autodiff import GradientCheckError, InvalidArgumentError, check_grads, jvp, vjp

D = "float64"
x = te.placeholder((2, 3), D, name="x")
y = te.compute((2, 3), lambda i, j: te.sin(x[i, j]) * x[1 - i, j], name="y")


@pytest.mark.parametrize("order", [1, 2, 3])
def test_right_gradients_pass(order):
    check_grads(y, x, order=order)


def test_float32_has_the_tolerance_it_can_carry():
    z = te.placeholder((3,), "float32", name="z")
    check_grads(te.compute((3,), lambda i: te.exp(z[i]) * z[2 - i], name="w"), z)


def test_float32_inside_has_the_same_tolerance():
    z = te.placeholder((3,), "float64", name="z")
    rounded = te.compute((3,), lambda i: (z[i] * z[i]).astype("float32"), name="rounded")
    check_grads(te.compute((3,), lambda i: rounded[i].astype("float64") * z[i], name="y"), z)


def test_float16_inside_is_refused():
    z = te.placeholder((3,), "float64", name="z")
    half = te.compute((3,), lambda i: z[i].astype("float16"), name="half")
    with pytest.raises(InvalidArgumentError, match="half is computed in float16"):
        check_grads(te.compute((3,), lambda i: half[i].astype("float64"), name="y"), z)


def test_a_wrong_entry_is_named(monkeypatch):
    def wrong(outputs, inputs, cotangents):
        # as if the rule of one site had been forgotten at one element
        [adjoint] = vjp(outputs, inputs, cotangents)
        return [
            te.compute(
                (2, 3),
                lambda i, j: (
                    tirx.Select(tirx.all(i == 1, j == 2), 1.5, 1.0).astype(D) * adjoint[i, j]
                ),
                name="dx",
            )
        ]

    monkeypatch.setattr(check_module, "vjp", wrong)
    with pytest.raises(GradientCheckError, match=r"gradient of y with respect to x.*x\[1\]\[2\]"):
        check_grads(y, x)


@pytest.mark.parametrize("factor", [0.999, 1.001, 0.0])
@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-9])
def test_a_small_entry_beside_large_ones_is_checked(monkeypatch, size, factor):
    """y = (1e6 x₀², size · sin x₁): only the derivative of x₁ is wrong."""
    z = te.placeholder((2,), D, name="z")

    def body(i):
        large, small = z[0] * z[0] * tirx.const(1e6, D), te.sin(z[1]) * tirx.const(size, D)
        return te.if_then_else(i == 0, large, small)

    def wrong(outputs, inputs, cotangents):
        [adjoint] = vjp(outputs, inputs, cotangents)
        part = tirx.const(factor, D)
        return [
            te.compute(
                (2,), lambda i: adjoint[i] * te.if_then_else(i == 0, tirx.const(1.0, D), part)
            )
        ]

    w = te.compute((2,), body, name="w")
    check_grads(w, z)
    monkeypatch.setattr(check_module, "vjp", wrong)
    with pytest.raises(GradientCheckError, match=r"z\[1\]"):
        check_grads(w, z)


def scaled_at(which, factor):
    """vjp, whose entry `which` is wrong by a factor."""

    def wrong(outputs, inputs, cotangents):
        [adjoint] = vjp(outputs, inputs, cotangents)
        one, part = tirx.const(1.0, D), tirx.const(factor, D)
        shape = adjoint.shape
        return [te.compute(shape, lambda i: adjoint[i] * te.if_then_else(i == which, part, one))]

    return wrong


def loss_of_two_sizes(size):
    """``1e6 x₀² + size · sin x₁``: the second term is near the rounding of the first, or below."""
    z = te.placeholder((2,), D, name="z")
    large, small = tirx.const(1e6, D), tirx.const(size, D)
    return z, te.compute((), lambda: z[0] * z[0] * large + te.sin(z[1]) * small, name="loss")


@pytest.mark.parametrize("factor", [0.99, 1.01, 0.0])
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_longer_steps_find_a_small_entry_of_a_loss(monkeypatch, size, factor):
    z, loss = loss_of_two_sizes(size)
    check_grads(loss, z)
    monkeypatch.setattr(check_module, "vjp", scaled_at(1, factor))
    with pytest.raises(GradientCheckError, match=r"z\[1\]"):
        check_grads(loss, z)


def test_longer_steps_do_not_cross_kinks_or_leave_the_domain():
    """Entries whose differences are uncertain, near a kink and near the end of a domain."""
    z = te.placeholder((3,), D, name="z")
    big = tirx.const(1e8, D)
    k = te.reduce_axis((0, 3), "k")
    roots = te.compute((3,), lambda i: te.sqrt(z[i]) + te.abs(z[i] - 0.02), name="roots")
    loss = te.compute((), lambda: te.sum(roots[k] + big, axis=k), name="loss")
    check_grads(loss, z, ("reverse", "forward"), values={z: np.array([0.01, 0.03, 1.0])})


def test_a_sum_that_cancels_may_be_rounded():
    """The outputs are large, and what an entry changes of them is lost in their rounding."""
    z = te.placeholder((3,), D, name="z")
    k = te.reduce_axis((0, 3), "k")
    check_grads(te.compute((), lambda: te.sum(z[k] + tirx.const(1e6, D), axis=k), name="w"), z)


def test_nan_is_wrong(monkeypatch):
    def poisoned(outputs, inputs, cotangents):
        [head] = cotangents
        return [te.compute((2, 3), lambda i, j: head[i, j] * tirx.const(float("nan"), D))]

    monkeypatch.setattr(check_module, "vjp", poisoned)
    with pytest.raises(GradientCheckError):
        check_grads(y, x)


def test_values_are_used():
    kink = te.compute((2, 3), lambda i, j: te.abs(x[i, j]), name="kink")
    check_grads(kink, x, values={x: -np.ones((2, 3))})


def test_large_inputs_are_sampled():
    big = te.placeholder((40, 40), D, name="big")
    check_grads(te.compute((40, 40), lambda i, j: big[i, j] * big[j, i], name="b2"), big)


n = te.var("n")
BAD = [
    ("mode", lambda: check_grads(y, x, modes=("sideways",)), "sideways"),
    ("order", lambda: check_grads(y, x, order=0), "positive"),
    ("intermediate", lambda: check_grads(te.compute((2, 3), lambda i, j: y[i, j]), y), "y is an"),
    ("shape of values", lambda: check_grads(y, x, values={x: np.ones(3)}), r"values\[x\]"),
    (
        "symbolic shape",
        lambda: (lambda z: check_grads(te.compute((n,), lambda i: z[i] * 2.0, name="w"), z))(
            te.placeholder((n,), D, name="z")
        ),
        "symbolic",
    ),
    (
        "half precision",
        lambda: (lambda z: check_grads(te.compute((3,), lambda i: z[i] + z[i], name="w"), z))(
            te.placeholder((3,), "float16", name="z")
        ),
        "float16",
    ),
]


@pytest.mark.parametrize(("call", "message"), [c[1:] for c in BAD], ids=[c[0] for c in BAD])
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(InvalidArgumentError, match=message):
        call()


# -- forward mode -------------------------------------------------------------------------------


@pytest.mark.parametrize("modes", [("forward",), ("reverse", "forward")])
@pytest.mark.parametrize("order", [1, 2])
def test_both_modes_pass(modes, order):
    check_grads(y, x, modes, order)


def scaled_jvp(factor):
    def wrong(outputs, inputs, tangents):
        [tangent] = jvp(outputs, inputs, tangents)
        scale = tirx.const(factor, D)
        return [te.compute(tangent.shape, lambda *at: tangent(*at) * scale, name="t")]

    return wrong


def test_a_wrong_tangent_is_named(monkeypatch):
    monkeypatch.setattr(check_module, "jvp", scaled_jvp(1.001))
    with pytest.raises(GradientCheckError, match=r"tangent of y is wrong: entry \[0, 0\]"):
        check_grads(y, x, modes=("forward",))


def test_a_difference_below_that_of_finite_differences_is_no_transpose(monkeypatch):
    monkeypatch.setattr(check_module, "jvp", scaled_jvp(1 + 1e-10))
    check_grads(y, x, modes=("forward",))
    with pytest.raises(GradientCheckError, match="are not transposes of each other"):
        check_grads(y, x, modes=("reverse", "forward"))
