"""Threads, pickled functions and modules, training in several processes."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch._dynamo.utils import counters  # noqa: E402

from tvm_autodiff.interop.torch import function  # noqa: E402

from . import programs  # noqa: E402
from .programs import random  # noqa: E402

ROOT = Path(__file__).parents[3]


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


def test_gradients_of_two_processes_are_those_of_one(tmp_path):
    command = [sys.executable, "-m", "tests.interop.torch.training", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    with ExitStack() as stack:
        ranks = [stack.enter_context(subprocess.Popen([*command, n], **pipes)) for n in "01"]
        for process in ranks:
            output, errors = process.communicate(timeout=300)
            assert output.strip() == "equal", errors


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


PRINTED = "from tests.interop.torch.test_processes import hits_and_misses; print(hits_and_misses())"


def test_graphs_that_pytorch_kept_on_disk_find_their_operators(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # workers would import all again
    assert hits_and_misses() == (0, 2)
    command = [sys.executable, "-c", PRINTED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "(2, 0)", done.stderr
