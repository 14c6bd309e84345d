"""Recurrences written twice: as steps of te tensors, and as steps of JAX.

A case has the shapes of its inputs, and two functions from inputs to a list of results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import scan as jscan
from tvm import te

import tvm_autodiff as ad

D = "float64"


@dataclass(frozen=True)
class Case:
    """A recurrence.

    Attributes
    ----------
    shapes : tuple of shape
        Of the inputs.
    ours, theirs : callable
        The results of te tensors, and of arrays.
    scale : float
        Of the inputs' values, so that no state grows out of bounds.
    """

    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., list[Any]]
    theirs: Callable[..., list[Any]]
    scale: float = 0.5


def at(tensor: te.Tensor, place: tuple[Any, ...]) -> Any:
    """An element; tensors with fewer axes are repeated along the first ones."""
    return tensor(*place[len(place) - len(tensor.shape) :])


def each(function: Callable[..., Any], *tensors: te.Tensor, name: str = "e") -> te.Tensor:
    """An elementwise stage over the shape of the first tensor."""
    return te.compute(
        tensors[0].shape, lambda *i: function(*(at(t, i) for t in tensors)), name=name
    )


def times(w: te.Tensor, x: te.Tensor) -> te.Tensor:
    """``y[..., i] = Σ_k w[i, k]·x[..., k]``."""
    k = te.reduce_axis((0, w.shape[1]), "k")
    shape = (*list(x.shape)[:-1], w.shape[0])
    return te.compute(shape, lambda *i: te.sum(w[i[-1], k] * x(*i[:-1], k), axis=k), name="wx")


def total(x: te.Tensor) -> te.Tensor:
    ks = [te.reduce_axis((0, n), "k") for n in x.shape]
    return te.compute((), lambda: te.sum(x(*ks), axis=ks), name="total")


# ---- networks ----


def rnn(h0, xs, w, u):
    def cell(h, x):
        new = each(lambda a, b: te.tanh(a + b), times(w, h), times(u, x))
        return new, new

    return list(ad.scan(cell, h0, xs))


def rnn_jax(h0, xs, w, u):
    def cell(h, x):
        new = jnp.tanh(h @ w.T + x @ u.T)
        return new, new

    return list(jscan(cell, h0, xs))


def gru(h0, xs, wz, wr, wn, b):
    def cell(h, x):
        z = each(lambda a, c, v: te.sigmoid(a + c + v), times(wz, h), x, b)
        r = each(lambda a, c: te.sigmoid(a + c), times(wr, h), x)
        n = each(lambda a, c, g: te.tanh(c + g * a), times(wn, h), x, r)
        new = each(lambda z, n, h: (1.0 - z) * n + z * h, z, n, h)
        return new, new

    return list(ad.scan(cell, h0, xs))


def gru_jax(h0, xs, wz, wr, wn, b):
    def cell(h, x):
        z = jax.nn.sigmoid(h @ wz.T + x + b)
        r = jax.nn.sigmoid(h @ wr.T + x)
        new = (1 - z) * jnp.tanh(x + r * (h @ wn.T)) + z * h
        return new, new

    return list(jscan(cell, h0, xs))


def lstm(h0, c0, xs, w, u):
    size = h0.shape[-1]

    def cell(carry, x):
        h, c = carry
        gates = each(lambda a, b: a + b, times(w, h), times(u, x), name="gates")

        def gate(n, f):
            return te.compute(h.shape, lambda b, i: f(gates[b, n * size + i]), name=f"gate{n}")

        i, f, o = (gate(n, te.sigmoid) for n in range(3))
        new_c = each(lambda i, g, f, c: i * g + f * c, i, gate(3, te.tanh), f, c)
        new_h = each(lambda o, c: o * te.tanh(c), o, new_c)
        return (new_h, new_c), new_h

    (h, c), ys = ad.scan(cell, (h0, c0), xs)
    return [h, c, ys]


def lstm_jax(h0, c0, xs, w, u):
    def cell(carry, x):
        h, c = carry
        i, f, o, g = jnp.split(h @ w.T + x @ u.T, 4, axis=-1)
        c = jax.nn.sigmoid(i) * jnp.tanh(g) + jax.nn.sigmoid(f) * c
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    (h, c), ys = jscan(cell, (h0, c0), xs)
    return [h, c, ys]


def bidirectional(h0, xs, w, v):
    def cell_of(weights):
        def cell(h, x):
            new = each(lambda a, b: te.tanh(a + b), times(weights, h), x)
            return new, new

        return cell

    _, left = ad.scan(cell_of(w), h0, xs)
    _, right = ad.scan(cell_of(v), h0, xs, reverse=True)
    return [each(lambda a, b: a * b, left, right)]


def bidirectional_jax(h0, xs, w, v):
    def cell_of(weights):
        def cell(h, x):
            new = jnp.tanh(h @ weights.T + x)
            return new, new

        return cell

    _, left = jscan(cell_of(w), h0, xs)
    _, right = jscan(cell_of(v), h0, xs, reverse=True)
    return [left * right]


def two_layers(h0, g0, xs, w, v):
    def lower(h, x):
        new = each(lambda a, b: te.tanh(a + b), times(w, h), x)
        return new, new

    last, ys = ad.scan(lower, h0, xs)

    def upper(g, y):
        new = each(lambda a, b: te.sin(a) + b, times(v, g), y)
        return new, new

    return [last, *ad.scan(upper, g0, ys)]


def two_layers_jax(h0, g0, xs, w, v):
    def lower(h, x):
        new = jnp.tanh(h @ w.T + x)
        return new, new

    last, ys = jscan(lower, h0, xs)

    def upper(g, y):
        new = jnp.sin(g @ v.T) + y
        return new, new

    return [last, *jscan(upper, g0, ys)]


# ---- differential equations ----


def rk4(rate, state, dt, plus):
    """One step of the classical Runge–Kutta method; `plus(s, k, h) = s + h·k`."""
    k1 = rate(state)
    k2 = rate(plus(state, k1, dt / 2))
    k3 = rate(plus(state, k2, dt / 2))
    k4 = rate(plus(state, k3, dt))
    for k, part in ((k1, 6), (k2, 3), (k3, 3), (k4, 6)):
        state = plus(state, k, dt / part)
    return state


def lotka_volterra(s0, p):
    """Trajectories ``(prey, predators)``, rates as p."""

    def rate(s):
        def body(i, b):
            x, y = s[0, b], s[1, b]
            prey, predators = p[0] * x - p[1] * x * y, p[2] * x * y - p[3] * y
            return te.if_then_else(i == 0, prey, predators)

        return te.compute(s.shape, body, name="rate")

    def plus(s, k, h):
        return each(lambda a, b: a + h * b, s, k, name="plus")

    def step(s, _):
        return rk4(rate, s, 0.1, plus), s

    return list(ad.scan(step, s0, length=4))


def lotka_volterra_jax(s0, p):
    def rate(s):
        x, y = s
        return jnp.stack([p[0] * x - p[1] * x * y, p[2] * x * y - p[3] * y])

    def step(s, _):
        return rk4(rate, s, 0.1, lambda s, k, h: s + h * k), s

    return list(jscan(step, s0, length=4))


def stiff_chain(s0, k):
    """Robertson's reactions, by an implicit step that a fixed point iteration of its own solves."""

    def rate(s):
        def body(i):
            first, second = k[0] * s[0] - k[1] * s[1] * s[2], k[2] * s[1] * s[1]
            return te.if_then_else(i == 0, -first, te.if_then_else(i == 1, first - second, second))

        return te.compute((3,), body, name="rate")

    def step(s, _):
        def inner(guess, _):
            return each(lambda a, b: a + 0.1 * b, s, rate(guess)), None

        new, _ = ad.scan(inner, s, length=3)
        return new, new

    return list(ad.scan(step, s0, length=3))


