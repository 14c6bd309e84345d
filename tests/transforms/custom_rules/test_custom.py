"""Custom rules of tensors, beside those of JAX, in every mode and at second order."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph as evaluate

jax.config.update("jax_enable_x64", True)


@partial(jax.jit, static_argnums=0)
def pullback(function, at, cotangent):
    """JAX's cotangents of the arguments, compiled as one."""
    return jax.vjp(function, *at)[1](cotangent)


@partial(jax.jit, static_argnums=0)
def second_pullback(function, at, first, second):
    """JAX's cotangent of the argument of the pullback of a function."""
    return jax.vjp(lambda x: jax.vjp(function, x)[1](first)[0], at)[1](second)[0]


@partial(jax.jit, static_argnums=0)
def jacobian(function, at):
    """JAX's Jacobian, compiled once for all tests of a function."""
    return jax.jacrev(function)(at)


RANDOM = np.random.default_rng(0)


def array(*shape):
    return RANDOM.uniform(0.5, 1.5, shape)


def tensor(*shape, name="x", dtype="float64"):
    return te.placeholder(shape, dtype, name=name)


def const(value):
    return tirx.const(value, "float64")


def each(x, body, name="y"):
    """``y[i] = body(i)`` over the shape of a tensor."""
    return te.compute(x.shape, lambda *i: body(*i), name=name)


def cube(x):
    return each(x, lambda i: x[i] * x[i] * x[i])


# Each case is one function with a rule that is not its own derivative, so that a mode or an order
# that misses the rule is seen: (ours, JAX's).


def cube_by_vjp():
    """x³ with the derivative 5·x² (by the output: 5·y/x)."""

    ours = ad.custom_vjp(cube)

    @ours.defvjp
    def rule(outputs, inputs, cotangents):
        [y], [x], [g] = outputs, inputs, cotangents
        return [each(x, lambda i: g[i] * const(5.0) * y[i] / x[i], "dx")]

    @jax.custom_vjp
    def theirs(x):
        return x**3

    def forward(x):
        y = theirs(x)  # as here: the rule reads an output that has the rule
        return y, (x, y)

    theirs.defvjp(forward, lambda kept, g: (g * 5.0 * kept[1] / kept[0],))
    return ours, theirs


def cube_by_jvp():
    """The same, by forward mode."""

    ours = ad.custom_jvp(cube)

    @ours.defjvp
    def rule(outputs, inputs, tangents):
        [y], [x], [v] = outputs, inputs, tangents
        return [each(x, lambda i: v[i] * const(5.0) * y[i] / x[i], "dy")]

    @jax.custom_jvp
    def theirs(x):
        return x**3

    @theirs.defjvp
    def their_rule(primals, tangents):
        y = theirs(*primals)
        return y, tangents[0] * 5.0 * y / primals[0]

    return ours, theirs


def product_by_transpose():
    """A linear map that reads its input backwards, twice as large in reverse mode's words."""

    @ad.custom_vjp
    def ours(x):
        return each(x, lambda i: x[4 - i] * const(2.0))

    @ours.deftranspose
    def rule(cotangents):
        [g] = cotangents
        return [each(g, lambda i: g[4 - i] * const(2.0), "dx")]

    return ours, lambda x: x[::-1] * 2.0


def cube_by_form():
    """x³, differentiated as 5/3·x³."""

    ours = ad.custom_vjp(cube)

    @ours.defform
    def form(inputs):
        [x] = inputs
        return [each(x, lambda i: const(5.0 / 3.0) * x[i] * x[i] * x[i], "form")]

    def theirs(x):
        apart = 5.0 / 3.0 * x**3
        return apart + jax.lax.stop_gradient(x**3 - apart)

    return ours, theirs


