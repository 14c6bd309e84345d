"""The recurrences of `loops.py` in PyTorch: value and gradients, eager and with a compiled step.

Eager takes PyTorch's own layer where there is one (RNN, GRU, LSTM), which runs all steps in C++,
and else a loop of Python over its operators. Compiled is a loop of Python over a step that
`torch.compile` made; the whole loop as one graph takes minutes to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

Values = dict[str, np.ndarray]
Function = Callable[[], list[Any]]


def in_torch(name: str, values: Values, dt: float, steps: int) -> dict[str, Function]:
    """What computes the loss and its gradients: by way, for one of the programs."""
    made = {
        "rnn": lambda: _layer(torch.nn.RNN, _rnn_step, values),
        "gru": lambda: _layer(torch.nn.GRU, _gru_step, values),
        "lstm": lambda: _layer(torch.nn.LSTM, _lstm_step, values),
        "ode": lambda: _ode(values, dt, steps),
        "state": lambda: _state_space(values),
    }
    return made[name.split()[0]]()


def _leaf(array: np.ndarray) -> Any:
    return torch.tensor(array, requires_grad=True)


def _differentiated(results: Callable[[], Any], leaves: Sequence[Any]) -> Function:
    def call() -> list[Any]:
        ys = results()
        loss = (ys * ys).sum()
        return [loss, *torch.autograd.grad(loss, list(leaves))]

    return call


def _rnn_step(x: Any, state: tuple[Any, ...], w: Any, u: Any, b: Any) -> tuple[Any, ...]:
    return (torch.tanh(x @ w + state[0] @ u + b),)


def _gru_step(x: Any, state: tuple[Any, ...], w: Any, u: Any, b: Any) -> tuple[Any, ...]:
    (h,) = state
    (pz, pr, pn), (qz, qr, qn) = (x @ w).chunk(3, 1), (h @ u).chunk(3, 1)
    bz, br, bn = b.chunk(3)
    z, r = torch.sigmoid(pz + qz + bz), torch.sigmoid(pr + qr + br)
    return ((1 - z) * torch.tanh(pn + r * qn + bn) + z * h,)


def _lstm_step(x: Any, state: tuple[Any, ...], w: Any, u: Any, b: Any) -> tuple[Any, ...]:
    h, c = state
    i, f, g, o = (x @ w + h @ u + b).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def _layer(layer: Any, step: Callable[..., tuple[Any, ...]], values: Values) -> dict[str, Function]:
    """PyTorch's layer, whose weights are transposed, and a loop over a compiled step."""
    xs, inner = torch.tensor(values["xs"]), values["h0"].shape[1]
    # PyTorch has the reset gate of a GRU first
    order = [1, 0, 2] if layer is torch.nn.GRU else range(values["w"].shape[1] // inner)

    def gates(array: np.ndarray) -> np.ndarray:
        parts = np.split(array, len(order), axis=-1)
        return np.ascontiguousarray(np.concatenate([parts[n] for n in order], axis=-1).T)

    names = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0"]
    given = {
        name: _leaf(gates(values[key])) for name, key in zip(names, ("w", "u", "b"), strict=True)
    }
    fixed = {"bias_hh_l0": torch.zeros_like(given["bias_ih_l0"], requires_grad=False)}
    starts = [_leaf(values[name][None]) for name in ("h0", "c0") if name in values]
    cells = layer(xs.shape[2], inner)

    def whole() -> Any:
        state = starts[0] if len(starts) == 1 else tuple(starts)
        return torch.func.functional_call(cells, {**given, **fixed}, (xs, state))[0]

    leaves = [_leaf(values[name]) for name in ("w", "u", "b")]
    begin = [_leaf(values[name]) for name in ("h0", "c0") if name in values]
    compiled = torch.compile(step)

    def stepwise() -> Any:
        state, ys = tuple(begin), []
        for x in xs:
            state = compiled(x, state, *leaves)
            ys.append(state[0])
        return torch.stack(ys)

    return {
        "eager": _differentiated(whole, [*given.values(), *starts]),
        "compiled": _differentiated(stepwise, [*leaves, *begin]),
    }


def _ode(values: Values, dt: float, steps: int) -> dict[str, Function]:
    y0, p = _leaf(values["y0"]), _leaf(values["p"])

    def slope(y: Any, p: Any) -> Any:
        prey, hunters = y.unbind(1)
        met = prey * hunters
        return torch.stack([p[0] * prey - p[1] * met, p[2] * met - p[3] * hunters], 1)

    def step(y: Any, p: Any) -> Any:
        a = slope(y, p)
        b = slope(y + dt / 2 * a, p)
        c = slope(y + dt / 2 * b, p)
        d = slope(y + dt * c, p)
        return y + dt / 6 * (a + 2 * b + 2 * c + d)

    def solved(step: Callable[..., Any]) -> Callable[[], Any]:
        def ys() -> Any:
            found = [y0]
            for _ in range(steps):
                found.append(step(found[-1], p))
            return torch.stack(found[1:])

        return ys

    ways = {"eager": step, "compiled": torch.compile(step)}
    return {way: _differentiated(solved(function), [y0, p]) for way, function in ways.items()}


def _state_space(values: Values) -> dict[str, Function]:
    u = torch.tensor(values["u"])
    leaves = [_leaf(values[name]) for name in ("a", "b", "c", "x0")]

    def step(x: Any, now: Any, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
        new = a * x + b * now[:, None]
        return new, (c * new).sum(1)

    def run(step: Callable[..., tuple[Any, Any]]) -> Callable[[], Any]:
        def ys() -> Any:
            *parts, x = leaves
            found = []
            for now in u:
                x, y = step(x, now, *parts)
                found.append(y)
            return torch.stack(found)

        return ys

    ways = {"eager": step, "compiled": torch.compile(step)}
    return {way: _differentiated(run(function), leaves) for way, function in ways.items()}