def stiff_chain_jax(s0, k):
    def rate(s):
        first, second = k[0] * s[0] - k[1] * s[1] * s[2], k[2] * s[1] ** 2
        return jnp.stack([-first, first - second, second])

    def step(s, _):
        new, _ = jscan(lambda guess, _: (s + 0.1 * rate(guess), None), s, length=3)
        return new, new

    return list(jscan(step, s0, length=3))


def diffusion(u0, kappa):
    n = u0.shape[0]

    def step(u, _):
        def body(i):
            left = te.if_then_else(i > 0, u[i - 1], 0.0)
            right = te.if_then_else(i < n - 1, u[i + 1], 0.0)
            return u[i] + kappa[i] * (left - 2.0 * u[i] + right)

        return te.compute((n,), body, name="u"), None

    return [ad.scan(step, u0, length=6)[0]]


def diffusion_jax(u0, kappa):
    def step(u, _):
        padded = jnp.pad(u, 1)
        return u + kappa * (padded[:-2] - 2 * u + padded[2:]), None

    return [jscan(step, u0, length=6)[0]]


def wave(u0, u1, c):
    n = u0.shape[0]

    def step(carry, _):
        old, now = carry["old"], carry["now"]

        def body(i):
            near = now[(i + 1) % n] - 2.0 * now[i] + now[(i + n - 1) % n]
            return 2.0 * now[i] - old[i] + c() * near

        return {"old": now, "now": te.compute((n,), body, name="new")}, now

    last, ys = ad.scan(step, {"old": u0, "now": u1}, length=5)
    return [last["old"], last["now"], ys]


