"""Random contractions of two tensors beside JAX and PyTorch: ``python benchmarks/contractions.py``.

Classes of axes (of both, of one, summed), their extents and the order of dimensions of each tensor
are drawn, so most are stored in another order than they are multiplied in. Each is measured forward
and with both gradients, on one thread, with calls of the libraries in turns, and checked against
`numpy.einsum`. Prints the least ratios of the faster of the others' medians to ours, and the
geometric mean. ``--library jax`` leaves PyTorch out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import string
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import numpy as np
from tvm import te

import tvm_autodiff as ad

EXTENTS = (2, 3, 4, 5, 7, 8, 10, 12, 16, 17, 24, 32, 33, 50, 64, 100, 128, 200, 256, 500, 1000)
POINTS = 2e5, 1.5e8  # of all loops
ELEMENTS = 2e4, 2e6  # of the largest tensor
CALLS = 15

Calls = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Contraction:
    """An equation of `numpy.einsum` for two operands, and the extents of its axes."""

    equation: str
    extents: dict[str, int]

    @property
    def parts(self) -> tuple[str, str, str]:
        """The axes of the operands and of the result."""
        operands, result = self.equation.split("->")
        left, right = operands.split(",")
        return left, right, result

    def shape(self, axes: str) -> list[int]:
        """The shape of a tensor with some axes."""
        return [self.extents[axis] for axis in axes]


def drawn(seed: int, count: int) -> Iterator[Contraction]:
    """Contractions of a seed; each has a summed axis or one of both operands and the result."""
    rng = np.random.default_rng(seed)
    found = 0
    while found < count:
        sizes = rng.integers(0, 3, 4)  # of both, of the left one, of the right one, summed
        ends = np.cumsum(sizes)
        names = string.ascii_lowercase[: ends[-1]]
        both, left, right, summed = (
            names[end - size : end] for size, end in zip(sizes, ends, strict=True)
        )
        if not both + summed or not 2 <= len(names) <= 6:
            continue
        extents = {name: int(rng.choice(EXTENTS)) for name in names}
        axes = (both + left + summed, both + right + summed, both + left + right)
        tensors = ["".join(rng.permutation(list(names))) for names in axes]
        largest = max(prod(extents[axis] for axis in tensor) for tensor in tensors)
        in_range = POINTS[0] < prod(extents.values()) < POINTS[1]
        if all(tensors[:2]) and in_range and ELEMENTS[0] < largest < ELEMENTS[1]:
            found += 1
            yield Contraction("{},{}->{}".format(*tensors), extents)


def ours(one: Contraction, gradients: bool) -> Callable[..., Any]:
    """The built function of a contraction, or of its gradients by both operands."""
    left, right, result = one.parts
    a = te.placeholder(one.shape(left), name="a")
    b = te.placeholder(one.shape(right), name="b")
    reduced = {
        name: te.reduce_axis((0, extent), name)
        for name, extent in one.extents.items()
        if name not in result
    }

    def body(*indices: Any) -> Any:
        at = {**dict(zip(result, indices, strict=True)), **reduced}
        value = a[tuple(at[axis] for axis in left)] * b[tuple(at[axis] for axis in right)]
        return te.sum(value, axis=list(reduced.values())) if reduced else value

    y = te.compute(one.shape(result), body, name="y")
    if not gradients:
        return ad.build([a, b], y, num_threads=1, cache=False)
    head = te.placeholder(y.shape, name="head")
    return ad.build([a, b, head], ad.differentiate(y, [a, b], head), num_threads=1, cache=False)


def in_jax(equation: str, arrays: list[np.ndarray]) -> Callable[[], Any]:
    """A call of JAX; with three arrays, of the gradients."""
    import jax

    def forward(a: Any, b: Any) -> Any:
        return jax.numpy.einsum(equation, a, b)

    def backward(a: Any, b: Any, head: Any) -> Any:
        return jax.vjp(forward, a, b)[1](head)

    function = jax.jit(forward if len(arrays) == 2 else backward)
    placed = list(map(jax.numpy.asarray, arrays))
    return lambda: jax.block_until_ready(function(*placed))


def in_torch(equation: str, arrays: list[np.ndarray]) -> Callable[[], Any]:
    """A call of PyTorch; with three arrays, of the gradients."""
    import torch

    torch.set_num_threads(1)
    a, b, *head = map(torch.from_numpy, arrays)
    if not head:
        return lambda: torch.einsum(equation, a, b)
    a.requires_grad_()
    b.requires_grad_()
    return lambda: torch.autograd.grad(torch.einsum(equation, a, b), (a, b), head[0])


def medians(calls: Calls) -> dict[str, float]:
    """The median time of each call in milliseconds, in turns, after one call of each."""
    for call in calls.values():
        call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(CALLS):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) * 1e3 for name, times in seconds.items()}


def check(one: Contraction, found: list[np.ndarray], arrays: list[np.ndarray]) -> None:
    """Compare results, or gradients, with those of numpy in float64."""
    left, right, result = one.parts
    a, b, *head = (array.astype("float64") for array in arrays)
    pairs = [(one.equation, a, b)]
    if head:
        [h] = head
        pairs = [(f"{result},{right}->{left}", h, b), (f"{result},{left}->{right}", h, a)]
    for got, (equation, first, second) in zip(found, pairs, strict=True):
        want = np.einsum(equation, first, second, optimize=True)
        scale = np.einsum(equation, abs(first), abs(second), optimize=True).max()
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * scale, err_msg=one.equation)


def main() -> None:
    """Measure some contractions and print the slowest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=25)
    parser.add_argument("--worst", type=int, default=10, help="how many lines to print")
    parser.add_argument("--library", nargs="+", default=["jax", "torch"], choices=["jax", "torch"])
    options = parser.parse_args()
    others = {"jax": in_jax, "torch": in_torch}
    rng = np.random.default_rng(options.seed)
    rows: list[tuple[float, str]] = []
    for one in drawn(options.seed, options.count):
        left, right, result = one.parts
        for gradients in (False, True):
            shapes = [one.shape(axes) for axes in (left, right, result)[: 3 if gradients else 2]]
            arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
            function = ours(one, gradients)
            found = function(*arrays)
            check(one, list(found) if gradients else [found], arrays)
            calls: Calls = {"ours": lambda: function(*arrays)}  # noqa: B023
            calls |= {name: others[name](one.equation, arrays) for name in options.library}
            times = medians(calls)
            ratio = min(times[name] for name in options.library) / times["ours"]
            figures = "".join(f"{name} {value:8.3f}  " for name, value in times.items())
            sizes = " ".join(f"{name}{extent}" for name, extent in one.extents.items())
            what = "gradients" if gradients else "forward"
            rows.append((ratio, f"{ratio:6.2f}  {figures}{one.equation} {sizes} {what}"))
            print(rows[-1][1], file=sys.stderr, flush=True)
    print(f"others' time / ours, times in ms, the {options.worst} least of {len(rows)}:")
    for _, line in sorted(rows)[: options.worst]:
        print(line)
    print(f"geometric mean {statistics.geometric_mean(ratio for ratio, _ in rows):.2f}")


if __name__ == "__main__":
    main()
