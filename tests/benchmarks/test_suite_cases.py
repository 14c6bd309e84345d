"""Every case of the benchmark: our answers, scheduled and not, and PyTorch's, beside JAX's.

JAX computes in float64. At the sizes that are measured and at small, odd ones. The plainest rule of
the schedules stands for no schedule at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np
import pytest

import tvm_autodiff.compile.pipeline as compiling
from benchmarks.suite import ours, with_jax
from benchmarks.suite.case import Array
from benchmarks.suite.cases import ENTRIES

pytestmark = pytest.mark.slow

THREADS = 2


@pytest.fixture(autouse=True)
def _configuration_of_jax() -> Iterator[None]:
    names = ("jax_enable_x64", "jax_disable_most_optimizations")
    before = {name: jax.config.values[name] for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def expected(name: str, small: bool) -> list[Array]:
    """JAX's answers in float64; large programs take longer to run than to optimise."""
    jax.config.update("jax_disable_most_optimizations", small)
    case = ENTRIES[name].case(small)
    arrays = case.arrays(name)
    return with_jax.answers(with_jax.prepare(case, arrays, 1, "reference")())


def assert_near(
    found: Sequence[Array], wanted: Sequence[Array], tolerance: float, what: str
) -> None:
    for number, (got, want) in enumerate(zip(found, wanted, strict=True)):
        assert want.dtype == np.float64
        assert got.shape == want.shape
        worst = np.abs(got - want).max() / np.abs(want).max()
        assert worst <= tolerance, f"answer {number} of {what}: {worst:.1e}"


@pytest.mark.parametrize("name", ENTRIES)
def test_scheduled_at_the_measured_size(name: str) -> None:
    case = ENTRIES[name].case()
    found = ours.answers(ours.prepare(case, case.arrays(name), THREADS)())
    assert_near(found, expected(name, small=False), case.tolerance, name)


def plainest(machine: Any, rules: Callable[[Any], Sequence[Any]] = compiling.rules_for) -> Any:
    """The last rule alone."""
    return rules(machine)[-1:]


@pytest.mark.parametrize("name", ENTRIES)
def test_answers_at_a_small_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one test: JAX's answers are those of all."""
    case = ENTRIES[name].case(small=True)
    arrays = case.arrays(name)
    wanted = expected(name, small=True)
    found = ours.answers(ours.prepare(case, arrays, THREADS)())
    assert_near(found, wanted, case.tolerance, "ours")
    if find_spec("torch"):
        from benchmarks.suite import pytorch

        for mode, tolerance in (("eager", case.tolerance), ("reference", 1e-12)):
            found = pytorch.answers(pytorch.prepare(case, arrays, 1, mode)())
            assert_near(found, wanted, tolerance, f"PyTorch, {mode}")
    if name in list(ENTRIES)[::3]:  # random programs have the plainest rule, too
        monkeypatch.setattr(compiling, "rules_for", plainest)
        found = ours.answers(ours.prepare(case, arrays, THREADS)())
        assert_near(found, wanted, case.tolerance, "ours, unscheduled")


def test_inputs_are_the_same_in_every_process_and_aligned() -> None:
    case = ENTRIES["mlp"].case(small=True)
    first, second = case.arrays("mlp"), case.arrays("mlp")
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.ctypes.data % 64 == 0
    assert not np.array_equal(first[0], case.arrays("other")[0])
