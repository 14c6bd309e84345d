"""Time to differentiate: ``python benchmarks/differentiation_time.py``.

One convolution layer, and residual networks of growing depth. Nothing is compiled: what is timed is
`differentiate`, from te tensors to te tensors, in one process on one core. Medians of several runs;
the last column shows whether the time of a layer stays the same.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tvm import te, topi

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

from _residual_network import residual_network

import tvm_autodiff as ad
from tvm_autodiff.graph.graph import topological

#: name → bar in seconds
BARS = {
    "one convolution": 0.05,
    "residual, 10 layers": None,
    "residual, 50 layers": 10.0,
    "residual, 100 layers": None,
    "residual, 200 layers": 45.0,
}


def one_convolution() -> tuple[Any, list[Any], Any]:
    """A convolution with stride 2 and padding, by both operands."""
    x, w = te.placeholder((8, 32, 32, 32), name="x"), te.placeholder((32, 32, 3, 3), name="w")
    y = topi.nn.conv2d(x, w, 2, 1, 1)
    return y, [x, w], te.placeholder(y.shape, name="head")


def computation(name: str) -> tuple[Any, list[Any], Any]:
    """Output, inputs and head of a row."""
    if name == "one convolution":
        return one_convolution()
    loss, weights = residual_network(int(name.split()[1]))
    return loss, weights, None


def seconds_of(name: str) -> tuple[float, int]:
    """One run: the time, and the stages of the gradients with the forward stages they need."""
    output, inputs, head = computation(name)
    gc.collect()
    start = time.perf_counter()
    gradients = list(ad.differentiate(output, inputs, head))
    return time.perf_counter() - start, len(topological(gradients))


def main(arguments: list[str], show: Callable[[str], Any] = print) -> None:
    """Measure and print a line a row, as soon as it is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="runs of a row (default: 5)")
    options = parser.parse_args(arguments)
    seconds_of("one convolution")  # imports and tables of TVM are loaded by now
    show(f"{'':22}{'stages':>8}{'median s':>11}{'best s':>9}{'bar s':>8}{'ms a layer':>12}")
    for name, bar in BARS.items():
        runs = []
        for number in range(options.runs):
            print(
                f"\r{name}, run {number + 1}/{options.runs} ", end="", file=sys.stderr, flush=True
            )
            seconds, stages = seconds_of(name)
            runs.append(seconds)
        print("\r" + " " * 60 + "\r", end="", file=sys.stderr, flush=True)
        layers = 1 if name == "one convolution" else int(name.split()[1])
        median = statistics.median(runs)
        show(
            f"{name:22}{stages:>8}{median:>11.3f}{min(runs):>9.3f}{bar or '-':>8}"
            f"{median * 1e3 / layers:>12.1f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