def wave_jax(u0, u1, c):
    def step(carry, _):
        old, now = carry
        near = jnp.roll(now, -1) - 2 * now + jnp.roll(now, 1)
        return (now, 2 * now - old + c * near), now

    (old, now), ys = jscan(step, (u0, u1), length=5)
    return [old, now, ys]


def leapfrog(q0, p0, m):
    def step(carry, _):
        q, p = carry
        half = each(lambda p, q: p - 0.1 * te.sin(q), p, q)
        q = each(lambda q, p, m: q + 0.2 * p * m, q, half, m)
        return (q, each(lambda p, q: p - 0.1 * te.sin(q), half, q)), None

    (q, p), _ = ad.scan(step, (q0, p0), length=5)
    return [q, p]


def leapfrog_jax(q0, p0, m):
    def step(carry, _):
        q, p = carry
        half = p - 0.1 * jnp.sin(q)
        q = q + 0.2 * half * m
        return (q, half - 0.1 * jnp.sin(q)), None

    (q, p), _ = jscan(step, (q0, p0), length=5)
    return [q, p]


# ---- filters and estimation ----


def kalman(m0, p0, zs, f, q):
    """A state of two components, of which the first is measured."""

    def step(carry, z):
        m, p = carry
        mean = times(f, m)
        k, j = te.reduce_axis((0, 2), "k"), te.reduce_axis((0, 2), "j")
        cov = te.compute(
            (2, 2), lambda a, b: te.sum(f[a, k] * p[k, j] * f[b, j], axis=[k, j]), name="fpf"
        )
        cov = each(lambda c, q: c + q * q, cov, q)
        gain = te.compute((2,), lambda a: cov[a, 0] / (cov[0, 0] + 1.0), name="gain")
        new = te.compute((2,), lambda a: mean[a] + gain[a] * (z() - mean[0]), name="mean")
        left = te.compute((2, 2), lambda a, b: cov[a, b] - gain[a] * cov[0, b], name="cov")
        return (new, left), new

    (m, p), ys = ad.scan(step, (m0, p0), zs)
    return [m, p, ys]


def kalman_jax(m0, p0, zs, f, q):
    def step(carry, z):
        m, p = carry
        mean, cov = f @ m, f @ p @ f.T + q * q
        gain = cov[:, 0] / (cov[0, 0] + 1)
        new = mean + gain * (z - mean[0])
        return (new, cov - jnp.outer(gain, cov[0])), new

    (m, p), ys = jscan(step, (m0, p0), zs)
    return [m, p, ys]


def hmm_forward(start, moves, seen):
    """The forward algorithm in log space: a log-sum-exp a step."""
    n = start.shape[0]

    def step(alpha, e):
        k, j = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "j")
        paths = te.compute((n, n), lambda i, k: alpha[k] + moves[k, i], name="paths")
        top = te.compute((n,), lambda i: te.max(paths[i, k], axis=k), name="top")
        mass = te.compute((n,), lambda i: te.sum(te.exp(paths[i, j] - top[i]), axis=j), name="mass")
        new = te.compute((n,), lambda i: top[i] + te.log(mass[i]) + e[i], name="alpha")
        return new, None

    return [ad.scan(step, start, seen)[0]]


