"""Recurrences beside JAX's scan and PyTorch: ``python benchmarks/loops.py [--only NAME]``.

Each program gives its stacked results, and then a sum of squares of these with its gradients with
respect to all parameters; PyTorch (``--torch``) has the gradients only. Float32, warmed up, results
awaited; the libraries are called in turns, with pauses in which the threads of the last one come to
rest. Milliseconds are medians; a ratio is the time of the fastest other library over ours. JAX has
no switch for the threads of a CPU: with ``--threads 1`` start it under ``taskset -c 0``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tvm import te

import tvm_autodiff as ad

BATCH, INPUT, STEPS = 32, 64, 128
TRAJECTORIES, TIMES, DT = 1_000, 1_000, 0.01
CHANNELS, STATES, SIGNAL = 64, 16, 4_096

ROUNDS = 5  #: turns of each library
REST = 0.25  #: seconds after which threads that spin for new work have given up

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Program:
    """A recurrence written twice: tensors → stacked results, and arrays → the same.

    The gradient is by the names in `wanted`; `scale` is the size of the random values of each
    input, where it is not one over the root of its first extent.
    """

    shapes: Shapes
    wanted: Sequence[str]
    ours: Callable[..., te.Tensor]
    theirs: Callable[..., Any]
    scale: dict[str, float]


def matmul(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, b.shape[0]), "k")
    shape = (a.shape[0], b.shape[1])
    return te.compute(shape, lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")


def rnn(hidden: int) -> Program:
    """``h = tanh(x W + h U + b)``."""

    def ours(xs: Any, w: Any, u: Any, b: Any, h0: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            p, q = matmul(x, w), matmul(h, u)
            new = te.compute(h.shape, lambda i, j: te.tanh(p[i, j] + q[i, j] + b[j]), name="h")
            return new, new

        return ad.scan(step, h0, xs)[1]

    def theirs(xs: Any, w: Any, u: Any, b: Any, h0: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            new = jnp.tanh(x @ w + h @ u + b)
            return new, new

        return jax.lax.scan(step, h0, xs)[1]

    return Program(_recurrent(hidden, 1), ["w", "u", "b", "h0"], ours, theirs, {"xs": 1.0})


def gru(hidden: int) -> Program:
    """Gates z and r, and a candidate that the reset gate takes part in."""

    def ours(xs: Any, w: Any, u: Any, b: Any, h0: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            p, q = matmul(x, w), matmul(h, u)

            def gate(i: Any, j: Any) -> Any:
                return te.sigmoid(p[i, j] + q[i, j] + b[j])

            def new(i: Any, j: Any) -> Any:
                last = j + 2 * hidden
                candidate = te.tanh(p[i, last] + gate(i, j + hidden) * q[i, last] + b[last])
                z = gate(i, j)
                return (1.0 - z) * candidate + z * h[i, j]

            out = te.compute(h.shape, new, name="h")
            return out, out

        return ad.scan(step, h0, xs)[1]

    def theirs(xs: Any, w: Any, u: Any, b: Any, h0: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            (pz, pr, pn), (qz, qr, qn) = jnp.split(x @ w, 3, 1), jnp.split(h @ u, 3, 1)
            bz, br, bn = jnp.split(b, 3)
            z, r = jax.nn.sigmoid(pz + qz + bz), jax.nn.sigmoid(pr + qr + br)
            new = (1 - z) * jnp.tanh(pn + r * qn + bn) + z * h
            return new, new

        return jax.lax.scan(step, h0, xs)[1]

    return Program(_recurrent(hidden, 3), ["w", "u", "b", "h0"], ours, theirs, {"xs": 1.0})


def lstm(hidden: int) -> Program:
    """Input, forget and output gates, and a cell beside the state."""

    def ours(xs: Any, w: Any, u: Any, b: Any, h0: Any, c0: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            h, c = state
            p, q = matmul(x, w), matmul(h, u)
            z = te.compute(p.shape, lambda i, j: p[i, j] + q[i, j] + b[j], name="z")

            def cell(i: Any, j: Any) -> Any:
                kept = te.sigmoid(z[i, j + hidden]) * c[i, j]
                return kept + te.sigmoid(z[i, j]) * te.tanh(z[i, j + 2 * hidden])

            new = te.compute(c.shape, cell, name="c")
            out = te.compute(
                h.shape,
                lambda i, j: te.sigmoid(z[i, j + 3 * hidden]) * te.tanh(new[i, j]),
                name="h",
            )
            return (out, new), out

        return ad.scan(step, (h0, c0), xs)[1]

    def theirs(xs: Any, w: Any, u: Any, b: Any, h0: Any, c0: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(x @ w + h @ u + b, 4, 1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        return jax.lax.scan(step, (h0, c0), xs)[1]

    shapes = {**_recurrent(hidden, 4), "c0": (BATCH, hidden)}
    return Program(shapes, ["w", "u", "b", "h0", "c0"], ours, theirs, {"xs": 1.0})


def _recurrent(hidden: int, gates: int) -> Shapes:
    return {
        "xs": (STEPS, BATCH, INPUT),
        "w": (INPUT, gates * hidden),
        "u": (hidden, gates * hidden),
        "b": (gates * hidden,),
        "h0": (BATCH, hidden),
    }


def ode() -> Program:
    """Lotka and Volterra's equations by Runge and Kutta's method, for many initial states."""

    def rate(y: Any, p: Any) -> Any:
        def value(i: Any, c: Any) -> Any:
            met = y[i, 0] * y[i, 1]
            prey, hunters = p[0] * y[i, 0] - p[1] * met, p[2] * met - p[3] * y[i, 1]
            return te.if_then_else(c == 0, prey, hunters)

        return te.compute(y.shape, value, name="rate")

    def ours(y0: Any, p: Any) -> Any:
        def moved(y: Any, k: Any, h: float) -> Any:
            return te.compute(y.shape, lambda i, c: y[i, c] + h * k[i, c], name="moved")

        def step(y: Any, _: Any) -> Any:
            a = rate(y, p)
            b = rate(moved(y, a, DT / 2), p)
            c = rate(moved(y, b, DT / 2), p)
            d = rate(moved(y, c, DT), p)

            def value(i: Any, n: Any) -> Any:
                return y[i, n] + DT / 6 * (a[i, n] + 2 * b[i, n] + 2 * c[i, n] + d[i, n])

            new = te.compute(y.shape, value, name="y")
            return new, new

        return ad.scan(step, y0, length=TIMES)[1]

    def slope(y: Any, p: Any) -> Any:
        met = y[:, 0] * y[:, 1]
        return jnp.stack([p[0] * y[:, 0] - p[1] * met, p[2] * met - p[3] * y[:, 1]], 1)

    def theirs(y0: Any, p: Any) -> Any:
        def step(y: Any, _: Any) -> Any:
            a = slope(y, p)
            b = slope(y + DT / 2 * a, p)
            c = slope(y + DT / 2 * b, p)
            d = slope(y + DT * c, p)
            new = y + DT / 6 * (a + 2 * b + 2 * c + d)
            return new, new

        return jax.lax.scan(step, y0, length=TIMES)[1]

    return Program({"y0": (TRAJECTORIES, 2), "p": (4,)}, ["y0", "p"], ours, theirs, {})


def state_space() -> Program:
    """``x = a x + b u, y = Σ c x``: many channels, each with some states."""

    def ours(u: Any, a: Any, b: Any, c: Any, x0: Any) -> Any:
        def step(x: Any, now: Any) -> Any:
            new = te.compute(
                x.shape, lambda d, s: a[d, s] * x[d, s] + b[d, s] * now[d], name="state"
            )
            k = te.reduce_axis((0, STATES), "k")
            out = te.compute(now.shape, lambda d: te.sum(c[d, k] * new[d, k], axis=k), name="y")
            return new, out

        return ad.scan(step, x0, u)[1]

    def theirs(u: Any, a: Any, b: Any, c: Any, x0: Any) -> Any:
        def step(x: Any, now: Any) -> Any:
            new = a * x + b * now[:, None]
            return new, (c * new).sum(1)

        return jax.lax.scan(step, x0, u)[1]

    part = (CHANNELS, STATES)
    shapes = {"u": (SIGNAL, CHANNELS), "a": part, "b": part, "c": part, "x0": part}
    return Program(shapes, ["a", "b", "c", "x0"], ours, theirs, {"u": 1.0, "a": 0.1})


PROGRAMS: dict[str, Callable[[], Program]] = {
    "rnn 128": lambda: rnn(128),
    "rnn 512": lambda: rnn(512),
    "gru 128": lambda: gru(128),
    "gru 512": lambda: gru(512),
    "lstm 128": lambda: lstm(128),
    "lstm 512": lambda: lstm(512),
    "ode": ode,
    "state space": state_space,
}


def arrays_of(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found = {}
    for name, shape in program.shapes.items():
        scale = program.scale.get(name, 0.5 / shape[0] ** 0.5)
        found[name] = (scale * rng.standard_normal(shape)).astype("float32")
    if "p" in found:  # rates that keep the populations bounded
        found["p"] = np.array([1.1, 0.4, 0.1, 0.4], "float32")
        found["y0"] = (1.0 + rng.random(found["y0"].shape)).astype("float32")
    return found


def built(program: Program, gradient: bool, threads: int | None) -> tuple[Any, float]:
    """Our function, and the seconds that differentiation and compilation take."""
    begin = time.perf_counter()
    given = {name: te.placeholder(shape, "float32", name) for name, shape in program.shapes.items()}
    ys = program.ours(**given)
    outputs = [ys]
    if gradient:
        axes = [te.reduce_axis((0, extent), "r") for extent in ys.shape]
        loss = te.compute((), lambda: te.sum(ys[tuple(axes)] * ys[tuple(axes)], axis=axes), "loss")
        outputs = [loss, *ad.differentiate(loss, [given[name] for name in program.wanted])]
    function = ad.build(list(given.values()), outputs, num_threads=threads, cache=False)
    return function, time.perf_counter() - begin


def compiled(program: Program, gradient: bool) -> Any:
    """JAX's function of all inputs."""
    names = list(program.shapes)
    if not gradient:
        return jax.jit(lambda *values: program.theirs(**dict(zip(names, values, strict=True))))

    def loss(*values: Any) -> Any:
        return (program.theirs(**dict(zip(names, values, strict=True))) ** 2).sum()

    places = tuple(names.index(name) for name in program.wanted)
    return jax.jit(jax.value_and_grad(loss, places))


