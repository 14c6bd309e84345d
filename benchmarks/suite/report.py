"""Tables of results in Markdown: times beside the peers', shares of limits, time to compile.

A ratio above one means that ours is faster than the fastest peer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from .cases import ENTRIES
from .measure import OURS, PEERS, CaseResult, Time
from .store import Results

TITLES = {
    "ours": "ours, out=",
    "ours.new": "ours, new arrays",
    "torch": "PyTorch eager",
    "torch.compile": "torch.compile",
    "torch.func": "torch.func compiled",
    "jax": "JAX jit",
}


DISTURBED = 0.1  # CPUs


def ratio(result: CaseResult) -> float | None:
    """The median time of the fastest peer over ours; None if either is missing.

    Peers allocate their results, so the time of ours with new arrays counts if it was measured.
    """
    mine = result.times.get("ours.new") or result.times.get("ours", Time())
    theirs = [
        time.median
        for peer in PEERS
        if (time := result.times.get(peer)) and time.median and not time.note
    ]
    if not mine.median or mine.note or not theirs:
        return None
    return min(theirs) / mine.median


def geometric_mean(values: Iterable[float]) -> float | None:
    """The geometric mean; None if there are no values."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def report(results: Results) -> str:
    """The whole report in Markdown."""
    parts = []
    for threads in sorted(results.by_threads, reverse=True):
        parts += [f"## {threads} thread{'s' * (threads > 1)}", times_table(results, threads)]
        parts += [bars_table(results, threads)]
    parts += ["## Time to the first answer", first_table(results)]
    notes = notes_list(results)
    if notes:
        parts += ["## Notes", notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def times_table(results: Results, threads: int) -> str:
    """Milliseconds of every library and the ratio."""
    rows = []
    ratios = []
    for name, result in results.cases(threads):
        value = ratio(result)
        if value is not None:
            ratios.append(value)
        cells = [_milliseconds(result.times.get(library)) for library in (*OURS, *PEERS)]
        rows.append([ENTRIES[name].title, *cells, "-" if value is None else f"{value:.2f}"])
    mean = geometric_mean(ratios)
    if mean is not None:
        rows.append(["geometric mean", *[""] * (len(OURS) + len(PEERS)), f"{mean:.2f}"])
    header = ["case", *(TITLES[library] for library in (*OURS, *PEERS)), "ratio"]
    return table(header, rows)


def bars_table(results: Results, threads: int) -> str:
    """Cases limited by arithmetic or memory, beside a large sgemm or a copy."""
    limits = results.limits(threads)
    if limits is None:
        return ""
    rows = []
    for name, result in results.cases(threads):
        mine = result.times.get("ours", Time())
        bar = ENTRIES[name].bar
        if bar is None or not mine.median:
            continue
        if bar == "sgemm":
            rate = (result.flop or 0) / mine.median / 1e9
            rows.append([ENTRIES[name].title, f"{rate:.0f} GFLOP/s", f"{rate / limits.sgemm:.0%}"])
        else:
            rate = result.bytes / mine.median / 1e9
            share = f"{rate / limits.copy:.0%}"
            if result.copy:
                share += f" ({rate / result.copy:.0%})"
            rows.append([ENTRIES[name].title, f"{rate:.1f} GB/s", share])
    text = (
        f"A large sgemm reaches {limits.sgemm:.0f} GFLOP/s, a large copy {limits.copy:.1f} GB/s "
        "(bytes read and written). Of memory, the share of a copy as large as the case stands in "
        "brackets.\n\n"
    )
    return text + table(["case", "ours", "share"], rows)


def first_table(results: Results) -> str:
    """Seconds until the first answer."""
    threads = max(results.by_threads, default=0)
    rows = [
        [
            ENTRIES[name].title,
            *(_seconds(result.times.get(library)) for library in (*OURS, *PEERS)),
        ]
        for name, result in results.cases(threads)
    ]
    text = "From arrays to answers. PyTorch keeps what it compiled on disk; ours compiles anew.\n\n"
    return text + table(["seconds", *(TITLES[library] for library in (*OURS, *PEERS))], rows)


def notes_list(results: Results) -> str:
    """What failed, and where."""
    lines: dict[str, None] = {}
    for threads in results.by_threads:
        for name, result in results.cases(threads):
            if result.others is not None and result.others > DISTURBED:
                lines[
                    f"- {ENTRIES[name].title}, {threads} threads: other programs kept "
                    f"{result.others:.1f} CPUs busy while this was measured"
                ] = None
            for library, time in result.times.items():
                if time.median and time.error is None:
                    lines[f"- {ENTRIES[name].title}: answers were not compared with float64"] = None
                if time.note:
                    lines[
                        f"- {ENTRIES[name].title}, {TITLES.get(library, library)}: {time.note}"
                    ] = None
    return "\n".join(lines)


def _milliseconds(time: Time | None) -> str:
    if time is None or time.median is None or time.best is None:
        return "-" if time is None or not time.note else "failed"
    return f"{time.median * 1e3:.3f} ({time.best * 1e3:.3f})" + ("!" if time.note else "")


def _seconds(time: Time | None) -> str:
    return "-" if time is None or time.first is None else f"{time.first:.1f}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose source is aligned too."""
    widths = [max(len(row[n]) for row in [header, *rows]) for n in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join(padded) + " |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(header), line(rule), *map(line, rows)])