def cube_by_inner_vjp():
    """The cube of `cube_by_vjp`: the rule differentiates 5·y·log(x), in which y is constant."""

    ours = ad.custom_vjp(cube)

    @ours.defvjp
    def rule(outputs, inputs, cotangents):
        [y], [x], [g] = outputs, inputs, cotangents
        equation = each(x, lambda i: const(5.0) * y[i] * te.log(x[i]), "equation")
        return ad.vjp([equation], [x], [g])

    return ours, cube_by_vjp()[1]


def by_its_double(product):
    """A product of an element and its double, as two factors."""
    return lambda x: product(x, each(x, lambda i: x[i] * const(2.0), "double"))


def factors(a, b):
    return each(a, lambda i: a[i] * b[i])


def product_by_inner_vjp():
    """x·(2·x), whose factors the rule differentiates apart: each is constant for the other."""
    product = ad.custom_vjp(factors)
    product.defvjp(lambda outputs, inputs, given: ad.vjp([factors(*inputs)], inputs, given))
    return by_its_double(product), lambda x: 2.0 * x**2


def product_by_inner_jvp():
    """The same, by forward mode."""
    product = ad.custom_jvp(factors)
    product.defjvp(lambda outputs, inputs, given: ad.jvp([factors(*inputs)], inputs, given))
    return by_its_double(product), lambda x: 2.0 * x**2


RULES = (
    cube_by_vjp,
    cube_by_jvp,
    product_by_transpose,
    cube_by_form,
    cube_by_inner_vjp,
    product_by_inner_vjp,
    product_by_inner_jvp,
)
CASES = {make.__name__: make for make in RULES}
X, G, V, W = (array(5) for _ in range(4))


def around(f, exp):
    """The function between other stages, so that its input and output are intermediate tensors."""
    return lambda x: exp(f(exp(x) * 0.5))


def ours_around(f, x):
    inner = each(x, lambda i: te.exp(x[i]) * const(0.5), "inner")
    y = f(inner)
    return each(x, lambda i: te.exp(y[i]), "outer")


@pytest.fixture(scope="module", params=list(CASES))
def pair(request):
    """Our function of a tensor, and JAX's of an array."""
    ours, theirs = CASES[request.param]()
    return (lambda x: ours_around(ours, x)), around(theirs, jnp.exp)


def both(tensors, pairs):
    """Values in numpy, checked against those of what is built."""
    values = evaluate(tensors, pairs)
    built = ad.build([t for t, _ in pairs], tensors, cache=False)(*[a for _, a in pairs])
    for value, got in zip(values, built, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-12, atol=1e-12)
    return values


def test_the_value_and_both_modes(pair):
    ours, theirs = pair
    x, g, v = tensor(5), tensor(5, name="g"), tensor(5, name="v")
    y = ours(x)
    [dx], [dy] = ad.vjp(y, x, g), ad.jvp(y, x, v)
    got = both([y, dx, dy], [(x, X), (g, G), (v, V)])
    want = [jax.jit(theirs)(X), *pullback(theirs, (X,), G)]
    np.testing.assert_allclose(got[0], want[0], rtol=1e-12)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-10)
    # elementwise or linear maps: a tangent by the transpose of JAX's pullback
    np.testing.assert_allclose(got[2], jacobian(theirs, X) @ V, rtol=1e-10)


