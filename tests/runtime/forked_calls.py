"""Calls a function in a process, in a forked child of it, and again: ``python -m
tests.runtime.forked_calls`` prints whether all results are equal.
"""

from __future__ import annotations

import multiprocessing
import threading

import numpy as np
from tvm import te

import tvm_autodiff as ad

SIZE = 1 << 18


def _results(run: ad.CompiledFunction, array: np.ndarray, out: multiprocessing.Queue) -> None:
    """Results of the thread that was forked, and of a new one."""
    found = [run(array)]
    thread = threading.Thread(target=lambda: found.append(run(array)))
    thread.start()
    thread.join()
    out.put(found)


def main() -> None:
    x = te.placeholder((SIZE,), name="x")
    y = te.compute((SIZE,), lambda i: te.exp(x[i]) * 2.0, name="y")
    run, array = ad.build(x, y, num_threads=2, cache=False), np.ones(SIZE, "float32")
    want = run(array)
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    child = context.Process(target=_results, args=(run, array, out), daemon=True)
    child.start()
    try:
        found = [*out.get(timeout=20), run(array)]
    finally:
        child.kill()
    print([bool(np.array_equal(got, want)) for got in found])


if __name__ == "__main__":
    main()
