"""Sparse Jacobians beside asdex and dense JAX: ``python benchmarks/sparse_jacobians.py``.

For each problem: milliseconds to detect the pattern, to make everything that can be called, and
microseconds to evaluate, medians of bursts that alternate between the opponents after a warm-up.
asdex (``pip install asdex``) is optional; its functions are jitted, with its own choice of mode,
and return BCOO matrices; ours return scipy's CSR. Values are compared before anything is timed.

The problems are those of asdex's own benchmarks, and the Brusselator on a torus.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tvm import te

import tvm_autodiff as ad

DTYPE = "float64"
BURST = 1e-3  #: seconds that one opponent's calls in a row take, at least one call


@dataclass(frozen=True)
class Problem:
    """A function of one vector, as te stages and as a JAX function."""

    name: str
    point: np.ndarray
    ours: Callable[[te.Tensor], te.Tensor]
    theirs: Callable[[Any], Any]
    hessian: bool = False
    weights: tuple[np.ndarray, ...] = ()


def heat(size: int) -> Problem:
    """The right-hand side of the heat equation in one dimension."""

    def ours(u: te.Tensor) -> te.Tensor:
        def body(i: Any) -> Any:
            left, right = u[i - 1], u[i + 1]
            inner = left - 2.0 * u[i] + right
            first = te.if_then_else(i == 0, -2.0 * u[0] + u[1], inner)
            return te.if_then_else(i == size - 1, u[size - 2] - 2.0 * u[size - 1], first)

        return te.compute((size,), body, name="heat")

    def theirs(u: Any) -> Any:
        left = -2 * u[0:1] + u[1:2]
        right = u[-2:-1] - 2 * u[-1:]
        return jnp.concatenate([left, u[:-2] - 2 * u[1:-1] + u[2:], right])

    return Problem(f"heat equation, N = {size}", _point(size), ours, theirs)


def convnet(size: int) -> Problem:
    """Three convolutions with ReLU: 1 → 8 → 4 → 2 channels, windows of 5, 3 and 3."""
    random = np.random.default_rng(1)
    shapes = [(5, 1, 8), (3, 8, 4), (3, 4, 2)]
    weights = tuple(random.standard_normal(shape) / np.sqrt(np.prod(shape[:2])) for shape in shapes)

    def ours(x: te.Tensor, *filters: te.Tensor) -> te.Tensor:
        layer = te.compute((size, 1), lambda i, c: x[i], name="input")
        for number, filter in enumerate(filters):
            layer = _convolution(layer, filter, f"conv{number}")
        return layer

    def theirs(x: Any) -> Any:
        layer = x[None, :, None]
        for filter in weights:
            layer = jax.lax.conv_general_dilated(
                layer, filter, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
            )
            layer = jnp.maximum(layer, 0)
        return layer.reshape(-1)

    return Problem(f"3-layer ConvNet, N = {size}", _point(size), ours, theirs, weights=weights)


def _convolution(layer: te.Tensor, filter: te.Tensor, name: str) -> te.Tensor:
    size, (width, inputs, outputs) = int(layer.shape[0]), map(int, filter.shape)
    k, c = te.reduce_axis((0, width), "k"), te.reduce_axis((0, inputs), "c")
    half = width // 2

    def product(i: Any, o: Any) -> Any:
        inside = te.all(i + k >= half, i + k < size + half)
        value = te.if_then_else(inside, layer[i + k - half, c], te.const(0.0, DTYPE))
        return te.sum(value * filter[k, c, o], axis=[k, c])

    sums = te.compute((size, outputs), product, name=name)
    zero = te.const(0.0, DTYPE)
    return te.compute((size, outputs), lambda i, o: te.max(sums[i, o], zero), name=f"{name}_relu")


def rosenbrock(size: int) -> Problem:
    """The Hessian of the Rosenbrock function."""

    def ours(x: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, size - 1), "k")
        apart = x[k + 1] - x[k] * x[k]
        term = (1.0 - x[k]) * (1.0 - x[k]) + 100.0 * apart * apart
        return te.compute((), lambda: te.sum(term, axis=k), name="rosenbrock")

    def theirs(x: Any) -> Any:
        return jnp.sum((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2)

    return Problem(f"Rosenbrock Hessian, N = {size}", _point(size), ours, theirs, hessian=True)


def brusselator(side: int) -> Problem:
    """Two species that react and diffuse on a torus of ``side`` by ``side`` points."""
    a, b, alpha = 3.4, 1.0, 10.0

    def ours(x: te.Tensor) -> te.Tensor:
        def species(c: int, i: Any, j: Any) -> Any:
            around = x[c, (i + 1) % side, j] + x[c, (i + side - 1) % side, j]
            around = around + x[c, i, (j + 1) % side] + x[c, i, (j + side - 1) % side]
            diffusion = alpha * (around - 4.0 * x[c, i, j])
            u, v = x[0, i, j], x[1, i, j]
            if c == 0:
                return b + u * u * v - (a + 1.0) * u + diffusion
            return a * u - u * u * v + diffusion

        return te.compute(
            (2, side, side),
            lambda c, i, j: te.if_then_else(c == 0, species(0, i, j), species(1, i, j)),
            name="brusselator",
        )

    def theirs(x: Any) -> Any:
        u, v = x.reshape(2, side, side)

        def laplacian(w: Any) -> Any:
            shifted = [jnp.roll(w, step, axis) for axis in (0, 1) for step in (-1, 1)]
            return alpha * (sum(shifted) - 4.0 * w)

        du = b + u * u * v - (a + 1.0) * u + laplacian(u)
        dv = a * u - u * u * v + laplacian(v)
        return jnp.stack([du, dv]).reshape(-1)

    point = 1.0 + 0.1 * np.random.default_rng(0).standard_normal((2, side, side))
    return Problem(f"Brusselator, 2·{side}²", point, ours, theirs)


def _point(size: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(size)


@dataclass
class Opponent:
    """Who takes part: seconds to detect and to prepare, and a call."""

    name: str
    detection: float
    preparation: float
    call: Callable[[], Any]
    matrix: Any
    note: str = ""


def timed(function: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Median seconds of some calls, and what the last one returned."""
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds), result


