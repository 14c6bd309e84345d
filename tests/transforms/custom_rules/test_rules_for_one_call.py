"""`manual`, `override`, `fdiff` in every transform, followed at second order by themselves."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph as evaluate
from tvm_autodiff.graph.kinds.custom import without_rules

RANDOM = np.random.default_rng(0)
X, G, V, W = (RANDOM.uniform(0.5, 1.5, 4) for _ in range(4))


def tensor(*shape, name="x", dtype="float64"):
    return te.placeholder(shape, dtype, name=name)


def const(value):
    return tirx.const(value, "float64")


def each(x, body, name):
    return te.compute(x.shape, lambda *i: body(*i), name=name)


class Program:
    """a = exp x, b = a², c = b·x: with d b = 6·b·dx in the place of 2·b·dx, in three ways."""

    def __init__(self):
        self.x = tensor(4)
        x = self.x
        self.a = a = each(x, lambda i: te.exp(x[i]), "a")
        self.b = b = each(x, lambda i: a[i] * a[i], "b")
        self.c = each(x, lambda i: b[i] * x[i], "c")
        self.g, self.v, self.w = (tensor(4, name=name) for name in "gvw")
        self.pairs = [(self.x, X), (self.g, G), (self.v, V), (self.w, W)]

    def by_override(self):
        def rule(out, deps, head):
            return [each(head, lambda *i: head(*i) * out[i[-1]] * const(6.0), "d")]

        return {"override": {self.b: ([self.x], rule)}}

    def by_rule(self):
        def rule(outputs, inputs, cotangents):
            [y], [g] = outputs, cotangents
            return [each(g, lambda i: g[i] * y[i] * const(6.0), "d")]

        return {"override": {self.b: ([self.x], ad.Rule(vjp=rule))}}

    def by_manual(self):
        def rule(out, inp, head):
            # d b = 6·a·da, and da = a·dx
            return each(head, lambda *i: head(*i) * inp[i[-1]] * const(6.0), "d")

        return {"manual": {(self.b, self.a): rule}}

    def by_fdiff(self):
        def rule(out, inp, head):
            right = ad.pullback(out, inp, head)
            if out.op.name != "b":
                return right
            return each(right, lambda *i: right(*i) * const(3.0), "d")

        return {"fdiff": rule}

    def values(self, tensors):
        return evaluate(tensors, self.pairs)


#: b = e^(2x) with db/dx := 6b, so dc/dx = b + 6bx, and d(dc/dx)/dx = 6b + 6b + x·d(6b)/dx, where
#: 6b is read as 6·b by rules of b, and computed as 6·a·a along edges
B = np.exp(2 * X)
FIRST = B + 6 * B * X
FACTORS = {"by_override": 36, "by_rule": 36, "by_manual": 12, "by_fdiff": 12}
WAYS = ["by_override", "by_rule", "by_manual", "by_fdiff"]


@pytest.fixture(params=WAYS)
def program(request):
    made = Program()
    made.hand = getattr(made, request.param)()
    made.second = 12 * B + FACTORS[request.param] * B * X
    return made


def test_first_derivatives_in_both_modes(program):
    p = program
    forward = dict(p.hand)
    if "override" in forward and not isinstance(forward["override"][p.b][1], ad.Rule):
        pytest.skip("an override of jvp has another form: see below")
    [dx], [dc] = ad.vjp(p.c, p.x, p.g, **p.hand), ad.jvp(p.c, p.x, p.v, **forward)
    got = p.values([dx, dc])
    np.testing.assert_allclose(got[0], FIRST * G, rtol=1e-12)
    np.testing.assert_allclose(got[1], FIRST * V, rtol=1e-12)


def test_differentiate_again(program):
    p = program
    for first in (ad.differentiate(p.c, [p.x], p.g, **p.hand), ad.vjp(p.c, p.x, p.g, **p.hand)):
        [dx] = first
        [dx2], [moved] = ad.differentiate(dx, [p.x], p.w), ad.jvp(dx, p.x, p.v)
        got = p.values([dx, dx2, moved])
        np.testing.assert_allclose(got[0], FIRST * G, rtol=1e-12)
        np.testing.assert_allclose(got[1], p.second * G * W, rtol=1e-12)
        np.testing.assert_allclose(got[2], p.second * G * V, rtol=1e-12)


def test_jacobian_hessian_and_products(program):
    p = program
    k = te.reduce_axis((0, 4), "k")
    total = te.compute((), lambda: te.sum(p.c[k] * p.g[k], axis=k), name="total")
    J = ad.linearize(p.c, p.x, **p.hand)
    got = p.values(
        [
            ad.jacobian(p.c, p.x, **p.hand),
            ad.jacobian(p.c, p.x, mode="forward", **p.hand),
            ad.hessian(total, p.x, **p.hand),
            *ad.hvp(total, p.x, p.v, **p.hand),
            J @ p.v,
            J.T @ p.g,
            J.to_dense(),
        ]
    )
    wants = [FIRST, FIRST, p.second * G, p.second * G * V, FIRST * V, FIRST * G, FIRST]
    for value, want in zip(got, wants, strict=True):
        np.testing.assert_allclose(value, np.diag(want) if value.ndim == 2 else want, rtol=1e-12)


def test_batches_of_derivatives(program):
    p = program
    [dx] = ad.differentiate(p.c, [p.x], p.g, **p.hand)
    [dx2] = ad.differentiate(dx, [p.x], p.w)
    xs, at = tensor(3, 4, name="xs"), RANDOM.uniform(0.5, 1.5, (3, 4))
    got = evaluate(ad.vmap([dx, dx2], {p.x: xs}), [(xs, at), *p.pairs[1:]])
    b = np.exp(2 * at)
    np.testing.assert_allclose(got[0], (b + 6 * b * at) * G, rtol=1e-12)
    second = 12 * b + (p.second - 12 * B) / (B * X) * b * at
    np.testing.assert_allclose(got[1], second * G * W, rtol=1e-12)


def test_values_and_gradients_are_computed_once(program):
    """What is built has no trace of rules: the stages of the value serve the gradient."""
    p = program
    [dx] = ad.differentiate(p.c, [p.x], p.g, **p.hand)
    alone = len(ad.build([p.x], p.c, cache=False).profile(X).kernels)
    both = ad.build([p.x, p.g], [p.c, dx], cache=False)
    for value, want in zip(both(X, G), [B * X, FIRST * G], strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-12)
    names = [kernel.name for kernel in both.profile(X, G).kernels]
    assert len(names) == len(set(names))
    assert len(names) <= alone + 2
    text = str(ad.lower([p.x, p.g], [p.c, dx], exact_math=True))  # others are written out
    assert text.count("exp(") == 1
    assert "custom" not in text


def test_an_override_of_jvp_in_reverse_mode():
    p = Program()

    def rule(out, deps, tangents):
        [moving] = tangents
        return each(out, lambda i: moving[i] * out[i] * const(6.0), "d")

    [dc] = ad.jvp(p.c, p.x, p.v, override={p.b: ([p.x], rule)})
    [pulled], [moved] = ad.vjp(dc, p.x, p.w), ad.jvp(dc, p.x, p.w)
    got = p.values([dc, pulled, moved])
    np.testing.assert_allclose(got[0], FIRST * V, rtol=1e-12)
    np.testing.assert_allclose(got[1], (12 * B + 36 * B * X) * V * W, rtol=1e-12)
    np.testing.assert_allclose(got[2], (12 * B + 36 * B * X) * V * W, rtol=1e-12)


class TestIntermediateTensors:
    """Derivatives by tensors between: those that the caller knows, at any order."""

    def setup_method(self):
        self.p = Program()
        x, b = self.p.x, self.p.b
        #: below c there is more: e = d·b with d = sin(c)
        c = self.p.c
        self.d = d = each(x, lambda i: te.sin(c[i]), "d")
        self.e = each(x, lambda i: d[i] * b[i], "e")
        self.c_at = B * X

    def test_a_tensor_below_the_rule(self):
        p = self.p
        result = ad.differentiate(self.e, [p.c, p.x], p.g, **p.by_override())
        dc, dx = p.values(list(result))
        np.testing.assert_allclose(dc, np.cos(self.c_at) * B * G, rtol=1e-12)
        want = np.cos(self.c_at) * B * FIRST + np.sin(self.c_at) * 6 * B
        np.testing.assert_allclose(dx, want * G, rtol=1e-12)

    @pytest.mark.parametrize("way", WAYS)
    def test_the_same_tensor_again(self, way):
        """d(dc)/dc of dc = cos(c)·b·g, with c independent."""
        p = self.p
        [dc] = ad.differentiate(self.e, [p.c], p.g, **getattr(p, way)())
        [dc2], [moved] = ad.differentiate(dc, [p.c], p.w), ad.jvp(dc, p.c, p.v)
        got = p.values([dc2, moved])
        np.testing.assert_allclose(got[0], -np.sin(self.c_at) * B * G * W, rtol=1e-12)
        np.testing.assert_allclose(got[1], -np.sin(self.c_at) * B * G * V, rtol=1e-12)

    @pytest.mark.parametrize("way", WAYS)
    def test_the_tensor_with_the_rule(self, way):
        """db counts every path below b; so does its derivative with respect to b."""
        p = self.p
        [db] = ad.differentiate(self.e, [p.b], p.g, **getattr(p, way)())
        [db2], [moved] = ad.differentiate(db, [p.b], p.w), ad.jvp(db, p.b, p.v)
        got = p.values([db, db2, moved])
        cos, sin = np.cos(self.c_at), np.sin(self.c_at)
        np.testing.assert_allclose(got[0], (cos * X * B + sin) * G, rtol=1e-12)
        second = -sin * X * X * B + 2 * cos * X
        np.testing.assert_allclose(got[1], second * G * W, rtol=1e-12)
        np.testing.assert_allclose(got[2], second * G * V, rtol=1e-12)

    @pytest.mark.parametrize("way", WAYS)
    def test_adjoints_and_summands_have_the_keys_of_the_caller(self, way):
        p = self.p
        result = ad.differentiate(self.e, [p.x], p.g, **getattr(p, way)())
        names = [t.op.name for t in result.adjoints]
        assert len(names) == len(set(names)), names
        tensors = [result.adjoints[t] for t in (self.e, self.d, p.c, p.b, p.x)]
        cos, sin = np.cos(self.c_at), np.sin(self.c_at)
        want = [np.ones(4), B, cos * B, cos * B * X + sin]
        want.append(cos * B * B + want[3] * 6 * B)
        for value, expected in zip(p.values(tensors), want, strict=True):
            np.testing.assert_allclose(value, expected * G, rtol=1e-12)
        by_consumer = result.adjoint_summands[p.b]
        assert {consumer.op.name for consumer in by_consumer} == {"c", "e"}
        first, second = p.values([by_consumer[p.c], by_consumer[self.e]])
        np.testing.assert_allclose(first, cos * B * X * G, rtol=1e-12)
        np.testing.assert_allclose(second, sin * G, rtol=1e-12)


def test_some_edges_of_a_stage():
    """The other reads keep their rules, in both modes and at second order."""
    x, w, g, v, u = (tensor(4, name=name) for name in "xwgvu")
    y = each(x, lambda i: x[i] * x[i] * w[i], "y")

    def rule(out, inp, head):
        return each(head, lambda i: head[i] * out[i], "d")  # dx := y·head

    hand = {"manual": {(y, x): rule}}
    dx, dw = ad.vjp(y, [x, w], g, **hand)
    [moved] = ad.jvp(y, [x, w], [v, u], **hand)
    again = list(ad.vjp([dx, dw], [x, w], [v, u]))
    at = [X, W, G, V, RANDOM.uniform(0.5, 1.5, 4)]
    got = evaluate([dx, dw, moved, *again], list(zip([x, w, g, v, u], at, strict=True)))
    ys = X * X * W
    np.testing.assert_allclose(got[0], ys * G, rtol=1e-12)
    np.testing.assert_allclose(got[1], X * X * G, rtol=1e-12)
    np.testing.assert_allclose(got[2], ys * V + X * X * at[4], rtol=1e-12)
    # dx = y·g with dy/dx := y, dy/dw = x²; dw = x²·g where x is read directly
    np.testing.assert_allclose(got[3], ys * G * V + 2 * X * G * at[4], rtol=1e-12)
    np.testing.assert_allclose(got[4], X * X * G * V, rtol=1e-12)


def test_one_component_of_a_tuple():
    x, g, h = tensor(4), tensor(4, name="g"), tensor(4, name="h")
    first, second = te.compute((4,), lambda i: (te.sin(x[i]), x[i] * x[i]), name="pair")

    def rule(out, inp, head):
        return each(head, lambda i: head[i] * const(7.0), "d")

    [dx] = ad.vjp([first, second], [x], [g, h], manual={(second, x): rule})
    [got] = evaluate([dx], [(x, X), (g, G), (h, W)])
    np.testing.assert_allclose(got, np.cos(X) * G + 7 * W, rtol=1e-12)


def test_fdiff_with_scatters_and_products():
    """Stages that are differentiated as others, or whose derivative has stages of its own."""
    x, n = tensor(6), tensor(6, name="n", dtype="int32")
    s = ad.segment_sum(x, n, 4)
    k = te.reduce_axis((0, 4), "k")
    product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="product")
    y = te.compute((), lambda: product(s[k], axis=k), name="y")
    at, places = RANDOM.uniform(0.5, 1.5, 6), np.array([0, 1, 2, 3, 1, 0], "int32")
    pairs = [(x, at), (n, places)]
    plain, ruled = ad.differentiate(y, [x]), ad.differentiate(y, [x], fdiff=ad.pullback)
    values = evaluate([plain[0], ruled[0]], pairs)
    np.testing.assert_allclose(values[1], values[0], rtol=1e-12)
    seconds = [ad.jvp(first[0], x, x)[0] for first in (plain, ruled)]
    values = evaluate(seconds, pairs)
    np.testing.assert_allclose(values[1], values[0], rtol=1e-12)


def test_an_opaque_stage_below_the_rule_is_computed_once():
    """Externs have no structure to compare by: the copy that reads the rule's stage is the same."""
    x, g = tensor(5), tensor(5, name="g")
    a = each(x, lambda i: te.sin(x[i]), "a")
    scan = ad.with_rule(topi.cumsum(a), a, ad.Rule(vjp=lambda out, deps, heads: sums(heads[0])))
    y = each(x, lambda i: scan[i] * a[i], "y")

    def sums(head):
        k = te.reduce_axis((0, 5), "k")
        masked = lambda i: te.if_then_else(k >= i, head[k], const(0.0))  # noqa: E731
        return [te.compute((5,), lambda i: te.sum(masked(i), axis=k), name="suffix")]

    def doubled(out, deps, head):
        return [each(head, lambda i: head[i] * const(2.0), "doubled")]

    [dx] = ad.differentiate(y, [x], g, override={a: ([x], doubled)})
    assert ad.show([y, dx]).count("extern(") == 2
    assert ad.show(without_rules([y, dx])).count("extern(") == 1
    at = RANDOM.uniform(0.5, 1.5, 5)
    got = ad.build([x, g], dx, cache=False)(at, np.ones(5))
    a = np.sin(at)
    want = 2 * (np.cumsum(a) + np.cumsum(a[::-1])[::-1])
    np.testing.assert_allclose(got, want, rtol=1e-12)