def hmm_forward_jax(start, moves, seen):
    def step(alpha, e):
        return jax.nn.logsumexp(alpha[:, None] + moves, axis=0) + e, None

    return [jscan(step, start, seen)[0]]


def average(mean, xs):
    def step(mean, x):
        new = each(lambda m, x: 0.9 * m + 0.1 * x, mean, x)
        return new, new

    return list(ad.scan(step, mean, xs))


def average_jax(mean, xs):
    def step(mean, x):
        new = 0.9 * mean + 0.1 * x
        return new, new

    return list(jscan(step, mean, xs))


def iir(xs, a, b):
    """A biquad in direct form II; its state is made of zeros."""
    zero = te.compute((2,), lambda i: te.const(0.0, D), name="zero")

    def step(w, x):
        now = te.compute((), lambda: x() - a[0] * w[0] - a[1] * w[1], name="now")
        y = te.compute((), lambda: b[0] * now() + b[1] * w[0] + b[2] * w[1], name="y")
        return te.compute((2,), lambda i: te.if_then_else(i == 0, now(), w[0]), name="w"), y

    return [ad.scan(step, zero, xs)[1]]


def iir_jax(xs, a, b):
    def step(w, x):
        now = x - a @ w
        return jnp.stack([now, w[0]]), b[0] * now + b[1:] @ w

    return [jscan(step, jnp.zeros(2), xs)[1]]


def returns(last, rewards, gamma):
    def step(value, r):
        new = each(lambda v, r, g: r + g * v, value, r, gamma)
        return new, new

    return [ad.scan(step, last, rewards, reverse=True)[1]]


def returns_jax(last, rewards, gamma):
    def step(value, r):
        new = r + gamma * value
        return new, new

    return [jscan(step, last, rewards, reverse=True)[1]]


def state_space(s0, us, a, b, c):
    def step(s, u):
        new = each(lambda s, a, b, u: te.exp(a) * s + b * u, s, a, b, u)
        k = te.reduce_axis((0, s.shape[0]), "k")
        return new, te.compute((), lambda: te.sum(c[k] * new[k], axis=k), name="y")

    return list(ad.scan(step, s0, us))


def state_space_jax(s0, us, a, b, c):
    def step(s, u):
        new = jnp.exp(a) * s + b * u
        return new, c @ new

    return list(jscan(step, s0, us))


# ---- optimisation and algebra ----


def momentum(w0, v0, xs, ys, rate):
    """Training itself: the loss of each step, by the learning rate, too."""

    def step(carry, data):
        (w, v), (x, y) = carry, data
        k = te.reduce_axis((0, w.shape[0]), "k")
        error = te.compute((), lambda: te.sum(w[k] * x[k], axis=k), name="wx")
        error = te.compute((), lambda: error() - y(), name="error")
        v = each(lambda v, x: 0.9 * v + 2.0 * error() * x, v, x)
        w = each(lambda w, v, r: w - r * v, w, v, rate)
        return (w, v), each(lambda e: e * e, error)

    (w, v), losses = ad.scan(step, (w0, v0), (xs, ys))
    return [w, v, losses]


def momentum_jax(w0, v0, xs, ys, rate):
    def step(carry, data):
        (w, v), (x, y) = carry, data
        error = w @ x - y
        v = 0.9 * v + 2 * error * x
        return (w - rate * v, v), error**2

    (w, v), losses = jscan(step, (w0, v0), (xs, ys))
    return [w, v, losses]


def newton(a):
    one = te.compute(a.shape, lambda i: te.const(1.0, D), name="one")

    def step(y, _):
        return each(lambda y, a: 0.5 * (y + (1.0 + a * a) / y), y, a), None

    return [ad.scan(step, one, length=6)[0]]


def newton_jax(a):
    step = lambda y, _: (0.5 * (y + (1 + a * a) / y), None)  # noqa: E731
    return [jscan(step, jnp.ones_like(a), length=6)[0]]


