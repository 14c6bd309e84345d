"""Calls of functions built for CUDA: with no GPU their errors, with a device that stands in
for one (the CPU, and arrays that say they lie on a GPU) the whole protocol of a call.
"""

from __future__ import annotations

import types

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.relax import VMExecutable

import tvm_autodiff as ad
from tests.schedule.cuda.scheduled import SM_90
from tests.schedule.cuda.serial import on_cpu
from tvm_autodiff.compile.request import request_of
from tvm_autodiff.runtime import device_arrays
from tvm_autodiff.runtime.device import DeviceFunction
from tvm_autodiff.runtime.files.manifest import Manifest

needs_no_gpu = pytest.mark.skipif(tvm.cuda(0).exist, reason="there is a GPU")


class GpuArray:
    """An array that says it lies on a GPU; its memory is that of the host."""

    def __init__(self, array, number=0):
        self.array, self.number = np.asarray(array), number

    def __dlpack_device__(self):
        return 2, self.number

    def __dlpack__(self, **_):
        return self.array.__dlpack__()

    def __array_namespace__(self):
        return types.SimpleNamespace(from_dlpack=lambda t: GpuArray(np.from_dlpack(t)))


class OnHost(DeviceFunction):
    """A function for the GPU that is the CPU."""

    _gpu = staticmethod(lambda number: tvm.cpu(number))


def aligned(values, dtype="float32"):
    """An array that begins at a multiple of 16 bytes."""
    values = np.asarray(values, dtype)
    whole = np.empty(values.size + 16, dtype)
    start = -whole.ctypes.data // whole.itemsize % (16 // whole.itemsize)
    part = whole[start : start + values.size].reshape(values.shape)
    part[...] = values
    return part


def program(stages=1, n=4):
    A = te.placeholder((n, 3), name="A")
    B = te.placeholder((), name="B")
    k = te.reduce_axis((0, 3), "k")
    out = te.compute((n,), lambda i: te.sum(A[i, k] * B(), axis=k), name="out")
    for _ in range(stages - 1):
        out = following(out, A, n)
    return [A, B], out


def function(stages=1, n=4):
    return on_host(*program(stages, n))


def on_host(inputs, outputs):
    """A function for the GPU that runs on the CPU."""
    executable = on_cpu(inputs, outputs)
    manifest = Manifest(
        request_of(inputs, outputs).signature, uses_vm=isinstance(executable, VMExecutable)
    )
    return OnHost(executable, manifest, 1)


def following(before, A, n):
    j = te.reduce_axis((0, n), "j")
    total = te.compute((), lambda: te.sum(before[j], axis=j), name="total")
    return te.compute((n,), lambda i: total() + A[i, 0], name="out")


VALUES = np.arange(12, dtype="float32").reshape(4, 3)


@pytest.mark.parametrize("stages", [1, 3])
def test_host_arrays_come_back_to_the_host(stages):
    got = function(stages)(VALUES, 2.0)
    assert isinstance(got, np.ndarray)
    want = 2 * VALUES.sum(1)
    for _ in range(stages - 1):
        want = want.sum() + VALUES[:, 0]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("stages", [1, 2])
def test_arrays_of_the_gpu_are_used_where_they_lie(stages):
    array = GpuArray(aligned(VALUES))
    got = function(stages)(array, np.float32(2))
    assert isinstance(got, GpuArray)
    np.testing.assert_array_equal(got.array, function(stages)(VALUES, 2.0))


def test_results_follow_the_first_argument():
    A, B = te.placeholder((3,), name="A"), te.placeholder((3,), name="B")
    call = on_host([A, B], te.compute((3,), lambda i: A[i] - B[i], name="C"))
    host, gpu = np.array([1, 2, 3], "float32"), GpuArray(aligned([1, 1, 5]))
    np.testing.assert_array_equal(call(host, gpu), [0, 1, -2])
    np.testing.assert_array_equal(call(gpu, host).array, [0, -1, 2])


def test_out_is_written_where_it_lies():
    for out in (aligned(np.zeros(4)), GpuArray(aligned(np.zeros(4)))):
        assert function()(VALUES, 1.0, out=out) is out
        np.testing.assert_array_equal(getattr(out, "array", out), VALUES.sum(1))


