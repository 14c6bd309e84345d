"""Copies that are fused through: as far as the paths to one tensor stay few."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
import tvm_autodiff.zero_elimination.sums.solve as solve_module
from tests.evaluate import evaluate_graph
from tvm_autodiff.rules.copies import Copies

N = 12


def branches(source: te.Tensor, count: int, shift: int) -> te.Tensor:
    """A copy that reads its source at `count` places, by the remainder of the index."""

    def body(i):
        value = source[N - 1 - i]
        for number in range(count - 1):
            place = source[(i + number + shift) % N]
            value = tirx.if_then_else((i % (count + 1)).equal(number), place, value)
        return value

    return te.compute((N,), body, name=f"copy{shift}")


def branches_in_numpy(source: np.ndarray, count: int, shift: int) -> np.ndarray:
    i = np.arange(N)
    result = source[N - 1 - i]
    for number in range(count - 1):
        result = np.where(i % (count + 1) == number, source[(i + number + shift) % N], result)
    return result


def row_of_copies(count: int, length: int) -> tuple[te.Tensor, te.Tensor]:
    x = te.placeholder((N,), "float64", name="x")
    last = x
    for number in range(length):
        last = branches(last, count, number)
    return x, te.compute((N,), lambda i: last[i] * last[N - 1 - i], name="y")


def all_copies() -> Copies:
    return Copies(lambda tensor: hasattr(tensor.op, "body"), lambda tensor: True)


def test_paths_multiply_along_a_row():
    x = te.placeholder((N,), name="x")
    first = branches(x, 2, 0)
    second = branches(first, 2, 1)
    third = branches(second, 2, 2)
    fourth = branches(third, 2, 3)
    copies = all_copies()
    passed = [copies.terms(tensor) is not None for tensor in (first, second, third, fourth)]
    assert passed == [True, True, False, True]


def test_a_stack_of_many_sources_keeps_its_cotangent():
    parts = [te.placeholder((2,), name=f"p{n}") for n in range(9)]

    def body(i):
        value = parts[8][i - 16]
        for number in reversed(range(8)):
            value = tirx.if_then_else(i < 2 * number + 2, parts[number][i - 2 * number], value)
        return value

    joined = te.compute((18,), body, name="joined")
    padded = te.compute((20,), lambda i: tirx.if_then_else(i < 18, joined[i], 0.0), name="padded")
    copies = all_copies()
    assert copies.terms(joined) is None
    assert len(copies.terms(padded)) == 1


@pytest.mark.parametrize(
    ("border", "is_passed"), [((2, 3), True), ((0, 0), True), ((-1, 0), False), ((-2, 2), True)]
)
def test_a_border_around_a_symbolic_size(border: tuple[int, int], is_passed: bool):
    """``n → n + 5`` is fused through, ``n → n - 1`` is a slice, whose cotangent is smaller."""
    before, after = border
    n = te.var("n")
    x = te.placeholder((3, n), "float64", name="x")

    def body(i, j):
        place = j - before
        inside = tirx.all(place >= 0, place < n)
        return tirx.if_then_else(inside, x[i, tirx.max(place, 0)], tirx.const(0.0, "float64"))

    padded = te.compute((3, n + before + after), body, name="padded")
    assert (all_copies().terms(padded) is not None) == is_passed


@pytest.mark.parametrize("size", [1, 2, 7])
def test_gradient_through_a_border_of_a_symbolic_size(size: int):
    n = te.var("n")
    x, w = te.placeholder((n,), "float64", name="x"), te.placeholder((4,), "float64", name="w")
    zero = tirx.const(0.0, "float64")
    padded = te.compute(
        (n + 3,), lambda i: tirx.if_then_else(tirx.all(i >= 1, i < n + 1), x[i - 1], zero), "padded"
    )
    r = te.reduce_axis((0, 4), "r")
    y = te.compute((n,), lambda i: te.sum(padded[i + r] * w[r], axis=r), name="y")
    head = te.placeholder((n,), "float64", name="head")
    found = ad.differentiate(y, [x], head)
    assert "padded" not in str(ad.show(found[0]))
    rng = np.random.default_rng(0)
    cotangent, weights = rng.standard_normal(size), rng.standard_normal(4)
    run = ad.build([x, w, head], found[0], cache=False)
    want = np.zeros(size + 3)
    for i in range(size):
        want[i : i + 4] += cotangent[i] * weights
    np.testing.assert_allclose(run(np.zeros(size), weights, cotangent), want[1 : size + 1])


def solved(count: int, length: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The systems that are solved for the gradient of a row of copies."""
    seen = []
    solve = solve_module.simplify_domain
    x, y = row_of_copies(count, length)
    with monkeypatch.context() as patch:
        patch.setattr(
            solve_module, "simplify_domain", lambda domain: seen.append(domain) or solve(domain)
        )
        ad.differentiate(y, [x], te.placeholder((N,), "float64", name="head"))
    return len(seen)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_the_work_grows_with_the_row(count, monkeypatch):
    few, more, most = (solved(count, length, monkeypatch) for length in (2, 6, 10))
    assert few > 0
    assert most - more <= 1.5 * (more - few)


@pytest.mark.parametrize(("count", "length"), [(2, 5), (5, 3), (7, 2)])
def test_gradients_of_rows(count, length):
    x, y = row_of_copies(count, length)
    head = te.placeholder((N,), "float64", name="head")
    gradient = ad.differentiate(y, [x], head)
    rng = np.random.default_rng(length)
    values, cotangent = rng.uniform(-1, 1, (2, N))
    matrix = np.eye(N)
    for number in range(length):
        columns = [branches_in_numpy(column, count, number) for column in matrix.T]
        matrix = np.stack(columns, axis=1)
    copied = matrix @ values
    want = matrix.T @ (cotangent * copied[::-1] + (cotangent * copied)[::-1])
    [got] = evaluate_graph(list(gradient), [(x, values), (head, cotangent)])
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
