"""The evals beside JAX and PyTorch: ``python -m benchmarks.gradbench.compare``.

Each library runs in a process of its own that keeps to as many CPUs as threads. For each workload
all prepare (compile and run once), their answers are compared with JAX's by the suite's formula,
and then they take turns. Results are kept in a JSON file and become docs/gradbench.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from ..suite.machine import describe
from . import inputs
from .evals import EVALS
from .worker import Failure, Prepared, serve

LIBRARIES = ("ours", "jax", "torch", "torch.compile")
TOLERANCE = 1e-4  #: of the suite
ROUND_SECONDS = 0.1
LONG_SECONDS = 1.0  #: calls from here on are fewer
WAIT_SECONDS = 600


@dataclass
class Time:
    """Milliseconds of a function in a library, and seconds until its first result."""

    median: float | None = None
    best: float | None = None
    first: float | None = None
    note: str = ""


@dataclass
class Row:
    """A workload: a function of an eval for some sizes."""

    module: str
    function: str
    sizes: tuple[int, ...]
    times: dict[str, Time] = field(default_factory=dict)


class Library:
    """The process of a library, which is started again when it has died."""

    def __init__(self, name: str, cpus: list[int]) -> None:
        self._name, self._cpus = name, cpus
        self._process: Any = None
        self._pipe: Connection | None = None

    def ask(self, message: Any) -> Any:
        """Send a message and wait for the answer."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, end = context.Pipe()
            arguments = (self._name, self._cpus, end)
            self._process = context.Process(target=serve, args=arguments, daemon=True)
            self._process.start()
            end.close()
        assert self._pipe is not None
        try:
            self._pipe.send(message)
            if self._pipe.poll(WAIT_SECONDS):
                return self._pipe.recv()
            reason = f"no answer in {WAIT_SECONDS} s"
        except (EOFError, OSError):
            reason = "the process ended"
        self.stop()
        return Failure(reason)

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None


def difference(left: np.ndarray, right: np.ndarray) -> float:
    """The largest difference by the formula of the suite; a NaN stays one."""
    if left.shape != right.shape:
        return float("inf")
    scale = np.maximum(1.0, np.abs(left) + np.abs(right))
    return float(np.max(np.abs(left - right) / scale, initial=0.0))


def measure(row: Row, libraries: dict[str, Library], rounds: int) -> None:
    """Fill the row's times; libraries take turns."""
    work = (row.module, row.function, row.sizes)
    ready: dict[str, Prepared] = {}
    for name, library in libraries.items():
        row.times[name] = Time()
        reply = library.ask(work)
        if isinstance(reply, Failure):
            row.times[name].note = reply.reason
        else:
            row.times[name].first = reply.first
            ready[name] = reply
    reference = ready.get("jax") or next(iter(ready.values()), None)
    for name, reply in ready.items():
        assert reference is not None
        error = difference(reply.sample, reference.sample)
        if not error <= TOLERANCE:
            row.times[name].note = f"differs by {error:.0e}"
    seconds: dict[str, list[float]] = {name: [] for name in ready}
    for number in range(rounds):
        for name in [name for name in ready if not row.times[name].note]:
            if number and ready[name].call > LONG_SECONDS:
                continue
            least = 3 if ready[name].call < LONG_SECONDS else 2
            calls = min(max(int(ROUND_SECONDS / max(ready[name].call, 1e-6)), least), 500)
            reply = libraries[name].ask(calls)
            if isinstance(reply, Failure):
                row.times[name].note = reply.reason
            else:
                seconds[name] += reply[1:]  # the first one finds caches that others filled
    for name, measured in seconds.items():
        if measured:
            row.times[name].median = 1e3 * statistics.median(measured)
            row.times[name].best = 1e3 * min(measured)


def parser() -> argparse.ArgumentParser:
    """All options."""
    result = argparse.ArgumentParser(prog="python -m benchmarks.gradbench.compare")
    result.add_argument("--module", nargs="+", choices=list(EVALS), default=list(EVALS))
    result.add_argument("--library", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    result.add_argument("--threads", type=int, default=1, help="CPU threads of each library")
    result.add_argument("--rounds", type=int, default=5, help="turns of each library")
    result.add_argument("--modest", action="store_true", help="two or three sizes of each eval")
    result.add_argument("--results", type=Path, default=Path("out/gradbench.json"))
    result.add_argument("--report", type=Path, help="folder for gradbench.md and its picture")
    result.add_argument("--only-report", action="store_true", help="measure nothing")
    return result


def main() -> None:
    """Measure, keep the results, write the page."""
    options = parser().parse_args()
    if not options.only_report:
        _measure_all(options)
    results = json.loads(options.results.read_text("utf-8"))
    rows = [_row(data) for data in results["rows"]]
    from . import page

    print(page.tables(rows))
    if options.report:
        page.write(rows, results, options.report)


def _measure_all(options: argparse.Namespace) -> None:
    cpus = sorted(os.sched_getaffinity(0))[-options.threads :]
    libraries = {name: Library(name, cpus) for name in options.library}
    rows: list[Row] = []
    sizes = inputs.MODEST if options.modest else inputs.FULL
    options.results.parent.mkdir(parents=True, exist_ok=True)
    about = {"machine": describe(), "threads": options.threads, "modest": options.modest}
    try:
        for module, arguments in inputs.workloads(sizes, options.module):
            for function in EVALS[module].functions:
                rows.append(Row(module, function, arguments))
                measure(rows[-1], libraries, options.rounds)
                print(module, function, *arguments, _text(rows[-1]), flush=True)
                data = {**about, "rows": [asdict(row) for row in rows]}
                options.results.write_text(json.dumps(data), "utf-8")
    finally:
        for library in libraries.values():
            library.stop()


def _text(row: Row) -> str:
    return "  ".join(
        f"{name} {time.note or f'{time.median:.3f}'}" for name, time in row.times.items()
    )


def _row(data: dict[str, Any]) -> Row:
    times = {name: Time(**time) for name, time in data["times"].items()}
    return Row(data["module"], data["function"], tuple(data["sizes"]), times)


if __name__ == "__main__":
    main()
