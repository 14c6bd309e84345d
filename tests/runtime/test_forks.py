"""Functions called in forked processes, where the threads of the parent's pool are gone."""

from __future__ import annotations

import multiprocessing
import sys
import threading

import numpy as np
import pytest
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


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_after_a_call_with_threads() -> None:
    x = te.placeholder((SIZE,), name="x")
    y = te.compute((SIZE,), lambda i: te.exp(x[i]) * 2.0, name="y")
    run, array = ad.build(x, y, num_threads=2, cache=False), np.ones(SIZE, "float32")
    want = run(array)
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    child = context.Process(target=_results, args=(run, array, out), daemon=True)
    child.start()
    try:
        for got in out.get(timeout=20):
            np.testing.assert_array_equal(got, want)
    finally:
        child.kill()
    np.testing.assert_array_equal(run(array), want)
