"""`register_rule`: functions that TVM does not differentiate, and externs by tag."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tvm import te, tirx, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph as evaluate
from tvm_autodiff.rules import registry

POINTS = np.linspace(-1.5, 1.5, 7)


@pytest.fixture(autouse=True)
def tables(monkeypatch):
    """Tables of the test alone."""
    monkeypatch.setattr(registry, "_SCALARS", {})
    monkeypatch.setattr(registry, "_EXTERNS", {})


def tensor(*shape, name="x", dtype="float64"):
    return te.placeholder(shape, dtype, name=name)


def call(name, *args, dtype="float64"):
    return tirx.call_pure_extern(dtype, name, *args)


def const(value, dtype="float64"):
    return tirx.const(value, dtype)


def expm1_rule(out, x):
    return out + const(1.0, str(x.ty))


class TestFunctions:
    @pytest.mark.slow
    def test_every_mode_and_order(self):
        ad.register_rule("expm1", expm1_rule, check=POINTS)
        x, k = tensor(4), te.reduce_axis((0, 4), "k")
        inner = te.compute((4,), lambda i: call("expm1", x[i] * x[3 - i]), name="inner")
        y = te.compute((), lambda: te.sum(call("expm1", inner[k]) * x[k], axis=k), name="y")
        ad.check_grads(inner, x, modes=("reverse", "forward"), order=2)
        ad.check_grads(y, x, modes=("reverse", "forward"), order=2)

    def test_the_value_is_not_computed_again(self):
        ad.register_rule("expm1", expm1_rule)
        x, g = tensor(4), tensor(4, name="g")
        y = te.compute((4,), lambda i: call("expm1", x[i]), name="y")
        [dx] = ad.differentiate(y, [x], g)
        assert "g[i0]*(y[i0] + 1.0)" in ad.show(dx)

    def test_several_operands(self):
        ad.register_rule(
            "fdim",
            lambda out, a, b: (
                tirx.Select(a > b, const(1.0), const(0.0)),
                tirx.Select(a > b, const(-1.0), const(0.0)),
            ),
            check=[POINTS, 0.3 - POINTS],
        )
        x, w = tensor(4), tensor(4, name="w")
        y = te.compute((4,), lambda i: call("fdim", te.exp(x[i]), w[i]), name="y")
        ad.check_grads(y, [x, w], modes=("reverse", "forward"))

    def test_float32_and_casts(self):
        ad.register_rule("expm1f", expm1_rule, check=POINTS.astype("float32"))
        x, g = tensor(4, dtype="float16"), tensor(4, name="g", dtype="float32")
        body = lambda i: call("expm1f", x[i].astype("float32"), dtype="float32")  # noqa: E731
        y = te.compute((4,), body, name="y")
        [dx] = ad.differentiate(y, [x], g)
        assert str(dx.dtype) == "float16"

    def test_an_operator_of_tvm(self):
        """By its full name; `tirx.clz` stands for what a user adds to TVM's table."""
        ad.register_rule("tirx.popcount", lambda out, x: 0.0)
        x, g = tensor(4), tensor(4, name="g")
        node = lambda i: tirx.call_intrin("float64", "tirx.popcount", x[i])  # noqa: E731
        [dx] = ad.differentiate(te.compute((4,), node, name="y"), [x], g)
        [got] = evaluate([dx], [(x, np.ones(4)), (g, np.ones(4))])
        assert not got.any()

    def test_none_and_numbers(self):
        ad.register_rule("twice", lambda out, a, b: (2, None))
        x, w, g = tensor(4), tensor(4, name="w"), tensor(4, name="g")
        y = te.compute((4,), lambda i: call("twice", x[i], w[i]), name="y")
        dx, dw = ad.differentiate(y, [x, w], g)
        got = evaluate([dx, dw], [(x, np.ones(4)), (w, np.ones(4)), (g, POINTS[:4])])
        np.testing.assert_allclose(got[0], 2 * POINTS[:4])
        assert not got[1].any()

    def test_without_a_rule_the_message_names_the_function(self):
        x = tensor(4)
        y = te.compute((4,), lambda i: call("j0", x[i]), name="y")
        for transform in (lambda: ad.differentiate(y, [x], x), lambda: ad.jvp(y, x, x)):
            with pytest.raises(ad.NotDifferentiableError, match="for j0 in .*register_rule"):
                transform()

    def test_a_wrong_rule_is_not_entered(self):
        ad.register_rule("expm1", expm1_rule)
        with pytest.raises(ad.GradientCheckError):
            ad.register_rule("expm1", lambda out, x: out, check=POINTS)
        x = tensor(4)
        ad.check_grads(te.compute((4,), lambda i: call("expm1", x[i]), name="y"), x)
        with pytest.raises(ad.GradientCheckError):
            ad.register_rule("cbrt", lambda out, x: out, check=POINTS[4:])
        with pytest.raises(ad.NotDifferentiableError, match="for cbrt in"):
            ad.differentiate(te.compute((4,), lambda i: call("cbrt", x[i]), name="y"), [x])


