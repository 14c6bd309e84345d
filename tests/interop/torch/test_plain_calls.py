"""Calls that leave PyTorch's dispatcher out: only where it would call the CPU kernel alone."""

from __future__ import annotations

import pytest
from tvm import topi

torch = pytest.importorskip("torch")

from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tvm_autodiff.interop.torch import function  # noqa: E402
from tvm_autodiff.interop.torch.plain_calls import is_plain_call  # noqa: E402

ONES = torch.ones(3)


def test_plain_tensors_are_recognised():
    assert is_plain_call([ONES, torch.nn.Parameter(ONES), ONES[::2]])


class Subclass(torch.Tensor):
    pass


def lazily_negative():
    return torch.imag(torch.full((3,), 2j).conj())


#: tensors that the dispatcher treats in other ways
OTHERS = {
    "none": lambda: [],
    "no values": lambda: [torch.empty(3, device="meta")],
    "sparse": lambda: [ONES.to_sparse()],
    "one of two": lambda: [ONES, torch.empty(3, device="meta")],
    "negated lazily": lambda: [lazily_negative()],
    "zeros without memory": lambda: [torch._efficientzerotensor(3)],
    "of another layout": lambda: [ONES.to_mkldnn()],
    "functional": lambda: [torch._to_functional_tensor(ONES)],
    "wrapped by an ended transform": lambda: [escaped()],
}


def escaped():
    kept = []
    torch.func.grad(lambda x: (kept.append(x), x.sum())[1])(ONES)
    return kept[0]


#: states of a thread in which the dispatcher calls more than the kernel
STATES = {
    "a mode": lambda: Seen(),
    "fake tensors": lambda: FakeTensorMode(),
    "the profiler": lambda: torch.profiler.profile(),
    "forward mode": torch.autograd.forward_ad.dual_level,
}


@pytest.mark.parametrize("name", STATES)
def test_no_call_is_plain_in_other_states(name):
    with STATES[name]():
        assert not is_plain_call([ONES])
    assert is_plain_call([ONES])


def test_no_call_is_plain_under_transforms():
    seen = []
    torch.func.grad(lambda x: (seen.append(is_plain_call([ONES])), x.sum())[1])(ONES)
    torch.jit.trace(
        lambda x: (seen.append(is_plain_call([ONES])), x + x)[1], ONES, check_trace=False
    )
    assert seen == [False] * 2


def inferred():
    with torch.inference_mode():
        return torch.ones(3)


def test_tensors_of_inference():
    twice = function(lambda x: topi.add(x, x))
    assert torch.equal(twice(inferred()), torch.full((3,), 2.0))
    with torch.inference_mode():
        assert twice(inferred()).is_inference()
    weight = torch.ones(3, requires_grad=True)
    product = function(lambda x, y: topi.multiply(x, y))
    with pytest.raises(RuntimeError, match="[Ii]nference tensors cannot be saved for backward"):
        product(weight, inferred())


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_not(name):
    assert not is_plain_call(OTHERS[name]())


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.names.append(op.name())
        return op(*args, **(kwargs or {}))


def test_modes_see_the_operator():
    twice = function(lambda x: topi.add(x, x), save="all")
    twice(ONES)
    with Seen() as seen:
        twice(ONES)
    assert len([name for name in seen.names if name.startswith("tvm_autodiff::")]) == 1


def test_the_profiler_sees_the_operator():
    twice = function(lambda x: topi.add(x, x))
    twice(ONES)
    with torch.profiler.profile() as profile:
        twice(ONES)
    assert any("tvm_autodiff::" in event.key for event in profile.key_averages())


def test_fake_tensors_get_shapes():
    twice = function(lambda x: topi.add(x, x))
    with FakeTensorMode() as mode:
        found = twice(mode.from_tensor(ONES))
    assert (type(found).__name__, found.shape) == ("FakeTensor", (3,))


def test_lazy_negation_is_done():
    twice = function(lambda x: topi.add(x, x))
    assert torch.equal(twice(lazily_negative()), 2 * lazily_negative())


def test_every_way_to_pass_tensors_takes_one_program():
    def total(x, y):
        return topi.add(x, y)

    made = function(total)
    made(ONES, ONES)
    made(torch.nn.Parameter(ONES), ONES)
    made(ONES.as_subclass(Subclass), ONES)
    assert len(made._programs) == 1


def test_a_result_that_is_kept_for_the_backward_pass():
    power = function(lambda x: topi.exp(x), save="all")
    x = ONES.clone().requires_grad_()
    found = power(x)
    assert any(torch.equal(kept, found) for kept in found.grad_fn.saved_tensors)
    [slope] = torch.autograd.grad(found.sum(), x)
    assert torch.allclose(slope, ONES.exp())
