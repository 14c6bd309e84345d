"""Hidden states, regressions and moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

import tvm_autodiff as ad

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced, softmax


def hidden_markov(steps: int, batch: int, states: int) -> Case:
    """The likelihood of a hidden Markov model by scaled forward probabilities."""

    def ours(emit: Any, trans: Any) -> Any:
        move = softmax(trans)
        zero = te.const(0.0, "float32")
        first = mapped((batch, states), lambda b, s: te.const(1.0 / states, "float32"))

        def step(carry: Any, x: Any) -> Any:
            alpha, total = carry
            moved = reduced((batch, states), (states,), lambda b, s, r: alpha[b, r] * move[r, s])
            seen = mapped((batch, states), lambda b, s: moved[b, s] * te.exp(x[b, s]))
            scale = reduced((batch,), (states,), lambda b, s: seen[b, s])
            new = mapped((batch, states), lambda b, s: seen[b, s] / scale[b])
            return (new, mapped((batch,), lambda b: total[b] + te.log(scale[b]))), None

        (_, total), _ = ad.scan(step, (first, mapped((batch,), lambda b: zero)), emit)
        return reduced((), (batch,), lambda b: total[b])

    def in_torch(torch: Any, emit: Any, trans: Any) -> Any:
        move, seen = torch.softmax(trans, 1), torch.exp(emit)
        alpha = torch.full((batch, states), 1 / states, dtype=emit.dtype)
        total = 0.0
        for t in range(steps):
            alpha = alpha @ move * seen[t]
            scale = alpha.sum(1, keepdim=True)
            alpha = alpha / scale
            total = total + torch.log(scale).sum()
        return total

    def in_jax(jax: Any, emit: Any, trans: Any) -> Any:
        numpy = jax.numpy
        move = jax.nn.softmax(trans, 1)

        def step(alpha: Any, x: Any) -> Any:
            alpha = alpha @ move * numpy.exp(x)
            scale = alpha.sum(1, keepdims=True)
            return alpha / scale, numpy.log(scale).sum()

        first = numpy.full((batch, states), 1 / states, dtype=emit.dtype)
        return jax.lax.scan(step, first, emit)[1].sum()

    return operator(
        {"emit": Input((steps, batch, states)), "trans": Input((states, states))},
        (),
        ours,
        in_torch,
        in_jax,
        tolerance=1e-3,
    )


def kernel_regression(n: int, features: int) -> Case:
    """Squared errors of means of the other values, weighted by a Gaussian kernel."""

    def ours(x: Any, y: Any, scale: Any) -> Any:
        z = mapped((n, features), lambda i, k: x[i, k] * te.exp(scale[k]))
        d = reduced((n, n), (features,), lambda i, j, k: (z[i, k] - z[j, k]) * (z[i, k] - z[j, k]))
        w = mapped((n, n), lambda i, j: te.if_then_else(i == j, 0.0, te.exp(-0.5 * d[i, j])))
        total = reduced((n,), (n,), lambda i, j: w[i, j])
        mean = reduced((n,), (n,), lambda i, j: w[i, j] * y[j])

        def error(i: Any) -> Any:
            gap = mean[i] / (total[i] + 1e-6) - y[i]
            return gap * gap / float(n)

        return reduced((), (n,), error)

    def array(numpy: Any, eye: Any, d: Any, x: Any, y: Any, scale: Any) -> Any:
        w = numpy.where(eye, 0.0, numpy.exp(-0.5 * d(x * numpy.exp(scale))))
        return ((w @ y / (w.sum(1) + 1e-6) - y) ** 2).mean()

    def in_torch(torch: Any, *a: Any) -> Any:
        return array(
            torch,
            torch.eye(n, dtype=torch.bool),
            lambda z: ((z[:, None] - z) ** 2).sum(-1),
            *a,
        )

    def in_jax(jax: Any, *a: Any) -> Any:
        return array(
            jax.numpy,
            jax.numpy.eye(n, dtype=bool),
            lambda z: ((z[:, None] - z) ** 2).sum(-1),
            *a,
        )

    return operator(
        {
            "x": Input((n, features)),
            "y": Input((n,)),
            "scale": Input((features,), 0.2),
        },
        (),
        ours,
        in_torch,
        in_jax,
        tolerance=1e-3,
    )


def aligned_covariances(n: int, m: int, features: int) -> Case:
    """The squared difference of the covariances of two samples of features."""

    def ours(x: Any, y: Any) -> Any:
        def covariance(x: Any, n: int) -> Any:
            mean = reduced((features,), (n,), lambda a, i: x[i, a] / float(n))
            return reduced(
                (features, features),
                (n,),
                lambda a, b, i: (x[i, a] - mean[a]) * (x[i, b] - mean[b]) / float(n - 1),
            )

        one, two = covariance(x, n), covariance(y, m)

        def square(a: Any, b: Any) -> Any:
            gap = one[a, b] - two[a, b]
            return gap * gap

        return reduced((), (features, features), square)

    def array(x: Any, y: Any) -> Any:
        x, y = x - x.mean(0), y - y.mean(0)
        return ((x.T @ x / (n - 1) - y.T @ y / (m - 1)) ** 2).sum()

    return operator(
        {"x": Input((n, features)), "y": Input((m, features))},
        (),
        ours,
        lambda torch, *a: array(*a),
        lambda jax, *a: array(*a),
        tolerance=1e-3,
    )


def l_moments(rows: int, n: int) -> Case:
    """Sums of the sorted values of each row with given weights; ranks are counts of lesser ones."""

    def ours(x: Any, w: Any) -> Any:
        one = te.const(1, "int32")
        rank = reduced(
            (rows, n),
            (n,),
            lambda r, i, j: te.if_then_else(
                te.any(x[r, j] < x[r, i], te.all(x[r, j] == x[r, i], j < i)), one, 0 * one
            ),
        )
        return reduced((rows,), (n,), lambda r, i: x[r, i] * w[rank[r, i]])

    return operator(
        {"x": Input((rows, n)), "w": Input((n,))},
        (rows,),
        ours,
        lambda torch, x, w: torch.sort(x, 1).values @ w,
        lambda jax, x, w: jax.numpy.sort(x, 1) @ w,
    )


def linear_prediction(rows: int, length: int, order: int) -> Case:
    """Log energies of what a linear predictor leaves of each row."""
    out = length - order

    def ours(x: Any, a: Any) -> Any:
        guess = reduced((rows, out), (order,), lambda r, t, k: a[r, k] * x[r, t + (order - 1) - k])

        def square(r: Any, t: Any) -> Any:
            gap = x[r, t + order] - guess[r, t]
            return gap * gap

        energy = reduced((rows,), (out,), square)
        return mapped((rows,), lambda r: te.log(energy[r] + 1e-6))

    def in_torch(torch: Any, x: Any, a: Any) -> Any:
        w = torch.flip(a, (1,))[:, None]
        guess = torch.nn.functional.conv1d(x[None], w, groups=rows)[0, :, :out]
        return torch.log(((x[:, order:] - guess) ** 2).sum(1) + 1e-6)

    def in_jax(jax: Any, x: Any, a: Any) -> Any:
        w = a[:, None, ::-1]
        guess = jax.lax.conv_general_dilated(x[None], w, (1,), "VALID", feature_group_count=rows)[
            0, :, :out
        ]
        return jax.numpy.log(((x[:, order:] - guess) ** 2).sum(1) + 1e-6)

    return operator(
        {"x": Input((rows, length)), "a": Input((rows, order), 0.2)},
        (rows,),
        ours,
        in_torch,
        in_jax,
        tolerance=1e-3,
    )


CASES: dict[str, Callable[[], Case]] = {
    "hidden-markov": lambda: hidden_markov(64, 32, 33),
    "kernel-regression": lambda: kernel_regression(300, 7),
    "aligned-covariances": lambda: aligned_covariances(257, 200, 100),
    "l-moments": lambda: l_moments(100, 100),
    "linear-prediction": lambda: linear_prediction(64, 2000, 12),
}
