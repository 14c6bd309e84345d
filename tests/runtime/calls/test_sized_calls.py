"""Calls of programs of symbolic sizes: no virtual machine, one table for each combination of sizes.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.runtime.calls.call_sizes import carriers
from tvm_autodiff.runtime.calls.sized_calls import _MOST_SIZES


def program():
    """``total[i] = Σ_k x[i, k] * columns[k] + y[k]`` for the sums of the columns."""
    n, m = te.var("n"), te.var("m")
    x, y = te.placeholder((n, m), name="x"), te.placeholder((m,), name="y")
    k = te.reduce_axis((0, m), "k")
    r = te.reduce_axis((0, n), "r")
    columns = te.compute((m,), lambda j: te.sum(x[r, j], axis=r), name="columns")
    total = te.compute((n,), lambda i: te.sum(x[i, k] * columns[k] + y[k], axis=k), name="total")
    return [x, y], [total, columns]


def wanted(x, y):
    columns = x.sum(0)
    return [(x * columns + y).sum(1), columns]


def arrays(n, m, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(-3, 4, shape).astype("float32") for shape in ((n, m), (m,))]


@pytest.fixture(scope="module")
def function():
    return ad.build(*program(), cache=False)


@pytest.mark.slow
def test_kernels_are_called_directly(function):
    assert len(function._manifest.launches) > 1
    assert not function._manifest.uses_vm
    assert function._manifest.sizes is not None


SIZES = [(1, 1), (7, 3), (512, 40), (3, 700), (7, 3), (0, 4), (4, 0), (1, 1)]


@pytest.mark.slow
def test_sizes_alternate(function):
    for seed, sizes in enumerate(SIZES * 2):
        given = arrays(*sizes, seed)
        for got, want in zip(function(*given), wanted(*given), strict=True):
            np.testing.assert_array_equal(got, want)
        out = [np.full_like(want, 77) for want in wanted(*given)]
        assert function(*given, out=out)[0] is out[0]
        for got, want in zip(out, wanted(*given), strict=True):
            np.testing.assert_array_equal(got, want)


def test_more_sizes_than_are_remembered(function):
    for size in range(1, 2 * _MOST_SIZES):
        given = arrays(size, 3)
        np.testing.assert_array_equal(function(*given)[0], wanted(*given)[0])
    assert 0 < len(function._calls.remembered()) <= _MOST_SIZES


def test_a_remembered_call_is_checked(function):
    x, y = arrays(6, 5)
    for _ in range(2):
        function(x, y)
    with pytest.raises(ad.CallError, match="m = 4"):
        function(x, y[:4])
    with pytest.raises(ad.CallError, match="dtype float32, got float64"):
        function(x, y.astype("float64"))
    with pytest.raises(ad.CallError, match="rank 2"):
        function(x[0], y)
    with pytest.raises(ad.CallError, match="contiguous"):
        function(np.asfortranarray(x), y)
    with pytest.raises(ad.CallError, match="share memory"):
        function(x, y, out=[np.zeros(6, "float32"), y])
    with pytest.raises(ad.CallError, match="'columns'"):
        function(x, y, out=[np.zeros(6, "float32"), np.zeros(6, "float32")])
    np.testing.assert_array_equal(function(x, y)[0], wanted(x, y)[0])


def test_threads_have_their_own_workspaces(function):
    failures = []

    def call(seed):
        for round_ in range(40):
            given = arrays(1 + (seed * 37 + round_ * 11) % 90, 1 + round_ % 9, seed)
            if not np.array_equal(function(*given)[0], wanted(*given)[0]):
                failures.append((seed, round_))

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures


def test_updates_are_written_in_place():
    n = te.var("n")
    a, b = te.placeholder((n,), name="a"), te.placeholder((n,), name="b")
    k = te.reduce_axis((0, n), "k")
    total = te.compute((), lambda: te.sum(a[k] * b[k], axis=k), name="total")
    new = te.compute((n,), lambda i: a[i] + b[i] * total(), name="new")
    step = ad.build([a, b], total, updates={a: new}, cache=False)
    for size in (3, 50, 3):
        x, y = np.arange(size, dtype="float32"), np.ones(size, "float32")
        want = x + y * x.sum()
        assert step(x, y) == np.arange(size).sum()
        np.testing.assert_array_equal(x, want)


def test_a_loaded_program_has_its_sizes(function, tmp_path):
    function.export(tmp_path / "sums.so")
    again = ad.load(tmp_path / "sums.so")
    for sizes in SIZES:
        given = arrays(*sizes)
        for got, want in zip(again(*given), wanted(*given), strict=True):
            np.testing.assert_array_equal(got, want)
    assert again.memory(n=4, m=6) == function.memory(n=4, m=6)


def test_profile_of_each_kernel(function):
    profile = function.profile(*arrays(30, 20), repeats=3)
    launches = [function._manifest.launches[n] for n in function._calls.launches(arrays(30, 20))]
    assert len(profile.kernels) == len({launch.number for launch in launches}) > 1


def test_the_fewest_inputs_tell_the_sizes():
    n = te.var("n")
    plain, double = te.placeholder((n, 2), name="a"), te.placeholder((2 * n,), name="b")
    of = lambda *given: carriers(  # noqa: E731
        ad.build(list(given), [te.compute((3,), lambda i: i * 2)], cache=False).signature
    )
    assert of(double, plain) == (1,)
    assert of(plain, te.placeholder((n,), name="d")) == (0,)
    assert of(double) == (0,)
    m = te.var("m")
    assert of(plain, te.placeholder((m, n), name="c")) == (0, 1)


@pytest.mark.parametrize("size", [0, 1, 40, 20_000])
@pytest.mark.parametrize("threads", [1, 2])
def test_little_work_on_one_thread_and_much_on_several(size, threads):
    n = te.var("n")
    x, k = te.placeholder((n, 8), name="x"), te.reduce_axis((0, 8), "k")
    row = te.compute((n,), lambda i: te.sum(x[i, k], axis=k), name="row")
    y = te.compute((n, 8), lambda i, j: x[i, j] * row[i], name="y")
    run = ad.build([x], [y, row], num_threads=threads, cache=False)
    given = np.arange(size * 8, dtype="float32").reshape(size, 8) % 5
    got, rows = run(given)
    np.testing.assert_array_equal(rows, given.sum(1))
    np.testing.assert_array_equal(got, given * given.sum(1, keepdims=True))