def test_reverse_over_reverse(pair):
    ours, theirs = pair
    x, g, w = tensor(5), tensor(5, name="g"), tensor(5, name="w")
    [dx] = ad.vjp(ours(x), x, g)
    [dx2] = ad.vjp(dx, x, w)
    [got] = evaluate([dx2], [(x, X), (g, G), (w, W)])
    want = second_pullback(theirs, X, G, W)
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_forward_over_reverse(pair):
    ours, theirs = pair
    x, g, w = tensor(5), tensor(5, name="g"), tensor(5, name="w")
    [dx] = ad.vjp(ours(x), x, g)
    [moved] = ad.jvp(dx, x, w)
    [got] = evaluate([moved], [(x, X), (g, G), (w, W)])
    want = jax.jit(jax.jacrev(lambda x: jax.vjp(theirs, x)[1](G)[0]))(X) @ W
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_reverse_over_forward(pair):
    ours, theirs = pair
    x, v, w = tensor(5), tensor(5, name="v"), tensor(5, name="w")
    [dy] = ad.jvp(ours(x), x, v)
    [pulled] = ad.vjp(dy, x, w)
    [got] = evaluate([pulled], [(x, X), (v, V), (w, W)])
    [want] = pullback(lambda x: jax.jacrev(theirs)(x) @ V, (X,), W)
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_forward_over_forward(pair):
    ours, theirs = pair
    x, v, w = tensor(5), tensor(5, name="v"), tensor(5, name="w")
    [dy] = ad.jvp(ours(x), x, v)
    [moved] = ad.jvp(dy, x, w)
    [got] = evaluate([moved], [(x, X), (v, V), (w, W)])
    want = jax.jit(jax.jacrev(lambda x: jax.jacrev(theirs)(x) @ V))(X) @ W
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_jacobian(pair, mode):
    ours, theirs = pair
    x = tensor(5)
    [got] = evaluate([ad.jacobian(ours(x), x, mode=mode)], [(x, X)])
    np.testing.assert_allclose(got, jacobian(theirs, X), rtol=1e-10, atol=1e-12)


def test_cotangents_with_two_axes_in_front(pair):
    ours, theirs = pair
    x, g = tensor(5), tensor(2, 3, 5, name="g")
    heads = array(2, 3, 5)
    [dx] = ad.vjp(ours(x), x, g)
    [got] = evaluate([dx], [(x, X), (g, heads)])
    pull = jax.vjp(jax.jit(theirs), X)[1]
    want = [[pull(head)[0] for head in row] for row in heads]
    np.testing.assert_allclose(got, want, rtol=1e-10)


