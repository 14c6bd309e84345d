"""The evals of GradBench at small sizes: our outputs beside JAX's and central differences.

JAX's formulas are those that the page of times measures; differences check them where a formula
could be wrong on both sides, and the matrix of ba is checked as the matrix that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks.gradbench import peers
from benchmarks.gradbench.evals import EVALS
from benchmarks.gradbench.evaluation import Compiler
from benchmarks.gradbench.worker import whole
from tests.benchmarks.gradbench.inputs import INPUTS, Input

COMPILER = Compiler()  #: of all tests: many ask for the same function of the same sizes


@pytest.fixture(autouse=True)
def _configuration_of_jax() -> Iterator[None]:
    names = ("jax_enable_x64", "jax_disable_most_optimizations")
    before = {name: jax.config.values[name] for name in names}
    jax.config.update("jax_disable_most_optimizations", True)  # hands compile in half the time
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def ours(module: str, function: str, data: Input, wanted: Sequence[np.ndarray] = ()) -> Any:
    """The output as the eval gets it; the page compares arrays, which have the sizes of those
    wanted.
    """
    declared = EVALS[module].functions[function]
    problem = EVALS[module].read(data)
    results = COMPILER.prepare(declared, problem)()
    if wanted:
        assert [part.size for part in whole(list(results))] == [part.size for part in wanted]
    return declared.write(problem.sizes, results)


def theirs(module: str, function: str, data: Input) -> list[np.ndarray]:
    return [np.asarray(part) for part in peers.prepare("jax", 1, module, function, data)()]


def flat(output: Any) -> np.ndarray:
    """All numbers of an output in order."""
    return np.concatenate([np.ravel(part) for part in jax.tree.leaves(output)])


def draw(module: str, seed: int = 0, **sizes: Any) -> Input:
    return INPUTS[module](np.random.default_rng(seed), **sizes)


CASES = [
    *(("gmm", function, {}) for function in ("objective", "jacobian")),
    ("gmm", "jacobian", {"d": 2, "k": 1, "m": 0}),
    ("gmm", "jacobian", {"d": 1}),
    *(("kmeans", function, {}) for function in ("cost", "dir")),
    ("kmeans", "dir", {"n": 5, "k": 1, "d": 1}),
    *(("llsq", function, {}) for function in ("primal", "gradient")),
    ("llsq", "gradient", {"n": 2, "m": 1}),
    ("llsq", "gradient", {"n": 6, "m": 8}),
    *(("lse", function, {}) for function in ("primal", "gradient")),
    ("lse", "gradient", {"n": 1}),
    ("lse", "gradient", {"scale": 1e4}),
    *(("ht", function, {}) for function in ("objective", "jacobian")),
    *(("ht", function, {"on_surface": False}) for function in ("objective", "jacobian")),
    ("ht", "jacobian", {"mirrored": True, "points": 1, "vertices": 3}),
    *(("ode", function, {}) for function in ("primal", "gradient")),
    ("ode", "gradient", {"n": 1, "s": 1}),
    ("ode", "gradient", {"n": 2, "s": 1}),
    *(("lstm", function, {}) for function in ("objective", "jacobian")),
    ("lstm", "jacobian", {"layers": 1, "characters": 2, "bits": 1}),
]


@pytest.mark.parametrize(("module", "function", "sizes"), CASES)
def test_outputs_are_those_of_jax(module: str, function: str, sizes: Input) -> None:
    data = draw(module, **sizes)
    wanted = theirs(module, function, data)
    output = ours(module, function, data, [part for part in wanted if part.size])
    if isinstance(output, dict):
        output = [output[name] for name in ("alpha", "mu", "q", "l")]
    np.testing.assert_allclose(flat(output), flat(wanted), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("turn", [0.7, 1e-9, 0.0])
def test_errors_of_bundle_adjustment_are_those_of_jax(turn: float) -> None:
    data = draw("ba", turn=turn)
    errors, weights = theirs("ba", "objective", data)
    assert ours("ba", "objective", data) == {
        "reproj_error": {"elements": pytest.approx(errors[0].tolist(), 1e-10), "repeated": 7},
        "w_err": {"element": pytest.approx(weights[0], 1e-10), "repeated": 7},
    }


@pytest.mark.slow
@pytest.mark.parametrize("turn", [0.7, 0.0])
def test_the_matrix_of_bundle_adjustment_is_that_of_jax(turn: float) -> None:
    data = draw("ba", turn=turn)
    values, columns, starts = theirs("ba", "jacobian", data)
    found = ours("ba", "jacobian", data)
    assert found["rows"] == [*starts.tolist()[:30], int(starts[-1])]
    assert found["cols"] == [*columns.tolist()[:30], int(columns[-1])]
    np.testing.assert_allclose(found["vals"], [*values[:30], values[-1]], rtol=1e-10, atol=1e-10)


def test_the_whole_matrix_of_bundle_adjustment_is_the_derivative_of_all_errors() -> None:
    scipy_sparse = pytest.importorskip("scipy.sparse")
    function, problem = EVALS["ba"].functions["jacobian"], EVALS["ba"].read(draw("ba"))
    n, m, p = problem.sizes
    assert function.place is not None
    values, weights, columns, weight_columns, starts = COMPILER.prepare(function, problem)()
    matrix = scipy_sparse.csr_matrix(
        (np.r_[values.ravel(), weights], np.r_[columns.ravel(), weight_columns], starts),
        shape=(3 * p, 11 * n + 3 * m + p),
    )
    objective = COMPILER.function(EVALS["ba"].functions["objective"], problem.sizes)
    *parameters, features, places = problem.arrays

    def errors(point: np.ndarray) -> np.ndarray:
        parts = np.split(point, np.cumsum([part.size for part in parameters])[:-1])
        shaped = [part.reshape(old.shape) for part, old in zip(parts, parameters, strict=True)]
        return flat(objective(*shaped, features, places))

    point = flat(parameters)
    differences = np.stack(
        [_difference(errors, point, direction) for direction in np.eye(point.size)], 1
    )
    np.testing.assert_allclose(matrix.toarray(), differences, rtol=1e-6, atol=1e-5)


def _difference(
    function: Callable[[np.ndarray], np.ndarray], point: np.ndarray, direction: np.ndarray
) -> np.ndarray:
    """The derivative along a direction, by central differences."""
    step = 1e-6
    return (function(point + step * direction) - function(point - step * direction)) / (2 * step)


@pytest.mark.parametrize(
    ("module", "objective", "derivative", "fields"),
    [
        ("gmm", "objective", "jacobian", ("alpha", "mu", "q", "l")),
        ("llsq", "primal", "gradient", ("x",)),
        ("lse", "primal", "gradient", ("x",)),
        ("lstm", "objective", "jacobian", ("main_params", "extra_params")),
    ],
)
def test_gradients_are_differences(
    module: str, objective: str, derivative: str, fields: tuple[str, ...]
) -> None:
    data = draw(module, seed=1)
    output = ours(module, derivative, data)
    gradient = flat([output[name] for name in fields] if isinstance(output, dict) else output)
    direction = {
        name: np.random.default_rng(2).normal(size=np.shape(data[name])) for name in fields
    }
    step = 1e-6

    def along(sign: float) -> float:
        moved = {name: np.asarray(data[name]) + sign * step * direction[name] for name in fields}
        return ours(module, objective, data | moved)

    expected = (along(1.0) - along(-1.0)) / (2 * step)
    assert gradient @ flat([direction[name] for name in fields]) == pytest.approx(expected, 1e-6)


@pytest.mark.parametrize(("n", "m"), [(19, 11), (5, 1), (3, 9)])
def test_the_point_in_the_middle_has_no_sign(n: int, m: int) -> None:
    # XLA divides by n - 1 as it multiplies by 1/(n - 1), which misses this zero
    data = draw("llsq", n=n, m=m)
    points = -1 + np.arange(n) * 2 / (n - 1)
    powers = np.vander(points, m, increasing=True)
    rest = np.sign(points) - powers @ data["x"]
    assert ours("llsq", "primal", data) == pytest.approx(rest @ rest / 2, 1e-12)
    np.testing.assert_allclose(ours("llsq", "gradient", data), -rest @ powers, rtol=1e-11)


def test_a_step_of_kmeans_leads_to_the_means_of_the_clusters() -> None:
    data = draw("kmeans", seed=3)
    points, centroids = np.asarray(data["points"]), np.asarray(data["centroids"])
    nearest = np.square(points[:, None] - centroids).sum(2).argmin(1)
    means = np.stack([points[nearest == number].mean(0) for number in range(len(centroids))])
    np.testing.assert_allclose(centroids - np.asarray(ours("kmeans", "dir", data)), means)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "s"), [(3, 1), (4, 50)])
def test_the_gradient_of_a_chain_is_that_of_its_closed_form(n: int, s: int) -> None:
    # a polynomial of time of up to four degrees, which the method solves: y[i] = Π x[j]·2/(j+1)
    data = draw("ode", n=n, s=s)
    x = np.asarray(data["x"])
    powers = np.cumprod(x * 2.0 / np.arange(1, n + 1))
    np.testing.assert_allclose(ours("ode", "primal", data), powers, rtol=1e-12)
    np.testing.assert_allclose(ours("ode", "gradient", data), powers[-1] / x, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("on_surface", [True, False])
def test_the_jacobian_of_a_hand_is_made_of_differences(on_surface: bool) -> None:
    data = draw("ht", seed=4, on_surface=on_surface)
    jacobian = np.asarray(ours("ht", "jacobian", data))
    direction = np.random.default_rng(5).normal(size=jacobian.shape[1])
    step, own = 1e-6, 2 if on_surface else 0

    def along(sign: float) -> np.ndarray:
        moved = {"theta": np.asarray(data["theta"]) + sign * step * direction[own:]}
        if on_surface:
            moved["us"] = np.asarray(data["us"]) + sign * step * direction[:2]
        return np.asarray(ours("ht", "objective", data | moved))

    expected = (along(1.0) - along(-1.0)) / (2 * step)
    np.testing.assert_allclose(jacobian @ direction, expected, rtol=1e-6, atol=1e-7)
