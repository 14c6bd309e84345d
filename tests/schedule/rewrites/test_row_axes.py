"""Output axes that are read through quotients in rows become several: which, and equal values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tests.machines import avx512
from tvm_autodiff import build, differentiate
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.rewrite import contains
from tvm_autodiff.expr.simplify import prove_equal
from tvm_autodiff.graph.stage import bodies, reduction_of, shape_of
from tvm_autodiff.schedule.backends import rules_for
from tvm_autodiff.schedule.fusion.kernels import separate
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rewrites.row_axes import split_into_rows
from tvm_autodiff.schedule.rule import apply_rules

B, C = 5, 128
X, W = te.placeholder((B, C), "float64", "X"), te.placeholder((32,), "float64", "W")
div, mod, sel = tirx.floordiv, tirx.floormod, te.if_then_else


def halves(i: Any, c: Any) -> Any:
    """The halves of each head, exchanged and rotated."""
    turned = sel(mod(c, 64) < 32, -X[i, c + 32], X[i, c - 32])
    return turned * W[mod(c, 32)] + X[i, c]


def butterfly(size: int) -> Callable[[Any, Any], Any]:
    def body(i: Any, k: Any) -> Any:
        first = mod(div(k, size), 2) < 1
        return sel(first, X[i, k] + X[i, k + size], X[i, k - size] - X[i, k])

    return body


def stockham(i: Any, k: Any) -> Any:
    """A step of a Fourier transform over 16 blocks."""
    place = mod(k, 16) + 16 * div(div(k, 16), 2)
    return X[i, place] * W[mod(div(k, 16), 2)] + X[i, place + C // 2]


def haar(i: Any, k: Any) -> Any:
    first, second = X[i, mod(k, C // 2) * 2], X[i, mod(k, C // 2) * 2 + 1]
    return sel(k < C // 2, first + second, first - second)


#: name → what is computed at i, c, and the extents of the axes that c becomes
SPLIT: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "rotated heads": (halves, (2, 2, 32)),
    "a roll within heads": (
        lambda i, c: X[i, div(c, 64) * 64 + mod(c + 32, 64)] * W[mod(c, 32)], (2, 2, 32)
    ),
    "a scale for each head": (lambda i, c: X[i, c] * W[div(c, 16)], (8, 16)),
    "heads as columns": (lambda i, c: X[i, mod(c, 8) * 16 + div(c, 8)], (16, 8)),
    "butterflies of 16": (butterfly(16), (8, 16)),
    "butterflies of 32": (butterfly(32), (4, 32)),
    "a step of a Fourier transform": (stockham, (8, 16)),
    "a step of a Haar transform": (haar, (2, 64)),
    "blocks that repeat": (lambda i, c: X[i, div(c, 16) * 16] + X[i, c], (8, 16)),
}

STAYS: dict[str, Callable[[Any, Any], Any]] = {
    "no quotient": lambda i, c: X[i, c] * 2.0,
    "short rows": lambda i, c: X[i, div(c, 4)],
    "rows that do not divide the axis": lambda i, c: X[i, mod(c, 48)] + X[i, c],
    "rows of two lengths": lambda i, c: X[i, div(c, 16)] + X[i, div(c, 24)],
    "a quotient of two axes": lambda i, c: X[i, div(c + i, 16)],
    "a wrapped row": lambda i, c: X[i, mod(c + 7, C)],
}


def stage(body: Callable[[Any, Any], Any]) -> Any:
    return te.compute((B, C), body, name="y")


def split_of(output: Any) -> Any:
    [kernel] = separate(normal_form([output]))[0]
    return split_into_rows(kernel)


@pytest.mark.parametrize("name", SPLIT)
def test_axes(name: str) -> None:
    body, extents = SPLIT[name]
    split = split_of(stage(body))
    root = split.kernel.root
    assert shape_of(root.output(0)) == (B, *extents)
    assert split.groups == ((0,), tuple(range(1, len(extents) + 1)))
    given = {
        X: np.random.default_rng(0).standard_normal((B, C)),
        W: np.random.default_rng(1).standard_normal(32),
    }
    [found] = evaluate_graph([root.output(0)], given)
    [want] = evaluate_graph([stage(body)], given)
    np.testing.assert_array_equal(np.asarray(found).reshape(B, C), want)


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str) -> None:
    assert split_of(stage(STAYS[name])) is None


n, m = te.var("n"), te.var("m")
S, V = te.placeholder((n, m, 16), "float64", "S"), te.placeholder((m,), "float64", "V")

#: name → an extent, what is computed at a place, and the extents that it becomes
SYMBOLIC: dict[str, tuple[Any, Callable[[Any], Any], Any]] = {
    "rows": (n * m, lambda p: S[div(p, m), mod(p, m), 0] * V[mod(p, m)], [n, m]),
    "rows of rows": (
        n * m * 16,
        lambda p: S[mod(div(div(p, 16), m), n), mod(div(p, 16), m), mod(p, 16)],
        [n, m, 16],
    ),
    "short rows": (n * 3, lambda p: V[div(p, 3)] * mod(p, 3), None),
    "columns": (n * m, lambda p: S[mod(p, n), div(p, n), 1], [m, n]),
    "quotients alone": (n * m, lambda p: S[div(p, m), 0, 0], [n, m]),
    "of part of an axis": (n * m + 1, lambda p: V[mod(p, m)], None),
    "by two sizes": (n * m, lambda p: V[mod(p, m)] + S[mod(p, n), 0, 0], None),
    "wrapped once": (m, lambda p: V[mod(p, m)], None),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_axes(name: str) -> None:
    extent, body, parts = SYMBOLIC[name]
    y = te.compute((extent,), body, name="y")
    found = split_into_rows(Kernel(y.op))
    assert (found is None) is (parts is None)
    if found is None:
        return
    root = found.kernel.root
    assert all(map(prove_equal, shape_of(root.output(0)), parts))
    rng = np.random.default_rng(0)
    given = [(S, rng.random((4, 5, 16))), (V, rng.random(5))]
    [want], [got] = (evaluate_graph([t], given, {n: 4, m: 5}) for t in (y, root.output(0)))
    np.testing.assert_array_equal(np.asarray(got).reshape(-1), want)


def divides(root: Any) -> bool:
    values = bodies(root) if reduction_of(root) is None else reduction_of(root).sources
    return contains(list(values), lambda node: op_name(node) in ("floordiv", "floormod"))


@pytest.mark.parametrize("name", ["rotated heads", "blocks that repeat", "a scale for each head"])
def test_rows_divide_nothing(name: str) -> None:
    assert not divides(split_of(stage(SPLIT[name][0])).kernel.root)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", SPLIT)
def test_with_gradients(name: str, threads: int) -> None:
    y = stage(SPLIT[name][0])
    head = te.placeholder((B, C), "float64", "head")
    inputs, outputs = [X, W, head], [y, *differentiate(y, [X, W], head)]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(list(map(int, t.shape))) for t in inputs]
    wanted = evaluate_graph(outputs, list(zip(inputs, arrays, strict=True)))
    found = build(inputs, outputs, num_threads=threads, cache=False)(*arrays)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_the_rule_takes_the_gradient_of_a_transform() -> None:
    """A sum of two elements over places that a permutation by quotients reads."""
    y = stage(stockham)
    gradient = differentiate(y, [X], te.placeholder((B, C), "float64", "head"))
    machine = avx512(1)
    kernels, _ = separate(normal_form(list(gradient)))
    rules = [one.rule for k in kernels for one in apply_rules(k, machine, rules_for(machine))]
    assert "fallback" not in rules
    assert "split_rows" in rules
