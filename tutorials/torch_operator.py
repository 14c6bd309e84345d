"""A custom operator in PyTorch.

The operator is a bilateral filter of a signal, written as tensor expressions. Its gradient is
derived, and PyTorch trains the two widths of the filter with `backward`.
Run it: ``python tutorials/torch_operator.py`` (needs PyTorch).
"""

from __future__ import annotations

import torch
from tvm import te

from tvm_autodiff.interop.torch import function

SIZE, RADIUS = 256, 6


@function
def bilateral(signal: te.Tensor, logs: te.Tensor) -> te.Tensor:
    """Average neighbours by distance in position and value; `logs` are the log precisions."""
    window = te.reduce_axis((-RADIUS, RADIUS + 1), "k")
    other = te.reduce_axis((-RADIUS, RADIUS + 1), "k")

    def at(i: te.Var) -> object:
        return signal[te.if_then_else(i < 0, 0, te.if_then_else(i > SIZE - 1, SIZE - 1, i))]

    def weight(i: te.Var, k: te.Var) -> object:
        apart = at(i + k) - signal[i]
        return te.exp(
            -te.exp(logs[0]) * (k * k).astype("float32") - te.exp(logs[1]) * apart * apart
        )

    top = te.compute((SIZE,), lambda i: te.sum(weight(i, window) * at(i + window), axis=window))
    bottom = te.compute((SIZE,), lambda i: te.sum(weight(i, other), axis=other))
    return te.compute((SIZE,), lambda i: top[i] / bottom[i], name="filtered")


def main() -> None:
    """Learn the widths with which the filter removes noise from a square wave."""
    torch.manual_seed(0)
    clean = torch.sign(torch.sin(torch.linspace(0, 12, SIZE)))
    noisy = clean + 0.3 * torch.randn(SIZE)
    logs = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.Adam([logs], lr=0.1)
    print(f"error of the noisy signal: {torch.mean((noisy - clean) ** 2):.4f}")
    for iteration in range(61):
        optimizer.zero_grad()
        loss = torch.mean((bilateral(noisy, logs) - clean) ** 2)
        loss.backward()
        optimizer.step()
        if iteration % 20 == 0:
            print(f"iteration {iteration:2}  error {loss.item():.4f}")

    signal = noisy.clone().requires_grad_()
    [slope] = torch.autograd.grad(bilateral(signal, logs.detach()).sum(), signal)
    step = 1e-2 * torch.randn(SIZE)
    with torch.no_grad():
        change = bilateral(noisy + step, logs).sum() - bilateral(noisy - step, logs).sum()
    predicted = 2 * torch.dot(slope, step)
    print(f"change of the sum: {change:.3f}, predicted by the gradient: {predicted:.3f}")


if __name__ == "__main__":
    main()
