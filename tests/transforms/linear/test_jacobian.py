"""Jacobians in both modes, Hessians and products with them, beside JAX; bad input and costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.forward_mode import directions
from tests.gradient_case import Case
from tests.gradients import test_against_jax, test_index_maps, test_reducers
from tvm_autodiff.expr.nodes import is_float

jax.config.update("jax_enable_x64", True)

CASES = [*test_index_maps.CASES, *test_reducers.CASES]
SMALL = [
    both for both in test_against_jax.CASES
    if all(np.prod(shape) <= 100 for shape in both.inputs if isinstance(shape, tuple))
]  # fmt: skip
F64 = "float64"


@partial(jax.jit, static_argnums=(0, 1))
def jacobian_by_jax(function: Callable[..., Any], place: int, *arrays: Any) -> Any:
    """JAX's Jacobian, compiled once for all tests of a function."""
    return jax.jacobian(function, argnums=place)(*arrays)


@partial(jax.jit, static_argnums=0)
def hessian_by_jax(function: Callable[[Any], Any], at: Any) -> Any:
    """JAX's Hessian, compiled once for all points."""
    return jax.hessian(function)(at)


@pytest.mark.filterwarnings("ignore::tvm_autodiff.DenseSumWarning")  # numbers, not speed
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_forward_is_reverse(case: Case) -> None:
    placeholders, output = case.tensors()
    pairs = list(zip(placeholders, case.arrays(), strict=True))
    x = next(tensor for tensor in placeholders if is_float(tensor))
    both = [ad.jacobian(output, x, mode=mode) for mode in ("forward", "reverse")]
    forward, reverse = evaluate_graph(both, pairs)
    scale = 1e-12 * (1 + np.abs(reverse).max(initial=0))
    np.testing.assert_allclose(forward, reverse, rtol=1e-10, atol=scale)


@pytest.mark.parametrize("both", SMALL, ids=lambda both: both.name)
def test_jacobian_is_that_of_jax(both) -> None:
    case = Case(both.name, both.inputs, both.ours, domain=both.domain, dense=both.dense)
    placeholders, output = case.tensors()
    arrays = case.arrays()
    place = next(n for n, tensor in enumerate(placeholders) if is_float(tensor))
    with case.expecting():
        derivative = ad.jacobian(output, placeholders[place])
    [found] = evaluate_graph([derivative], list(zip(placeholders, arrays, strict=True)))
    wanted = jacobian_by_jax(both.theirs, place, *map(jnp.asarray, arrays))
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)


def rosenbrock(x):
    size = int(x.shape[0])
    k = te.reduce_axis((0, size - 1), "k")
    one, hundred = te.const(1.0, F64), te.const(100.0, F64)

    def term(k):
        apart = x[k + 1] - x[k] * x[k]
        return hundred * apart * apart + (one - x[k]) * (one - x[k])

    return te.compute((), lambda: te.sum(term(k), axis=k), name="y")


def quadratic(x):
    size = int(x.shape[0])
    i, j = te.reduce_axis((0, size), "i"), te.reduce_axis((0, size), "j")
    return te.compute(
        (), lambda: te.sum(x[i] * x[j] * (i - 2 * j).astype(F64), axis=[i, j]), name="y"
    )


def log_sum_exp(x):
    size = int(x.shape[0])
    k, m = te.reduce_axis((0, size), "k"), te.reduce_axis((0, size), "m")
    top = te.compute((), lambda: te.max(x[m], axis=m), name="top")
    total = te.compute((), lambda: te.sum(te.exp(x[k] - top()), axis=k), name="total")
    return te.compute((), lambda: te.log(total()) + top(), name="y")


def product(x):
    k = te.reduce_axis((0, int(x.shape[0])), "k")
    return te.compute((), lambda: test_reducers.product(x[k], axis=k), name="y")


SCALARS = {
    "rosenbrock": (
        rosenbrock, lambda x: jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2),
    ),
    "quadratic": (
        quadratic,
        lambda x: x @ (jnp.arange(x.size)[:, None] - 2 * jnp.arange(x.size)[None]) @ x,
    ),
    "log-sum-exp": (log_sum_exp, lambda x: jax.nn.logsumexp(x)),
    "product": (product, jnp.prod),
}  # fmt: skip
POINTS = {
    "between": [0.3, 0.9, 1.4, 0.5],
    "with a zero": [0.3, 0.0, 1.4, 0.5],
    "with two zeros": [0.0, 0.9, 0.0, 0.5],
}


