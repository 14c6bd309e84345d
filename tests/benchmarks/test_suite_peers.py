"""PyTorch's side of every case of the benchmark beside JAX's, where PyTorch is installed."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from benchmarks.suite import pytorch, with_jax
from benchmarks.suite.case import Array
from benchmarks.suite.cases import ENTRIES

pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@functools.cache
def expected(name: str) -> list[Array]:
    """JAX's answers in float64."""
    case = ENTRIES[name].case(small=True)
    return with_jax.answers(with_jax.prepare(case, case.arrays(name), 1, "reference")())


@pytest.mark.parametrize("mode", ["eager", "reference"])
@pytest.mark.parametrize("name", ENTRIES)
def test_answers_of_pytorch(name: str, mode: str) -> None:
    case = ENTRIES[name].case(small=True)
    arrays = case.arrays(name)
    found = pytorch.answers(pytorch.prepare(case, arrays, 1, mode)())
    limit = 1e-12 if mode == "reference" else case.tolerance
    for got, want in zip(found, expected(name), strict=True):
        assert got.shape == want.shape
        assert np.abs(got - want).max() <= limit * np.abs(want).max()
