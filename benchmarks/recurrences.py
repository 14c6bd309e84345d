"""Recurrences with small steps beside JAX: ``python benchmarks/recurrences.py [--only NAME]``.

Two families. Affine and elementwise ones (averages, filters, products, discounted returns) over few
or many rows, beside `jax.lax.scan` and `jax.lax.associative_scan`; steps of little arithmetic over
many rows (a Kalman filter, a small GRU, Lorenz's equations, compartments, Newton's method), beside
`jax.lax.scan`. Each gives its stacked results, and a sum of squares of them with gradients.
Microseconds are minima of alternating runs; a ratio is the time of the fastest of JAX over ours.
JAX has no switch for the threads of a CPU: with ``--threads 1`` start it under ``taskset -c 0``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tvm import te

import tvm_autodiff as ad

ROUNDS = 6  #: turns of each library
REST = 0.05  #: seconds after which threads that spin for new work have given up
SIZES = ((1, 1_000_000), (8, 100_000), (64, 4_096), (4_096, 1_000))  #: rows and steps

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Program:
    """A recurrence written twice: tensors → stacked results, and arrays → the same.

    `associative` is JAX's other way, where there is one; `made` has values that are not random.
    """

    shapes: Shapes
    ours: Callable[..., te.Tensor]
    theirs: Callable[..., Any]
    associative: Callable[..., Any] | None = None
    made: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = field(
        default_factory=dict
    )


def uniform(low: float, high: float) -> Callable[..., np.ndarray]:
    return lambda rng, shape: rng.uniform(low, high, shape)


def same(shape: Any, value: Callable[..., Any], name: str = "v") -> te.Tensor:
    return te.compute(shape, value, name=name)


def scanned(a: Any, b: Any, h0: Any) -> Any:
    """States of ``h' = a h + b`` by JAX's parallel prefix."""

    def joined(left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    products, sums = jax.lax.associative_scan(joined, (jnp.broadcast_to(a, b.shape), b))
    return products * h0 + sums


def average(rows: int, steps: int) -> Program:
    """An exponential moving average, ``h' = h + a (x - h)``."""

    def ours(x: Any, a: Any, h0: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            new = same(h.shape, lambda i: h[i] + a[i] * (x[i] - h[i]), "h")
            return new, new

        return ad.scan(step, h0, x)[1]

    def theirs(x: Any, a: Any, h0: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            new = h + a * (x - h)
            return new, new

        return jax.lax.scan(step, h0, x)[1]

    shapes = {"x": (steps, rows), "a": (rows,), "h0": (rows,)}
    return Program(
        shapes, ours, theirs, lambda x, a, h0: scanned(1 - a, a * x, h0), {"a": uniform(0.01, 0.3)}
    )


def gated(rows: int, steps: int) -> Program:
    """A state-space model whose coefficients vary with time, ``h' = a_t h + b_t``."""

    def ours(a: Any, b: Any, h0: Any) -> Any:
        def step(h: Any, now: Any) -> Any:
            a, b = now
            new = same(h.shape, lambda i: a[i] * h[i] + b[i], "h")
            return new, new

        return ad.scan(step, h0, (a, b))[1]

    def theirs(a: Any, b: Any, h0: Any) -> Any:
        def step(h: Any, now: Any) -> Any:
            new = now[0] * h + now[1]
            return new, new

        return jax.lax.scan(step, h0, (a, b))[1]

    shapes = {"a": (steps, rows), "b": (steps, rows), "h0": (rows,)}
    return Program(shapes, ours, theirs, scanned, {"a": uniform(0.5, 1.0)})


def products(rows: int, steps: int) -> Program:
    """Cumulative products."""

    def ours(a: Any, h0: Any) -> Any:
        def step(h: Any, a: Any) -> Any:
            new = same(h.shape, lambda i: a[i] * h[i], "h")
            return new, new

        return ad.scan(step, h0, a)[1]

    def theirs(a: Any, h0: Any) -> Any:
        def step(h: Any, a: Any) -> Any:
            return a * h, a * h

        return jax.lax.scan(step, h0, a)[1]

    def associative(a: Any, h0: Any) -> Any:
        return h0 * jax.lax.associative_scan(jnp.multiply, a)

    shapes = {"a": (steps, rows), "h0": (rows,)}
    near = 1.0 / steps
    return Program(shapes, ours, theirs, associative, {"a": uniform(1 - near, 1 + near)})


def lorenz(rows: int, steps: int) -> Program:
    """Lorenz's equations by Runge and Kutta's method of fourth order."""
    dt = 0.005

    def ours(y0: Any, p: Any) -> Any:
        def rate(y: Any) -> Any:
            def value(i: Any, c: Any) -> Any:
                first = p[0] * (y[i, 1] - y[i, 0])
                second = y[i, 0] * (p[1] - y[i, 2]) - y[i, 1]
                third = y[i, 0] * y[i, 1] - p[2] * y[i, 2]
                return te.if_then_else(c == 0, first, te.if_then_else(c == 1, second, third))

            return same(y.shape, value, "rate")

        def moved(y: Any, k: Any, h: float) -> Any:
            return same(y.shape, lambda i, c: y[i, c] + h * k[i, c], "moved")

        def step(y: Any, _: Any) -> Any:
            a = rate(y)
            b = rate(moved(y, a, dt / 2))
            c = rate(moved(y, b, dt / 2))
            d = rate(moved(y, c, dt))
            new = same(
                y.shape,
                lambda i, n: y[i, n] + dt / 6 * (a[i, n] + 2 * b[i, n] + 2 * c[i, n] + d[i, n]),
                "y",
            )
            return new, new

        return ad.scan(step, y0, length=steps)[1]

    def theirs(y0: Any, p: Any) -> Any:
        def rate(y: Any) -> Any:
            a, b, c = y[:, 0], y[:, 1], y[:, 2]
            return jnp.stack([p[0] * (b - a), a * (p[1] - c) - b, a * b - p[2] * c], 1)

        def step(y: Any, _: Any) -> Any:
            a = rate(y)
            b = rate(y + dt / 2 * a)
            c = rate(y + dt / 2 * b)
            d = rate(y + dt * c)
            new = y + dt / 6 * (a + 2 * b + 2 * c + d)
            return new, new

        return jax.lax.scan(step, y0, length=steps)[1]

    def rates(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return np.array([10.0, 28.0, 8.0 / 3.0])

    return Program({"y0": (rows, 3), "p": (3,)}, ours, theirs, made={"p": rates})


def compartments(rows: int, steps: int) -> Program:
    """Four compartments with flows between neighbours, an explicit step."""

    def ours(y0: Any, k: Any) -> Any:
        def step(y: Any, _: Any) -> Any:
            m = te.reduce_axis((0, 4), "m")
            flow = same(y.shape, lambda i, c: te.sum(k[m, c] * y[i, m], axis=m), "flow")
            new = same(y.shape, lambda i, c: y[i, c] + 0.01 * flow[i, c], "y")
            return new, new

        return ad.scan(step, y0, length=steps)[1]

    def theirs(y0: Any, k: Any) -> Any:
        def step(y: Any, _: Any) -> Any:
            new = y + 0.01 * (y @ k)
            return new, new

        return jax.lax.scan(step, y0, length=steps)[1]

    return Program({"y0": (rows, 4), "k": (4, 4)}, ours, theirs)


def kalman(rows: int, steps: int) -> Program:
    """A filter of position and speed, of which the position is measured."""

    def ours(z: Any, m0: Any, p0: Any, q: Any) -> Any:
        def step(state: Any, z: Any) -> Any:
            m, p = state
            ahead = same(
                m.shape, lambda i, c: m[i, c] + te.if_then_else(c == 0, 0.1 * m[i, 1], 0.0), "ahead"
            )
            f = same(
                p.shape, lambda i, a, b: p[i, a, b] + te.if_then_else(a == 0, 0.1 * p[i, 1, b], 0.0)
            )
            g = same(
                p.shape,
                lambda i, a, b: (
                    f[i, a, b] + te.if_then_else(b == 0, 0.1 * f[i, a, 1], 0.0) + q[a, b]
                ),
            )
            gain = same(m.shape, lambda i, c: g[i, c, 0] / (g[i, 0, 0] + 0.5), "gain")
            new = same(m.shape, lambda i, c: ahead[i, c] + gain[i, c] * (z[i] - ahead[i, 0]), "m")
            left = same(p.shape, lambda i, a, b: g[i, a, b] - gain[i, a] * g[i, 0, b], "p")
            return (new, left), new

        return ad.scan(step, (m0, p0), z)[1]

    def theirs(z: Any, m0: Any, p0: Any, q: Any) -> Any:
        def step(state: Any, z: Any) -> Any:
            m, p = state
            ahead = m.at[:, 0].add(0.1 * m[:, 1])
            f = p.at[:, 0].add(0.1 * p[:, 1])
            g = f.at[:, :, 0].add(0.1 * f[:, :, 1]) + q
            gain = g[:, :, 0] / (g[:, 0, 0] + 0.5)[:, None]
            new = ahead + gain * (z - ahead[:, 0])[:, None]
            left = g - gain[:, :, None] * g[:, None, 0]
            return (new, left), new

        return jax.lax.scan(step, (m0, p0), z)[1]

    def unit(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return np.broadcast_to(np.eye(2), shape)

    shapes = {"z": (steps, rows), "m0": (rows, 2), "p0": (rows, 2, 2), "q": (2, 2)}
    made = {"p0": unit, "q": lambda rng, shape: 0.01 * np.eye(2)}
    return Program(shapes, ours, theirs, made=made)


def gru(rows: int, steps: int, size: int = 8) -> Program:
    """A small gated unit, whose inputs are multiplied already."""

    def ours(x: Any, u: Any, h0: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            k = te.reduce_axis((0, size), "k")
            q = same(x.shape, lambda i, j: te.sum(h[i, k] * u[k, j], axis=k), "q")

            def new(i: Any, j: Any) -> Any:
                z = te.sigmoid(x[i, j] + q[i, j])
                r = te.sigmoid(x[i, j + size] + q[i, j + size])
                n = te.tanh(x[i, j + 2 * size] + r * q[i, j + 2 * size])
                return (1.0 - z) * n + z * h[i, j]

            out = same(h.shape, new, "h")
            return out, out

        return ad.scan(step, h0, x)[1]

    def theirs(x: Any, u: Any, h0: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            (pz, pr, pn), (qz, qr, qn) = jnp.split(x, 3, 1), jnp.split(h @ u, 3, 1)
            z, r = jax.nn.sigmoid(pz + qz), jax.nn.sigmoid(pr + qr)
            new = (1 - z) * jnp.tanh(pn + r * qn) + z * h
            return new, new

        return jax.lax.scan(step, h0, x)[1]

    shapes = {"x": (steps, rows, 3 * size), "u": (size, 3 * size), "h0": (rows, size)}
    return Program(shapes, ours, theirs)


def newton(rows: int, steps: int) -> Program:
    """Kepler's equation, element by element."""

    def ours(m: Any, e: Any, y0: Any) -> Any:
        def step(y: Any, _: Any) -> Any:
            def value(i: Any) -> Any:
                return y[i] - (y[i] - e[i] * te.sin(y[i]) - m[i]) / (1.0 - e[i] * te.cos(y[i]))

            return same(y.shape, value, "y"), []

        return ad.scan(step, y0, length=steps)[0]

    def theirs(m: Any, e: Any, y0: Any) -> Any:
        def step(y: Any, _: Any) -> Any:
            return y - (y - e * jnp.sin(y) - m) / (1 - e * jnp.cos(y)), None

        return jax.lax.scan(step, y0, length=steps)[0]

    made = {"e": uniform(0.1, 0.6), "m": uniform(0.5, 2.5), "y0": uniform(1.0, 2.0)}
    return Program({"m": (rows,), "e": (rows,), "y0": (rows,)}, ours, theirs, made=made)


AFFINE = {"average": average, "gated": gated, "products": products}

PROGRAMS: dict[str, Callable[[], Program]] = {
    f"{name} {rows}x{steps}": (lambda make=make, rows=rows, steps=steps: make(rows, steps))
    for name, make in AFFINE.items()
    for rows, steps in SIZES
} | {
    "lorenz 4096x200": lambda: lorenz(4_096, 200),
    "lorenz 64x1000": lambda: lorenz(64, 1_000),
    "compartments 1000x500": lambda: compartments(1_000, 500),
    "kalman 512x500": lambda: kalman(512, 500),
    "gru 256x100": lambda: gru(256, 100),
    "newton 10000x20": lambda: newton(10_000, 20),
}


def arrays_of(program: Program, dtype: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)

    def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return 0.5 * rng.standard_normal(shape)

    return {
        name: np.ascontiguousarray(program.made.get(name, normal)(rng, shape), dtype)
        for name, shape in program.shapes.items()
    }


def built(program: Program, gradient: bool, options: argparse.Namespace) -> tuple[Any, float]:
    """Our function, and the seconds that differentiation and compilation take."""
    begin = time.perf_counter()
    given = {n: te.placeholder(s, options.dtype, n) for n, s in program.shapes.items()}
    ys = program.ours(**given)
    outputs = [ys]
    if gradient:
        axes = [te.reduce_axis((0, extent), "r") for extent in ys.shape]
        loss = te.compute((), lambda: te.sum(ys[tuple(axes)] * ys[tuple(axes)], axis=axes), "loss")
        outputs = [loss, *ad.differentiate(loss, list(given.values()))]
    function = ad.build(list(given.values()), outputs, num_threads=options.threads, cache=False)
    return function, time.perf_counter() - begin


def compiled(program: Program, way: Callable[..., Any], gradient: bool) -> Any:
    """JAX's function of all inputs."""
    if not gradient:
        return jax.jit(lambda *values: way(*values))
    return jax.jit(
        jax.value_and_grad(lambda *v: (way(*v) ** 2).sum(), tuple(range(len(program.shapes))))
    )


def in_turns(functions: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """The least times of some functions, which take turns."""
    least = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    for _ in range(ROUNDS):
        for name, function in functions.items():
            time.sleep(REST)
            end = time.perf_counter() + seconds / ROUNDS
            while True:
                begin = time.perf_counter()
                function()
                now = time.perf_counter()
                least[name] = min(least[name], now - begin)
                if now >= end:
                    break
    return least


def compare(name: str, gradient: bool, options: argparse.Namespace) -> float:
    """Measure one program, print a row; how many times faster ours is than JAX's faster way."""
    program = PROGRAMS[name]()
    values = list(arrays_of(program, options.dtype).values())
    ours, building = built(program, gradient, options)
    functions: dict[str, Callable[[], Any]] = {"ours": lambda: ours(*values)}
    if not options.alone:
        ways = {"scan": program.theirs, "associative": program.associative}
        given = [jnp.asarray(value) for value in values]
        made = {w: compiled(program, f, gradient) for w, f in ways.items() if f is not None}
        expected = jax.tree_util.tree_leaves(made["scan"](*given))
        for got, want in zip(ours(*values), expected, strict=True):
            size = float(np.abs(np.asarray(want)).max())
            # what is smaller than all normal numbers is zero for some
            np.testing.assert_allclose(got, want, rtol=1e-2, atol=2e-3 * size + 1e-36)
        functions |= {w: lambda f=f: jax.block_until_ready(f(*given)) for w, f in made.items()}
    least = in_turns(functions, options.seconds)
    mine = least.pop("ours")
    ratio = min(least.values()) / mine if least else 1.0
    others = "  ".join(f"{way} {1e6 * spent:.0f}" for way, spent in least.items())
    what = "gradient" if gradient else "forward"
    print(f"{name:22} {what:8} {1e6 * mine:9.0f}  {ratio:6.2f}  {building:6.2f}   {others}")
    return ratio


def main() -> None:
    """Compare the programs that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="programs whose name holds this")
    parser.add_argument("--seconds", type=float, default=0.5, help="of calls for each library")
    parser.add_argument("--threads", type=int, help="of our functions; all by default")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--forward", action="store_true", help="no gradients")
    parser.add_argument("--gradient", action="store_true", help="nothing else")
    parser.add_argument("--alone", action="store_true", help="without JAX")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", options.dtype == "float64")
    print(f"{'':31} {'ours/us':>9}  {'ratio':>6}  {'build s':>7}  JAX/us")
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
