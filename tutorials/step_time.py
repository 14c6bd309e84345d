"""Measure a training step beside PyTorch.

`train_digits` calls this to print the time of its training step, and that of the same step in
PyTorch if PyTorch is installed.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def print_step_time(
    step: Any,
    images: np.ndarray,
    labels: np.ndarray,
    weights: Sequence[np.ndarray],
    rounds: int = 7,
) -> None:
    """Time both in alternating blocks of steps, on the same number of threads."""
    state = [*map(np.copy, weights), *map(np.zeros_like, weights)]
    runs = {"tvm_autodiff": lambda: step(images, labels, 0.0, *state)}
    if importlib.util.find_spec("torch"):
        runs["PyTorch eager"] = torch_step(images, labels, weights, step.num_threads)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            for n in range(20):
                begin = time.perf_counter()
                run()
                if n >= 5:  # the first ones wake threads and fill caches
                    times[name].append(time.perf_counter() - begin)

    threads = step.num_threads
    print(f"\nA step on {len(labels)} images, {threads} thread{'s' * (threads > 1)}:")
    for name, measured in times.items():
        median, best = np.median(measured) * 1e3, np.min(measured) * 1e3
        print(f"  {name:<14} {median:6.2f} ms (median; best {best:.2f} ms)")
    if len(runs) == 1:
        print("  (with PyTorch installed, its time for the same step appears here)")


def torch_step(
    images: np.ndarray,
    labels: np.ndarray,
    weights: Sequence[np.ndarray],
    num_threads: int,
    rate: float = 0.0,
    momentum: float = 0.9,
) -> Callable[[], float]:
    """The same step in PyTorch, eager: forward, backward, momentum SGD; returns the loss."""
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(num_threads)
    x = torch.from_numpy(images.copy())
    y = torch.from_numpy(labels.astype("int64"))
    parameters = [torch.tensor(weight, requires_grad=True) for weight in weights]
    w1, b1, w2, b2, w3, b3, w4, b4 = parameters
    optimiser = torch.optim.SGD(parameters, lr=rate, momentum=momentum)

    def step() -> float:
        hidden = F.relu(F.conv2d(x, w1, b1, padding=1))
        hidden = F.relu(F.conv2d(hidden, w2, b2, padding=1))
        hidden = F.max_pool2d(hidden, 2).flatten(1)
        hidden = F.relu(F.linear(hidden, w3, b3))
        scores = F.linear(hidden, w4, b4)
        loss = F.cross_entropy(scores, y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    return step
