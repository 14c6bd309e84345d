"""Loops on a GPU: right in one thread, told, and refused where its memory is too small."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.cuda_on_cpu.checking import Case, check
from tests.schedule.cuda.scheduled import SM_90


def placeholder(name, *shape):
    return te.placeholder(shape, "float32", name=name)


def recurrent(hidden=5, steps=4, plan=None):
    """``h = tanh(x W + h U)``: products inside of the step need memory of their own."""
    xs, w = placeholder("xs", steps, 3, 2), placeholder("w", 2, hidden)
    u, start = placeholder("u", hidden, hidden), placeholder("start", 3, hidden)

    def product(a, b):
        k = te.reduce_axis((0, b.shape[0]), "k")
        shape = (a.shape[0], b.shape[1])
        return te.compute(shape, lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")

    def step(h, x):
        p, q = product(x, w), product(h, u)
        new = te.compute(h.shape, lambda i, j: te.tanh(p[i, j] + q[i, j]), name="h")
        return new, new

    return [xs, w, u, start], ad.scan(step, start, xs, checkpoint=plan)[1]


@pytest.mark.slow
def test_values_and_gradients():
    found = {}
    for name, plan in {"all states": None, "few states": ad.Recursive(2)}.items():
        inputs, ys = recurrent(plan=plan)
        axes = [te.reduce_axis((0, extent), "r") for extent in ys.shape]
        loss = te.compute((), lambda: te.sum(ys[tuple(axes)] * ys[tuple(axes)], axis=axes), "loss")  # noqa: B023
        outputs = [loss, *ad.differentiate(loss, inputs)]
        random = np.random.default_rng(0)
        shapes = [[int(n) for n in x.shape] for x in inputs]
        arrays = [random.uniform(-1, 1, shape).astype("float32") for shape in shapes]
        found[name] = Case(inputs, outputs, [arrays], 1e-5)
    check(found)


def test_one_thread_is_told():
    inputs, ys = recurrent(64, 100)
    with pytest.warns(ad.PlainScheduleWarning, match="one thread of the GPU runs the whole loop"):
        source = ad.build(inputs, ys, target=SM_90, cache=False).source()
    assert re.search(r"float \w+\[192\];", source)  # the memory of the thread


def test_too_much_memory_for_a_thread():
    inputs, ys = recurrent(50_000)
    with pytest.raises(ad.LoweringError, match="a thread of a GPU has 524,288: build it for the C"):
        ad.build(inputs, ys, target=SM_90, cache=False)
