"""`python -m benchmarks.generated`: measure drawn programs beside the peers and write the page.

Results go to a JSON file that is rewritten after every program; --report also writes generated.md.
Processes, rounds and comparisons are those of `benchmarks.suite`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ..suite.machine import describe
from ..suite.measure import OURS, CaseResult, Options, as_data, from_data, measure, missing
from .cases import programs
from .page import page

PEERS = ("torch", "torch.compile", "jax")


def parser() -> argparse.ArgumentParser:
    """All options."""
    result = argparse.ArgumentParser(prog="python -m benchmarks.generated", description=__doc__)
    result.add_argument("--seed", type=int, default=0)
    result.add_argument("--count", type=int, default=40)
    result.add_argument("--threads", type=int, default=2)
    result.add_argument("--rounds", type=int, default=5, help="rounds of each library")
    result.add_argument("--case", nargs="+", default=[], help="names, or parts of names")
    result.add_argument("--no-compile", action="store_true", help="without torch.compile")
    result.add_argument("--patience", type=float, default=60, help="seconds for one compilation")
    result.add_argument("--seconds", type=float, help="start no program after as many seconds")
    result.add_argument("--results", type=Path, help="JSON file that is added to")
    result.add_argument("--resume", action="store_true", help="skip what the file has")
    result.add_argument("--report", type=Path, help="folder for generated.md")
    result.add_argument("--only-report", action="store_true", help="measure nothing")
    result.add_argument("--list", action="store_true", help="print the programs")
    return result


def main() -> None:
    """Measure, print the page, write it."""
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # ends the workers, too
    entries = {entry.name: entry for entry in programs(options.seed, options.count)}
    if options.list:
        print("\n".join(f"{name}  {entry.title}" for name, entry in entries.items()))
        return
    path = options.results or Path(f"out/generated-{options.seed}-{options.threads}.json")
    kept = _read(path)
    if not options.only_report:
        wanted = [n for n in entries if not options.case or any(p in n for p in options.case)]
        _measure(options, [n for n in wanted if not options.resume or n not in kept], kept, path)
    results = {name: kept[name] for name in entries if name in kept}
    when, machine = _facts(path)
    text = page(entries, results, options.seed, options.threads, when, machine)
    print(text)
    if options.report:
        (options.report / "generated.md").write_text(text, "utf-8")


def _measure(
    options: argparse.Namespace, names: list[str], kept: dict[str, CaseResult], path: Path
) -> None:
    chosen = [p for p in PEERS if not (options.no_compile and p == "torch.compile")]
    for library in chosen:
        if (reason := missing(library)) is not None:
            print(f"{library}: {reason}")
    begin = time.perf_counter()

    def keep(name: str, result: CaseResult) -> None:
        kept[name] = result
        path.parent.mkdir(parents=True, exist_ok=True)
        data: dict[str, Any] = {
            "date": datetime.date.today().isoformat(),
            "machine": describe(),
            "programs": {name: as_data(value) for name, value in kept.items()},
        }
        path.write_text(json.dumps(data, indent=1), "utf-8")
        if options.seconds and time.perf_counter() - begin > options.seconds:
            raise _TimeIsUp

    plan = Options(
        names,
        [*OURS, *chosen],
        options.threads,
        options.rounds,
        source="benchmarks.generated.cases",
        patience=options.patience,
    )
    try:
        measure(plan, keep, lambda text: print(text, file=sys.stderr, flush=True))
    except _TimeIsUp:
        print("stopped after --seconds; --resume goes on", file=sys.stderr)


class _TimeIsUp(Exception):
    """The time that --seconds allows is over."""


def _read(path: Path) -> dict[str, CaseResult]:
    if not path.exists():
        return {}
    data = json.loads(path.read_text("utf-8"))["programs"]
    return {name: from_data(value) for name, value in data.items()}


def _facts(path: Path) -> tuple[str, dict[str, str]]:
    if not path.exists():
        return "", {}
    data = json.loads(path.read_text("utf-8"))
    return data["date"], data["machine"]


if __name__ == "__main__":
    main()
