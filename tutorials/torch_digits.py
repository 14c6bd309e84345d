"""The training step of `train_digits` once more in PyTorch, eager, to compare times with.

In: a batch and the start weights of `train_digits`. Out: a function that makes one step of the
same network with PyTorch's own SGD. Imported only where PyTorch is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F


def make_step(
    images: np.ndarray,
    labels: np.ndarray,
    weights: Sequence[np.ndarray],
    num_threads: int,
    rate: float = 0.0,
    momentum: float = 0.9,
) -> Callable[[], float]:
    """One step on one batch: forward, backward, momentum SGD; returns the loss."""
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