def nested(h0, xs, w):
    """For each row of a matrix a loop over its elements."""

    def row(h, x):
        def element(s, e):
            new = each(lambda a, e, s: te.sin(a) * e + 0.5 * s, times(w, s), e, s)
            return new, total(new)

        new, inner = ad.scan(element, h, x, reverse=True)
        return each(lambda a, b: a + 0.1 * b, new, h), inner

    return list(ad.scan(row, h0, xs))


def nested_jax(h0, xs, w):
    def row(h, x):
        def element(s, e):
            new = jnp.sin(w @ s) * e + 0.5 * s
            return new, new.sum()

        new, inner = jscan(element, h, x, reverse=True)
        return new + 0.1 * h, inner

    return list(jscan(row, h0, xs))


def power_iteration(v0, a):
    def step(v, _):
        w = times(a, v)
        squares = total(each(lambda w: w * w, w))
        return each(lambda w, s: w / te.sqrt(s + 1.0), w, squares), squares

    return list(ad.scan(step, v0, length=4))


def power_iteration_jax(v0, a):
    def step(v, _):
        w = a @ v
        squares = w @ w
        return w / jnp.sqrt(squares + 1), squares

    return list(jscan(step, v0, length=4))


def matrix_chain(m0, ms):
    """Products of matrices; the carry is read along another axis than it is written."""
    n = m0.shape[0]

    def step(p, m):
        k = te.reduce_axis((0, n), "k")
        return te.compute((n, n), lambda i, j: te.sum(p[k, i] * m[k, j], axis=k), name="p"), None

    return [ad.scan(step, m0, ms)[0]]


def matrix_chain_jax(m0, ms):
    return [jscan(lambda p, m: (p.T @ m, None), m0, ms)[0]]


def horner(x, coefficients):
    zero = te.compute(x.shape, lambda i: te.const(0.0, D), name="zero")
    step = lambda y, c: (each(lambda y, x, c: y * x + c, y, x, c), None)  # noqa: E731
    return [ad.scan(step, zero, coefficients)[0]]


def horner_jax(x, coefficients):
    return [jscan(lambda y, c: (y * x + c, None), jnp.zeros_like(x), coefficients)[0]]


def running_softmax(q, keys, values):
    """Attention of one query with a running maximum."""
    least = te.compute((), lambda: te.const(-1e3, D), name="least")
    zero = te.compute((), lambda: te.const(0.0, D), name="zero")
    none = te.compute(q.shape, lambda i: te.const(0.0, D), name="none")

    def step(carry, pair):
        (top, mass, out), (key, value) = carry, pair
        k = te.reduce_axis((0, q.shape[0]), "k")
        score = te.compute((), lambda: te.sum(q[k] * key[k], axis=k), name="score")
        higher = each(larger, top, score)
        old = each(lambda a, b: te.exp(a - b), top, higher)
        new = each(lambda a, b: te.exp(a - b), score, higher)
        mass = each(lambda m, o, n: m * o + n, mass, old, new)
        out = each(lambda y, v, o, n: y * o + v * n, out, value, old, new)
        return (higher, mass, out), None

    (_, mass, out), _ = ad.scan(step, (least, zero, none), (keys, values))
    return [each(lambda y, m: y / m, out, mass)]


def larger(a, b):
    return te.if_then_else(a > b, a, b)


def running_softmax_jax(q, keys, values):
    def step(carry, pair):
        (top, mass, out), (key, value) = carry, pair
        score = q @ key
        higher = jnp.where(top > score, top, score)
        old, new = jnp.exp(top - higher), jnp.exp(score - higher)
        return (higher, mass * old + new, out * old + value * new), None

    start = (jnp.float64(-1e3), jnp.float64(0), jnp.zeros_like(q))
    (_, mass, out), _ = jscan(step, start, (keys, values))
    return [out / mass]


def counted(h0, table):
    """A carry of integers says what is read."""
    start = te.compute((), lambda: te.const(1, "int32"), name="start")
    n = table.shape[0]

    def step(carry, _):
        count, h = carry
        after = te.compute((), lambda: (count() * 2 + 1) % n, name="after")
        new = te.compute(h.shape, lambda i: te.sin(h[i]) + h[i] * table[count(), i], name="h")
        return (after, new), count

    (_, h), _ = ad.scan(step, (start, h0), length=4)
    return [h]


