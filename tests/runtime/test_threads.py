"""Kernels run on as many threads as asked for, whatever ran before."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tvm import te

from tvm_autodiff.codegen.host.host_cpu import default_threads
from tvm_autodiff.compile import build
from tvm_autodiff.runtime.threads import available_cpus, resolve_threads

needs_two = pytest.mark.skipif(len(available_cpus()) < 2, reason="one CPU")


def heavy():
    """A kernel that is nothing but arithmetic: 64 rows of sines."""
    A = te.placeholder((64,), name="A")
    k = te.reduce_axis((0, 100_000), "k")
    return A, te.compute(
        (64,), lambda i: te.sum(te.sin(A[i] + k.astype("float32")), axis=k), name="B"
    )


CPUS = available_cpus()


@pytest.mark.parametrize(
    ("asked", "given"), [(None, default_threads(CPUS)), (1, 1), (10**6, len(CPUS))]
)
def test_resolve(asked, given):
    assert resolve_threads(asked) == given


def busy() -> dict[str, int]:
    """The CPU time of each thread of this process, in ticks."""
    times = {}
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            fields = Path(f"/proc/self/task/{task}/stat").read_text().rsplit(")", 1)[1].split()
            times[task] = int(fields[11]) + int(fields[12])
    return times


@pytest.mark.slow
@needs_two
@pytest.mark.skipif(sys.platform != "linux", reason="times of threads are those of Linux")
@pytest.mark.parametrize("order", [(None, 1), (1, None)])
def test_two_threads_work_at_the_same_time(order):
    """CPU time of the kernel goes to two threads of the process, about half to each, or to one."""
    x = np.zeros(64, "float32")
    shares = {}
    for threads in order:
        function = build(*heavy(), num_threads=threads)
        function(x)
        before = busy()
        for _ in range(150):
            function(x)
        most, second = sorted((time - before.get(t, 0) for t, time in busy().items()))[:-3:-1]
        assert most > 10
        shares[threads] = second / most
    assert shares[None] > 0.5
    assert shares[1] < 0.2


@needs_two
def test_count_can_change_between_functions():
    A, B = heavy()
    functions = [build(A, B, num_threads=count) for count in (1, 2, None, 1)]
    x = np.arange(64, dtype="float32")
    want = functions[0](x)
    for function in functions:
        np.testing.assert_allclose(function(x), want, rtol=1e-3, atol=1e-3)


def step_program(n=64):
    """Several kernels with temporaries between them, and their sum in float64-exact integers."""
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k, m = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "m")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((n, n), lambda i, j: te.sum(C[i, m] * A[n - 1 - j, m], axis=m), name="D")
    return [A, B], [te.compute((n, n), lambda i, j: D[n - 1 - i, j] + C[i, j], name="E"), C]


def integers(seed, n=64):
    rng = np.random.default_rng(seed)
    return [rng.integers(-2, 3, (n, n)).astype("float32") for _ in range(2)]


@pytest.mark.parametrize("threads", [1, None])
@pytest.mark.parametrize("way", ["new results", "out=", "cache", "updates"])
def test_four_python_threads_call_one_function(tmp_path, threads, way):
    """Each thread has data of its own; a shared temporary or result would show in another's."""
    inputs, outputs = step_program()
    if way == "updates":
        function = build(inputs, outputs[:1], updates={inputs[0]: outputs[1]}, num_threads=threads)
    elif way == "cache":
        build(inputs, outputs, num_threads=threads, cache=tmp_path)
        function = build(inputs, outputs, num_threads=threads, cache=tmp_path)
    else:
        function = build(inputs, outputs, num_threads=threads)
    wrong = []
    begin = threading.Barrier(4)

    def work(seed):
        a, b = integers(seed)
        c = a.astype("float64") @ b
        want = [(c @ a[::-1].T.astype("float64"))[::-1] + c, c]
        out = [np.empty_like(a), np.empty_like(a)]
        begin.wait()
        for _ in range(50):
            if way == "updates":
                state = a.copy()
                got = [*function(state, b), state]
            else:
                got = function(a, b, out=out) if way == "out=" else function(a, b)
            wrong.extend(seed for x, y in zip(got, want, strict=True) if not np.array_equal(x, y))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


@pytest.mark.parametrize("offset", [1, 2, 3, 5, 15])
def test_unaligned_views(offset):
    """Arrays that begin anywhere: kernels must not take them for aligned to a vector."""
    inputs, outputs = step_program()
    function = build(inputs, outputs)
    a, b = integers(0)
    want = function(a, b)
    views = []
    for array in (a, b, a, a):
        whole = np.zeros(array.size + 16, "float32")
        view = whole[offset : offset + array.size].reshape(array.shape)
        view[...] = array
        views.append(view)
    got = function(*views[:2], out=views[2:])
    assert got[0] is views[2]
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(mine, theirs)