@pytest.mark.parametrize("at", POINTS)
@pytest.mark.parametrize("name", SCALARS)
def test_hessian_and_hvp_are_those_of_jax(name: str, at: str) -> None:
    ours, theirs = SCALARS[name]
    x, v = te.placeholder((4,), F64, name="x"), te.placeholder((4,), F64, name="v")
    y, point, along = ours(x), np.array(POINTS[at]), np.array([1.0, -2.0, 0.5, 3.0])
    matrix, vector = evaluate_graph(
        [ad.hessian(y, x), *ad.hvp(y, x, v)], [(x, point), (v, along)]
    )
    wanted = hessian_by_jax(theirs, jnp.asarray(point))
    np.testing.assert_allclose(matrix, wanted, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(vector, wanted @ along, rtol=1e-10, atol=1e-11)


def test_hvp_by_several_inputs() -> None:
    x, w = te.placeholder((3,), F64, name="x"), te.placeholder((3,), F64, name="w")
    k = te.reduce_axis((0, 3), "k")
    y = te.compute((), lambda: te.sum(te.sin(x[k] * w[k]), axis=k), name="y")
    given = directions([x, w], "v", 0)
    pairs = [*zip((x, w), np.random.default_rng(1).standard_normal((2, 3)), strict=True), *given]
    found = evaluate_graph(ad.hvp(y, [x, w], [v for v, _ in given]), pairs)
    arrays = [jnp.asarray(array) for _, array in pairs]
    gradient = jax.grad(lambda x, w: jnp.sin(x * w).sum(), argnums=(0, 1))
    _, wanted = jax.jvp(gradient, arrays[:2], arrays[2:])
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def _mixed(tensor, name):
    k = te.reduce_axis((0, 50), "k")
    return te.compute((50,), lambda i: te.sum(te.sin(tensor[k] * (i + 1)), axis=k), name=name)


def test_the_cheaper_mode_is_taken() -> None:
    """A column through a chain of three stages is three passes forward, and n of them back."""
    x = te.placeholder((1,), F64, name="x")
    tensor = te.compute((50,), lambda i: te.sin(x[0] + i), name="a")
    for name in "bc":
        tensor = _mixed(tensor, name)
    auto, forward, reverse = (
        ad.estimate_cost([ad.jacobian(tensor, x, mode=mode)]).iterations
        for mode in ("auto", "forward", "reverse")
    )
    assert auto == forward < reverse / 5


@pytest.mark.parametrize("name", SCALARS)
def test_an_hvp_costs_at_most_six_times_the_primal(name: str) -> None:
    x, v = te.placeholder((64,), F64, name="x"), te.placeholder((64,), F64, name="v")
    y = SCALARS[name][0](x)
    primal = ad.estimate_cost([y]).iterations
    assert ad.estimate_cost([y, *ad.hvp(y, x, v)]).iterations <= 6 * primal + primal


X = te.placeholder((3,), "float32", name="x")
Y = te.compute((3,), lambda i: X[i] * X[i], name="y")
HUGE = te.placeholder((2**15,), "float32", name="huge")
COPY = te.compute((2**15,), lambda i: HUGE[i] * HUGE[i], name="copy")
LABEL = te.placeholder((3,), "int32", name="label")

WRONG = {
    "no float output": (lambda: ad.jacobian(LABEL, X), "label has dtype int32"),
    "no float input": (lambda: ad.jacobian(Y, LABEL), "label has dtype int32"),
    "a mode": (lambda: ad.jacobian(Y, X, mode="sideways"), "mode must be one of auto"),
    "too large": (
        lambda: ad.jacobian(COPY, HUGE),
        r"derivative of copy has 1073741824 elements.*linearize",
    ),
    "too large for a matrix": (lambda: ad.linearize(COPY, HUGE).to_dense(), "allow_large=True"),
    "no scalar": (lambda: ad.hessian(Y, X), r"y has shape \(3,\); a Hessian needs a scalar"),
    "no scalar, hvp": (lambda: ad.hvp(Y, X, X), r"y has shape \(3,\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(ad.AutodiffError, match=message):
        call()


def test_forward_mode_by_an_input_that_the_output_does_not_read() -> None:
    x, c = te.placeholder((3,), "float64", name="x"), te.placeholder((2,), "float64", name="c")
    y = te.compute((3,), lambda i: x[i] * 2.0, name="y")
    [found] = evaluate_graph([ad.jacobian(y, c, mode="forward")], {x: np.ones(3)})
    np.testing.assert_array_equal(found, np.zeros((3, 2)))


@pytest.mark.parametrize("reduce", [te.sum, te.max])
def test_reductions_whose_bounds_are_data(reduce) -> None:
    length = te.placeholder((3,), "int32", "length")
    x = te.placeholder((4,), F64, "x")

    def body(i):
        k = te.reduce_axis((0, length[i]), "k")
        return reduce(x[k] * x[k], axis=k)

    y = te.compute((3,), body, name="y")
    given = {length: np.array([1, 2, 3], "int32"), x: np.array([1.0, 2.0, 3.0, 4.0])}
    modes = ("auto", "reverse", "forward")
    found = evaluate_graph([ad.jacobian(y, x, mode=mode) for mode in modes], given)
    counts = (lambda k, n: k < n) if reduce is te.sum else (lambda k, n: k == n - 1)
    rows = [[2 * (k + 1) * counts(k, n) for k in range(4)] for n in (1, 2, 3)]
    for one in found:
        np.testing.assert_array_equal(one, rows)
