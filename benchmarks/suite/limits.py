"""What the machine can do: GFLOP/s of a large sgemm, GB/s of copies; the best of some repetitions.

The sgemm is that of numpy's BLAS. A copy is divided among Python threads: numpy copies on one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

SGEMM_SIZE = 2048
LARGE_COPY = 256 * 2**20  # bytes read and written: more than any cache holds


def sgemm_gflops(seconds: float = 1.0) -> float:
    """GFLOP/s of a product of square matrices on the threads that this process may use."""
    rng = np.random.default_rng(0)
    shape = (SGEMM_SIZE, SGEMM_SIZE)
    a, b = (rng.standard_normal(shape, dtype="float32") for _ in range(2))
    out = np.empty(shape, "float32")
    return 2 * SGEMM_SIZE**3 / _best(lambda: np.matmul(a, b, out=out), seconds) / 1e9


def copy_bandwidth(size: int, threads: int, seconds: float = 0.5) -> float:
    """GB/s of a copy that reads and writes `size` bytes together."""
    count = max(size // 8, threads)
    source, target = np.ones(count, "float32"), np.zeros(count, "float32")
    if threads == 1:
        return 8 * count / _best(lambda: np.copyto(target, source), seconds) / 1e9
    # each thread copies its part over and over; together they take from the first start to the
    # last end
    repeats = max(3, int(seconds * 1e10 / size / 5))
    best = float("inf")
    for _ in range(5):
        barrier = threading.Barrier(threads)
        spans: list[tuple[float, float]] = []
        parts = zip(np.array_split(target, threads), np.array_split(source, threads), strict=True)
        workers = [
            threading.Thread(target=_copy_often, args=(barrier, repeats, spans, *part))
            for part in parts
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        begins, ends = zip(*spans, strict=True)
        best = min(best, (max(ends) - min(begins)) / repeats)
    return 8 * count / best / 1e9


def _copy_often(
    barrier: threading.Barrier,
    repeats: int,
    spans: list[tuple[float, float]],
    target: Any,
    source: Any,
) -> None:
    np.copyto(target, source)
    barrier.wait()
    begin = time.perf_counter()
    for _ in range(repeats):
        np.copyto(target, source)
    spans.append((begin, time.perf_counter()))


def _best(call: Callable[[], Any], seconds: float) -> float:
    call()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def serve(threads: int, sizes: dict[str, int], pipe: Connection) -> None:
    """Measure and send GFLOP/s, GB/s of a large copy, and GB/s for the size of each case."""
    copies = {name: copy_bandwidth(size, threads, 0.2) for name, size in sizes.items()}
    pipe.send((sgemm_gflops(), copy_bandwidth(LARGE_COPY, threads), copies))
