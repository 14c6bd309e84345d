"""`torch.compile`, `opcheck` and `torch.export` over functions on PyTorch's tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch.func import grad, jvp, vmap  # noqa: E402
from tvm import topi  # noqa: E402

from tvm_autodiff.interop.torch import function  # noqa: E402

from . import programs  # noqa: E402
from .programs import random  # noqa: E402


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


class Model(torch.nn.Module):
    """A weight, a function of it and of the input."""

    def __init__(self, made):
        super().__init__()
        self.made = made
        self.weight = torch.nn.Parameter(random(3, 5))

    def forward(self, x):
        return self.made(x * 2, self.weight) + self.weight.sum()


def compiled(f, backend="aot_eager", **options):
    return torch.compile(f, backend=backend, fullgraph=True, **options)


#: functions of x and w, made of a scalar function of two tensors
CASES = {
    "beside other operations": lambda f: lambda x, w: torch.relu(f(x * 2, w)) * w.sum(),
    "gradients inside": lambda f: lambda x, w: grad(f)(x, w),
    "per-example gradients inside": lambda f: (
        lambda x, w: vmap(grad(f, argnums=1), (0, None))(torch.stack([x, x + 1]), w)
    ),
    "forward mode inside": lambda f: lambda x, w: jvp(f, (x, w), (x, w))[1],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_graph_break_and_the_same_gradients(name):
    x, w = random(4, 3, grad=True), random(3, 5, grad=True)
    found = compiled(CASES[name](function(programs.energy)))(x, w)
    expected = CASES[name](programs.torch_energy)(x, w)
    torch.testing.assert_close(found, expected)
    found, expected = (torch.autograd.grad(v.pow(2).sum(), (x, w)) for v in (found, expected))
    torch.testing.assert_close(found, expected)


def test_without_gradients():
    x, w = random(4, 3), random(3, 5)
    with torch.no_grad():
        found = compiled(function(programs.pair))(x, w)
    torch.testing.assert_close(found, programs.torch_pair(x, w))


@pytest.mark.slow
def test_a_module_and_its_parameter():
    model, plain = Model(function(programs.energy)), Model(programs.torch_energy)
    x = random(4, 3)
    compiled(model)(x).backward()
    plain(x).backward()
    torch.testing.assert_close(model.weight.grad, plain.weight.grad)


@pytest.mark.slow
def test_one_graph_for_all_sizes():
    counter = CompileCounterWithBackend("aot_eager")
    run = compiled(function(programs.rows, dynamic={"x": (0,)}), counter, dynamic=True)
    for size in (3, 5, 9):
        x = random(size, 4, grad=True)
        found, expected = (
            torch.autograd.grad(f(x).sum(), x)[0] for f in (run, programs.torch_rows)
        )
        torch.testing.assert_close(found, expected)
    assert counter.frame_count == 1


def test_sizes_that_are_no_symbols_are_compiled_each():
    counter = CompileCounterWithBackend("aot_eager")
    run = compiled(function(programs.rows), counter, dynamic=True)
    for size in (3, 5):
        x = random(size, 4)
        torch.testing.assert_close(run(x), programs.torch_rows(x))
    assert counter.frame_count == 2


def test_two_sizes_that_are_equal_by_chance():
    made = function(
        lambda x, y: topi.expand_dims(x, 1) * topi.expand_dims(y, 0),
        dynamic={"x": (0,), "y": (0,)},
    )
    run = compiled(made, dynamic=True)
    for n, m in ((4, 5), (3, 3), (5, 2)):
        x, y = random(n), random(m, seed=1)
        torch.testing.assert_close(run(x, y), torch.outer(x, y))


def operators_of(made, *inputs):
    """The operators that a call and its backward pass run."""
    with torch.profiler.profile() as profile:
        result = made(*inputs)
        result.sum().backward()
    prefix = "tvm_autodiff::"
    names = [e.name.removeprefix(prefix) for e in profile.events() if e.name.startswith(prefix)]
    return [getattr(torch.ops.tvm_autodiff, name).default for name in names]


@pytest.mark.slow
def test_operators_keep_the_contract():
    x, w = random(4, 3, grad=True), random(3, 5, grad=True)
    made = function(programs.energy)
    with torch.no_grad():
        made(x, w)
    [program] = made._programs.values()
    plain = program.operator.op
    torch.library.opcheck(plain, (x, w))
    torch.library.opcheck(plain, (random(3, 4).t().requires_grad_(), random(5, 3).t()))
    for operator in operators_of(made, x, w):
        arguments = [
            random(*spec, seed=n, grad=True) for n, spec in enumerate(_shapes(operator, made, x, w))
        ]
        torch.library.opcheck(operator, tuple(arguments))


def _shapes(operator, made, *inputs):
    """The shapes of the arguments of an operator in a call and its backward pass."""
    found = []

    class Listener(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is operator:
                found.append([tuple(t.shape) for t in args])
            return func(*args, **(kwargs or {}))

    with Listener():
        made(*inputs).sum().backward()
    return found[0]


def test_another_program_is_another_operator():
    x = random(3)
    one, two, three = (
        function(f) for f in (lambda x: x + 1.0, lambda x: x + 2.0, lambda x: x + 1.0)
    )
    for made in (one, two, three):
        made(x)
    names = [str(next(iter(made._programs.values())).operator.op) for made in (one, two, three)]
    assert names[0] != names[1]
    assert names[0] == names[2]


def test_an_exported_graph_holds_the_operator_and_can_be_trained():
    model = Model(function(programs.energy))
    x = random(4, 3)
    exported = torch.export.export(model, (x,))
    [node] = [n for n in exported.graph.nodes if "tvm_autodiff" in str(n.target)]
    assert "_fwd" not in str(node.target)
    restored = exported.module()
    torch.testing.assert_close(restored(x), model(x))
    restored(x).backward()
    model(x).backward()
    [found] = [p.grad for p in restored.parameters()]
    torch.testing.assert_close(found, model.weight.grad)
