"""gmm: the log posterior of a mixture of Gaussians with a Wishart prior, and its gradient.

The precision of kernel k is Fᵀ·F with a lower triangular F: exp(q[k]) on the diagonal, l[k] below
it, column by column. With F·(x - mu) = F·x - F·mu the distances are one matrix product.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from tvm import te

import tvm_autodiff as ad

from ...suite.case import aligned
from ..evaluation import Eval, Function, Problem
from ..fields import array, integer, number


class Sizes(NamedTuple):
    """Points, dimension of the space, kernels."""

    n: int
    d: int
    k: int

    @property
    def below(self) -> int:
        """How many elements lie below a diagonal."""
        return self.d * (self.d - 1) // 2


def read(data: Any) -> Problem:
    """The parameters, the points, and the prior: m, gamma, and the constant of the posterior."""
    sizes = Sizes(integer(data, "n", 1), integer(data, "d", 1), integer(data, "k", 1))
    m, gamma = integer(data, "m", 0), number(data, "gamma")
    n, d, k = sizes
    arrays = [
        array(data, "alpha", (k,)),
        array(data, "mu", (k, d)),
        array(data, "q", (k, d)),
        array(data, "l", (k, sizes.below)),
        array(data, "x", (n, d)),
        _places(d),
        aligned(np.array([float(m), gamma * gamma, constant(sizes, m, gamma)])),
    ]
    return Problem(sizes, arrays)


def _places(d: int) -> Any:
    """Where l holds the element of each row and column; zero where it holds none."""
    places = np.zeros((d, d), "int32")
    columns, rows = np.triu_indices(d, 1)  # of the transposed matrix, so column by column
    places[rows, columns] = np.arange(len(rows))
    return aligned(places)


def constant(sizes: Sizes, m: int, gamma: float) -> float:
    """The part of the log posterior that depends on no parameter."""
    n, d, k = sizes
    freedom = d + m + 1
    log_gamma = d * (d - 1) / 4 * math.log(math.pi) + sum(
        math.lgamma((freedom - j) / 2) for j in range(d)
    )
    prior = freedom * d * math.log(gamma / math.sqrt(2)) - log_gamma
    return k * prior - n * d / 2 * math.log(2 * math.pi)


def _log_sum_exp(values: Any, name: str) -> Any:
    """The logarithm of the sums of exponentials over the last axis."""
    *outer, size = values.shape
    j, s = te.reduce_axis((0, size), "j"), te.reduce_axis((0, size), "s")
    largest = te.compute(outer, lambda *i: te.max(values(*i, j), axis=j), name=f"{name}_largest")
    total = te.compute(
        outer,
        lambda *i: te.sum(te.exp(values(*i, s) - largest(*i)), axis=s),
        name=f"{name}_total",
    )
    return te.compute(outer, lambda *i: largest(*i) + te.log(total(*i)), name=name)


def log_posterior(
    sizes: Sizes, alpha: Any, mu: Any, q: Any, lower: Any, x: Any, places: Any, prior: Any
) -> Any:
    """The logarithm of the likelihood times the prior."""
    n, d, k = sizes
    a, b, c, e, f, g = (te.reduce_axis((0, d), name) for name in "abcefg")
    i, o = te.reduce_axis((0, n), "i"), te.reduce_axis((0, k), "o")
    factor = (
        te.compute(
            (k, d, d),
            lambda k, a, b: te.if_then_else(
                b < a,
                lower[k, places[a, b]],
                te.if_then_else(b == a, te.exp(q[k, a]), 0.0),
            ),
            name="factor",
        )
        if sizes.below
        else te.compute((k, d, d), lambda k, a, b: te.exp(q[k, a]), name="factor")
    )
    image = te.compute(
        (n, k, d), lambda i, k, a: te.sum(x[i, b] * factor[k, a, b], axis=b), name="image"
    )
    centre = te.compute(
        (k, d), lambda k, a: te.sum(mu[k, c] * factor[k, a, c], axis=c), name="centre"
    )
    away = te.compute((n, k, d), lambda i, k, a: image[i, k, a] - centre[k, a], name="away")
    squares = te.compute(
        (n, k), lambda i, k: te.sum(away[i, k, a] * away[i, k, a], axis=a), name="squares"
    )
    logs = te.compute((k,), lambda k: te.sum(q[k, e], axis=e), name="logs")
    terms = te.compute((n, k), lambda i, k: alpha[k] + logs[k] - 0.5 * squares[i, k], name="terms")
    of_points = _log_sum_exp(terms, "of_points")
    likelihood = te.compute((), lambda: te.sum(of_points[i], axis=i), name="likelihood")
    weights = _log_sum_exp(alpha, "weights")
    kernel = te.compute(
        (k,),
        lambda k: te.sum(factor[k, f, g] * factor[k, f, g], axis=[f, g]),
        name="frobenius",
    )
    wishart = te.compute(
        (),
        lambda: te.sum(prior[0] * logs[o] - 0.5 * prior[1] * kernel[o], axis=o),
        name="wishart",
    )
    return te.compute(
        (),
        lambda: likelihood() - float(n) * weights() + wishart() + prior[2],
        name="log_posterior",
    )


def _inputs(sizes: Sizes) -> list[Any]:
    n, d, k = sizes
    shapes = {"alpha": (k,), "mu": (k, d), "q": (k, d), "l": (k, sizes.below), "x": (n, d)}
    floats = [te.placeholder(shape, "float64", name=name) for name, shape in shapes.items()]
    return [
        *floats,
        te.placeholder((d, d), "int32", name="places"),
        te.placeholder((3,), "float64", name="prior"),
    ]


def objective(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """The value."""
    inputs = _inputs(sizes)
    return inputs, [log_posterior(sizes, *inputs)]


def jacobian(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """The gradients with respect to alpha, mu, q and l."""
    inputs = _inputs(sizes)
    independent = inputs[: 4 if sizes.below else 3]
    return inputs, list(ad.differentiate(log_posterior(sizes, *inputs), independent))


def _write(sizes: Sizes, results: Any) -> dict[str, Any]:
    names = ("alpha", "mu", "q", "l")
    written = {name: result.tolist() for name, result in zip(names, results, strict=False)}
    return {"l": [[] for _ in range(sizes.k)], **written}


EVAL = Eval(
    read,
    {
        "objective": Function(objective, lambda sizes, results: float(results[0])),
        "jacobian": Function(jacobian, _write),
    },
)
