"""Results on disk: one JSON file, written after every case, so that nothing is lost.

Results are grouped by number of threads. A new measurement replaces the old one of the same case
and library.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .cases import ENTRIES
from .measure import CaseResult, as_data, from_data


@dataclass
class Limits:
    """What the machine can do: GFLOP/s of a large sgemm, GB/s of a large copy."""

    sgemm: float
    copy: float


@dataclass
class Measured:
    """The results for one number of threads."""

    cases: dict[str, CaseResult] = field(default_factory=dict)
    limits: Limits | None = None


@dataclass
class Results:
    """All results, the machine's description, and where they are kept."""

    path: Path
    machine: dict[str, str] = field(default_factory=dict)
    by_threads: dict[int, Measured] = field(default_factory=dict)

    def cases(self, threads: int) -> list[tuple[str, CaseResult]]:
        """Names and results in the order of the suite."""
        measured = self.by_threads.get(threads, Measured()).cases
        return [(name, measured[name]) for name in ENTRIES if name in measured]

    def limits(self, threads: int) -> Limits | None:
        return self.by_threads.get(threads, Measured()).limits

    def add(self, threads: int, name: str, result: CaseResult) -> None:
        """Keep a result; libraries that were not measured this time keep their earlier times."""
        known = self.by_threads.setdefault(threads, Measured()).cases
        if name in known:
            result.times = {**known[name].times, **result.times}
            result.copy = result.copy or known[name].copy
        known[name] = result
        self.save()

    def set_limits(self, threads: int, limits: Limits, copies: dict[str, float]) -> None:
        """Keep the limits of the machine, and the speed of a copy as large as each case."""
        measured = self.by_threads.setdefault(threads, Measured())
        measured.limits = limits
        for name, speed in copies.items():
            measured.cases[name].copy = speed
        self.save()

    def save(self) -> None:
        """Write the file through a temporary one, so that it is always complete."""
        data = {
            "machine": self.machine,
            "threads": {
                str(threads): {
                    "limits": None if measured.limits is None else asdict(measured.limits),
                    "cases": {name: as_data(case) for name, case in measured.cases.items()},
                }
                for threads, measured in self.by_threads.items()
            },
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
        temporary.replace(self.path)


def read(path: Path) -> Results:
    """The results in a file; empty if there is no file."""
    results = Results(path)
    if not path.exists():
        return results
    data = json.loads(path.read_text("utf-8"))
    results.machine = data["machine"]
    for threads, measured in data["threads"].items():
        cases = {
            name: from_data(case) for name, case in measured["cases"].items() if name in ENTRIES
        }
        limits = None if measured["limits"] is None else Limits(**measured["limits"])
        results.by_threads[int(threads)] = Measured(cases, limits)
    return results
