"""Loops on the threads of PyTorch's OpenMP runtime."""

from __future__ import annotations

import ctypes

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tvm import topi  # noqa: E402

from tvm_autodiff.interop.torch import function  # noqa: E402
from tvm_autodiff.interop.torch.openmp import launch  # noqa: E402

POOL = launch()
TASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)


class Group(ctypes.Structure):
    """What a part is told: how many there are."""

    _fields_ = (("handle", ctypes.c_void_p), ("tasks", ctypes.c_int32))


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.skipif(POOL is None, reason="PyTorch has another OpenMP runtime")
@pytest.mark.parametrize("fails", [None, 0])
def test_each_part_runs_once(threads, fails):
    seen = []

    def part(number, group, data):
        seen.append((number, Group.from_address(group).tasks, data))
        return 7 if number == fails else 0

    task = TASK(part)
    code = LAUNCH(POOL[0])(ctypes.cast(task, ctypes.c_void_p), 1234, 0)
    assert sorted(seen) == [(number, threads, 1234) for number in range(threads)]
    assert code == (0 if fails is None else 7)


def test_values_on_any_number_of_threads(threads):
    x = torch.linspace(-1, 1, 1 << 18, requires_grad=True)
    y = function(lambda x: topi.tanh(topi.exp(x) * x))(x)
    torch.testing.assert_close(y, torch.tanh(x.exp() * x))
    [found] = torch.autograd.grad(y.sum(), x)
    [expected] = torch.autograd.grad(torch.tanh(x.exp() * x).sum(), x)
    torch.testing.assert_close(found, expected)
