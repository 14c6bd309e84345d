"""`torch.func` over functions on PyTorch's tensors, in any nesting."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: E402

from tvm_autodiff.interop.torch import function  # noqa: E402

from . import programs  # noqa: E402
from .programs import random  # noqa: E402

X, W, XS = random(4, 3), random(3, 5), random(6, 4, 3)
V = random(3)

#: functions of a scalar function of two tensors and of one that is elementwise
CASES = {
    "grad": lambda f, g: grad(f, argnums=(0, 1))(X, W),
    "grad of grad": lambda f, g: grad(lambda x: grad(f, argnums=1)(x, W).pow(2).sum())(X),
    "jvp": lambda f, g: jvp(f, (X, W), (X * 2, W + 1)),
    "vjp": lambda f, g: vjp(f, X, W)[1](torch.tensor(2.0, dtype=torch.float64)),
    "vmap": lambda f, g: vmap(f, (0, None))(XS, W),
    "vmap, other axes": lambda f, g: vmap(g, 1, 1)(X),
    "vmap of vmap": lambda f, g: vmap(vmap(g))(XS),
    "gradients per example": lambda f, g: vmap(grad(f, argnums=(0, 1)), (0, None))(XS, W),
    "gradient of a batch": lambda f, g: grad(
        lambda x, w: vmap(f, (0, None))(x, w).sum(), argnums=(0, 1)
    )(XS, W),
    "jacrev": lambda f, g: jacrev(g)(V),
    "jacfwd": lambda f, g: jacfwd(g)(V),
    "hessian": lambda f, g: hessian(f)(X, W),
    "jacrev of jacrev": lambda f, g: jacrev(jacrev(f))(X, W),
    "jacrev of jacfwd": lambda f, g: jacrev(jacfwd(f))(X, W),
    "jvp of vmap": lambda f, g: jvp(lambda x: vmap(f, (0, None))(x, W), (XS,), (XS * 3,)),
    "jacfwd of jacfwd": lambda f, g: jacfwd(jacfwd(g))(V),
    "Hessians per example": lambda f, g: vmap(hessian(f), (0, None))(XS, W),
    "jvp of gradients per example": lambda f, g: jvp(
        vmap(grad(lambda x: f(x, W))), (XS,), (XS * 3,)
    ),
    "a part without gradients": lambda f, g: grad(lambda x: f(x, W) * torch.no_grad()(f)(x, W))(X),
    "autograd of per-example gradients": lambda f, g: torch.autograd.grad(
        vmap(grad(f, argnums=1), (0, None))(XS, w := W.clone().requires_grad_()).pow(2).sum(), w
    ),
}


@pytest.fixture(scope="module")
def functions():
    return function(programs.energy), function(programs.wave)


@pytest.mark.parametrize("name", CASES)
def test_beside_pytorch(name, functions):
    found = CASES[name](*functions)
    torch.testing.assert_close(found, CASES[name](programs.torch_energy, programs.torch_wave))


def test_results_of_both_kinds_under_vmap():
    made = function(programs.pair)
    found = vmap(made, (0, None))(XS, W)
    torch.testing.assert_close(found, vmap(programs.torch_pair, (0, None))(XS, W))


def test_per_example_gradients_are_one_kernel_call_each_way():
    made = function(programs.energy)
    vmap(grad(made, argnums=1), (0, None))(XS, W)
    with torch.profiler.profile() as profile:
        vmap(grad(made, argnums=1), (0, None))(XS, W)
    calls = [event for event in profile.events() if event.name.startswith("tvm_autodiff::")]
    assert len(calls) == 2


def test_per_example_gradients_with_a_size_that_is_a_symbol():
    made = function(programs.rows, dynamic={"x": (0,)})
    total = lambda f: lambda x: f(x).sum()  # noqa: E731
    for size in (2, 3):
        xs = random(4, size, 3)
        found, expected = (vmap(grad(total(f)))(xs) for f in (made, programs.torch_rows))
        torch.testing.assert_close(found, expected)
