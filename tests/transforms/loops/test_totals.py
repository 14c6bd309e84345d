"""Cotangents of constants: added up in the reversed loop, or one sum after it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.transforms.loops.recurrences import D, each, times, total
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.kinds.kind import kind_of
from tvm_autodiff.graph.kinds.loop import Loop, step_of
from tvm_autodiff.transforms.loops.totals import cheap_to_add_up

jax.config.update("jax_enable_x64", True)

STEPS = 6


def scaled(h, w):
    return each(lambda h, w: h * w, h, w)


def with_one_weight(h, w):
    return each(lambda h: h * w[0], h)


def chain(shape, rate):
    """``h = tanh(rate(h, w))`` for some steps: h and w, the last h, its derivatives added up."""
    h, w = te.placeholder((4,), D, name="h"), te.placeholder(shape, D, name="w")

    def step(h, _):
        return each(te.tanh, rate(h, w)), None

    end, _ = ad.scan(step, h, length=STEPS)
    return h, w, list(ad.differentiate(total(end), [h, w]))


def reversed_loop(tensors) -> Loop:
    kinds = [kind_of(op) for op in topological(tensors)]
    return next(kind for kind in kinds if isinstance(kind, Loop) and kind.reverse)


def carried(loop: Loop) -> list[tuple[int, ...]]:
    return [tuple(map(int, carry.shape)) for carry in loop.step.carries]


def test_an_elementwise_weight_is_added_up_and_nothing_is_stacked_for_it() -> None:
    *_, gradients = chain((4,), scaled)
    loop = reversed_loop(gradients)
    assert carried(loop) == [(4,), (4,)]
    assert not loop.step.ys


@pytest.mark.parametrize(
    ("shape", "rate"), [((4, 4), lambda h, w: times(w, h)), ((1,), with_one_weight)]
)
def test_a_product_or_a_sum_is_taken_after_the_loop(shape, rate) -> None:
    *_, gradients = chain(shape, rate)
    loop = reversed_loop(gradients)
    assert carried(loop) == [(4,)]
    assert len(loop.step.ys) == 1


def test_one_sum_after_the_loop_takes_the_others_along() -> None:
    h, w = te.placeholder((4,), D, name="h"), te.placeholder((4, 4), D, name="w")
    b = te.placeholder((4,), D, name="b")
    end, _ = ad.scan(lambda h, _: (each(lambda p, b: p + b, times(w, h), b), None), h, length=STEPS)
    loop = reversed_loop(list(ad.differentiate(total(end), [w, b])))
    assert carried(loop) == [(4,)]


def test_the_derivatives_by_sequences_are_stacked_as_before() -> None:
    h, w = te.placeholder((4,), D, name="h"), te.placeholder((4,), D, name="w")
    x = te.placeholder((STEPS, 4), D, name="x")

    def step(h, x):
        return each(lambda h, w, x: te.tanh(h * w + x * x), h, w, x), None

    end, _ = ad.scan(step, h, x)
    gradients = list(ad.differentiate(total(end), [h, w, x]))
    assert carried(reversed_loop(gradients)) == [(4,), (4,)]
    rng = np.random.default_rng(0)
    values = [0.5 * rng.normal(size=shape) for shape in ((4,), (4,), (STEPS, 4))]
    found = evaluate_graph(gradients, list(zip([h, w, x], values, strict=True)))

    def theirs(h, w, x):
        return jax.lax.scan(lambda h, x: (jnp.tanh(h * w + x * x), None), h, x)[0].sum()

    for one, other in zip(found, jax.grad(theirs, (0, 1, 2))(*values), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("length", [0, 1, 5])
def test_sums_of_sums(length: int) -> None:
    """The second derivative, of a loop which carries a sum."""
    h, w, v = (te.placeholder((3,), D, name=name) for name in "hwv")
    end, _ = ad.scan(
        lambda h, _: (each(lambda h, w: te.sin(h * w + w), h, w), None), h, length=length
    )
    [gradient] = ad.differentiate(total(end), [w])
    [second] = ad.differentiate(total(each(lambda g, v: g * v, gradient, v)), [w])
    rng = np.random.default_rng(1)
    values = [rng.normal(size=3) for _ in range(3)]
    [found] = evaluate_graph([second], list(zip([h, w, v], values, strict=True)))

    def theirs(w):
        step = lambda h, _: (jnp.sin(h * w + w), None)  # noqa: E731
        return jax.lax.scan(step, values[0], None, length=length)[0].sum()

    wanted = jax.hessian(theirs)(values[1]) @ values[2]
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


def test_what_is_cheap() -> None:
    shapes = {"h": (4,), "x": (4,), "w": (4,), "m": (4, 4)}
    h, x, w, m = (te.placeholder(shape, D, name=name) for name, shape in shapes.items())
    bar = te.placeholder((4,), D, name="bar")
    step = step_of([h], [x], [w, m], [scaled(h, w)], [])
    product = scaled(bar, h)
    outer = te.compute((4, 4), lambda i, j: bar[i] * h[j], name="outer")
    fixed = te.compute((4, 4), lambda i, j: bar[i] * m[i, j], name="fixed")
    assert cheap_to_add_up(step, [], [product])
    assert cheap_to_add_up(step, [product], [product])
    assert cheap_to_add_up(step, [], [])
    assert not cheap_to_add_up(step, [], [outer])
    assert not cheap_to_add_up(step, [], [fixed])
    assert not cheap_to_add_up(step, [], [product, total(product)])