def test_symbolic_sizes():
    call = function(n=te.var("n"))
    for n in (0, 1, 7):
        array = np.ones((n, 3), "float32")
        np.testing.assert_array_equal(call(array, 2.0), np.full(n, 6))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((VALUES,), "expected 2 arrays"),
        ((VALUES.astype("float64"), 1.0), "'A' must have dtype float32, got float64"),
        ((GpuArray(aligned(VALUES)[:2]), 1.0), r"'A' must have shape \(4, 3\)"),
        ((VALUES.T.copy().T, 1.0), "'A' must be contiguous in CPU memory"),
        ((GpuArray(aligned(np.arange(16))[1:13].reshape(4, 3)), 1.0), "multiple of 16 bytes"),
        ((GpuArray(aligned(VALUES)), GpuArray(np.float32(1), 1)), r"GPUs \[0, 1\]"),
        (("text", 1.0), "'A' must be an array"),
    ],
)
def test_what_a_call_refuses(arguments, message):
    with pytest.raises(ad.CallError, match=message):
        function()(*arguments)


def test_out_must_fit():
    with pytest.raises(ad.CallError, match="out= must contain 1 arrays, got 2"):
        function()(VALUES, 1.0, out=[np.zeros(4), np.zeros(4)])
    with pytest.raises(ad.CallError, match="output 'out' must have shape"):
        function()(VALUES, 1.0, out=np.zeros(5, "float32"))


def test_streams_are_those_of_the_callers_framework(monkeypatch):
    class Tensor:
        pass

    Tensor.__module__ = "torch"
    current = types.SimpleNamespace(cuda_stream=1234)
    cuda = types.SimpleNamespace(current_stream=lambda number: current)
    monkeypatch.setitem(device_arrays.sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    assert device_arrays.stream_of(Tensor(), 0) == 1234
    assert device_arrays.stream_of(GpuArray(VALUES), 0) == 0


@needs_no_gpu
def test_without_a_gpu_a_function_is_built_shown_and_exported(tmp_path):
    A = te.placeholder((8,), name="A")
    function = ad.build(A, te.compute((8,), lambda i: A[i] * 2.0, name="B"), target=SM_90)
    assert "__global__" in function.source()
    assert "define" in function.source("ll")
    function.export(tmp_path / "double.so")
    with pytest.raises(ad.LoweringError, match="built for CUDA, and there is no GPU"):
        ad.load(tmp_path / "double.so")
    with pytest.raises(ad.CallError, match="no GPU that TVM can use here"):
        function(np.ones(8, "float32"))


@pytest.fixture
def with_vm(monkeypatch):
    """Programs of symbolic sizes for a CPU are called as for a GPU: by the virtual machine."""
    monkeypatch.setattr("tvm_autodiff.schedule.emit.program.are_sizes_known", lambda *_: False)


@pytest.mark.usefixtures("with_vm")
def test_updates_of_host_arrays_come_back():
    n = te.var("n")
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    new = te.compute((n,), lambda i: A[i] + B[i], name="new")
    k = te.reduce_axis((0, n), "k")
    total = te.compute((), lambda: te.sum(A[k], axis=k), name="total")
    built = ad.build([A, B], total, updates={A: new}, cache=False)
    step = OnHost(built._executable, built._manifest, 1)
    host, gpu = np.array([1, 2, 3], "float32"), GpuArray(aligned([1, 1, 5]))
    assert float(step(host, np.array([1, 1, 1], "float32"))) == 6
    np.testing.assert_array_equal(host, [2, 3, 4])
    assert float(step(gpu, host).array) == 7
    np.testing.assert_array_equal(gpu.array, [3, 4, 9])
    locked = host.copy()
    locked.flags.writeable = False
    with pytest.raises(ad.CallError, match="must be writable"):
        step(locked, host)
    with pytest.raises(ad.CallError, match="share memory"):
        step(host, host)


@pytest.mark.usefixtures("with_vm")
@pytest.mark.parametrize("stages", [1, 3])
def test_profile(stages):
    built = ad.build(*program(stages, te.var("n")), cache=False)
    call = OnHost(built._executable, built._manifest, 1)
    profile = call.profile(np.ones((4, 3), "float32"), 2.0, repeats=2)
    assert [kernel.seconds > 0 for kernel in profile.kernels] == [True] * len(profile.kernels)
    assert len(profile.kernels) == len({launch.number for launch in built._manifest.launches}) > 0
