"""What is computed twice from the same tensors is computed once; results are what they were."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.schedule import cases
from tvm_autodiff import build
from tvm_autodiff.schedule.backends import rules_for
from tvm_autodiff.schedule.emit.common_launches import without_common_launches
from tvm_autodiff.schedule.emit.updates import Step
from tvm_autodiff.schedule.fusion.kernels import cut
from tvm_autodiff.schedule.machine import Machine, as_target
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rule import apply_rules


def product(state, W, name):
    """`s |w|ᵀ`."""
    n, m = state.shape
    k = te.reduce_axis((0, m), "k")
    return te.compute((n, m), lambda i, j: te.sum(state[i, k] * te.abs(W[j, k]), axis=k), name=name)


def recurrent(steps, n, m):
    """`s → s |w|ᵀ`, again and again: each product packs |w|."""
    S, W = cases.placeholder("S", n, m), cases.placeholder("W", m, m)
    state = S
    for number in range(steps):
        state = product(state, W, f"s{number}")
    return [S, W], [state]


def copies(count, n, m):
    """The same transposed copy, `count` times."""
    A = cases.placeholder("A", n, m)
    return [A], [te.compute((m, n), lambda i, j: A[j, i], name=f"t{c}") for c in range(count)]


def counts(outputs, cache_bytes):
    """Launches before and after."""
    machine = Machine(as_target(None), 64, 32, 1, cache_bytes)
    kernels, _ = cut(normal_form(outputs))
    steps = [
        Step(launch, kernel, "")
        for kernel in kernels
        for one in apply_rules(kernel, machine, rules_for(machine))
        for launch in one.launches
    ]
    return len(steps), len(without_common_launches(steps, machine))


TABLE = [
    # five products and five packed copies of w, four of which are one
    (recurrent(5, 64, 128), 1 << 20, (10, 6)),
    # other results have passed through the cache since: w is packed anew
    (recurrent(5, 64, 128), 1 << 14, (10, 10)),
    # results are written, equal or not (two of the three by one kernel)
    (copies(3, 40, 50), 1 << 20, (2, 2)),
]


@pytest.mark.parametrize(("case", "cache_bytes", "expected"), TABLE)
def test_repeats_are_dropped(case, cache_bytes, expected):
    assert counts(case[1], cache_bytes) == expected


@pytest.mark.parametrize("case", [recurrent(4, 64, 128), copies(3, 40, 50)])
def test_results_stay(case):
    inputs, outputs = case
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-1, 2, [int(d) for d in t.shape]).astype("float32") for t in inputs]
    results = build(inputs, outputs, num_threads=1, cache=False)(*arrays)
    if len(inputs) == 1:
        want = [arrays[0].T] * len(outputs)
    else:
        want = [arrays[0]]
        for _ in range(4):
            want = [want[0] @ abs(arrays[1]).T]
    for got, expected in zip(results, want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_copy_of_an_old_weight_is_not_one_of_the_new():
    """A weight that is updated in place is another tensor from there on."""
    [S, W], [state] = recurrent(1, 64, 128)
    doubled = te.compute((128, 128), lambda i, j: W[i, j] * 2.0, name="doubled")
    after = product(state, doubled, "after")
    step = build([S, W], [after], updates=[(W, doubled)], num_threads=1, cache=False)
    rng = np.random.default_rng(0)
    s, w = (rng.integers(-1, 2, shape).astype("float32") for shape in ((64, 128), (128, 128)))
    before = w.copy()
    [got] = step(s, w)
    np.testing.assert_array_equal(got, (s @ abs(before).T) @ abs(2 * before).T)
    np.testing.assert_array_equal(w, 2 * before)
