"""Gradient kernels beside PyTorch's: ``python benchmarks/gradient_kernels.py``.

Each library runs in a process of its own, with the same inputs and number of threads; rounds
alternate between them, so that a change of the machine's speed meets both. Every answer is compared
with one in float64. Without PyTorch only our own times are shown.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

REPEATS = 20  # calls in a round

#: name → shapes of (head, a, b): gradients with respect to a and b of a product or a convolution
CASES: dict[str, dict[str, Any]] = {
    "matmul 512x512x512": {"kind": "matmul", "size": (512, 512, 512)},
    "matmul 64x784x256": {"kind": "matmul", "size": (64, 256, 784)},
    "conv 8x32x32x32, 32 of 3x3": {"kind": "conv", "size": (8, 32, 32, 32)},
    "conv 32x16x8x8, 32 of 3x3": {"kind": "conv", "size": (32, 16, 8, 32)},
}


def arrays_of(case: dict[str, Any]) -> list[np.ndarray]:
    """Head and operands of a case."""
    rng = np.random.default_rng(0)
    if case["kind"] == "matmul":
        n, m, k = case["size"]
        shapes = [(n, m), (n, k), (k, m)]
    else:
        n, c, h, f = case["size"]
        shapes = [(n, f, h, h), (n, c, h, h), (f, c, 3, 3)]
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def operations(case: dict[str, Any]) -> int:
    """Floating point operations of both gradients."""
    if case["kind"] == "matmul":
        n, m, k = case["size"]
        return 4 * n * m * k
    n, c, h, f = case["size"]
    return 4 * n * c * h * h * f * 9


def exact(case: dict[str, Any], arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Both gradients in float64."""
    head, a, b = (array.astype("float64") for array in arrays)
    if case["kind"] == "matmul":
        return [head @ b.T, a.T @ head]
    size = a.shape[2]
    padded = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)))
    da, db = np.zeros_like(padded), np.zeros_like(b)
    for p in range(3):
        for q in range(3):
            window = (slice(None), slice(None), slice(p, p + size), slice(q, q + size))
            da[window] += np.einsum("nfhw,fc->nchw", head, b[:, :, p, q])
            db[:, :, p, q] = np.einsum("nfhw,nchw->fc", head, padded[window])
    return [da[:, :, 1:-1, 1:-1], db]


def ours(case: dict[str, Any], arrays: list[np.ndarray], threads: int) -> Callable[[], Any]:
    """A call that computes both gradients with tvm_autodiff."""
    from tvm import te, topi

    from tvm_autodiff import build, differentiate

    head, a, b = (te.placeholder(x.shape, name=n) for x, n in zip(arrays, "hab", strict=True))
    out = topi.matmul(a, b) if case["kind"] == "matmul" else topi.nn.conv2d_nchw(a, b, 1, 1, 1)
    gradients = list(differentiate(out, [a, b], head))
    used = [head, a, b]
    function = build(used, gradients, num_threads=threads)
    return lambda: function(*arrays)


def torch_eager(case: dict[str, Any], arrays: list[np.ndarray], threads: int) -> Callable[[], Any]:
    """A call that computes both gradients with PyTorch's autograd, the forward pass kept."""
    import torch

    torch.set_num_threads(threads)
    head, a, b = (torch.tensor(array) for array in arrays)
    a.requires_grad_()
    b.requires_grad_()
    out = a @ b if case["kind"] == "matmul" else torch.nn.functional.conv2d(a, b, padding=1)
    return lambda: [g.numpy() for g in torch.autograd.grad(out, [a, b], head, retain_graph=True)]


def serve(library: str, threads: int, pipe: Connection) -> None:
    """The process of one library: prepares cases and runs rounds on demand."""
    make = {"ours": ours, "torch": torch_eager}[library]
    call: Callable[[], Any] = lambda: None  # noqa: E731
    while True:
        command, name = pipe.recv()
        if command == "stop":
            return
        if command == "prepare":
            arrays = arrays_of(CASES[name])
            begin = time.perf_counter()
            call = make(CASES[name], arrays, threads)
            results = call()
            built = time.perf_counter() - begin
            errors = [
                float(abs(got - want).max() / abs(want).max())
                for got, want in zip(results, exact(CASES[name], arrays), strict=True)
            ]
            pipe.send((built, max(errors)))
            continue
        times = []
        for _ in range(REPEATS):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        pipe.send(times)


def progress(rounds: list[tuple[str, int]]) -> Any:
    """The rounds, with a progress bar when tqdm is installed."""
    if importlib.util.find_spec("tqdm") is None:
        return rounds
    from tqdm import tqdm

    return tqdm(rounds, unit="round", leave=False)


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of each library")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each case")
    options = parser.parse_args(arguments)
    libraries = ["ours"]
    if importlib.util.find_spec("torch") is not None:
        libraries.append("torch")
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, Any] = {}
    workers = []
    for library in libraries:
        pipes[library], end = context.Pipe()
        worker = context.Process(target=serve, args=(library, options.threads, end), daemon=True)
        worker.start()
        workers.append(worker)
    times: dict[tuple[str, str], list[float]] = {}
    facts: dict[tuple[str, str], tuple[float, float]] = {}
    for name, number in progress([(n, r) for n in CASES for r in range(options.rounds)]):
        for library in libraries:
            if number == 0:
                pipes[library].send(("prepare", name))
                facts[name, library] = pipes[library].recv()
            pipes[library].send(("run", name))
            times.setdefault((name, library), []).extend(pipes[library].recv())
            time.sleep(0.02)  # pools of threads spin for a while after a call
    for pipe in pipes.values():
        pipe.send(("stop", ""))
    for worker in workers:
        worker.join()
    report(libraries, times, facts, options.threads)


def report(
    libraries: list[str],
    times: dict[tuple[str, str], list[float]],
    facts: dict[tuple[str, str], tuple[float, float]],
    threads: int,
) -> None:
    """The table: medians and best in milliseconds; ratio above one means that ours is faster."""
    print(f"both gradients, float32, {threads} threads; times in ms: median (best)")
    header = f"{'case':28} {'ours':>18} {'GFLOP/s':>8} {'build s':>8} {'error':>8}"
    print(header + (f" {'torch':>18} {'ratio':>12}" if "torch" in libraries else ""))
    for name in CASES:
        mine = times[name, "ours"]
        built, error = facts[name, "ours"]
        rate = operations(CASES[name]) / min(mine) / 1e9
        line = f"{name:28} {summary(mine):>18} {rate:8.0f} {built:8.2f} {error:8.0e}"
        if "torch" in libraries:
            theirs = times[name, "torch"]
            ratio = statistics.median(theirs) / statistics.median(mine)
            best = min(theirs) / min(mine)
            line += f" {summary(theirs):>18} {ratio:5.2f} ({best:4.2f})"
        print(line)


def summary(seconds: list[float]) -> str:
    """Median and best in milliseconds."""
    return f"{statistics.median(seconds) * 1e3:.3f} ({min(seconds) * 1e3:.3f})"


if __name__ == "__main__":
    main(sys.argv[1:])
