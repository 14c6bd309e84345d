"""The evals that go through steps one after another, over the scan of a library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .library import Library, Peer


def ode(library: Library, data: Mapping[str, Any]) -> Peer:
    """A chain of equations by Runge and Kutta's method; the gradient of the last one's value."""
    xp, steps = library.numpy, data["s"]
    h = 2.0 / steps
    one = library.constant(np.ones(1))

    def primal(x: Any) -> Any:
        def slope(y: Any) -> Any:
            return x * xp.concatenate([one, y[:-1]])

        def step(y: Any, _: None) -> tuple[Any, None]:
            k1 = slope(y)
            k2 = slope(y + h / 2 * k1)
            k3 = slope(y + h / 2 * k2)
            k4 = slope(y + h * k3)
            return y + h / 6 * (k1 + 2 * (k2 + k3) + k4), None

        return library.scan(step, xp.zeros_like(x), None, steps)[0]

    argument = library.constant(np.asarray(data["x"], "float64"))
    functions = {"primal": primal, "gradient": library.grad(lambda x: primal(x)[-1], (0,))}
    return Peer((argument,), functions)


def lstm(library: Library, data: Mapping[str, Any]) -> Peer:
    """The loss of a network with diagonal matrices over a text, and its gradients.

    The four gates of a layer are one vector; what needs no state is computed for the whole text.
    """
    xp = library.numpy
    sequence = np.asarray(data["sequence"], "float64")
    steps, bits = len(sequence) - 1, sequence.shape[1]

    def objective(main: Any, extra: Any, state: Any, sequence: Any) -> Any:
        def step(states: Any, x: Any) -> tuple[Any, Any]:
            after = []
            for number, (hidden, cell) in enumerate(states):
                both = xp.concatenate([x, hidden, x, hidden])
                gates = both * main[2 * number] + main[2 * number + 1]
                opened = library.sigmoid(gates[: 3 * bits])
                cell = cell * opened[:bits] + opened[bits : 2 * bits] * xp.tanh(gates[3 * bits :])
                x = opened[2 * bits :] * xp.tanh(cell)
                after.append((x, cell))
            return tuple(after), x

        start = tuple((state[row], state[row + 1]) for row in range(0, len(state), 2))
        _, top = library.scan(step, start, sequence[:-1] * extra[0], steps)
        predicted = top * extra[1] + extra[2]
        total = xp.log(xp.exp(predicted).sum(1) + 2)
        return (sequence[1:] * (total[:, None] - predicted)).sum() / (steps * bits)

    names = ("main_params", "extra_params", "state", "sequence")
    arguments = (np.asarray(data[name], "float64") for name in names)
    functions = {"objective": objective, "jacobian": library.grad(objective, (0, 1))}
    return Peer(tuple(map(library.constant, arguments)), functions)
