"""Threads, pickled functions and modules, training in several processes."""

from __future__ import annotations

import copy
import io
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch._dynamo.utils import counters  # noqa: E402

from tests.random_programs.workers import Worker, run_all  # noqa: E402
from tvm_autodiff.interop.torch import function  # noqa: E402

from . import programs  # noqa: E402
from .programs import random  # noqa: E402
from .training import WORLD, Rank  # noqa: E402


@function
def decorated(x):
    """A function that its decorator stands for."""
    return x * x


class Module(torch.nn.Module):
    """A module that holds a function."""

    def __init__(self):
        super().__init__()
        self.energy = function(programs.energy, save="recompute")
        self.square = decorated
        self.weight = torch.nn.Parameter(random(3, 5))

    def forward(self, x):
        return self.energy(self.square(x), self.weight)


def test_a_pickled_function():
    made = function(programs.rows, dynamic={"x": (0,)}, save=100)
    again = pickle.loads(pickle.dumps(made))
    x = random(4, 3)
    torch.testing.assert_close(again(x), made(x))
    assert (again.save, again._options) == (100, made._options)
    assert pickle.loads(pickle.dumps(decorated)) is decorated


def test_a_saved_module_and_a_copied_one():
    module, x = Module(), random(4, 3)
    module(x)
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    for other in (torch.load(buffer, weights_only=False), copy.deepcopy(module)):
        torch.testing.assert_close(other(x), module(x))
        other.load_state_dict(module.state_dict())


@pytest.mark.slow
def test_several_threads_at_once():
    made = function(programs.energy)
    inputs = [(random(4 + n % 3, 3, seed=n), random(3, 5, seed=n)) for n in range(24)]

    def gradient(pair):
        x, w = (t.clone().requires_grad_() for t in pair)
        return torch.autograd.grad(made(x, w), (x, w))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(gradient, inputs))
    for (x, w), pair in zip(inputs, found, strict=True):
        x.requires_grad_(), w.requires_grad_()
        expected = torch.autograd.grad(programs.torch_energy(x, w), (x, w))
        torch.testing.assert_close(pair, expected)
    assert len(made._programs) == 3


@pytest.mark.slow
def test_gradients_of_two_processes_are_those_of_one(tmp_path):
    for outcome in run_all([Rank(n, str(tmp_path)) for n in range(WORLD)], WORLD):
        assert outcome.complaints == []


def hits_and_misses() -> tuple[int, int]:
    """Compiles a graph with an operator of ours; graphs that were found on disk and were not."""
    torch._dynamo.reset()
    counters.clear()
    made = torch.compile(function(programs.energy), fullgraph=True)
    x, w = random(4, 3, grad=True), random(3, 5, grad=True)
    made(x, w).backward()
    torch.testing.assert_close(w.grad, torch.autograd.grad(programs.torch_energy(x, w), w)[0])
    found = counters["inductor"]
    return found["fxgraph_cache_hit"], found["fxgraph_cache_miss"]


@dataclass(frozen=True)
class Counted:
    """`hits_and_misses` in a process of its own, with what PyTorch keeps in a folder."""

    folder: str

    def perform(self) -> list[str]:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = self.folder
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # workers would import all again
        return [str(hits_and_misses())]


@pytest.mark.slow
def test_graphs_that_pytorch_kept_on_disk_find_their_operators(tmp_path):
    for wanted in ("(0, 2)", "(2, 0)"):
        with Worker() as worker:
            assert worker.run(Counted(str(tmp_path))).complaints == [wanted]