def counted_jax(h0, table):
    def step(carry, _):
        count, h = carry
        return ((count * 2 + 1) % len(table), jnp.sin(h) + h * table[count]), None

    (_, h), _ = jscan(step, (jnp.int32(1), h0), length=4)
    return [h]


def mapped(xs, w):
    """No carry at all."""
    step = lambda _, x: (None, each(te.tanh, times(w, x)))  # noqa: E731
    return [ad.scan(step, None, xs)[1]]


def mapped_jax(xs, w):
    return [jscan(lambda _, x: (None, jnp.tanh(w @ x)), None, xs)[1]]


def same_sequence(h0, xs):
    """A sequence that the steps also read as a whole, and a carry that changes places."""

    def step(carry, x):
        a, b = carry
        k = te.reduce_axis((0, xs.shape[0]), "k")
        whole = te.compute(a.shape, lambda i: te.sum(xs[k, i] * a[i], axis=k), name="whole")
        return (b, each(lambda w, x, b: te.sin(w) + x * b, whole, x, b)), a

    (a, b), ys = ad.scan(step, (h0, h0), xs)
    return [a, b, ys]


def same_sequence_jax(h0, xs):
    def step(carry, x):
        a, b = carry
        return (b, jnp.sin(xs.sum(0) * a) + x * b), a

    (a, b), ys = jscan(step, (h0, h0), xs)
    return [a, b, ys]


CASES = {
    "rnn": Case(((2, 3), (4, 2, 2), (3, 3), (3, 2)), rnn, rnn_jax),
    "gru": Case(((2, 3), (4, 2, 3), (3, 3), (3, 3), (3, 3), (3,)), gru, gru_jax),
    "lstm": Case(((2, 3), (2, 3), (4, 2, 2), (12, 3), (12, 2)), lstm, lstm_jax),
    "bidirectional": Case(((3,), (4, 3), (3, 3), (3, 3)), bidirectional, bidirectional_jax),
    "two layers": Case(((3,), (3,), (4, 3), (3, 3), (3, 3)), two_layers, two_layers_jax),
    "Lotka-Volterra by RK4": Case(((2, 3), (4,)), lotka_volterra, lotka_volterra_jax),
    "stiff chain": Case(((3,), (3,)), stiff_chain, stiff_chain_jax),
    "diffusion": Case(((5,), (5,)), diffusion, diffusion_jax),
    "wave": Case(((5,), (5,), ()), wave, wave_jax),
    "leapfrog": Case(((3,), (3,), (3,)), leapfrog, leapfrog_jax),
    "Kalman filter": Case(((2,), (2, 2), (4,), (2, 2), (2, 2)), kalman, kalman_jax),
    "HMM": Case(((3,), (3, 3), (4, 3)), hmm_forward, hmm_forward_jax),
    "moving average": Case(((2,), (5, 2)), average, average_jax),
    "IIR filter": Case(((6,), (2,), (3,)), iir, iir_jax),
    "discounted returns": Case(((2,), (5, 2), ()), returns, returns_jax),
    "state space": Case(((3,), (5,), (3,), (3,), (3,)), state_space, state_space_jax),
    "momentum": Case(((3,), (3,), (4, 3), (4,), ()), momentum, momentum_jax, 0.3),
    "Newton": Case(((3,),), newton, newton_jax),
    "nested": Case(((3,), (3, 2, 3), (3, 3)), nested, nested_jax),
    "power iteration": Case(((3,), (3, 3)), power_iteration, power_iteration_jax),
    "matrix chain": Case(((3, 3), (4, 3, 3)), matrix_chain, matrix_chain_jax),
    "Horner": Case(((3,), (5,)), horner, horner_jax),
    "running softmax": Case(((3,), (4, 3), (4, 3)), running_softmax, running_softmax_jax),
    "integer carry": Case(((3,), (5, 3)), counted, counted_jax),
    "map": Case(((4, 3), (3, 3)), mapped, mapped_jax),
    "same sequence": Case(((3,), (4, 3)), same_sequence, same_sequence_jax),
}
