"""`python -m benchmarks.operators`: ours beside PyTorch eager, torch.compile and JAX, least last.

Processes, rounds and comparisons with float64 are those of `benchmarks.suite`; times are medians of
whole calls in microseconds. Ours is printed both ways: results in arrays of the caller, and
allocated by each call as the peers do, which the ratio is of.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import statistics
import sys
from pathlib import Path

from ..suite.case import Case
from ..suite.machine import describe
from ..suite.measure import OURS, CaseResult, Options, as_data, from_data, measure
from .cases import CASES

PEERS = ("torch", "torch.compile", "jax")


def main() -> None:
    """Measure, keep, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description=__doc__)
    parser.add_argument("--case", nargs="+", default=[], help="names, or parts of names")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each library")
    parser.add_argument("--peer", nargs="*", choices=PEERS, default=PEERS)
    parser.add_argument("--results", type=Path, help="a JSON file that is added to")
    parser.add_argument("--profile", action="store_true", help="print our kernels, measure nothing")
    parser.add_argument("--list", action="store_true", help="print the names")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # ends the workers, too
    names = [n for n in CASES if not options.case or any(p in n for p in options.case)]
    if options.list:
        print("\n".join(names))
        return
    if options.profile:
        for name in names:
            print(name, _profile(name, CASES[name](), options.threads), sep="\n", flush=True)
        return
    path: Path | None = options.results
    data = json.loads(path.read_text("utf-8")) if path and path.exists() else {}
    results = {name: from_data(value) for name, value in data.get("operators", {}).items()}

    def keep(name: str, result: CaseResult) -> None:
        old = results.get(name)
        if old is not None:  # peers that were not measured again
            result.times = {**old.times, **result.times}
        results[name] = result
        print(_row(name, result), flush=True)
        if path:
            kept = {name: as_data(value) for name, value in results.items()}
            path.write_text(json.dumps({"machine": describe(), "operators": kept}, indent=1))

    plan = Options(
        names,
        [*OURS, *options.peer],
        options.threads,
        options.rounds,
        source="benchmarks.operators.cases",
    )
    measure(plan, keep)
    print(_table({name: results[name] for name in (results if path else names)}))


def _profile(name: str, case: Case, threads: int) -> str:
    """Our kernels with their times."""
    from tvm_autodiff import build

    from ..suite import ours

    inputs, outputs = ours.tensors_of(case)
    function = build(inputs, outputs, num_threads=threads, cache=False)
    return str(function.profile(*case.arrays(name)))


def _ratio(result: CaseResult) -> float:
    """The time of the fastest peer over ours, both into new arrays."""
    own = result.times["ours.new"].median
    peers = [t.median for n, t in result.times.items() if n in PEERS and t.median]
    return min(peers) / own if own and peers else math.nan


def _row(name: str, result: CaseResult) -> str:
    medians = [
        result.times[library].median if library in result.times else None
        for library in (*OURS, *PEERS)
    ]
    shown = " ".join(f"{m * 1e6:10.1f}" if m else f"{'-':>10s}" for m in medians)
    notes = "; ".join(f"{n}: {t.note}" for n, t in result.times.items() if t.note)
    return f"{name:32s} {shown} {_ratio(result):6.2f} {notes}"


def _table(results: dict[str, CaseResult]) -> str:
    def order(item: tuple[str, CaseResult]) -> float:
        ratio = _ratio(item[1])
        return -ratio if ratio == ratio else 0.0

    heads = " ".join(f"{library:>10.10s}" for library in (*OURS, *PEERS))
    lines = [f"{'operator':32s} {heads}  ratio"]
    lines += [_row(*item) for item in sorted(results.items(), key=order)]
    ratios = [ratio for ratio in map(_ratio, results.values()) if ratio == ratio]
    if ratios:
        lines.append(f"geometric mean {statistics.geometric_mean(ratios):.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
