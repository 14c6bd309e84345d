"""Stages with custom rules: what they cost, opaque values, uses of rules, and bad input."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph as evaluate
from tests.function_calls import function_calls

jax.config.update("jax_enable_x64", True)

RANDOM = np.random.default_rng(0)


def tensor(*shape, name="x", dtype="float64"):
    return te.placeholder(shape, dtype, name=name)


def const(value, dtype="float64"):
    return tirx.const(value, dtype)


def each(x, body, name="y"):
    return te.compute(x.shape, lambda *i: body(*i), name=name)


def reversed_twice(name="lib"):
    """An extern that the library cannot look into: y[i] = 2·x[n-1-i]."""

    def apply(x, tag=""):
        n = int(x.shape[-1])

        def body(ins, outs):
            from tvm.script.ir_builder import IRBuilder, tirx as T

            with IRBuilder() as builder, T.serial(0, n) as i:
                T.buffer_store(outs[0], ins[0][n - 1 - i] * const(2.0), [i])
            return builder.get()

        return te.extern([x.shape], [x], body, dtype="float64", name=name, tag=tag)

    return apply


class TestWhatItCosts:
    def setup_method(self):
        self.x, self.g = tensor(8), tensor(8, name="g")

    def test_nothing_when_built(self):
        x = self.x
        plain = each(x, lambda i: te.exp(x[i]))
        ruled = ad.with_rule(plain, x, ad.Rule(vjp=lambda *a: a[2]))
        one = each(x, lambda i: plain[i] * x[i], "z")
        other = each(x, lambda i: ruled[i] * x[i], "z")
        modules = [ad.lower([x], y) for y in (one, other)]
        tvm.ir.assert_structural_equal(*modules)
        assert ad.estimate_cost(other) == ad.estimate_cost(one)

    def test_a_rule_of_an_input(self):
        """The values are those of a placeholder: an identity with a derivative of its own."""
        x, g = self.x, self.g
        clipped = ad.custom_vjp(lambda x: x)

        @clipped.defvjp
        def clip(outputs, inputs, cotangents):
            [head] = cotangents
            limited = lambda i: tirx.max(tirx.min(head[i], const(1.0)), const(-1.0))  # noqa: E731
            return [each(head, limited, "clipped")]

        y = clipped(x)
        z = each(x, lambda i: y[i] * y[i], "z")
        [dx] = ad.differentiate(z, [x], g)
        at, head = np.linspace(-2, 2, 8), np.ones(8)
        got = ad.build([x, g], [y, dx], cache=False)(at, head)
        np.testing.assert_array_equal(got[0], at)
        np.testing.assert_allclose(got[1], np.clip(2 * at * head, -1, 1))
        with pytest.raises(ad.NotDifferentiableError, match="vjp .* not linear in its cotangents"):
            ad.jvp(z, x, g)

    def test_rules_are_followed_through_the_same_input(self):
        """dx counts what comes by the rule, and what reads x itself."""
        x, g = self.x, self.g
        double = ad.Rule(vjp=lambda o, i, c: [each(c[0], lambda k: c[0][k] * const(2.0), "d")])
        y = ad.with_rule(x, x, double)
        z = each(x, lambda i: y[i] * x[i], "z")
        [dx] = ad.differentiate(z, [x], g)
        at = RANDOM.uniform(0.5, 1.5, 8)
        [got] = evaluate([dx], [(x, at), (g, np.ones(8))])
        np.testing.assert_allclose(got, 3 * at)

    @pytest.mark.slow
    def test_work_does_not_grow_with_what_is_below(self):
        """Forward mode through many rules of reverse mode: each derivation is local."""

        def calls(count):
            x, v = tensor(4), tensor(4, name="v")
            y = x
            rule = ad.Rule(vjp=lambda o, i, c: [each(c[0], lambda k: c[0][k] * o[0][k], "d")])
            for _ in range(count):
                y = ad.with_rule(topi.tanh(y), y, rule)
            return function_calls(lambda: ad.jvp(y, x, v))

        calls(2)  # what is found out once
        assert calls(80) < 4.1 * calls(20)

    def test_tvm_lowers_it_alone(self):
        x = tensor(4, 3, dtype="float32")
        k = te.reduce_axis((0, 3), "k")
        s = te.compute((), lambda: te.sum(x[0, k], axis=k), name="s")
        y = each(x, lambda i, j: x[i, j] * const(2.0, "float32"))
        a, b = ad.with_rule([y, s], [x], ad.Rule(vjp=lambda *given: given[2]))
        z = each(x, lambda i, j: a[i, j] + b(), "z")
        values = RANDOM.normal(size=(4, 3)).astype("float32")
        result = tvm.runtime.empty((4, 3), "float32")
        function = tvm.compile(te.create_prim_func([x, z]), target="llvm")
        function(tvm.runtime.tensor(values), result)
        np.testing.assert_allclose(result.numpy(), 2 * values + values[0].sum(), rtol=1e-6)

    def test_symbolic_shapes(self):
        n = te.var("n")
        x, g = tensor(n), tensor(n, name="g")
        rule = ad.Rule(vjp=lambda o, i, c: [each(c[0], lambda k: c[0][k] * o[0][k], "d")])
        y = ad.with_rule(each(x, lambda i: te.sin(x[i])), x, rule)
        [dx], [dy] = ad.differentiate(y, [x], g), ad.jvp(y, x, g)
        f = ad.build([x, g], [y, dx, dy], cache=False)
        for size in (0, 1, 5):
            at, head = RANDOM.normal(size=size), RANDOM.normal(size=size)
            wants = [np.sin(at), *[np.sin(at) * head] * 2]
            for value, want in zip(f(at, head), wants, strict=True):
                np.testing.assert_allclose(value, want, rtol=1e-12)

    def test_integer_inputs_and_outputs(self):
        """Tensors that have no derivative: None in the place of cotangents and tangents."""
        x, n = tensor(6), tensor(4, name="n", dtype="int32")
        g, seen = tensor(4, name="g"), []
        y = te.compute((4,), lambda i: x[n[i]] * x[n[i]], name="y")
        places = te.compute((4,), lambda i: n[i] + 1, name="places")

        def vjp(outputs, inputs, cotangents):
            seen.append([value is None for value in cotangents])
            k = te.reduce_axis((0, 4), "k")
            hit = lambda b: te.if_then_else(inputs[1][k] == b, cotangents[0][k], const(0.0))  # noqa: E731
            return [te.compute((6,), lambda b: te.sum(hit(b), axis=k), name="dx"), None]

        first, second = ad.with_rule([y, places], [x, n], ad.Rule(vjp=vjp))
        z = te.compute((4,), lambda i: first[i] * second[i].astype("float64"), name="z")
        [dx], [dz] = ad.differentiate(z, [x], g), ad.jvp(z, x, x)
        at, where, head = RANDOM.normal(size=6), np.array([1, 1, 5, 0], "int32"), np.ones(4)
        got = ad.build([x, n, g], [dx, dz], cache=False)(at, where, head)
        want = np.zeros(6)
        np.add.at(want, where, where + 1.0)
        np.testing.assert_allclose(got[0], want)
        np.testing.assert_allclose(got[1], at[where] * (where + 1))
        assert seen[0] == [False, True]


class TestOpaqueValues:
    """A rule is all that is known of a `te.extern`."""

    def setup_method(self):
        self.x, self.g, self.v = tensor(5), tensor(5, name="g"), tensor(5, name="v")
        self.apply = reversed_twice()
        self.pairs = [
            (t, RANDOM.uniform(0.5, 1.5, 5)) for t in (self.x, self.g, self.v)
        ]
        self.at, self.head, self.moving = (values for _, values in self.pairs)

    @pytest.mark.slow
    def test_a_linear_extern_in_every_mode_and_order(self):
        """Its transpose is an extern, too, so nothing can be derived from expressions."""
        rule = ad.Rule(transpose=lambda cotangents: [self.apply(cotangents[0])])
        x = self.x
        s = each(x, lambda i: te.sin(x[i]), "s")
        y = ad.with_rule(self.apply(s), s, rule)
        z = each(x, lambda i: y[i] * y[i], "z")
        [dx], [dz] = ad.vjp(z, x, self.g), ad.jvp(z, x, self.v)
        [dx2], [dz2], [over] = ad.jvp(dx, x, self.v), ad.vjp(dz, x, self.g), ad.vjp(dx, x, self.v)
        got = ad.build([x, self.g, self.v], [dx, dz, dx2, dz2, over], cache=False)(
            *(values for _, values in self.pairs)
        )
        f = lambda x: (2 * jnp.sin(x)[::-1]) ** 2  # noqa: E731
        pull = lambda x: jax.vjp(f, x)[1](self.head)[0]  # noqa: E731
        push = lambda x: jax.jvp(f, (x,), (self.moving,))[1]  # noqa: E731
        want = [
            pull(self.at),
            push(self.at),
            jax.jvp(pull, (self.at,), (self.moving,))[1],
            jax.vjp(push, self.at)[1](self.head)[0],
            jax.vjp(pull, self.at)[1](self.moving)[0],
        ]
        for value, expected in zip(got, want, strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-10)

    def test_a_batch_by_its_own_rule(self):
        def batch(inputs, batched, size):
            [xs] = inputs
            assert batched == [True]
            return [te.compute(xs.shape, lambda b, i: xs[b, 4 - i] * const(2.0), name="many")]

        def backward(outputs, inputs, cotangents):
            return [each(cotangents[0], lambda i: cotangents[0][4 - i] * const(2.0), "d")]

        x, xs, gs = self.x, tensor(3, 5, name="xs"), tensor(3, 5, name="gs")
        y = ad.with_rule(self.apply(x), x, ad.Rule(vjp=backward, batch=batch))
        z = each(x, lambda i: y[i] * y[i], "z")
        [zs] = ad.vmap(z, {x: xs})
        [dxs] = ad.vjp(zs, xs, gs)
        at, heads = RANDOM.normal(size=(3, 5)), RANDOM.normal(size=(3, 5))
        got = ad.build([xs, gs], [zs, dxs], cache=False)(at, heads)
        np.testing.assert_allclose(got[0], 4 * at[:, ::-1] ** 2, rtol=1e-12)
        np.testing.assert_allclose(got[1], 8 * at * heads[:, ::-1], rtol=1e-12)
        without = ad.with_rule(self.apply(x), x, ad.Rule(vjp=backward))
        with pytest.raises(ad.NotDifferentiableError, match="opaque .*batch="):
            ad.vmap(without, {x: xs})

    def test_a_jacobian(self):
        def backward(outputs, inputs, cotangents):
            return [each(cotangents[0], lambda i: cotangents[0][4 - i] * const(2.0), "d")]

        y = ad.with_rule(self.apply(self.x), self.x, ad.Rule(vjp=backward))
        for mode in ("reverse", "forward"):
            [got] = evaluate([ad.jacobian(y, self.x, mode=mode)], self.pairs)
            np.testing.assert_allclose(got, 2 * np.eye(5)[::-1])


class TestWhatRulesRead:
    """Tensors that a function reads without their being inputs of the rule."""

    def test_they_are_batched_with_the_program(self):
        x, w = tensor(4), tensor(4, name="w")
        k = each(w, lambda i: te.exp(w[i]), "k")  # computed from what is batched
        rule = ad.Rule(vjp=lambda o, i, c: [each(c[0], lambda n: c[0][n] * w[n] * k[n], "d")])
        y = ad.with_rule(each(x, lambda i: x[i] * w[i]), x, rule)
        ws, gs = tensor(3, 4, name="ws"), tensor(3, 4, name="gs")
        [ys] = ad.vmap(y, {w: ws})
        [dx], [moved] = ad.vjp(ys, x, gs), ad.jvp(ys, x, x)
        at, many, heads = RANDOM.normal(size=4), RANDOM.normal(size=(3, 4)), np.ones((3, 4))
        pairs = [(x, at), (ws, many), (gs, heads)]
        got = evaluate([dx, moved], pairs)
        np.testing.assert_allclose(got[0], (many * np.exp(many)).sum(0), rtol=1e-12)
        np.testing.assert_allclose(got[1], many * np.exp(many) * at, rtol=1e-12)

    def test_they_are_constants_to_derivatives(self):
        x, w = tensor(4), tensor(4, name="w")
        rule = ad.Rule(vjp=lambda o, i, c: [each(c[0], lambda n: c[0][n] * w[n], "d")])
        y = ad.with_rule(each(x, lambda i: x[i] * w[i]), x, rule)
        [dw] = ad.vjp(y, w, x)
        [got] = evaluate([dw], [(x, np.ones(4)), (w, np.ones(4))])
        assert not got.any()


@pytest.mark.slow
def test_newton_without_its_steps():
    """Implicit differentiation of y·eʸ = a (Lambert's W), beside JAX with the same rule."""

    def step(y, a):
        slope = lambda i: te.exp(y[i]) * (y[i] + const(1.0))  # noqa: E731
        return each(a, lambda i: y[i] - (y[i] * te.exp(y[i]) - a[i]) / slope(i))

    @ad.custom_vjp
    def lambert(a):
        y = a
        for _ in range(12):
            y = step(y, a)
        return y

    @lambert.defvjp
    def by_equation(outputs, inputs, cotangents):
        [y], [g] = outputs, cotangents
        return [each(y, lambda i: g[i] / (te.exp(y[i]) * (y[i] + const(1.0))), "da")]

    def exact(a):  # the same function by its own derivative
        y = jnp.log1p(a)
        for _ in range(40):
            y = y - (y * jnp.exp(y) - a) / (jnp.exp(y) * (y + 1.0))
        return y

    a, g, v = tensor(5, name="a"), tensor(5, name="g"), tensor(5, name="v")
    y = lambert(a)
    [da] = ad.differentiate(y, [a], g)
    [da2], [moved] = ad.differentiate(da, [a], v), ad.jvp(da, [a], [v])
    arrays = [RANDOM.uniform(0.5, 1.5, 5) for _ in range(3)]
    got = ad.build([a, g, v], [y, da, da2, moved], cache=False)(*arrays)
    pull = lambda x: jax.vjp(exact, x)[1](arrays[1])[0]  # noqa: E731
    want = [exact(arrays[0]), pull(arrays[0])]
    want += [jax.vjp(pull, arrays[0])[1](arrays[2])[0]] * 2
    for value, expected in zip(got, want, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-9)
    assert ad.estimate_cost(da).iterations == 13 * 5  # no step has an adjoint


def test_constants_by_keyword_and_checks_by_differences():
    @ad.custom_jvp
    def power(x, *, exponent):
        return each(x, lambda i: te.power(x[i], const(exponent)))

    @power.defjvp
    def rule(outputs, inputs, tangents, *, exponent):
        [x], [v] = inputs, tangents
        slope = lambda i: te.power(x[i], const(exponent - 1.0)) * const(exponent)  # noqa: E731
        return [each(x, lambda i: slope(i) * v[i], "dy")]

    x = tensor(4)
    y = power(x, exponent=2.5)
    ad.check_grads(y, x, modes=("reverse", "forward"), order=2)

    @power.defjvp
    def wrong(outputs, inputs, tangents, *, exponent):
        return tangents

    with pytest.raises(ad.GradientCheckError):
        ad.check_grads(power(x, exponent=2.5), x)


X, W = tensor(4), tensor(4, name="w")
Y = each(X, lambda i: X[i] * W[i])
N = te.compute((4,), lambda i: X[i].astype("int32"), name="n")


def vjp_of(function, inputs=(X,), **more):
    ruled = ad.with_rule(Y, list(inputs), ad.Rule(vjp=function, **more))
    return ad.vjp(ruled, X, W)


def jvp_of(function):
    return ad.jvp(ad.with_rule(Y, X, ad.Rule(jvp=function)), X, W)


MESSAGES = {
    "a vjp of the wrong number": (
        lambda: vjp_of(lambda o, i, c: [*c, *c]),
        "the vjp of the rule of y returned 2 cotangents; it must return 1, one for each of x",
    ),
    "a vjp of the wrong shape": (
        lambda: vjp_of(lambda o, i, c: [tensor(3, name="bad")]),
        r"the vjp of the rule of y returned bad of shape \(3,\) .* as cotangent of x",
    ),
    "a vjp of the wrong dtype": (
        lambda: vjp_of(lambda o, i, c: [tensor(4, name="bad", dtype="float32")]),
        "the vjp of the rule of y returned bad .* dtype float32 as cotangent of x; it must have",
    ),
    "a vjp that returns a tensor": (
        lambda: vjp_of(lambda o, i, c: c[0]),
        "the vjp of the rule of y must return a list of tensors, got Tensor",
    ),
    "a vjp that returns arrays": (
        lambda: vjp_of(lambda o, i, c: [np.zeros(4)]),
        "the result of the vjp of the rule of y must be a te.Tensor.* got ndarray",
    ),
    "a cotangent of integers": (
        lambda: vjp_of(lambda o, i, c: [c[0], c[0]], (X, N)),
        "must return None as cotangent of n, which has dtype int32",
    ),
    "a jvp of the wrong number": (
        lambda: jvp_of(lambda o, i, t: []),
        "the jvp of the rule of y returned 0 tangents; it must return 1, one for each of y",
    ),
    "a jvp of the wrong shape": (
        lambda: jvp_of(lambda o, i, t: [tensor(3, name="bad")]),
        r"the jvp of the rule of y returned bad of shape \(3,\) .* as tangent of y",
    ),
    "a jvp of the wrong dtype": (
        lambda: jvp_of(lambda o, i, t: [tensor(4, name="bad", dtype="float32")]),
        "returned bad .* float32 as tangent of y",
    ),
    "a transpose of the wrong number": (
        lambda: ad.vjp(ad.with_rule(Y, X, ad.Rule(transpose=lambda c: [])), X, W),
        "the transpose of the rule of y returned 0 cotangents",
    ),
    "a batch of the wrong shape": (
        lambda: ad.vmap(
            ad.with_rule(Y, X, ad.Rule(vjp=lambda *a: a[2], batch=lambda *a: [Y])),
            {X: tensor(3, 4, name="xs")},
        ),
        r"the batch of the rule of y returned y of shape \(4,\)",
    ),
    "a vjp that is no linear map, in forward mode": (
        lambda: ad.jvp(
            ad.with_rule(
                Y, X, ad.Rule(vjp=lambda o, i, c: [each(X, lambda k: c[0][k] * c[0][k], "d")])
            ),
            X,
            W,
        ),
        "the vjp of the rule of y is not linear in its cotangents.*define a jvp",
    ),
    "a jvp that is no linear map, in reverse mode": (
        lambda: ad.vjp(
            ad.with_rule(
                Y, X, ad.Rule(jvp=lambda o, i, t: [each(X, lambda k: te.exp(t[0][k]), "d")])
            ),
            X,
            W,
        ),
        "the jvp of the rule of y is not linear in its tangents.*define a vjp",
    ),
    "a rule without a derivative": (
        lambda: ad.with_rule(Y, X, ad.Rule(batch=lambda *a: [])),
        "the rule has no derivative: pass vjp, jvp, transpose or form",
    ),
    "a form beside a vjp": (
        lambda: ad.Rule(form=lambda i: i, vjp=lambda *a: a[2]),
        "a rule with form= cannot have vjp: leave one of them out",
    ),
    "forms of the wrong number": (
        lambda: ad.vjp(ad.with_rule(Y, X, ad.Rule(form=lambda i: [])), X, W),
        "the form of the rule of y returned 0 forms; it must return 1, one for each of y",
    ),
    "a form of the wrong shape": (
        lambda: ad.jvp(ad.with_rule(Y, X, ad.Rule(form=lambda i: [tensor(3, name="f")])), X, W),
        r"the form of the rule of y returned f of shape \(3,\) .* as form of y",
    ),
    "a form that is none": (
        lambda: ad.vjp(ad.with_rule(Y, X, ad.Rule(form=lambda i: [None])), X, W),
        "the form of the rule of y must return a tensor for y, not None",
    ),
    "a form that reads something else": (
        lambda: ad.vjp(ad.with_rule(Y, X, ad.Rule(form=lambda i: [W])), X, W),
        r"the form of the rule of y reads w, which is not an input of the rule.*stop_gradient\(w\)",
    ),
    "no rule": (lambda: ad.with_rule(Y, X, lambda *a: a), "rule must be a Rule, got function"),
    "a rule that is no function": (lambda: ad.Rule(vjp=3), "vjp of a rule must be a function"),
    "outputs that are no tensors": (
        lambda: ad.with_rule([Y, 3.0], X, ad.Rule(vjp=lambda *a: a[2])),
        r"outputs\[1\] must be a te.Tensor",
    ),
    "a rule that differentiates its own function": (
        lambda: ad.vjp(_endless(X), X, W),
        "the vjp of the rule of y has no end: it differentiates a tensor with the same rule",
    ),
    "a function without a rule": (
        lambda: ad.custom_vjp(lambda x: x)(X),
        "<lambda> has no rule yet: define one with",
    ),
    "arguments that are no tensors": (
        lambda: _ruled(lambda x, n: x)(X, 3),
        "argument 1 of <lambda> must be a te.Tensor, got int; pass constants by keyword",
    ),
    "a function that returns no tensors": (
        lambda: _ruled(lambda x: None)(X),
        "result 0 of <lambda> must be a te.Tensor",
    ),
    "no function": (lambda: ad.custom_vjp(X.shape), "for a function of tensors, got"),
    "an unknown keyword": (lambda: ad.with_rule(Y, X, rulee=ad.Rule()), "did you mean 'rule'"),
}


def _ruled(function):
    made = ad.custom_vjp(function)
    made.defvjp(lambda *a: a[2])
    return made


@ad.custom_vjp
def _endless(x):
    return each(x, lambda k: x[k] * x[k], "y")


@_endless.defvjp
def _endless_vjp(outputs, inputs, cotangents):
    return [ad.vjp(_endless(inputs[0]), inputs[0], cotangents[0])]


@pytest.mark.parametrize("name", MESSAGES)
def test_bad_input(name):
    action, message = MESSAGES[name]
    with pytest.raises(ad.AutodiffError) as caught:
        action()
    assert re.search(message, str(caught.value)), str(caught.value)
