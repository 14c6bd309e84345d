"""`python -m benchmarks.breadth`: a table of ours, PyTorch eager and JAX jit, worst ratio first.

Times are microseconds of a whole call: each library runs three rounds, and the smallest of their
medians counts. The ratio is the time of the fastest other library over ours. With --check, nothing
is timed but building, and the table shows the largest error against JAX in float64.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..suite import ours, pytorch, with_jax
from ..suite.case import Case
from . import distances, images, models, products, rows

CASES = {
    **products.CASES,
    **distances.CASES,
    **images.CASES,
    **rows.CASES,
    **models.CASES,
}
ROUNDS = 3
SPIN = 0.25  #: seconds for which threads of a library go on spinning after its last call


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.breadth", description=__doc__)
    parser.add_argument("--case", nargs="*", default=[], help="names, or parts of names")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.03, help="of a library in a round")
    parser.add_argument("--ours", action="store_true", help="measure this library alone")
    parser.add_argument("--check", action="store_true", help="compare answers, measure nothing")
    parser.add_argument("--profile", action="store_true", help="also print each kernel of ours")
    parser.add_argument("--keep", type=Path, help="a file of results to add to")
    parser.add_argument("--list", action="store_true", help="print the names")
    options = parser.parse_args()
    exact = [name for name in options.case if name in CASES]
    parts = [part for part in options.case if part not in CASES]
    names = [n for n in CASES if not options.case or n in exact or any(p in n for p in parts)]
    if options.list:
        print("\n".join(names))
        return
    if hasattr(os, "sched_setaffinity"):  # which tells XLA, too, how many threads it has
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.threads :])
    results: dict[str, dict[str, float]] = {}
    for name in names:
        case = CASES[name]()
        if options.check:
            print(f"{name:36s} {_error(name, case, options.threads)}", flush=True)
            continue
        results[name] = _times(name, case, options)
    if options.keep and results:
        old = json.loads(options.keep.read_text()) if options.keep.exists() else {}
        for name, times in results.items():
            old.setdefault(name, {}).update(times)
        options.keep.write_text(json.dumps(old, indent=1))
    if results:
        print(_table(results))


def _error(name: str, case: Case, threads: int) -> str:
    """The largest relative error against JAX in float64, and the time to build."""
    import jax

    arrays = case.arrays(name)
    wanted = with_jax.answers(with_jax.prepare(case, arrays, 1, "reference")())
    jax.config.update("jax_enable_x64", False)
    begin = time.perf_counter()
    call = ours.prepare(case, arrays, threads)
    built = time.perf_counter() - begin
    worst = 0.0
    for got, want in zip(ours.answers(call()), wanted, strict=True):
        assert got.shape == want.shape, (got.shape, want.shape)
        worst = max(worst, float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-30)))
    verdict = "" if worst <= case.tolerance else "WRONG "
    return f"{verdict}error {worst:.1e}, built in {built:.2f} s"


def _times(name: str, case: Case, options: argparse.Namespace) -> dict[str, float]:
    """Microseconds of a call by library: the smallest median of the rounds."""
    arrays = case.arrays(name)
    calls: dict[str, Callable[[], Any]] = {"ours": ours.prepare(case, arrays, options.threads)}
    if options.profile:
        inputs, outputs = ours.tensors_of(case)
        graph = ours.Graph(outputs)
        used = [place for place, tensor in enumerate(inputs) if graph.contains(tensor)]
        function = ours.build([inputs[n] for n in used], outputs, num_threads=options.threads)
        print(name, function.profile(*(arrays[n] for n in used)), sep="\n", flush=True)
    if not options.ours:
        calls["torch"] = pytorch.prepare(case, arrays, options.threads, "eager")
        calls["jax"] = with_jax.prepare(case, arrays, options.threads, "jit")
    taken: dict[str, list[float]] = {library: [] for library in calls}
    for call in calls.values():
        call()
    for _ in range(ROUNDS):
        for library, call in calls.items():
            time.sleep(SPIN)
            taken[library].append(_round(call, options.seconds))
    return {library: min(medians) * 1e6 for library, medians in taken.items()}


def _round(call: Callable[[], Any], seconds: float) -> float:
    """The median time of a call in one round, in seconds."""
    for _ in range(3):
        call()
    times: list[float] = []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(times) < 5:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def _table(results: dict[str, dict[str, float]]) -> str:
    def ratio(times: dict[str, float]) -> float:
        others = [time for library, time in times.items() if library != "ours"]
        return min(others) / times["ours"] if others else 0.0

    lines = [f"{'case':36s} {'ours':>10s} {'torch':>10s} {'jax':>10s} {'ratio':>6s}"]
    for name, times in sorted(results.items(), key=lambda item: ratio(item[1])):
        row = [f"{times.get(library, 0.0):10.1f}" for library in ("ours", "torch", "jax")]
        lines.append(f"{name:36s} {' '.join(row)} {ratio(times):6.2f}")
    ratios = [ratio(times) for times in results.values()]
    if ratios and min(ratios) > 0:
        lines.append(f"geometric mean {statistics.geometric_mean(ratios):.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
