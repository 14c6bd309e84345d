"""Nested conditions that leave one value to each of two variables, compiled and compared."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.processes import ROOT, without_torch

N = 4
#: conditions from the outermost inward, as Python and te read them: the first is left where it
#: fails, the innermost holds
NESTS: dict[str, tuple[Callable[[Any, Any], tuple[Any, ...]], ...]] = {
    "sum-then-difference": (lambda i, j: (i * 3 + j >= 10,), lambda i, j: (j - i >= 0, j - i < 3)),
    "one-inside": (lambda i, j: (i * 3 + j >= 10,), lambda i, j: (j >= i,)),
    "exchanged": (lambda i, j: (j * 3 + i >= 10,), lambda i, j: (i - j >= 0, i - j < 3)),
    "from-above": (lambda i, j: (i * 3 + j <= 3, i + j >= 1), lambda i, j: (j * 3 + i <= 3,)),
    "equal": (lambda i, j: (i + j == 3,), lambda i, j: (j - i == 1,)),
    "three": (
        lambda i, j: (i * 2 + j >= 3,),
        lambda i, j: (i * 3 + j >= 10,),
        lambda i, j: (j - i >= 0,),
    ),
    "divided": (lambda i, j: ((i + j // 2) * 3 + j >= 12,), lambda i, j: (j >= i,)),
    "wide": (lambda i, j: (i + j >= 1,), lambda i, j: (j - i < 3, i - j < 3)),
}


def output(name: str, negated: bool) -> tuple[Any, Any]:
    x = te.placeholder((N, N), "float64", name="x")

    def body(i: Any, j: Any) -> Any:
        result = x[i, j]
        for condition in reversed(NESTS[name]):
            holds = te.all(*condition(i, j))
            result = te.if_then_else(holds, result, x[j, i] * 2.0)
        return result

    def other(i: Any, j: Any) -> Any:
        result = x[i, j]
        for condition in reversed(NESTS[name]):
            [holds] = condition(i, j)
            result = te.if_then_else(te.not_equal(holds, False), result, x[j, i] * 2.0)
        return result

    return x, te.compute((N, N), other if negated else body, name="y")


def expected(name: str, x: np.ndarray) -> np.ndarray:
    y = np.empty((N, N))
    for i, j in itertools.product(range(N), repeat=2):
        holds = all(all(condition(i, j)) for condition in NESTS[name])
        y[i, j] = x[i, j] if holds else 2 * x[j, i]
    return y


def run(name: str) -> None:
    x, y = output(name, negated=False)
    array = np.random.default_rng(0).standard_normal((N, N))
    np.testing.assert_allclose(ad.build([x], [y], cache=False)(array)[0], expected(name, array))


if __name__ == "__main__":
    for nest in sys.argv[1:]:
        run(nest)
        print(nest, flush=True)


@pytest.fixture(scope="module")
def compiled() -> subprocess.CompletedProcess[str]:
    """All nests in a process of their own, which the fault would end; those that are right."""
    command = [sys.executable, __file__, *NESTS]
    return subprocess.run(command, env=without_torch(ROOT), capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", NESTS)
def test_nested_conditions_compile(
    name: str, compiled: subprocess.CompletedProcess[str]
) -> None:
    assert name in compiled.stdout.splitlines(), compiled.stderr[-2000:]
