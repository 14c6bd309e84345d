"""The command line: which cases, which libraries, how many threads, how long, where results go."""

from __future__ import annotations

import argparse
import importlib.util
import signal
import sys
from pathlib import Path
from typing import Any

from .. import headline
from .cases import ENTRIES
from .machine import describe
from .measure import OURS, PEERS, Options, measure, measure_limits, missing
from .report import report
from .store import Limits, Results, read

OUT = Path("out/benchmarks.json")


def parser() -> argparse.ArgumentParser:
    """All options."""
    result = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=__doc__)
    result.add_argument("--case", nargs="+", choices=list(ENTRIES), help="cases (default: all)")
    result.add_argument("--peer", nargs="*", choices=PEERS, help="peers (default: all)")
    result.add_argument("--no-ours", action="store_true", help="measure the peers only")
    result.add_argument("--threads", nargs="+", type=int, default=[2, 1], help="CPU threads")
    result.add_argument("--rounds", type=int, default=15, help="rounds of each library")
    result.add_argument("--quick", action="store_true", help="3 rounds: a first impression")
    result.add_argument("--prepare", action="store_true", help="compile and check, no times")
    result.add_argument("--small", action="store_true", help="the sizes of the tests")
    result.add_argument("--no-limits", action="store_true", help="no sgemm, no copies")
    result.add_argument("--results", type=Path, default=OUT, help="JSON file that is added to")
    result.add_argument("--report", type=Path, help="folder for benchmarks.md and its picture")
    result.add_argument("--resume", action="store_true", help="skip what the file has")
    result.add_argument("--only-report", action="store_true", help="measure nothing")
    return result


def main() -> None:
    """Measure, print the tables, write the report."""
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # ends the workers, too
    results = read(options.results)
    if not options.only_report:
        results.machine = describe()
        for threads in options.threads:
            run(options, results, threads)
    text = report(results)
    print(text)
    if options.report:
        from .page import write

        options.report.mkdir(parents=True, exist_ok=True)
        write(results, options.report)
        if headline.THREADS in results.by_threads:
            headline.write(options.report)


def run(options: argparse.Namespace, results: Results, threads: int) -> None:
    """Measure the chosen cases with one number of threads."""
    cases = options.case or list(ENTRIES)
    if options.resume:
        cases = [name for name in cases if name not in dict(results.cases(threads))]
    peers = PEERS if options.peer is None else options.peer
    libraries = [*([] if options.no_ours else OURS), *peers]
    for library in libraries:
        if (reason := missing(library)) is not None:
            print(f"{library}: {reason}")
    rounds = 0 if options.prepare else 3 if options.quick else options.rounds
    plan = Options(cases, libraries, threads, rounds, options.small)
    bar = progress(len(cases) * (len(libraries) + 2), f"{threads} threads")
    measure(plan, lambda name, result: results.add(threads, name, result), bar)
    if not options.no_limits and rounds:
        known = results.by_threads[threads].cases
        sizes = {name: known[name].bytes for name in cases if ENTRIES[name].bar == "copy"}
        sgemm, copy, copies = measure_limits(threads, sizes)
        results.set_limits(threads, Limits(sgemm, copy), copies)


def progress(total: int, title: str) -> Any:
    """A function that moves a progress bar on and says what is going on."""
    if importlib.util.find_spec("tqdm") is None:
        return lambda text: print(f"{title}: {text}", flush=True)
    from tqdm import tqdm

    bar = tqdm(total=total, desc=title, unit="step", leave=False)

    def advance(text: str) -> None:
        bar.set_postfix_str(text)
        bar.update()

    return advance


if __name__ == "__main__":
    main()