def burst(function: Callable[[], Any], calls: int) -> float:
    """Seconds a call, of several in a row."""
    begin = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - begin) / calls


def ours(problem: Problem) -> Opponent:
    """This library: CSR matrices of scipy."""
    x = te.placeholder(problem.point.shape, DTYPE, name="x")
    filters = [te.placeholder(w.shape, DTYPE, name=f"w{n}") for n, w in enumerate(problem.weights)]
    output = problem.ours(x, *filters)
    matrix_of = ad.hessian if problem.hessian else ad.jacobian
    detected = ad.differentiate(output, [x])[0] if problem.hessian else output
    detection, _ = timed(lambda: ad.sparsity(detected, x), 50)

    def prepare() -> Any:
        matrix = matrix_of(output, x, format="csr")
        return ad.build([x, *filters], matrix, cache=False), matrix

    preparation, (function, matrix) = timed(prepare)
    arrays = [problem.point, *problem.weights]
    found = function(*arrays)
    return Opponent(
        "tvm_autodiff", detection, preparation, lambda: function(*arrays), found, matrix.method
    )


def asdex(problem: Problem) -> Opponent:
    """asdex, jitted, with its own choice of mode."""
    import asdex

    kind = "hessian" if problem.hessian else "jacobian"
    point = jnp.asarray(problem.point.reshape(-1))
    sparsity = getattr(asdex, f"{kind}_sparsity")
    detection, pattern = timed(
        lambda: sparsity(problem.theirs, point), 1 if point.size > 1e4 else 9
    )

    def prepare() -> Any:
        coloring = getattr(asdex, f"{kind}_coloring_from_sparsity")(pattern)
        function = jax.jit(getattr(asdex, f"{kind}_from_coloring")(problem.theirs, coloring))
        return function, jax.block_until_ready(function(point)), coloring

    preparation, (function, found, coloring) = timed(prepare)
    return Opponent(
        "asdex",
        detection,
        detection + preparation,
        lambda: jax.block_until_ready(function(point)),
        found,
        f"{coloring.mode} mode, {coloring.num_colors} colours",
    )


def dense_jax(problem: Problem) -> Opponent:
    """JAX's dense Jacobian or Hessian."""
    function = jax.jit((jax.hessian if problem.hessian else jax.jacobian)(problem.theirs))
    point = jnp.asarray(problem.point.reshape(-1))
    preparation, found = timed(lambda: jax.block_until_ready(function(point)))
    return Opponent(
        "JAX, dense", 0.0, preparation, lambda: jax.block_until_ready(function(point)), found
    )


def compare(problem: Problem, with_dense: bool, rounds: int) -> None:
    """Measure all opponents on one problem, burst by burst in turn, and print a table."""
    found = [ours(problem)]
    if importlib.util.find_spec("asdex") is not None:
        found.append(asdex(problem))
    if with_dense:
        found.append(dense_jax(problem))
    for other in found[1:]:
        _agree(found[0].matrix, other.matrix)
    samples: dict[str, list[float]] = {opponent.name: [] for opponent in found}
    bursts = {o.name: max(1, min(100, int(BURST / timed(o.call, 5)[0]))) for o in found}
    for _ in range(rounds):
        for opponent in found:
            samples[opponent.name].append(burst(opponent.call, bursts[opponent.name]))
    medians = {name: statistics.median(times[rounds // 5 :]) for name, times in samples.items()}
    print(f"\n{problem.name}")
    print(f"{'':14}{'detect/ms':>11}{'prepare/ms':>12}{'evaluate/µs':>13}{'ratio':>8}")
    for opponent in found:
        ratio = medians[found[0].name] / medians[opponent.name]
        print(
            f"{opponent.name:14}{opponent.detection * 1e3:11.2f}{opponent.preparation * 1e3:12.0f}"
            f"{medians[opponent.name] * 1e6:13.1f}{ratio:8.2f}  {opponent.note}"
        )


def _agree(mine: Any, theirs: Any) -> None:
    """Raise where two matrices differ."""
    import scipy.sparse

    if hasattr(theirs, "indices"):
        rows, columns = np.asarray(theirs.indices).T
        other = scipy.sparse.coo_matrix((np.asarray(theirs.data), (rows, columns)), mine.shape)
        difference = abs(mine - other.tocsr())
        worst = difference.max() if difference.nnz else 0.0
    else:
        worst = np.abs(mine.toarray() - np.asarray(theirs).reshape(mine.shape)).max()
    if worst > 1e-10 * max(1.0, abs(mine).max()):
        raise AssertionError(f"matrices differ by {worst}")


def main() -> None:
    """Compare on the problems that are named, or on all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", help="beginnings of names; default: all")
    parser.add_argument("--side", type=int, default=1024, help="of the Brusselator")
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    makers: dict[str, tuple[Callable[[int], Problem], int, bool]] = {
        "heat": (heat, 200, True),
        "convnet": (convnet, 200, True),
        "rosenbrock": (rosenbrock, 200, True),
        "brusselator": (brusselator, options.side, False),
    }
    for name, (make, size, dense) in makers.items():
        if not options.problems or any(name.startswith(part) for part in options.problems):
            rounds = options.rounds if size <= 200 else max(5, options.rounds // 10)
            compare(make(size), dense, rounds)


if __name__ == "__main__":
    main()
