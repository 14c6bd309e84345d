"""The machinery of the benchmark: comparison, ratios, tables, the file, one true measurement."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.suite.measure import CaseResult, Options, Time, compare, measure
from benchmarks.suite.page import PAGE, PICTURE, write
from benchmarks.suite.picture import picture
from benchmarks.suite.report import geometric_mean, ratio, report
from benchmarks.suite.store import Limits, Results, read
from benchmarks.suite.worker import Ready
from tests.processes import WITHOUT_TORCH


def result(**medians: float | Time) -> CaseResult:
    """A case with medians in seconds; names with `_` for the dot of a peer."""
    times = {
        library.replace("_", "."): value
        if isinstance(value, Time)
        else Time(value, value, 1.0, 0.0)
        for library, value in medians.items()
    }
    return CaseResult(flop=4 * 512**3, bytes=10**6, copy=20.0, times=times)


RATIOS = [
    ("the fastest peer counts", result(ours=2.0, torch=3.0, jax=1.0), 0.5),
    ("a failed peer does not", result(ours=2.0, torch=3.0, jax=Time(note="failed")), 1.5),
    ("nor a wrong one", result(ours=2.0, torch=3.0, jax=Time(1.0, 1.0, note="wrong")), 1.5),
    ("no peer", result(ours=2.0), None),
    ("ours failed", result(ours=Time(note="failed"), torch=1.0), None),
    ("ours is wrong", result(ours=Time(1.0, 1.0, note="wrong"), torch=2.0), None),
]


@pytest.mark.parametrize(("name", "case", "wanted"), RATIOS, ids=[row[0] for row in RATIOS])
def test_ratio(name: str, case: CaseResult, wanted: float | None) -> None:
    assert ratio(case) == wanted


def test_geometric_mean() -> None:
    assert geometric_mean([0.5, 8.0]) == pytest.approx(2.0)
    assert geometric_mean([]) is None


COMPARISONS = [
    ("equal", [[1.0, 2.0]], 0.0, ""),
    ("close", [[1.0, 2.00002]], 1e-5, ""),
    ("far", [[1.0, 2.2]], 0.1, "wrong answer: error 1e-01"),
    ("not a number", [[1.0, float("nan")]], float("nan"), "wrong answer: error nan"),
    ("not a number behind", [[1.0, 2.0], [float("nan")]], float("nan"), "wrong answer: error nan"),
    ("another shape", [[1.0]], float("inf"), "wrong shapes: [(1,)]"),
    ("too few", [], float("inf"), "wrong shapes: []"),
]


@pytest.mark.parametrize(("name", "got", "error", "note"), COMPARISONS)
def test_answers_are_compared(name: str, got: list[list[float]], error: float, note: str) -> None:
    reply = Ready(0.1, 0.1, [np.array(values) for values in got])
    wanted = [np.array([1.0, 2.0]), np.array([3.0])][: max(len(got), 1)]
    found, said = compare(reply, wanted, 1e-4)
    assert found == pytest.approx(error, rel=1e-3, nan_ok=True)
    assert said == note


def test_without_a_reference_there_is_no_error() -> None:
    assert compare(Ready(0.1, 0.1, []), None, 1e-4) == (None, "")


@pytest.fixture
def results(tmp_path: Path) -> Results:
    kept = Results(tmp_path / "results.json", {"processor": "2 cores", "torch": "2.13"})
    failed = Time(note="RuntimeError: no such kernel")
    kept.add(2, "matmul", result(ours=0.002, torch=0.004, jax=failed))
    kept.add(2, "layer-norm", result(ours=0.001, torch_compile=0.0005))
    kept.set_limits(2, Limits(200.0, 30.0), {"layer-norm": 40.0})
    return kept


def test_the_file_holds_everything(results: Results) -> None:
    again = read(results.path)
    assert again == results


def test_what_is_measured_again_replaces_what_was(results: Results) -> None:
    results.add(2, "matmul", result(jax=0.001))
    times = read(results.path).by_threads[2].cases["matmul"].times
    assert times["jax"].median == 0.001
    assert times["ours"].median == 0.002


TOLD = [
    "| matmul 512x512x512 | 2.000 (2.000) |",
    "2.00 |",  # ratio of the product
    "0.50 |",  # and of the norm
    "| geometric mean",
    "1.00 |",  # their mean
    "268 GFLOP/s",
    "134%",
    "1.0 GB/s",
    "3% (2%)",
    "- matmul 512x512x512, JAX jit: RuntimeError: no such kernel",
]


def test_the_tables(results: Results) -> None:
    text = " ".join(report(results).split())
    for part in TOLD:
        assert part in text


def test_ratios_compare_results_that_are_allocated_anew(results: Results) -> None:
    both = result(ours=0.001, torch=0.004)
    both.times["ours.new"] = Time(0.002, 0.002, 1.0, 1e-7)
    results.add(2, "mlp", both)
    assert ratio(both) == pytest.approx(2.0)
    assert "ours, out= | ours, new arrays |" in " ".join(report(results).split())


def test_answers_that_nobody_compared_are_told(results: Results) -> None:
    results.add(2, "mlp", result(ours=Time(0.1, 0.1, 1.0)))
    assert "cross entropy: answers were not compared" in report(results)


def test_the_page_and_its_picture(results: Results, tmp_path: Path) -> None:
    write(results, tmp_path)
    assert "2 cores, torch 2.13" in (tmp_path / PAGE).read_text("utf-8")
    drawn = (tmp_path / PICTURE).read_text("utf-8")
    assert drawn == picture((tmp_path / PAGE).read_text("utf-8"))
    assert "matmul 512x512x512" in drawn


@pytest.mark.slow
def test_a_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(WITHOUT_TORCH)  # of the processes that it starts
    results = Results(tmp_path / "results.json")
    options = Options(["matmul"], ["ours"], threads=1, rounds=2, small=True)
    measure(options, lambda name, found: results.add(1, name, found))
    found = read(results.path).by_threads[1].cases["matmul"]
    time = found.times["ours"]
    assert time.note == ""
    assert time.error is not None
    assert time.error < 1e-5
    assert time.best is not None
    assert time.median is not None
    assert 0 < time.best <= time.median
    assert found.bytes == 5 * 37 * 37 * 4