class TestExterns:
    """A `te.extern` with a tag, wherever it comes from."""

    @staticmethod
    def suffix_sums(outputs, inputs, cotangents):
        [g] = cotangents
        n = g.shape[0]
        k = te.reduce_axis((0, n), "k")
        masked = lambda i: te.if_then_else(k >= i, g[k], const(0.0))  # noqa: E731
        return [te.compute((n,), lambda i: te.sum(masked(i), axis=k), name="suffix")]

    @pytest.mark.slow
    def test_both_modes_and_second_order(self):
        x = tensor(5)
        square = te.compute((5,), lambda i: x[i] * x[i], name="square")
        scan = topi.cumsum(square)
        y = te.compute((5,), lambda i: scan[i] * scan[i], name="y")
        assert scan.op.tag
        with pytest.raises(ad.NotDifferentiableError):
            ad.differentiate(y, [x])
        ad.register_rule(scan.op.tag, ad.Rule(vjp=self.suffix_sums), check=(y, x))
        ad.check_grads(y, x, modes=("reverse", "forward"), order=2)

    def test_a_batch_needs_a_rule(self):
        x, xs = tensor(5), tensor(3, 5, name="xs")
        scan = topi.cumsum(x)

        def batch(inputs, batched, size):
            return [topi.cumsum(inputs[0], axis=1)]

        ad.register_rule(scan.op.tag, ad.Rule(vjp=self.suffix_sums))
        with pytest.raises(ad.NotDifferentiableError, match="opaque"):
            ad.vmap(scan, {x: xs})
        ad.register_rule(scan.op.tag, ad.Rule(vjp=self.suffix_sums, batch=batch))
        [many] = ad.vmap(scan, {x: xs})
        heads = tensor(3, 5, name="heads")
        [dxs] = ad.vjp(many, xs, heads)
        at, given = np.ones((3, 5)), np.arange(15.0).reshape(3, 5)
        got = ad.build([xs, heads], [many, dxs], cache=False)(at, given)
        np.testing.assert_allclose(got[0], np.cumsum(at, 1))
        np.testing.assert_allclose(got[1], np.cumsum(given[:, ::-1], 1)[:, ::-1])

    def test_a_wrong_rule_is_not_entered(self):
        x = tensor(5)
        scan = topi.cumsum(x)
        with pytest.raises(ad.GradientCheckError):
            ad.register_rule(scan.op.tag, ad.Rule(vjp=lambda o, i, c: c), check=(scan, x))
        with pytest.raises(ad.NotDifferentiableError):
            ad.differentiate(scan, [x])


MESSAGES = {
    "too few": (
        lambda: ad.register_rule("fdim", lambda out, a, b: const(1.0)),
        "the rule of fdim returned 1 partial derivatives for 2 operands",
    ),
    "another dtype": (
        lambda: ad.register_rule("expm1", lambda out, x: const(1.0, "float32")),
        "must return an expression of dtype float64 as the derivative with respect to operand 0, "
            "got one of float32",
    ),
    "no expression": (
        lambda: ad.register_rule("expm1", lambda out, x: "x"),
        "as the derivative with respect to operand 0, got str",
    ),
    "no function": (
        lambda: ad.register_rule("expm1", 3.0),
        r"must be a function derivative\(out, \*operands\) or a Rule, got float",
    ),
    "a rule without a derivative": (
        lambda: ad.register_rule("mine", ad.Rule(batch=lambda *a: [])),
        "the rule of mine has no derivative",
    ),
    "an operator of the library": (
        lambda: ad.register_rule("tirx.exp", lambda out, x: out),
        "exp is an operator of the library, whose rule cannot be replaced",
    ),
    "no name": (lambda: ad.register_rule(3, expm1_rule), "name must be the name of a function"),
    "points of different lengths": (
        lambda: ad.register_rule("fdim", lambda out, a, b: (1, 1), check=[POINTS, POINTS[:2]]),
        "must be one array, or arrays of one length",
    ),
    "points that are integers": (
        lambda: ad.register_rule("expm1", expm1_rule, check=np.arange(3)),
        "must be floating point",
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_bad_input(name):
    action, message = MESSAGES[name]
    with pytest.raises(ad.InvalidArgumentError) as caught:
        action()
    assert re.search(message, str(caught.value)), str(caught.value)
