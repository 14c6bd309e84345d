"""Profiles: one row for each kernel, with its rule, its time and its rates."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.machines import with_usual_caches
from tvm_autodiff.compile import build
from tvm_autodiff.errors import CallError
from tvm_autodiff.runtime.profile import KernelTime, Profile


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules do not depend on this host."""
    monkeypatch.setattr("tvm_autodiff.compile.pipeline.machine_of", with_usual_caches)


def product(n=48):
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    return [A, B], te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")


def two_kernels(n=48):
    inputs, C = product(n)
    k = te.reduce_axis((0, n), "k")
    return inputs, te.compute((n,), lambda i: te.max(C[n - 1 - i, k], axis=k), name="M")


def arrays(n=48):
    return [np.ones((n, n), "float32")] * 2


def test_two_kernels():
    profile = build(*two_kernels(), num_threads=1).profile(*arrays(), repeats=5)
    assert [kernel.name for kernel in profile.kernels] == ["C", "M"]
    first, second = profile.kernels
    assert first.rule == "contraction"
    assert (first.operations, second.operations) == (2 * 48**3, 48 * 48)
    assert second.traffic == (48 * 48 + 48) * 4
    assert 0 < sum(kernel.seconds for kernel in profile.kernels) < 1
    assert first.gflops == pytest.approx(2 * 48**3 / first.seconds / 1e9)


def test_one_kernel():
    A = te.placeholder((1000,), name="A")
    double = build(A, te.compute((1000,), lambda i: A[i] * 2.0, name="B"), num_threads=1)
    [kernel] = double.profile(np.ones(1000, "float32"), repeats=3).kernels
    assert (kernel.name, kernel.rule, kernel.launches) == ("B", "elementwise", 1)
    assert (kernel.operations, kernel.traffic) == (1000, 8000)
    assert kernel.seconds > 0


def test_launches_of_one_kernel_are_one_row():
    A, B = te.placeholder((200, 150), name="A"), te.placeholder((170, 200), name="B")
    k = te.reduce_axis((0, 200), "k")
    C = te.compute((150, 170), lambda i, j: te.sum(A[k, i] * B[j, k], axis=k), name="C")
    function = build([A, B], C, num_threads=1)  # B is packed first
    [kernel] = function.profile(
        *(np.ones(shape, "float32") for shape in ((200, 150), (170, 200))), repeats=3
    ).kernels
    assert kernel.launches > 1
    assert kernel.operations == 2 * 200 * 150 * 170


def test_symbolic_sizes_have_no_rates():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    double = build(A, te.compute((n,), lambda i: A[i] * 2.0, name="B"))
    [kernel] = double.profile(np.ones(10, "float32"), repeats=1).kernels
    assert kernel.operations is kernel.traffic is kernel.gflops is kernel.gbytes is None


def test_updated_arguments_stay_as_they_are():
    inputs, C = product()
    step = build(inputs, [], updates={inputs[0]: C})
    a, b = np.ones((48, 48), "float32"), np.ones((48, 48), "float32")
    step.profile(a, b, repeats=2)
    np.testing.assert_array_equal(a, 1)


def test_bad_arguments():
    with pytest.raises(CallError, match="argument 'A' must have shape"):
        build(*product()).profile(*arrays(5))


def test_found_in_a_cache(tmp_path):
    names = []
    for _ in range(2):
        profile = build(*two_kernels(), cache=tmp_path).profile(*arrays(), repeats=1)
        names.append([(kernel.name, kernel.rule) for kernel in profile.kernels])
    assert names[0] == names[1] != []


def test_table():
    rows = (
        KernelTime("conv", "contraction", 3, 300e-6, 60_000_000, 1_500_000),
        KernelTime("scatter", "fallback", 1, 100e-6, None, None),
    )
    assert str(Profile(rows, 410e-6)).splitlines() == [
        "   µs  share  GFLOP/s  GB/s  rule         kernel",
        "300.0    75%    200.0   5.0  contraction  conv (3 launches)",
        "100.0    25%        -     -  fallback     scatter",
        "410.0 µs for a whole call",
    ]
