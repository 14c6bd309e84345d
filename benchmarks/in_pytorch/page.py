"""The page docs/pytorch.md and its picture: a table and a bar for each way of each case."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..suite.machine import describe
from .measure import Time

PAGE, PICTURE = "pytorch.md", "pytorch.svg"

INTRODUCTION = """# Operators in PyTorch

Written by `python -m benchmarks.in_pytorch --report docs`. Float32, {threads} threads, in ms:
the minimum over all calls. Each implementation runs in its own process; the processes take turns.
Results are compared with PyTorch eager in float64. "te" calls the computation as tensor expressions
from PyTorch, through `tvm_autodiff.interop.torch.function`. "torch.compile" uses `fullgraph=True`.
The first call includes compilation.

Measured on {machine}.

![Times]({picture})
"""


def tables(results: Mapping[str, Mapping[str, Time]]) -> str:
    """A table for each case."""
    parts = []
    for title, times in results.items():
        parts.append(f"\n## {title[0].upper()}{title[1:]}\n")
        parts.append("| implementation | ms | first call, s | largest error |\n|---|---|---|---|")
        for way, time in times.items():
            if time.seconds is None or time.error is None or time.first is None:
                parts.append(f"| {way} | raises: {time.raised} | | |")
            else:
                row = f"{1e3 * time.seconds:.3f} | {time.first:.1f} | {time.error:.0e}"
                parts.append(f"| {way} | {row} |")
    return "\n".join(parts) + "\n"


def write(results: Mapping[str, Mapping[str, Time]], threads: int, folder: Path) -> None:
    """The page, and the picture."""
    machine = ", ".join(
        value if name == "processor" else f"{name} {value}" for name, value in describe().items()
    )
    text = INTRODUCTION.format(threads=threads, machine=machine, picture=PICTURE)
    (folder / PAGE).write_text(text + tables(results), "utf-8")
    draw(results, folder / PICTURE)


def draw(results: Mapping[str, Mapping[str, Time]], path: Path) -> None:
    """A panel for each case."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.7 * len(results) + 0.8), layout="constrained")
    panels = figure.subplots(len(results), 1, squeeze=False)[:, 0]
    for axes, (title, times) in zip(panels, results.items(), strict=True):
        ways = list(times)
        for place, way in enumerate(ways):
            seconds = times[way].seconds
            color = "C0" if way.startswith("te") else "C7"
            axes.barh(place, 1e3 * (seconds or 0), color=color)
            label = " raises" if seconds is None else f" {1e3 * seconds:.2f} ms"
            axes.text(1e3 * (seconds or 0), place, label, va="center", fontsize=8)
        axes.set_yticks(range(len(ways)), ways, fontsize=8)
        axes.set_xlim(right=1.15e3 * max(time.seconds or 0 for time in times.values()))
        axes.invert_yaxis()
        axes.set_title(f"{title[0].upper()}{title[1:]}", fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
