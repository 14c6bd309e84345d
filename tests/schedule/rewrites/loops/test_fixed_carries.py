"""Carries that no step changes are constants of the loop, and values do not change."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.schedule.rewrites.loops.test_hoisting import loops_in, placeholders
from tests.transforms.loops.recurrences import D, each
from tvm_autodiff.schedule.rewrites.loops.fixed_carries import without_fixed_carries

C = te.compute


def added_up(reverse=False, length=5):
    """The cotangent of a sum over time is the same in all steps."""
    y0, h0, xs = placeholders(y0=(4,), h0=(4,), xs=(length, 4))

    def step(carry, x):
        y, h = carry
        return (each(lambda y, h, x: y + h * x, y, h, x), each(lambda h, x: h * x, h, x)), None

    (y, h), _ = ad.scan(step, (y0, h0), xs, reverse=reverse)
    both = each(lambda y, h: y * y + h, y, h)
    bar = te.placeholder((4,), D, name="bar")
    return list(ad.vjp(both, [y0, h0, xs], bar)), [y0, h0, xs, bar]


def copied(length=5):
    """A carry through two copies, one that is read in the steps and stacked."""
    a0, b0, xs = placeholders(a0=(3,), b0=(3,), xs=(length, 3))

    def step(carry, x):
        a, b = carry
        again = each(lambda a: a, each(lambda a: a, a))
        return (again, each(lambda a, b, x: b + a * x, a, b, x)), each(lambda a: a, a)

    (a, b), ys = ad.scan(step, (a0, b0), xs)
    return [a, b, ys], [a0, b0, xs]


def alone(length=5):
    """No carry is left, and nothing is stacked."""
    a0, xs = placeholders(a0=(3,), xs=(length, 3))
    a, _ = ad.scan(lambda a, x: (each(lambda a: a, a), None), a0, xs)
    return [a], [a0, xs]


def nested(length=5):
    """The carry of an inner loop."""
    a0, b0, xs = placeholders(a0=(3,), b0=(3,), xs=(length, 3))

    def inner(carry, _):
        a, b = carry
        return (each(lambda a: a, a), each(lambda a, b: a * b + 0.5, a, b)), None

    def step(carry, x):
        (a, b), _ = ad.scan(inner, carry, length=3)
        return (each(lambda a, x: a + x, a, x), b), None

    (a, b), _ = ad.scan(step, (a0, b0), xs)
    return [a, b], [a0, b0, xs]


def exchanged(length=5):
    """Carries that change places are not fixed."""
    a0, b0, xs = placeholders(a0=(3,), b0=(3,), xs=(length, 3))

    def step(carry, x):
        a, b = carry
        return (each(lambda b: b, b), each(lambda a: a, a)), each(lambda a, x: a * x, a, x)

    (a, b), ys = ad.scan(step, (a0, b0), xs)
    return [a, b, ys], [a0, b0, xs]


#: case → the carries of its loops, before and after, inner loops apart
CASES = {
    "added up": (added_up, [2, 2, 2], [2, 1, 2]),
    "added up from the end": (lambda: added_up(reverse=True), [2, 2, 2], [2, 1, 2]),
    "copied": (copied, [2], [1]),
    "alone": (alone, [1], []),
    "nested": (nested, [2, 2], [2, 1]),
    "exchanged": (exchanged, [2], [2]),
    "no steps": (lambda: copied(0), [2], [1]),
    "one step": (lambda: nested(1), [2, 2], [2, 1]),
}


def carries_of(tensors):
    loops = loops_in(tensors)
    inner = [one for loop in loops for one in loops_in(loop.step.outputs)]
    return [len(loop.init) for loop in (*loops, *inner)]


@pytest.mark.parametrize("name", CASES)
def test_fixed_carries(name):
    make, before, after = CASES[name]
    outputs, inputs = make()
    assert carries_of(outputs) == before
    found = without_fixed_carries(outputs)
    assert carries_of(found) == after
    rng = np.random.default_rng(0)
    data = {t: rng.uniform(-0.9, 0.9, [int(n) for n in t.shape]) for t in inputs}
    got, wanted = evaluate_graph(found, data), evaluate_graph(outputs, data)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)


@pytest.mark.parametrize("name", ["added up", "copied", "alone", "nested"])
def test_built(name):
    outputs, inputs = CASES[name][0]()
    rng = np.random.default_rng(0)
    data = [rng.uniform(-0.9, 0.9, [int(n) for n in t.shape]) for t in inputs]
    wanted = evaluate_graph(outputs, dict(zip(inputs, data, strict=True)))
    got = ad.build(inputs, outputs, cache=False)(*data)
    for one, other in zip(got if isinstance(got, (list, tuple)) else [got], wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_any_number_of_steps():
    n = te.var("n")
    outputs, inputs = added_up(length=n)
    step = ad.build(inputs, outputs, cache=False)
    for length in (0, 1, 6):
        fixed, names = added_up(length=length) if length else (None, None)
        rng = np.random.default_rng(0)
        shapes = [(4,), (4,), (length, 4), (4,)]
        data = [rng.uniform(-0.9, 0.9, shape) for shape in shapes]
        got = step(*data)
        if fixed is None:
            np.testing.assert_allclose(got[1], data[3])
            continue
        wanted = evaluate_graph(fixed, dict(zip(names, data, strict=True)))
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
