"""`python -m benchmarks.suite.versions BASE`: all cases, this checkout beside an earlier one.

Cases of the suite, of `breadth`, of `operators` and generated ones; each version computes in a
process of its own, from its own package and its own benchmarks, and they take turns. A ratio above
1 says that this checkout is faster. On a machine whose other tenants slow some rounds down, the
ratio of the best rounds is the one to believe.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CASES_OF_SUITE = """
from benchmarks.suite.cases import ENTRIES
CASES = {name: (lambda name=name: ENTRIES[name].case(False)) for name in ENTRIES}
"""
#: what a process runs: a line in asks for a case or for a round, a line out is a time or an error
WORKER = """
import statistics, sys, time
{cases}
from benchmarks.suite import ours
call = None
for line in sys.stdin:
    name = line.strip()
    try:
        if name:
            case = CASES[name]()
            call = ours.prepare(case, case.arrays(name), {threads})
        for _ in range(3):
            call()
        times, start = [], time.perf_counter()
        while time.perf_counter() - start < {seconds} or len(times) < 5:
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        print("time", statistics.median(times), file=sys.__stderr__, flush=True)
    except Exception as error:
        text = str(error).strip().splitlines() or [""]
        print("error", type(error).__name__, text[0], file=sys.__stderr__, flush=True)
"""
CASES_OF_GENERATED = """
from benchmarks.generated.cases import programs
CASES = {entry.name: entry.case for entry in programs(0, 40)}
"""
SOURCES = {
    "suite": CASES_OF_SUITE,
    "breadth": "from benchmarks.breadth.__main__ import CASES",
    "operators": "from benchmarks.operators.cases import CASES",
    "generated": CASES_OF_GENERATED,
}


class Version:
    """The process of one checkout."""

    def __init__(self, folder: Path, source: str, options: argparse.Namespace) -> None:
        code = WORKER.format(
            cases=SOURCES[source], threads=options.threads, seconds=options.seconds
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, name: str = "") -> float | str:
        """Seconds of a call: of a new case, or of the last one again."""
        pipes: Any = self.process
        pipes.stdin.write(name + "\n")
        pipes.stdin.flush()
        for line in pipes.stderr:
            kind, _, rest = line.partition(" ")
            if kind == "time":
                return float(rest)
            if kind == "error":
                return rest.strip()
        return f"the process ended with code {pipes.wait()}"


def names_of(source: str) -> list[str]:
    code = SOURCES[source] + "\nprint('\\n'.join(CASES))"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return found.stdout.split()


def compare(source: str, base: Path, options: argparse.Namespace) -> list[tuple[float, float]]:
    """Ratios of medians and of the best rounds of the cases of one source, each printed."""
    versions = [Version(folder, source, options) for folder in (base, ROOT)]
    ratios = []
    for name in names_of(source):
        if options.case and not any(part in name for part in options.case):
            continue
        first = [version.ask(name) for version in versions]
        failures = [text for text in first if isinstance(text, str)]
        if failures:
            print(f"{name:36s} {'; '.join(failures)}", flush=True)
            continue
        taken: list[list[float]] = [[], []]
        for _ in range(options.rounds):
            for version, times in zip(versions, taken, strict=True):
                times.append(float(version.ask()))
        old, new = (statistics.median(times) for times in taken)
        best = min(taken[0]) / min(taken[1])
        ratios.append((old / new, best))
        print(
            f"{name:36s} {old * 1e6:10.1f} {new * 1e6:10.1f} {old / new:6.2f} {best:6.2f}",
            flush=True,
        )
    for version in versions:
        version.process.kill()
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--case", nargs="*", default=[], help="parts of names")
    parser.add_argument(
        "--source", nargs="*", default=["suite", "breadth"], choices=list(SOURCES)
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.03, help="of a round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(base), options.base], check=True)
        try:
            print(f"{'microseconds':36s} {'base':>10s} {'this':>10s} {'ratio':>6s} {'best':>6s}")
            for source in options.source:
                ratios = compare(source, base, options)
                if not ratios:
                    continue
                means = [statistics.geometric_mean(kind) for kind in zip(*ratios, strict=True)]
                print(f"{source}: geometric means {means[0]:.3f}, best rounds {means[1]:.3f}")
        finally:
            subprocess.run([*git, "remove", "--force", str(base)], check=True)


if __name__ == "__main__":
    main()
