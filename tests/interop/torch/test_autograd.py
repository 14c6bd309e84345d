"""Autograd of functions on PyTorch's tensors, beside the same in PyTorch's operations."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tvm import topi  # noqa: E402

from tvm_autodiff.interop.torch import function  # noqa: E402
from tvm_autodiff.interop.torch.calls import recording  # noqa: E402

from . import programs  # noqa: E402
from .programs import random  # noqa: E402

PAIRS = {
    "energy": (programs.energy, programs.torch_energy, [(4, 3), (3, 5)]),
    "wave": (programs.wave, programs.torch_wave, [(4,)]),
    "smooth": (programs.smooth, programs.torch_smooth, [(7,), (3,)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_three_orders_beside_pytorch(name):
    te_function, torch_function, shapes = PAIRS[name]
    inputs = [random(*shape, seed=n, grad=True) for n, shape in enumerate(shapes)]
    of_te, of_torch = function(te_function)(*inputs), torch_function(*inputs)
    for order in range(4):
        torch.testing.assert_close(of_te, of_torch)
        if order < 3:
            slopes = (
                torch.autograd.grad(value.sum(), inputs, create_graph=True)
                for value in (of_te, of_torch)
            )
            of_te, of_torch = (sum((g * g).sum() for g in found) for found in slopes)


@pytest.mark.slow
def test_finite_differences_in_both_modes_and_batched():
    made = function(programs.pair)
    leaves = lambda x, w: tuple(made(x, w).values())  # noqa: E731
    inputs = random(2, 3, grad=True), random(3, 2, grad=True)
    checks = {"check_batched_grad": True, "check_forward_ad": True}
    assert torch.autograd.gradcheck(leaves, inputs, check_batched_forward_grad=True, **checks)
    assert torch.autograd.gradgradcheck(leaves, inputs, check_batched_grad=True)


def test_inputs_that_are_not_contiguous():
    given = lambda x, w: (x.t(), w[::2, 1:4])  # noqa: E731
    made = function(programs.energy)
    x, w = random(3, 4, grad=True), random(6, 6, grad=True)
    assert torch.autograd.gradcheck(lambda x, w: made(*given(x, w)), (x, w))


@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)])
def test_only_what_is_needed_is_computed(wanted):
    made = function(programs.energy)
    inputs = [random(4, 3, grad=0 in wanted), random(3, 5, grad=1 in wanted)]
    value = made(*inputs)
    value.backward()
    torch_value = programs.torch_energy(*inputs)
    found = [inputs[n].grad for n in wanted]
    expected = torch.autograd.grad(torch_value, [inputs[n] for n in wanted])
    torch.testing.assert_close(found, list(expected))
    assert all(inputs[n].grad is None for n in (0, 1) if n not in wanted)
    [program] = made._programs.values()
    call = recording(program.operator, wanted, None)
    assert len(call.backward.run.program.outputs) == len(wanted)


def test_one_of_two_gradients_is_a_smaller_program():
    x, w = random(4, 3, grad=True), random(3, 5, grad=True)
    made = function(programs.energy)
    [found] = torch.autograd.grad(made(x, w), w)
    torch.testing.assert_close(found, torch.autograd.grad(programs.torch_energy(x, w), w)[0])
    [program] = made._programs.values()
    call = recording(program.operator, (0, 1), None)
    assert len(call.backward.run.selected((1,)).program.outputs) == 1


def test_a_result_without_a_cotangent():
    x, w = random(4, 3, grad=True), random(3, 5, grad=True)
    for key in ("y", "s"):
        found = torch.autograd.grad(function(programs.pair)(x, w)[key].sum(), (x, w))
        expected = torch.autograd.grad(programs.torch_pair(x, w)[key].sum(), (x, w))
        torch.testing.assert_close(found, expected)


def test_without_gradients_nothing_is_recorded():
    made = function(programs.energy)
    x, w = random(4, 3, grad=True), random(3, 5)
    with torch.no_grad():
        assert made(x, w).grad_fn is None
    assert made(x.detach(), w).grad_fn is None
    assert made(x, w).grad_fn is not None


def test_a_change_before_the_backward_pass_is_an_error():
    x, w = random(4, 3, grad=True), random(3, 5)
    given = x * 1
    value = function(programs.energy)(given, w)
    given.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_a_result_that_is_an_input_is_a_copy():
    x = random(3, grad=True)
    same, twice, again = function(lambda x: (x, x + x, x))(x)
    assert len({t.data_ptr() for t in (x, same, twice, again)}) == 4
    [found] = torch.autograd.grad((same + twice + again).sum(), x)
    torch.testing.assert_close(found, torch.full_like(x, 4))
    with torch.no_grad():
        same.zero_()
    assert x.abs().min() > 0


@pytest.mark.parametrize(
    ("dtype", "error"),
    [(torch.float16, 2e-3), (torch.bfloat16, 2e-2), (torch.float32, 1e-6), (torch.float64, 1e-14)],
    ids=str,
)
def test_dtypes(dtype, error):
    x = random(5, dtype=dtype, grad=True)
    value = function(programs.wave)(x)
    [slope] = torch.autograd.grad(value.sum(), x)
    assert value.dtype == slope.dtype == dtype
    exact = x.detach().double()
    expected = torch.sin(exact) + exact * torch.cos(exact)
    torch.testing.assert_close(slope.double(), expected, rtol=2 * error, atol=2 * error)


def test_integers_are_constants():
    made = function(lambda places, x: (topi.take(x, places, mode="clip"), places + 1))
    x, places = random(5, grad=True), torch.tensor([0, 2, 2])
    taken, more = made(places, x)
    assert not more.requires_grad
    assert more.tolist() == [1, 3, 3]
    [found] = torch.autograd.grad(taken.sum(), x)
    assert found.tolist() == [1, 0, 2, 0, 0]


@pytest.mark.parametrize("save", ["auto", "all", "recompute", 200])
def test_what_is_kept(save):
    def deep(x, w):
        for _ in range(3):
            x = topi.tanh(topi.matmul(x, w))
        return topi.sum(x * x)

    made = function(deep, save=save)
    x, w = random(4, 3, grad=True), random(3, 3, grad=True)
    value = made(x, w)
    saved = value.grad_fn.saved_tensors
    kept = sum(t.nbytes for t in saved if t.data_ptr() not in (x.data_ptr(), w.data_ptr()))
    assert {"auto": kept > 0, "all": kept > 0, "recompute": kept == 0, 200: 0 < kept <= 200}[save]
    y = x
    for _ in range(3):
        y = torch.tanh(y @ w)
    found, expected = (torch.autograd.grad(v, (x, w)) for v in (value, (y * y).sum()))
    torch.testing.assert_close(found, expected)


def test_containers_and_numbers():
    made = function(lambda p, scale: {"out": [p["a"] * scale, (p["b"] + 1.0,)]})
    a, b = random(3, grad=True), random(2, dtype=torch.float32)
    result = made({"a": a, "b": b}, scale=2.5)
    torch.testing.assert_close(result["out"][0], a * 2.5)
    torch.testing.assert_close(result["out"][1][0], b + 1)


def test_forward_mode():
    x, t = random(4), random(4, seed=1)
    made = function(programs.wave)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, t)
        value, tangent = torch.autograd.forward_ad.unpack_dual(made(dual))
    torch.testing.assert_close(value, programs.torch_wave(x))
    torch.testing.assert_close(tangent, t * (torch.sin(x) + x * torch.cos(x)))


def test_under_autocast_the_widest_dtype_is_taken():
    made = function(programs.energy)
    x, w = random(4, 3, dtype=torch.float32), random(3, 5, dtype=torch.float32, grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = x @ torch.eye(3)
        assert half.dtype == torch.bfloat16
        value = made(half, w)
    assert value.dtype == torch.float32
    value.backward()
    assert w.grad.dtype == torch.float32
    expected = torch.autograd.grad(programs.torch_energy(half.float(), w), w)[0]
    torch.testing.assert_close(w.grad, expected)


def test_one_program_for_all_sizes():
    made = function(programs.rows, dynamic={"x": (0,)}, save=400)
    for size in (3, 5, 1):
        x = random(size, 4, grad=True)
        found, expected = (f(x) for f in (made, programs.torch_rows))
        torch.testing.assert_close(found, expected)
        first = [torch.autograd.grad(v.sum(), x, create_graph=True)[0] for v in (found, expected)]
        torch.testing.assert_close(*first)
        torch.testing.assert_close(*(torch.autograd.grad(v.sum(), x)[0] for v in first))
    assert len(made._programs) == 1
