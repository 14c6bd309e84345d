"""The tool as a process: ``python -m benchmarks.gradbench [--multithreaded]``."""

from __future__ import annotations

import argparse
import os
import sys

from .evals import EVALS
from .protocol import Session, serve


def main() -> None:
    """Answer messages on stdin until it ends."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gradbench", description=__doc__)
    parser.add_argument("--multithreaded", action="store_true", help="use all CPUs")
    options = parser.parse_args()
    threads = len(os.sched_getaffinity(0)) if options.multithreaded else 1
    # what libraries print, from C++ too, must not come between the responses
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as responses:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        serve(
            Session(EVALS, threads), sys.stdin, lambda line: print(line, file=responses, flush=True)
        )


if __name__ == "__main__":
    main()
