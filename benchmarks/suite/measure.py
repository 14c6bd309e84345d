"""Measures cases: a process for each library, rounds in turn, answers against float64.

Only one process works at a time; the others wait on their pipes. The result of a case is a
`CaseResult`, which can be stored as JSON.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from typing import Any

import numpy as np

from . import limits, machine
from .worker import Failure, Ready, Round, serve

OURS = ("ours", "ours.new")  #: results into arrays of the caller, or allocated at each call
PEERS = ("torch", "torch.compile", "torch.func", "jax")
REFERENCES = ("reference", "torch.reference")  #: which library computes in float64, if it is there
ROUND_SECONDS = 0.05  # what a round of a library takes, about
PREPARE_SECONDS = 150  # torch.compile takes half a minute for a network on two cores


@dataclass
class Time:
    """What one library did with one case: seconds, or a note that says why there are none."""

    median: float | None = None
    best: float | None = None
    first: float | None = None  # until the first answer: compilation and one call
    error: float | None = None  # largest difference from float64 over the largest answer
    note: str = ""


@dataclass
class CaseResult:
    """The times of all libraries, the work of the case, and the speed of a copy as large."""

    flop: int | None
    bytes: int
    copy: float
    others: float | None = None  # CPUs that other programs kept busy meanwhile
    times: dict[str, Time] = field(default_factory=dict)


@dataclass
class Options:
    """What to measure, and how long."""

    cases: Sequence[str]
    libraries: Sequence[str]
    threads: int
    rounds: int = 15
    small: bool = False
    source: str = "benchmarks.suite.cases"  # the module whose `entry` gives a case for a name
    patience: float = PREPARE_SECONDS  # for a compilation, or a round


def missing(library: str) -> str | None:
    """Why a library cannot take part."""
    stem = library.split(".")[0]
    package = {"ours": "tvm_autodiff", "reference": "jax"}.get(stem, stem)
    return None if importlib.util.find_spec(package) else f"{package} is not installed"


class Worker:
    """The process of a library; it is started again if it has died or hangs."""

    def __init__(self, context: SpawnContext, library: str, threads: int, patience: float) -> None:
        self._context, self._library, self._threads = context, library, threads
        self._patience = patience
        self._process: Any = None
        self._pipe: Connection | None = None

    def ask(self, *message: Any) -> Any:
        """Send a message and wait for the reply; a `Failure` if none comes."""
        if self._process is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send(message)
            if self._pipe.poll(self._patience):
                return self._pipe.recv()
            reason = f"no answer in {self._patience:.0f} s"
        except (EOFError, OSError):
            self._process.join(5)
            reason = f"the process ended with code {self._process.exitcode}"
        self.stop()
        return Failure(reason, "")

    def _start(self) -> None:
        self._pipe, end = self._context.Pipe()
        self._process = self._context.Process(
            target=serve, args=(self._library, self._threads, end), daemon=True
        )
        self._process.start()
        end.close()

    def stop(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._process.kill()
        self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


def measure(
    options: Options,
    keep: Callable[[str, CaseResult], None],
    advance: Callable[[str], None] = lambda text: None,
) -> None:
    """Measure cases one after another; `keep` receives each result at once."""
    context = multiprocessing.get_context("spawn")
    whole = _restrict(options.threads)
    workers = {
        library: Worker(context, library, options.threads, options.patience)
        for library in (*options.libraries, *REFERENCES)
        if missing(library) is None
    }
    try:
        for name in options.cases:
            keep(name, _measure_case(name, options, workers, advance))
    finally:
        for worker in workers.values():
            worker.stop()
        if whole is not None:
            os.sched_setaffinity(0, whole)


def _restrict(threads: int) -> set[int] | None:
    """Restrict this process and its children to `threads` CPUs; returns the CPUs it had."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    whole = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(whole)[-threads:])
    return whole


