"""Programs drawn for the benchmark: the draw is reproducible, answers agree, failures are shown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from benchmarks.generated.cases import FAMILIES, entry, programs
from benchmarks.generated.page import page
from benchmarks.suite import ours, with_jax
from benchmarks.suite.measure import CaseResult, Time
from benchmarks.suite.report import ratio
from tests.processes import without_torch

NAMES = [program.name for program in programs(5, 3)]


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.slow
def test_the_draw_is_the_same_in_every_process() -> None:
    code = (
        "from benchmarks.generated.cases import programs\n"
        "print(*(f'{p.name} {p.title}' for p in programs(3, 20)), sep='\\n')"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=without_torch(*sys.path, PYTHONHASHSEED="1"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.splitlines() == [f"{p.name} {p.title}" for p in programs(3, 20)]


def test_a_larger_count_only_adds_programs() -> None:
    few, many = programs(0, 5), programs(0, 40)
    assert [program.full for program in few] == [program.full for program in many[:5]]
    assert entry(many[33].name).full == many[33].full
    assert {program.name.split("-")[2] for program in many} == set(FAMILIES)


def test_seeds_draw_different_programs() -> None:
    assert [p.title for p in programs(0, 10)] != [p.title for p in programs(1, 10)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_answers(name: str) -> None:
    case = entry(name).case()
    arrays = case.arrays(name)
    wanted = with_jax.answers(with_jax.prepare(case, arrays, 1, "reference")())
    reused = ours.answers(ours.prepare(case, arrays, 2)())
    call = ours.prepare(case, arrays, 2, "new")
    first, second = ours.answers(call()), ours.answers(call())
    for n, want in enumerate(wanted):
        assert want.dtype == np.float64
        for got in (reused[n], first[n]):
            assert got.shape == want.shape
            assert np.abs(got - want).max() <= case.tolerance * np.abs(want).max()
        assert not np.shares_memory(first[n], second[n])


@pytest.mark.parametrize("name", NAMES)
def test_answers_of_pytorch(name: str) -> None:
    pytest.importorskip("torch")
    from benchmarks.suite import pytorch

    case = entry(name).case()
    arrays = case.arrays(name)
    wanted = with_jax.answers(with_jax.prepare(case, arrays, 1, "reference")())
    found = pytorch.answers(pytorch.prepare(case, arrays, 1, "eager")())
    for got, want in zip(found, wanted, strict=True):
        assert got.shape == want.shape
        assert np.abs(got - want).max() <= case.tolerance * np.abs(want).max()


def test_the_page_compares_like_with_like_and_lists_failures() -> None:
    name = NAMES[0]
    times = {
        "ours": Time(median=0.001, error=0.0, first=1.0),
        "ours.new": Time(median=0.002, error=0.0, first=1.0),
        "torch": Time(median=0.001, error=9.0, note="wrong answer: error 9e+00"),
        "torch.compile": Time(note="no answer in 45 s"),
        "jax": Time(median=0.003, error=0.0, first=0.5),
    }
    result = CaseResult(None, 0, 0.0, None, times)
    assert ratio(result) == pytest.approx(1.5)
    text = page({name: entry(name)}, {name: result}, 5, 2, "a day", {"processor": "a CPU"})
    assert "Geometric mean 1.50" in text
    assert "in arrays of the caller the mean is 3.00" in text
    assert f"- `{name}`, torch.compile: no answer in 45 s" in text
    assert f"- `{name}`, PyTorch eager: wrong answer: error 9e+00" in text
