"""Linear operators: application, algebra, transposes, matrices, residuals, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph

F64 = "float64"
X = te.placeholder((5,), F64, name="x")
W = te.placeholder((3,), F64, name="w")
V = te.placeholder((5,), F64, name="v")
U = te.placeholder((3,), F64, name="u")
K = te.reduce_axis((0, 3), "k")
S = te.compute((3,), lambda i: te.sum(X[i + K] * W[K], axis=K), name="s")
Y = te.compute((3,), lambda i: te.exp(S[i]), name="y")

RNG = np.random.default_rng(0)
PAIRS = [(t, RNG.standard_normal(tuple(int(n) for n in t.shape))) for t in (X, W, V, U)]
AT = {t.op.name: array for t, array in PAIRS}


def value(*tensors):
    return evaluate_graph(list(tensors), PAIRS)


def matrix():
    """∂y/∂x by hand."""
    rows = np.stack([np.convolve(np.eye(3)[i], AT["w"]) for i in range(3)])
    return np.exp(rows @ AT["x"])[:, None] * rows


J = ad.linearize(Y, X)

#: operator → its matrix
ALGEBRA = {
    "itself": (lambda: J, lambda m: m),
    "transpose": (lambda: J.T, lambda m: m.T),
    "twice transposed": (lambda: J.T.T, lambda m: m),
    "sum": (lambda: J + J, lambda m: 2 * m),
    "difference": (lambda: 3 * J - J, lambda m: 2 * m),
    "scaled": (lambda: J * 0.5, lambda m: 0.5 * m),
    "negative": (lambda: -J, lambda m: -m),
    "composition": (lambda: J @ J.T, lambda m: m @ m.T),
    "normal equations": (lambda: J.T @ J + 2 * (J.T @ J), lambda m: 3 * m.T @ m),
    "transpose of a composition": (lambda: (J.T @ J @ J.T).T, lambda m: m @ m.T @ m),
}


@pytest.mark.parametrize("name", ALGEBRA)
def test_algebra(name: str) -> None:
    make, by_hand = ALGEBRA[name]
    operator, wanted = make(), by_hand(matrix())
    takes, gives = (V if n == 5 else U for n in wanted.shape[::-1])
    assert operator.shape == (((wanted.shape[0],),), ((wanted.shape[1],),))
    forward, backward, dense = value(operator @ takes, operator.T @ gives, operator.to_dense())
    np.testing.assert_allclose(forward, wanted @ AT[takes.op.name], rtol=1e-12)
    np.testing.assert_allclose(backward, wanted.T @ AT[gives.op.name], rtol=1e-12)
    np.testing.assert_allclose(dense, wanted, rtol=1e-12, atol=1e-14)


def test_several_inputs_and_outputs() -> None:
    operator = ad.linearize([Y, S], [X, W])
    assert repr(operator).startswith("LinearOperator(x: float64(5,), w: float64(3,) → y: float64")
    pushed = operator @ [V, U]
    pulled = operator.T @ [U, U]
    assert [len(pushed), len(pulled)] == [2, 2]
    one, two, back, by_w = value(*pushed, *pulled)
    left = AT["u"] @ one + AT["u"] @ two
    np.testing.assert_allclose(left, back @ AT["v"] + by_w @ AT["u"], rtol=1e-12)
    rows = operator.to_dense()
    assert [[tuple(map(int, t.shape)) for t in row] for row in rows] == [[(3, 5), (3, 3)]] * 2


def test_a_matrix_holds_no_sum_over_zeros() -> None:
    linear = ad.linearize(te.compute((5,), lambda i: 2.0 * X[i], name="y"), X)
    assert ad.estimate_cost([linear.to_dense()]).iterations == 25


def test_linear_transpose_reads_no_input() -> None:
    transposed = ad.linear_transpose(S, X)
    result = transposed @ U
    assert ad.show(result).splitlines()[0] == "inputs  u: float64[3], w: float64[3]"
    [found] = value(result)
    np.testing.assert_allclose(found, np.convolve(AT["u"], AT["w"]), rtol=1e-12)


def test_residuals_are_what_the_backward_pass_reads() -> None:
    [residual] = J.residuals()
    assert residual.tensor.op.name == "y"
    assert (residual.bytes, residual.iterations) == (3 * 8, 3 + 9)
    assert ad.linearize(S, X).residuals() == []


def test_residuals_of_symbolic_sizes_have_no_numbers() -> None:
    n = te.var("n")
    x = te.placeholder((n,), F64, name="x")
    [residual] = ad.linearize(te.compute((n,), lambda i: te.exp(x[i]), name="y"), x).residuals()
    assert (residual.bytes, residual.iterations) == (None, None)


BAD = te.placeholder((4,), F64, name="bad")
WRONG = {
    "no output": (lambda: ad.linearize([], X), "outputs is empty"),
    "a vector of another shape": (
        lambda: J @ BAD, r"takes x: float64\(5,\), but was applied to bad: float64\(4,\)",
    ),
    "too many vectors": (lambda: J @ [V, V], "takes x"),
    "no tensor": (lambda: J @ 3, "the operand of @ must be a te.Tensor"),
    "a composition": (lambda: J @ J, "cannot compose: the left operator takes x"),
    "a sum": (lambda: J + J.T, "the spaces differ"),
    "a nonlinear program": (
        lambda: ad.linear_transpose(Y, X), "not linear in x: its derivative reads",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_bad_input(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(ad.AutodiffError, match=message):
        call()


@pytest.mark.parametrize("operation", [lambda: J + 1, lambda: J * "a", lambda: J - 2.0])
def test_other_operands_are_type_errors(operation) -> None:
    with pytest.raises(TypeError, match="unsupported operand|can't multiply"):
        operation()