def _measure_case(
    name: str,
    options: Options,
    workers: dict[str, Worker],
    advance: Callable[[str], None],
) -> CaseResult:
    case = importlib.import_module(options.source).entry(name).case(options.small)
    times: dict[str, Time] = {}
    ready: dict[str, Ready] = {}
    advance(f"{name}: float64")
    expected = _expected(name, options, workers)
    for library in options.libraries:
        advance(f"{name}: {library} compiles")
        times[library] = Time(note=missing(library) or "")
        if library not in workers:
            continue
        reply = workers[library].ask("prepare", options.source, name, options.small)
        if isinstance(reply, Failure):
            times[library].note = reply.reason
            continue
        times[library].first = reply.first
        times[library].error, times[library].note = compare(reply, expected, case.tolerance)
        ready[library] = reply
    advance(f"{name}: rounds")
    others = _run_rounds(options.rounds, workers, ready, times)
    needed = sum(array.nbytes for array in case.arrays(name))
    if ready:
        needed += sum(array.nbytes for array in next(iter(ready.values())).answers)
    return CaseResult(case.flop, needed, 0.0, others, times)


def _expected(name: str, options: Options, workers: dict[str, Worker]) -> list[np.ndarray] | None:
    """The answers in float64, from the first reference that gives them."""
    for library in REFERENCES:
        if library in workers:
            reply = workers[library].ask("prepare", options.source, name, options.small)
            if isinstance(reply, Ready):
                return reply.answers
    return None


def compare(
    reply: Ready, expected: list[np.ndarray] | None, tolerance: float
) -> tuple[float | None, str]:
    """The largest error relative to the largest answer, and a note if it is too large."""
    if expected is None:
        return None, ""
    shapes = [got.shape for got in reply.answers], [want.shape for want in expected]
    if shapes[0] != shapes[1]:
        return float("inf"), f"wrong shapes: {shapes[0]}"
    errors = [
        np.abs(got - want).max() / max(np.abs(want).max(), np.finfo("float32").tiny)
        for got, want in zip(reply.answers, expected, strict=True)
    ]
    worst = float(np.max(errors))  # of numpy: a NaN stays one
    return worst, "" if worst <= tolerance else f"wrong answer: error {worst:.0e}"


def _run_rounds(
    rounds: int,
    workers: dict[str, Worker],
    ready: dict[str, Ready],
    times: dict[str, Time],
) -> float | None:
    """Let the libraries take turns; returns how many CPUs other programs kept busy meanwhile."""
    seconds: dict[str, list[float]] = {library: [] for library in ready}
    used: dict[str, list[float]] = {library: [] for library in ready}
    calls = {
        library: min(max(int(ROUND_SECONDS / max(reply.call, 1e-6)), 3), 500)
        for library, reply in ready.items()
    }
    begin, busy = time.perf_counter(), machine.busy_seconds()
    for _ in range(rounds):
        for library in list(seconds):
            reply = workers[library].ask("run", calls[library])
            if isinstance(reply, Round):
                seconds[library] += reply.times
                used[library].append(reply.used)
            else:
                times[library].note = reply.reason
                del seconds[library]
    passed = time.perf_counter() - begin
    for library, measured in seconds.items():
        if measured:
            times[library].median = statistics.median(measured)
            times[library].best = min(measured)
    if busy is None or not rounds:
        return None
    own = sum(values[-1] - values[0] for values in used.values() if values)
    own *= rounds / max(rounds - 1, 1)  # the first round is before the first value
    return max((machine.busy_seconds() or 0.0) - busy - own, 0.0) / passed


def measure_limits(threads: int, sizes: dict[str, int]) -> tuple[float, float, dict[str, float]]:
    """GFLOP/s of an sgemm, GB/s of a large copy, GB/s of a copy of each size."""
    context = multiprocessing.get_context("spawn")
    whole = _restrict(threads)
    pipe, end = context.Pipe()
    process = context.Process(target=limits.serve, args=(threads, sizes, end), daemon=True)
    process.start()
    if whole is not None:
        os.sched_setaffinity(0, whole)
    try:
        return pipe.recv()
    finally:
        process.join()


def as_data(result: CaseResult) -> dict[str, Any]:
    """Plain data for JSON."""
    return dataclasses.asdict(result)


def from_data(data: dict[str, Any]) -> CaseResult:
    """The result that `as_data` wrote."""
    times = {library: Time(**value) for library, value in data["times"].items()}
    return CaseResult(**{**data, "times": times})