def in_turns(functions: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    """The times of some functions, which take turns; each is measured for some seconds."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(ROUNDS):
        for name, function in functions.items():
            time.sleep(REST)
            function()
            end = time.perf_counter() + seconds / ROUNDS
            while True:
                begin = time.perf_counter()
                function()
                now = time.perf_counter()
                times[name].append(now - begin)
                if now >= end:
                    break
    return times


def compare(name: str, gradient: bool, options: argparse.Namespace) -> float:
    """Measure one program, print a row; how many times faster ours is than the fastest other."""
    program = PROGRAMS[name]()
    arrays = arrays_of(program)
    values = list(arrays.values())
    ours, building = built(program, gradient, options.threads)
    theirs = compiled(program, gradient)
    given = [jnp.asarray(value) for value in values]
    results = ours(*values)
    for got, want in zip(results, jax.tree_util.tree_leaves(theirs(*given)), strict=True):
        size = float(np.abs(np.asarray(want)).max())
        np.testing.assert_allclose(got, want, rtol=1e-2, atol=2e-3 * size)
    functions: dict[str, Callable[[], Any]] = {
        "ours": lambda: ours(*values),
        "JAX": lambda: jax.block_until_ready(theirs(*given)),
    }
    if options.torch and gradient:
        import torch
        from _loops_torch import in_torch

        torch.set_num_threads(options.threads or torch.get_num_threads())
        for way, function in in_torch(name, arrays, DT, TIMES).items():
            loss = function()[0].item()
            np.testing.assert_allclose(loss, results[0], rtol=1e-2)
            functions[f"PyTorch, {way}"] = function
    medians = {
        name: statistics.median(spent)
        for name, spent in in_turns(functions, options.seconds).items()
    }
    mine = medians.pop("ours")
    ratio = min(medians.values()) / mine
    others = "  ".join(f"{name} {1e3 * spent:.2f}" for name, spent in medians.items())
    what = "gradient" if gradient else "forward"
    print(f"{name:12} {what:8} {1e3 * mine:9.3f}  {ratio:6.2f}  {building:6.2f}   {others}")
    return ratio


def main() -> None:
    """Compare the programs that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="programs whose name holds this")
    parser.add_argument("--seconds", type=float, default=1.0, help="of calls for each library")
    parser.add_argument("--threads", type=int, help="of our functions; all by default")
    parser.add_argument("--forward", action="store_true", help="no gradients")
    parser.add_argument("--gradient", action="store_true", help="nothing else")
    parser.add_argument("--torch", action="store_true", help="PyTorch, too")
    options = parser.parse_args()
    print(f"{'':21} {'ours/ms':>9}  {'ratio':>6}  {'build s':>7}  others/ms")
    modes = [mode for mode in (False, True) if not (options.forward if mode else options.gradient)]
    ratios = [
        compare(name, gradient, options)
        for gradient in modes
        for name in PROGRAMS
        if options.only is None or options.only in name
    ]
    print(f"geometric mean of the ratios: {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
