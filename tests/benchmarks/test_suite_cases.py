"""Every case of the benchmark: our answers, scheduled and not, beside JAX in float64.

At the sizes that are measured and at small, odd ones. The plainest rule of the schedules stands for
no schedule at all.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import jax
import numpy as np
import pytest

import tvm_autodiff.compile.pipeline as compiling
from benchmarks.suite import ours, with_jax
from benchmarks.suite.case import Array
from benchmarks.suite.cases import ENTRIES

THREADS = 2


@pytest.fixture(autouse=True)
def _configuration_of_jax() -> Iterator[None]:
    names = ("jax_enable_x64", "jax_disable_most_optimizations")
    before = {name: jax.config.values[name] for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture
def plainest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds use the last rule alone."""
    all_rules = compiling.rules_for
    monkeypatch.setattr(compiling, "rules_for", lambda machine: all_rules(machine)[-1:])


@functools.cache
def expected(name: str, small: bool) -> list[Array]:
    """JAX's answers in float64; large programs take longer to run than to optimise."""
    jax.config.update("jax_disable_most_optimizations", small)
    case = ENTRIES[name].case(small)
    arrays = case.arrays(name)
    return with_jax.answers(with_jax.prepare(case, arrays, 1, "reference")())


def assert_answers(name: str, small: bool) -> None:
    case = ENTRIES[name].case(small)
    arrays = case.arrays(name)
    wanted = expected(name, small)
    assert all(want.dtype == np.float64 for want in wanted)
    found = ours.answers(ours.prepare(case, arrays, THREADS)())
    for number, (got, want) in enumerate(zip(found, wanted, strict=True)):
        assert got.shape == want.shape
        worst = np.abs(got - want).max() / np.abs(want).max()
        assert worst <= case.tolerance, f"answer {number} of {name}: {worst:.1e}"


@pytest.mark.parametrize("name", ENTRIES)
def test_scheduled_at_the_measured_size(name: str) -> None:
    assert_answers(name, small=False)


@pytest.mark.parametrize("name", ENTRIES)
def test_scheduled_at_a_small_size(name: str) -> None:
    assert_answers(name, small=True)


@pytest.mark.parametrize("name", list(ENTRIES)[::3])  # random programs have the plainest rule, too
@pytest.mark.usefixtures("plainest")
def test_unscheduled_at_a_small_size(name: str) -> None:
    assert_answers(name, small=True)


def test_inputs_are_the_same_in_every_process_and_aligned() -> None:
    case = ENTRIES["mlp"].case(small=True)
    first, second = case.arrays("mlp"), case.arrays("mlp")
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.ctypes.data % 64 == 0
    assert not np.array_equal(first[0], case.arrays("other")[0])
