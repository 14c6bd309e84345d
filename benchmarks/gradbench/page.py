"""Writes the page docs/gradbench.md and its picture.

For each function of an eval, the page shows the sum of the times over all sizes, as GradBench adds
them up, and then each size. The picture has a dot for each peer and size, at its time over ours.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compare import Row

PAGE, PICTURE = "gradbench.md", "gradbench.svg"
TITLES = {
    "ours": "ours",
    "jax": "JAX jit",
    "torch": "PyTorch eager",
    "torch.compile": "torch.compile",
}

INTRODUCTION = """# GradBench

Written by `make gradbench`. [GradBench](https://github.com/gradbench/gradbench) is a benchmark
suite of automatic differentiation, and `python -m benchmarks.gradbench` is a tool for it. This page
compares its evals with JAX and PyTorch, in float64 on {threads}. Each library runs in its own
process with the same inputs, and the processes take turns. As the suite defines, compilation, the
first call and conversions of inputs and outputs are not timed; a call ends when its results are
computed. Results are compared with JAX's by the suite's formula, |a−b| / max(1, |a|+|b|) ≤ 1e-4.

Inputs have the sizes of the suite{modest}; those of ht and ba are drawn at random with the sizes of
its files. JAX and PyTorch compute the same formulas: distances of gmm as one matrix product,
powers of llsq as products of squares, the nearest centroid of kmeans gathered, rows of ba mapped
over the observations. JAX runs the steps of ode and lstm with its scan, PyTorch with a Python loop,
in which torch.compile compiles a step. Our programs are compiled for each size.

Measured on {machine}.
"""


def write(rows: Sequence[Row], results: dict[str, Any], folder: Path) -> None:
    """Write the page, and the picture where matplotlib is installed."""
    threads = results["threads"]
    text = INTRODUCTION.format(
        threads="one thread" if threads == 1 else f"{threads} threads",
        modest=" at two or three of its settings" if results["modest"] else "",
        machine=", ".join(
            value if name == "processor" else f"{name} {value}"
            for name, value in results["machine"].items()
        ),
    )
    try:
        draw(rows, folder / PICTURE)
        text += f"\n![Times of the peers beside ours]({PICTURE})\n"
    except ImportError:
        print("no picture: matplotlib is not installed")
    (folder / PAGE).write_text(text + "\n" + tables(rows), "utf-8")


def tables(rows: Sequence[Row]) -> str:
    """All tables and notes as Markdown."""
    libraries = list(rows[0].times) if rows else []
    sums, notes = [], []
    for module, function in dict.fromkeys((row.module, row.function) for row in rows):
        chosen = [row for row in rows if (row.module, row.function) == (module, function)]
        found = {name: _sum(chosen, name) for name in libraries}
        first = {name: _sum(chosen, name, lambda time: time.first) for name in libraries}
        sums.append([f"{module} {function}", *_cells(found), _number(first.get("ours"))])
    for row in rows:
        for name, time in row.times.items():
            if time.note:
                sizes = ", ".join(map(str, row.sizes))
                notes.append(
                    f"- {row.module} {row.function} ({sizes}), {TITLES[name]}: {time.note}"
                )
    heads = [TITLES[name] for name in libraries]
    single = [
        [
            f"{row.module} {row.function}, {', '.join(map(str, row.sizes))}",
            *_cells({name: time.median for name, time in row.times.items()}),
        ]
        for row in rows
    ]
    ratios = [ratio for row in rows if (ratio := _ratio(_medians(row))) is not None]
    mean = f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-"
    parts = [
        "## Sums over all sizes\n\nMilliseconds of one call of each size; a ratio is the time of "
        "the fastest peer over ours. Seconds to compile and call ours once are in the last column.",
        _table(["eval", *heads, "ratio", "compile, s"], sums),
        "## Each size\n\nMedians in milliseconds. The geometric mean of the ratios over all sizes "
        f"is {mean}.",
        _table(["eval, sizes", *heads, "ratio"], single),
    ]
    if notes:
        parts += ["## Notes", "\n".join(notes)]
    return "\n\n".join(parts) + "\n"


def _medians(row: Row) -> dict[str, float | None]:
    return {name: time.median for name, time in row.times.items()}


def _sum(
    rows: Sequence[Row], name: str, of: Callable[[Any], float | None] = lambda time: time.median
) -> float | None:
    """The sum over all sizes; None if one is missing."""
    values = [of(row.times[name]) for row in rows]
    return None if any(value is None for value in values) else sum(filter(None, values))


def _ratio(times: dict[str, float | None]) -> float | None:
    peers = [time for name, time in times.items() if name != "ours" and time]
    mine = times.get("ours")
    return min(peers) / mine if peers and mine else None


def _cells(times: dict[str, float | None]) -> list[str]:
    ratio = _ratio(times)
    return [*map(_number, times.values()), "-" if ratio is None else f"{ratio:.2f}"]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return "| " + " | ".join(padded) + " |"

    rule = "| " + " | ".join(["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]) + " |"
    return "\n".join([line(head), rule, *map(line, rows)])


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw the time of each peer over ours: a row for each function, a dot for each size."""
    from matplotlib.figure import Figure

    lines = list(dict.fromkeys((row.module, row.function) for row in rows))
    figure = Figure(figsize=(7.5, 0.36 * len(lines) + 1.5), layout="constrained")
    axes = figure.subplots()
    for name, marker in zip([name for name in TITLES if name != "ours"], "osD", strict=True):
        points = [
            (theirs / mine, lines.index((row.module, row.function)))
            for row in rows
            if (mine := _medians(row).get("ours")) and (theirs := _medians(row).get(name))
        ]
        axes.scatter(*zip(*points, strict=True) if points else ([], []), marker=marker, s=22,
                     label=TITLES[name], alpha=0.7)  # fmt: skip
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("time over ours (right of the line: ours is faster)")
    axes.set_yticks(range(len(lines)), [" ".join(line) for line in lines])
    axes.invert_yaxis()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path)
