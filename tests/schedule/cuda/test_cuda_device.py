"""On a real GPU: every program and every rule gives what the CPU gives, and arrays of PyTorch are
used where they lie, on its stream. Skipped where there is no GPU.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

import tvm_autodiff as ad
from tests.schedule import cases
from tests.schedule.cuda.programs import PROGRAMS, drawn, with_gradients
from tests.schedule.cuda.test_cuda_rules import RULES, SYMBOLIC
from tests.schedule.test_rules import arrays_for

pytestmark = pytest.mark.skipif(not tvm.cuda(0).exist, reason="there is no GPU")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("n", [1, 37])
def test_program(name, n):
    inputs, outputs = with_gradients(*PROGRAMS[name]())
    if n == 1 and name != "symbolic":
        pytest.skip("its sizes are literal")
    arrays = drawn(inputs, {"n": n})
    want = ad.build(inputs, outputs, exact_math=True)(*arrays)
    got = ad.build(inputs, outputs, target="cuda")(*arrays)
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", RULES)
def test_rule(name):
    inputs, output = RULES[name][0]
    arrays = arrays_for(inputs, {})
    arrays = [np.abs(a) % 3 if a.dtype == np.int32 and a.ndim == 1 else a for a in arrays]
    want = ad.build(inputs, output)(*arrays)
    np.testing.assert_array_equal(ad.build(inputs, output, target="cuda")(*arrays), want)


@pytest.mark.parametrize("name", SYMBOLIC)
@pytest.mark.parametrize("n", [0, 1, 6, 3001])
def test_symbolic(name, n):
    inputs, output = SYMBOLIC[name][0](te.var("n"))
    arrays = arrays_for(inputs, {"n": n})
    want = ad.build(inputs, output)(*arrays)
    np.testing.assert_array_equal(ad.build(inputs, output, target="cuda")(*arrays), want)


def test_exported_and_loaded(tmp_path):
    inputs, output = cases.softmax(33, 70)
    arrays = drawn(inputs)
    function = ad.build(inputs, output, target="cuda")
    function.export(tmp_path / "softmax.so")
    loaded = ad.load(tmp_path / "softmax.so")
    np.testing.assert_array_equal(loaded(*arrays), function(*arrays))


def torch_with_cuda():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch is not built for CUDA")
    return torch


def test_arrays_of_torch_stay_where_they_are():
    torch = torch_with_cuda()
    inputs, output = cases.matmul(64, 48, 80)
    function = ad.build(inputs, output, target="cuda")
    a, b = torch.randn(64, 80, device="cuda"), torch.randn(80, 48, device="cuda")
    result = function(a, b)
    assert result.device == a.device
    torch.testing.assert_close(result, a @ b, rtol=1e-4, atol=1e-4)
    out = torch.empty_like(result)
    assert function(a, b, out=out) is out
    torch.testing.assert_close(out, result)
    host = function(a.cpu().numpy(), b)
    np.testing.assert_array_equal(host, result.cpu().numpy())


@pytest.mark.parametrize("stages", [1, 2])
def test_calls_follow_the_stream_of_torch(stages):
    torch = torch_with_cuda()
    A = te.placeholder((1 << 20,), name="A")
    out = te.compute(A.shape, lambda i: A[i] + 1.0, name="one")
    if stages == 2:
        k = te.reduce_axis((0, 1 << 20), "k")
        before = out
        out = te.compute((), lambda: te.sum(before[k], axis=k), name="total")
    function = ad.build(A, out, target="cuda")
    stream = torch.cuda.Stream()
    values = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # the kernel must wait for what the stream does before
        values += 1
        result = function(values)
    stream.synchronize()
    assert result.max().item() == (2 if stages == 1 else 2 << 20)


def test_views_that_begin_between_are_refused():
    torch = torch_with_cuda()
    inputs, output = cases.rows(4, 3)
    function = ad.build(inputs, output, target="cuda")
    with pytest.raises(ad.CallError, match="multiple of 16 bytes"):
        function(torch.zeros(13, device="cuda")[1:].reshape(4, 3))