def test_hessian_and_hvp(pair):
    ours, theirs = pair
    x, v, k = tensor(5), tensor(5, name="v"), te.reduce_axis((0, 5), "k")
    y = ours(x)
    total = te.compute((), lambda: te.sum(y[k], axis=k), name="total")
    [product] = ad.hvp(total, x, v)
    whole, product = evaluate([ad.hessian(total, x), product], [(x, X), (v, V)])
    want = jax.jit(jax.jacrev(jax.grad(lambda x: theirs(x).sum())))(X)
    np.testing.assert_allclose(whole, want, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(product, want @ V, rtol=1e-10, atol=1e-12)


def test_vmap(pair):
    """Batches of values, gradients, tangents and second derivatives."""
    ours, theirs = pair
    x, g, w, xs = tensor(5), tensor(5, name="g"), tensor(5, name="w"), tensor(3, 5, name="xs")
    y = ours(x)
    [dx], [dy] = ad.vjp(y, x, g), ad.jvp(y, x, g)
    [dx2] = ad.vjp(dx, x, w)
    at = array(3, 5)
    got = evaluate(ad.vmap([y, dx, dy, dx2], {x: xs}), [(xs, at), (g, G), (w, W)])
    pull = jax.jit(lambda x: jax.vjp(theirs, x)[1](G)[0])
    np.testing.assert_allclose(got[0], jax.jit(jax.vmap(theirs))(at), rtol=1e-10)
    np.testing.assert_allclose(got[1], jax.jit(jax.vmap(pull))(at), rtol=1e-10)
    rows = [jacobian(theirs, row) @ G for row in at]
    np.testing.assert_allclose(got[2], rows, rtol=1e-10)
    want = [second_pullback(theirs, row, G, W) for row in at]
    np.testing.assert_allclose(got[3], want, rtol=1e-10, atol=1e-12)


def test_derivatives_of_a_batch(pair):
    """The rule of a batch: both modes, second order, and a batch of batches."""
    ours, theirs = pair
    x, xs, g, v = tensor(5), tensor(3, 5, name="xs"), tensor(3, 5, name="g"), tensor(3, 5, name="v")
    [ys] = ad.vmap(ours(x), {x: xs})
    [dx], [dy] = ad.vjp(ys, xs, g), ad.jvp(ys, xs, v)
    [dx2] = ad.jvp(dx, xs, v)
    at, heads, moving = array(3, 5), array(3, 5), array(3, 5)
    got = evaluate([dx, dy, dx2], [(xs, at), (g, heads), (v, moving)])
    many = jax.vmap(theirs)
    pull = lambda x: jax.vjp(many, x)[1](heads)[0]  # noqa: E731
    np.testing.assert_allclose(got[0], *pullback(many, (at,), heads), rtol=1e-10)
    rows = [jacobian(theirs, row) @ v for row, v in zip(at, moving, strict=True)]
    np.testing.assert_allclose(got[1], rows, rtol=1e-10)
    want = np.tensordot(jax.jit(jax.jacrev(pull))(at), moving, 2)
    np.testing.assert_allclose(got[2], want, rtol=1e-10, atol=1e-12)
    xss, gs = tensor(2, 3, 5, name="xss"), tensor(2, 3, 5, name="gs")
    [yss] = ad.vmap(ys, {xs: xss})
    wide, wide_heads = array(2, 3, 5), array(2, 3, 5)
    [got] = evaluate(list(ad.vjp(yss, xss, gs)), [(xss, wide), (gs, wide_heads)])
    [want] = pullback(jax.vmap(many), (wide,), wide_heads)
    np.testing.assert_allclose(got, want, rtol=1e-10)


def test_it_survives_every_rewrite(pair):
    ours, theirs = pair
    x, g = tensor(5), tensor(5, name="g")
    y = ours(x)
    [want] = pullback(theirs, (X,), G)
    for transform in (
        ad.inline_tensors,
        ad.merge_equal_stages,
        ad.remove_unused_dims,
        ad.simplify_reductions,
        lambda tensors: [ad.lift_nonzeroness_condition(tensors[0])],
    ):
        [moved] = transform([y])
        [got] = evaluate(list(ad.vjp(moved, x, g)), [(x, X), (g, G)])
        np.testing.assert_allclose(got, want, rtol=1e-10)
    [dx] = ad.vjp(y, x, g)
    want = second_pullback(theirs, X, G, W)
    w = tensor(5, name="w")
    for transform in (ad.inline_tensors, ad.merge_equal_stages, ad.simplify_reductions):
        [moved] = transform([dx])
        [got] = evaluate(list(ad.vjp(moved, x, w)), [(x, X), (g, G), (w, W)])
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def two_outputs():
    """(x·w, Σ w) with rules that mix outputs and inputs of different shapes."""

    @ad.custom_vjp
    def ours(x, w):
        k = te.reduce_axis((0, 4), "k")
        first = te.compute((3, 4), lambda i, j: x[i, j] * w[j], name="first")
        return first, te.compute((), lambda: te.sum(w[k], axis=k), name="second")

    @ours.defvjp
    def rule(outputs, inputs, cotangents):
        [y, s], [_, w], [g, h] = outputs, inputs, cotangents
        i = te.reduce_axis((0, 3), "i")
        dx = te.compute((3, 4), lambda i, j: g[i, j] * w[j] * const(3.0) + h() * s(), name="dx")
        dw = te.compute((4,), lambda j: te.sum(g[i, j] * y[i, j], axis=i), name="dw")
        return [dx, dw]

    @jax.custom_vjp
    def theirs(x, w):
        return x * w, w.sum()

    def forward(x, w):
        y, s = theirs(x, w)
        return (y, s), (y, s, w)

    def backward(kept, heads):
        y, s, w = kept
        g, h = heads
        return g * w * 3.0 + h * s, (g * y).sum(0)

    theirs.defvjp(forward, backward)
    return ours, theirs


class TestSeveralOutputs:
    def setup_method(self):
        self.ours, self.theirs = two_outputs()
        self.x, self.w = tensor(3, 4), tensor(4, name="w")
        self.at = [array(3, 4), array(4)]
        self.outputs = self.ours(self.x, self.w)
        self.g, self.h = tensor(3, 4, name="g"), tensor(name="h")
        self.heads = [array(3, 4), array()]
        self.pairs = list(
            zip([self.x, self.w, self.g, self.h], [*self.at, *self.heads], strict=True)
        )

    def test_they_come_as_the_function_gives_them(self):
        assert isinstance(self.outputs, tuple)
        assert [len(y.shape) for y in self.outputs] == [2, 0]

    def test_reverse(self):
        got = both(list(ad.vjp(list(self.outputs), [self.x, self.w], [self.g, self.h])), self.pairs)
        want = pullback(self.theirs, tuple(self.at), tuple(self.heads))
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10)

    @pytest.mark.parametrize("number", [0, 1])
    def test_one_output_alone(self, number):
        """The cotangent of the other one is zero."""
        heads = [None, None]
        heads[number] = (self.g, self.h)[number]
        got = evaluate(list(ad.vjp(list(self.outputs), [self.x, self.w], heads)), self.pairs)
        zeros = [np.zeros_like(self.heads[0]), np.zeros(())]
        zeros[number] = self.heads[number]
        want = pullback(self.theirs, tuple(self.at), tuple(zeros))
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-14)

    def test_forward_is_the_transpose(self):
        v, u = tensor(3, 4, name="v"), tensor(4, name="u")
        moving = [array(3, 4), array(4)]
        tangents = ad.jvp(list(self.outputs), [self.x, self.w], [v, u])
        pairs = [*self.pairs, (v, moving[0]), (u, moving[1])]
        pulled = list(ad.vjp(list(self.outputs), [self.x, self.w], [self.g, self.h]))
        dy, ds, dx, dw = evaluate([*tangents, *pulled], pairs)
        left = (dy * self.heads[0]).sum() + ds * self.heads[1]
        right = (dx * moving[0]).sum() + (dw * moving[1]).sum()
        np.testing.assert_allclose(left, right, rtol=1e-12)
        # one of the inputs alone
        [dy, ds] = evaluate(ad.jvp(list(self.outputs), [self.w], [u]), pairs)
        right = (dw * moving[1]).sum()
        np.testing.assert_allclose((dy * self.heads[0]).sum() + ds * self.heads[1], right)

    def test_second_order(self):
        u, v = tensor(3, 4, name="u"), tensor(4, name="v")
        first = list(ad.vjp(list(self.outputs), [self.x, self.w], [self.g, self.h]))
        second = list(ad.vjp(first, [self.x, self.w], [u, v]))
        at = [array(3, 4), array(4)]
        got = evaluate(second, [*self.pairs, (u, at[0]), (v, at[1])])
        pull = lambda x, w: jax.vjp(self.theirs, x, w)[1](tuple(self.heads))  # noqa: E731
        want = pullback(pull, tuple(self.at), tuple(at))
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)

    def test_a_batch_of_one_input(self):
        """The other one is shared: what the members give it is added up."""
        xs, gs, hs = tensor(2, 3, 4, name="xs"), tensor(2, 3, 4, name="gs"), tensor(2, name="hs")
        many = ad.vmap(list(self.outputs), {self.x: xs})
        at, heads = array(2, 3, 4), (array(2, 3, 4), array(2))
        pulled = list(ad.vjp(many, [xs, self.w], [gs, hs]))
        pairs = [(xs, at), (self.w, self.at[1]), (gs, heads[0]), (hs, heads[1])]
        got = evaluate(pulled, pairs)
        each = [
            pullback(self.theirs, (at[b], self.at[1]), (heads[0][b], heads[1][b])) for b in (0, 1)
        ]
        np.testing.assert_allclose(got[0], [dx for dx, _ in each], rtol=1e-10)
        np.testing.assert_allclose(got[1], sum(dw for _, dw in each), rtol=1e-10)
