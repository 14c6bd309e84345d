"""The page docs/benchmarks.md and its picture.

In: results. Out: two files in a folder: the tables with the machine's description, and a dot for
each library and case on a logarithmic axis, ours at one.
"""

from __future__ import annotations

from pathlib import Path

from .cases import ENTRIES
from .measure import PEERS, Time
from .report import TITLES, report
from .store import Results

PAGE, PICTURE = "benchmarks.md", "benchmarks.svg"


def write(results: Results, folder: Path) -> None:
    """Write the page, and the picture where matplotlib is installed."""
    machine = ", ".join(
        value if name == "processor" else f"{name} {value}"
        for name, value in results.machine.items()
    )
    text = INTRODUCTION.format(machine=machine)
    try:
        draw(results, folder / PICTURE)
        text += f"\n![Times of the peers beside ours]({PICTURE})\n"
    except ImportError:
        print("no picture: matplotlib is not installed")
    (folder / PAGE).write_text(text + "\n" + report(results), "utf-8")


INTRODUCTION = """# Benchmarks

Written by `make bench`. Float32, milliseconds: median of all calls, the best in brackets. Each
library runs in a process of its own that keeps to as many CPUs as threads, with the same inputs;
they take turns, and each answer is compared with JAX in float64. A ratio is the time of the fastest
peer over ours: above one, ours is faster. PyTorch (eager and compiled) and JAX allocate their
results at each call. Ours is measured both ways, results written into arrays of the caller (`out=`)
and allocated anew; ratios are of the second, which is like for like, where it was measured.

Measured on {machine}.

What is timed: a call that gets arrays and gives all gradients, with the value where the output is a
scalar; the LeNet case gives new parameters. PyTorch eager runs what its expert would write: the
gradient's own operators for products and convolutions, autograd else. `torch.compile` compiles the
forward pass with its backward pass; `torch.func compiled` the derivative as one graph.
"""


def draw(results: Results, path: Path) -> None:
    """The time of each peer over ours, a panel for each number of threads."""
    from matplotlib.figure import Figure

    counts = sorted(results.by_threads, reverse=True)
    rows = [name for name in ENTRIES if any(name in dict(results.cases(t)) for t in counts)]
    figure = Figure(figsize=(5 * len(counts) + 2.5, 0.32 * len(rows) + 1.5), layout="constrained")
    panels = figure.subplots(1, len(counts), sharey=True, squeeze=False)[0]
    for axes, threads in zip(panels, counts, strict=True):
        for peer, marker in zip(PEERS, "osD^", strict=True):
            points = _points(results, threads, peer, rows)
            ratios, places = [x for x, _ in points], [y for _, y in points]
            axes.scatter(ratios, places, marker=marker, s=28, label=TITLES[peer], alpha=0.8)
        axes.axvline(1, color="black", linewidth=1)
        axes.set_xscale("log")
        axes.set_xlabel("time over ours (right of the line: ours is faster)")
        axes.set_title(f"{threads} thread{'s' * (threads > 1)}")
        axes.grid(alpha=0.3)
    panels[0].set_yticks(range(len(rows)), [ENTRIES[name].title for name in rows])
    panels[0].invert_yaxis()
    panels[0].legend(fontsize=8)
    figure.savefig(path)


def _points(results: Results, threads: int, peer: str, rows: list[str]) -> list[tuple[float, int]]:
    """Time over ours, and the line of the case, wherever both have one."""
    cases = dict(results.cases(threads))
    points = []
    for place, name in enumerate(rows):
        times = cases[name].times if name in cases else {}
        mine = times.get("ours.new") or times.get("ours", Time())
        theirs = times.get(peer, Time())
        if mine.median and theirs.median and not mine.note and not theirs.note:
            points.append((theirs.median / mine.median, place))
    return points
