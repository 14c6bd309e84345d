"""Measure the cases, print their tables, and write the page where a folder is given."""

from __future__ import annotations

import argparse
from pathlib import Path

from .measure import CASES, measure
from .page import tables, write


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.in_pytorch", description=__doc__)
    parser.add_argument("--case", choices=CASES, action="append", help="all of them by default")
    parser.add_argument("--rounds", type=int, default=10, help="of a third of a second each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--report", type=Path, help="the folder of the page and its picture")
    options = parser.parse_args()
    results = {}
    for name in options.case or CASES:
        title, times = measure(name, options.rounds, options.threads)
        results[title] = times
        print(tables({title: times}), flush=True)
    if options.report:
        write(results, options.threads, options.report)


if __name__ == "__main__":
    main()
