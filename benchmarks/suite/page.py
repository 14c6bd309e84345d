"""The page docs/benchmarks.md: the tables of results, and the machine that they were taken on."""

from __future__ import annotations

from pathlib import Path

from .picture import PAGE, PICTURE, write as draw
from .report import report
from .store import Results


def write(results: Results, folder: Path) -> None:
    """Write the page and its picture."""
    machine = ", ".join(
        value if name == "processor" else f"{name} {value}"
        for name, value in results.machine.items()
    )
    text = INTRODUCTION.format(machine=machine)
    text += f"\n![Times of the peers beside ours]({PICTURE})\n"
    (folder / PAGE).write_text(text + "\n" + report(results), "utf-8")
    draw(folder)


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
