"""Whether the thread pools of XLA and of this library disturb each other: ``python -m
benchmarks.jax_threads``.

A chain of the same steps under one ``jax.jit``: all computed by XLA, all by kernels of this
library, and by turns. With pools that do not disturb each other, the last takes the mean of the
other two. Times are medians of interleaved rounds, in milliseconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tvm import topi

from tvm_autodiff.interop.jax import function

STEPS = 16

Step = Callable[[Any, Any], Any]


def product(x: Any, w: Any) -> Any:
    """A dense layer in te."""
    return topi.tanh(topi.matmul(x, w))


def elementwise(x: Any, w: Any) -> Any:
    """A pass over memory in te."""
    return topi.tanh(topi.multiply(x, w))


apart = jax.lax.optimization_barrier  #: XLA would fuse a step with the next one of its own


CASES: dict[str, tuple[Step, Step]] = {
    "dense layer": (function(product), lambda x, w: apart(jnp.tanh(x @ w))),
    "elementwise": (function(elementwise), lambda x, w: apart(jnp.tanh(x * w))),
}


def chain(steps: list[Step]) -> Callable[..., Any]:
    """The steps one after the other, in one program."""

    def run(x: Any, w: Any) -> Any:
        for step in steps:
            x = step(x, w)
        return x

    return jax.jit(run)


def medians(runs: list[Callable[..., Any]], args: tuple[Any, ...], rounds: int) -> list[float]:
    """Milliseconds of each, in rounds that call all of them."""
    found: list[list[float]] = [[] for _ in runs]
    for count in range(rounds + 3):
        for run, times in zip(runs, found, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(run(*args))
            if count >= 3:
                times.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(times) for times in found]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    print(f"{STEPS} steps on {os.cpu_count()} cores, float32, ms\n")
    print("| step | size | XLA | ours | by turns | by turns / mean |\n|---|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    for name, (ours, theirs) in CASES.items():
        for size in (32, 128, 512):
            args = tuple(jnp.asarray(rng.normal(size=(size, size)), "float32") for _ in "xw")
            kinds = [[theirs] * STEPS, [ours] * STEPS, [theirs, ours] * (STEPS // 2)]
            xla, own, turns = medians([chain(steps) for steps in kinds], args, rounds)
            ratio = turns / ((xla + own) / 2)
            print(f"| {name} | {size}² | {xla:.3f} | {own:.3f} | {turns:.3f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
