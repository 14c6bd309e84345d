"""The order of launches: what they read is there, and the most memory at a time does not grow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod

import pytest
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.codegen.stages.primfunc import StageFunction
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.schedule.emit.step_order import in_order_of_memory
from tvm_autodiff.schedule.emit.updates import Step


def step(inputs: Sequence, outputs: Sequence) -> Step:
    return Step(StageFunction(None, tuple(inputs), tuple(outputs)), object(), "a rule")


def tensor(size: int):
    return te.placeholder((size,), "int8", "t")


def peak(steps: Sequence[Step], kept: set) -> int:
    """The most bytes of temporaries at a time, each alive from its writer to its last reader."""
    last = {tensor_key(t): n for n, s in enumerate(steps) for t in s.launch.inputs}
    live: dict = {}
    most = 0
    for number, one in enumerate(steps):
        for t in one.launch.outputs:
            if tensor_key(t) not in kept and tensor_key(t) in last:
                live[tensor_key(t)] = prod(int(n) for n in t.shape)
        most = max(most, sum(live.values()))
        live = {key: size for key, size in live.items() if last[key] > number}
    return most


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    rng = random.Random(seed)
    known, steps, kept = [tensor(9) for _ in range(2)], [], set()
    given = {tensor_key(t) for t in known}
    for _ in range(rng.randint(2, 14)):
        outputs = [tensor(rng.randint(1, 30)) for _ in range(rng.choice((1, 1, 2)))]
        steps.append(step(rng.sample(known, rng.randint(1, min(3, len(known)))), outputs))
        known += outputs
        if rng.random() < 0.4:
            kept.add(tensor_key(outputs[0]))
    ordered = in_order_of_memory(steps, kept)
    assert sorted(map(id, ordered)) == sorted(map(id, steps))
    written = set(given)
    for one in ordered:
        assert {tensor_key(t) for t in one.launch.inputs} <= written
        written |= {tensor_key(t) for t in one.launch.outputs}
    assert peak(ordered, kept) <= peak(steps, kept)


def test_a_result_is_written_as_soon_as_it_can_be() -> None:
    """Two layers: the gradient of the second one's weights frees what it reads last."""
    x, h, d1, d0, w1, w0 = (tensor(10) for _ in range(6))
    steps = [step([x], [h]), step([h], [d1]), step([d1], [d0]), step([d1, h], [w1])]
    steps.append(step([d0, x], [w0]))
    ordered = in_order_of_memory(steps, {tensor_key(w1), tensor_key(w0)})
    assert [steps.index(one) for one in ordered] == [0, 1, 3, 2, 4]


def test_launches_of_one_kernel_stay_together() -> None:
    x, packed, y, z = (tensor(10) for _ in range(4))
    first = step([x], [packed])
    second = Step(StageFunction(None, (packed,), (y,)), first.kernel, "a rule")
    steps = [step([x], [z]), first, second]
    ordered = in_order_of_memory(steps, {tensor_key(y), tensor_key(z)})
    assert ordered.index(second) == ordered.index(first) + 1


@pytest.mark.slow
def test_a_training_step_keeps_two_cotangents_at_a_time() -> None:
    n = 300
    x, head = (te.placeholder((n, n), name=name) for name in ("x", "head"))
    weights = [te.placeholder((n, n), name=f"w{number}") for number in range(6)]
    h = x
    for number, w in enumerate(weights):
        h = layer(h, w, n, number)
    gradients = list(ad.differentiate(h, weights, head))
    function = ad.build([x, *weights, head], [h, *gradients], cache=False)
    layers = 5  # of which the activations lie between
    assert function.memory().temporaries < (layers + 2 + 1.5) * 4 * n * n


def layer(h, w, n: int, number: int):
    k = te.reduce_axis((0, n), "k")
    s = te.compute((n, n), lambda i, j: te.sum(h[i, k] * w[k, j], axis=k), f"s{number}")
    return te.compute((n, n), lambda i, j: te.tanh(s[i, j]), f"h{number}")
