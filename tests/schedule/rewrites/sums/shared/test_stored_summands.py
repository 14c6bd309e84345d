"""Summands that several sums share: stored where it pays, with equal values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.schedule.machine import as_target, machine_of
from tvm_autodiff.schedule.rewrites.sums.shared.stored_summands import with_stored_summands

N = 5000
MACHINE = machine_of(as_target({"kind": "llvm", "mcpu": "skylake-avx512"}), threads=1)
x = te.placeholder((N, 3), "float64", name="x")
pose = te.placeholder((2, 4), "float64", name="pose")


def projected(i):
    """What all derivatives hold: a point moved by a pose, and divided."""
    first, second = (
        sum((pose[r, k] * x[i, k] for k in range(3)), pose[r, 3]) for r in range(2)
    )
    return first / (second * second + 1.0)


def total(body, extent=N, name="s"):
    k = te.reduce_axis((0, extent), "k")
    return te.compute((), lambda: te.sum(body(k), axis=k), name=name)


def of_much(count, extent=N):
    """Sums of a function of what is projected, times numbers of the point."""
    return [
        total(lambda k, n=n: te.tanh(projected(k)) / projected(k) * x[k, n % 3] * (n + 1.0), extent)
        for n in range(count)
    ]


def of_little(count):
    return [total(lambda k, n=n: x[k, n % 3] * x[k, 0]) for n in range(count)]


def needing_each_other():
    sums = of_much(1)
    for _ in range(6):
        last = sums[-1]
        sums.append(total(lambda k, last=last: te.tanh(projected(k)) / projected(k) * last()))
    return sums


def apart():
    """Sums that have less than half of their work in common."""
    return [
        total(lambda k, n=n: te.sin(projected(k) + n) / (te.cos(x[k, 1] * n) + 2.0) / (x[k, 0] + n))
        for n in range(1, 7)
    ]


#: the sums, and how many summands are stored
CASES = {
    "six": (lambda: of_much(6), 6),
    "few enough to be joined": (lambda: of_much(3), 0),
    "of little work": (lambda: of_little(6), 0),
    "of few points": (lambda: of_much(6, 40), 0),
    "that need each other": (needing_each_other, 0),
    "with other work": (apart, 0),
}


def data():
    rng = np.random.default_rng(0)
    return [(x, rng.uniform(0.5, 1.5, (N, 3))), (pose, rng.uniform(0.5, 1.5, (2, 4)))]


@pytest.mark.parametrize("name", CASES)
def test_what_is_stored(name):
    make, count = CASES[name]
    sums = make()
    found = with_stored_summands(sums, MACHINE)
    assert sum("summands" in op.name for op in topological(found)) == count
    for got, want in zip(*(evaluate_graph(one, data()) for one in (found, sums)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_nothing_that_the_caches_do_not_hold():
    small = replace(MACHINE, last_cache_bytes=6 * N * 8 - 1)
    sums = of_much(6)
    assert with_stored_summands(sums, small) == sums


def test_derivatives_by_the_numbers_of_a_pose():
    y = te.compute((N,), lambda i: te.tanh(projected(i)) / (projected(i) + 3.0), name="y")
    head = te.placeholder((N,), "float64", name="head")
    [gradient] = ad.differentiate(y, [pose], head)
    function = ad.build([x, pose, head], [gradient], num_threads=1, cache=False)
    values = [*(value for _, value in data()), np.random.default_rng(1).normal(size=N)]
    [want] = evaluate_graph([gradient], list(zip((x, pose, head), values, strict=True)))
    [got] = function(*values)
    np.testing.assert_allclose(got, want, rtol=1e-10)
