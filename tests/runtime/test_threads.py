"""Kernels run on as many threads as asked for, whatever ran before."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from tvm import te

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


@pytest.mark.parametrize(("asked", "given"), [(None, len(available_cpus())), (1, 1), (10**6, None)])
def test_resolve(asked, given):
    assert resolve_threads(asked) == (given or len(available_cpus()))


@needs_two
def test_two_threads_work_at_the_same_time():
    """CPU time of the kernel goes to two threads of the process, about half to each."""
    script = textwrap.dedent(
        """
        import os
        import numpy as np
        from tests.runtime.test_threads import heavy
        from tvm_autodiff.compile import build

        def busy():
            times = {}
            for task in os.listdir("/proc/self/task"):
                fields = open(f"/proc/self/task/{task}/stat").read().rsplit(")", 1)[1].split()
                times[task] = int(fields[11]) + int(fields[12])
            return times

        f = build(*heavy(), num_threads=THREADS)
        x = np.zeros(64, "float32")
        f(x)
        before = busy()
        for _ in range(100):
            f(x)
        after = busy()
        spent = sorted(after[t] - before.get(t, 0) for t in after)
        print(spent[-1], spent[-2] if len(spent) > 1 else 0)
        """
    )
    shares = {}
    for threads in ("None", "1"):
        code = script.replace("THREADS", threads)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        most, second = map(int, done.stdout.split())
        shares[threads] = second / max(most, 1)
    assert shares["None"] > 0.5
    assert shares["1"] < 0.2


@needs_two
def test_count_can_change_between_functions():
    A, B = heavy()
    functions = [build(A, B, num_threads=count) for count in (1, 2, None, 1)]
    x = np.arange(64, dtype="float32")
    want = functions[0](x)
    for function in functions:
        np.testing.assert_allclose(function(x), want, rtol=1e-3, atol=1e-3)
