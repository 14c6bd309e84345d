"""Checkpointed loops: the same values and derivatives, with less that is kept."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.transforms.loops.recurrences import D, each, times, total
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.kinds.kind import kind_of
from tvm_autodiff.graph.kinds.loop import Loop
from tvm_autodiff.graph.stage import outputs_of, shape_of

RNG = np.random.default_rng(0)


def recurrence(length, checkpoint, reverse=False):
    """A state that is read turned around, weights, sequences, results, and a counter."""
    shapes = {"h0": (3,), "xs": (length, 2), "w": (3, 3), "u": (3, 2)}
    inputs = [te.placeholder(shape, D, name=name) for name, shape in shapes.items()]
    h0, xs, w, u = inputs
    zero = te.compute((), lambda: te.const(0, "int32"), name="zero")

    def step(carry, x):
        h, count = carry
        turned = te.compute((3,), lambda i: h[2 - i], name="turned")
        scale = te.compute((), lambda: 1.0 / (count().astype(D) + 1.0), name="scale")
        new = each(
            lambda a, b, s: te.tanh(a + b) + s, times(w, turned), times(u, x), scale, name="new"
        )
        return (new, each(lambda c: c + 1, count)), (total(new), new)

    options = {"reverse": reverse, "checkpoint": checkpoint}
    (last, _), (sums, states) = ad.scan(step, (h0, zero), xs, **options)
    return inputs, [last, sums, states]


def everything(length, checkpoint, reverse=False):
    """Values, gradients, tangents and second derivatives."""
    inputs, outputs = recurrence(length, checkpoint, reverse)

    def like(tensors):
        return [te.placeholder(t.shape, D, name="like") for t in tensors]

    bars, dots = like(outputs), like(inputs)
    gradient = list(ad.vjp(outputs, inputs, bars))
    tangents = ad.jvp(outputs, inputs, dots)
    second = ad.jvp(gradient, inputs, dots)
    third = list(ad.vjp(gradient, inputs, dots))
    return [*inputs, *bars, *dots], [*outputs, *gradient, *tangents, *second, *third]


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("length", "k"), [(7, 3), (6, 3), (4, 1), (2, 5), (5, 4), (0, 2), (1, 1)])
def test_all_derivatives_are_those_of_the_whole_loop(length: int, k: int, reverse: bool) -> None:
    given, wanted = everything(length, None, reverse)
    values = [RNG.uniform(-0.5, 0.5, [int(n) for n in t.shape]) for t in given]
    other, found = everything(length, k, reverse)
    one = evaluate_graph(wanted, list(zip(given, values, strict=True)))
    two = evaluate_graph(found, list(zip(other, values, strict=True)))
    for left, right in zip(one, two, strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-11, atol=1e-13)


def largest(tensors) -> int:
    """Elements of the largest tensor that is computed, in steps of loops too."""
    sizes = [0]
    for op in topological(tensors):
        kind = kind_of(op)
        if isinstance(kind, Loop):
            sizes.append(largest(kind.step.outputs))
        if op.input_tensors:
            sizes += [prod(shape_of(tensor)) for tensor in outputs_of(op)]
    return max(sizes)


@pytest.mark.parametrize(("k", "most"), [(None, 10_000), (100, 100), (1, 10_000), (10, 1000)])
def test_what_is_kept_is_every_kth_state(k: int | None, most: int) -> None:
    """Of 10,000 steps; cotangents of weights are sums that need no memory over time."""
    s0, p = te.placeholder((4,), D, name="s0"), te.placeholder((4,), D, name="p")

    def step(s, _):
        return each(lambda s, p: s + te.sin(s * p), s, p), None

    last, _ = ad.scan(step, s0, length=10_000, checkpoint=k)
    bar = te.placeholder((4,), D, name="bar")
    assert largest(list(ad.vjp(last, [s0, p], bar))) == 4 * most


@pytest.mark.slow
def test_built() -> None:
    given, wanted = everything(7, None)
    values = [RNG.uniform(-0.5, 0.5, [int(n) for n in t.shape]) for t in given]
    want = evaluate_graph(wanted[:7], list(zip(given, values, strict=True)))
    other, found = everything(7, 3)
    for one, two in zip(want, ad.build(other, found[:7], cache=False)(*values), strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-11, atol=1e-13)


@pytest.mark.slow
def test_symbolic_length() -> None:
    length = te.var("n")
    inputs, outputs = recurrence(length, 3)
    bars = [te.placeholder(t.shape, D, name="bar") for t in outputs]
    gradient = list(ad.vjp(outputs, inputs, bars))
    program = ad.build([*inputs, *bars], [*outputs, *gradient], cache=False)
    for steps in (0, 1, 2, 3, 7):
        given, wanted = everything(steps, None)
        values = [RNG.uniform(-0.5, 0.5, [int(n) for n in t.shape]) for t in given]
        want = evaluate_graph(wanted[:7], list(zip(given, values, strict=True)))
        for one, two in zip(want, program(*values[:7]), strict=True):
            np.testing.assert_allclose(two, one, rtol=1e-11, atol=1e-13)
