"""Check any number of random programs:

python -m tests.random_programs --count 20000 --seed 0 --features symbolic,data --compile
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from tests.random_programs.tasks import EVALUATED, NAMES, Seeds, report
from tests.random_programs.workers import LIMIT, cores, run_all


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.random_programs", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="programs for each feature set")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument(
        "--features",
        help=f"of {', '.join(NAMES)}; without --compile all but those that try schedules",
    )
    parser.add_argument("--without", default="", help="features to leave out")
    parser.add_argument("--each", action="store_true", help="every feature alone")
    parser.add_argument("--always", default="", help="a feature that every program has")
    parser.add_argument("--compile", action="store_true", help="build and call, not only evaluate")
    parser.add_argument("--block", type=int, default=1, help="programs in one build or task")
    parser.add_argument("--workers", type=int, default=cores())
    parser.add_argument("--limit", type=float, default=LIMIT, help="CPU seconds for one task")
    parser.add_argument("--first", action="store_true", help="stop at the first failure")
    parser.add_argument("--no-shrink", action="store_true", help="print the seeds only")
    parser.add_argument("--times", action="store_true", help="print CPU seconds of the tasks")
    options = parser.parse_args()
    left_out = set(options.without.split(","))
    every = NAMES if options.compile else EVALUATED
    chosen = options.features.split(",") if options.features else every
    names = tuple(name for name in chosen if name not in left_out)
    unknown = [name for name in (*names, options.always) if name and name not in NAMES]
    if unknown:
        parser.error(f"no feature {', '.join(unknown)}: there are {', '.join(NAMES)}")
    failed = 0
    for chosen in [(name,) for name in names] if options.each else [names]:
        failed += check(chosen, options)
    return 1 if failed else 0


def check(features: tuple[str, ...], options: argparse.Namespace) -> int:
    """Check the seeds of one set of features; the number of tasks that failed."""
    block = max(1, options.block)
    last = options.seed + options.count
    starts = range(options.seed, last, block)
    blocks = [tuple(range(first, min(first + block, last))) for first in starts]
    tasks = [Seeds(features, seeds, options.compile, options.always) for seeds in blocks]
    failed, started, done = 0, time.monotonic(), 0
    times: list[tuple[float, str]] = []
    for outcome in run_all(tasks, options.workers, options.limit):
        done += len(outcome.task.seeds)
        times.append((outcome.seconds, str(outcome.task)))
        if not outcome.complaints:
            continue
        failed += 1
        if options.no_shrink:
            print(f"{outcome.task}: {outcome.complaints[0][:300]}", flush=True)
        else:
            print(report(outcome.task, outcome.complaints, options.limit), flush=True)
        if options.first:
            break
    print(
        f"{', '.join(features) if len(features) < 6 else 'all features'}: {done} programs, "
        f"{failed} failures, {time.monotonic() - started:.0f} s",
        flush=True,
    )
    if options.times:
        print(distribution(times), flush=True)
    return failed


def distribution(times: list[tuple[float, str]], slowest: int = 10) -> str:
    """Quantiles of CPU seconds, and the slowest tasks."""
    seconds = np.array([taken for taken, _ in times])
    shares = ", ".join(
        f"{share}%: {np.percentile(seconds, share):.2f}" for share in (50, 90, 99, 100)
    )
    lines = [f"{taken:.1f} s: {task}" for taken, task in sorted(times, reverse=True)[:slowest]]
    return "\n".join([f"CPU seconds of {len(times)} tasks: {shares}", *lines])


if __name__ == "__main__":
    sys.exit(main())
