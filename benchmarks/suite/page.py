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
library runs in its own process, on as many CPUs as threads, with the same inputs. The processes
take turns, and each result is compared with JAX in float64. A ratio is the time of the fastest peer
over ours: above one, ours is faster. PyTorch (eager and compiled) and JAX allocate their results at
each call. Ours is measured with results written into arrays of the caller (`out=`) and with newly
allocated results; ratios use the latter, which is like for like, where it was measured.

Measured on {machine}.

The time is that of a call that takes arrays and returns all gradients, and the value if the output
is a scalar; the LeNet case returns new parameters. PyTorch eager runs what an expert would write:
operators for the gradients of products and convolutions, and autograd otherwise. `torch.compile`
compiles the forward pass with its backward pass, `torch.func compiled` the derivative as one graph.
"""
