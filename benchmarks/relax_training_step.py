"""A training step of a transformer block in Relax: TVM's own schedules and this library's.

The block is a module of PyTorch, imported by TVM's front end; TVM's `SetupTrainer` makes a training
step with Adam of it. PyTorch's own step stands beside it, eager. Prints milliseconds, the least of
some calls.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tvm.relax.training import SetupTrainer, Trainer
from tvm.relax.training.loss import MSELoss
from tvm.relax.training.optimizer import Adam

from tvm_autodiff.interop.relax import build, clean, register_gradients
from tvm_autodiff.schedule.machine import as_target

RATE = 1e-3


class PlainAdam(Adam):
    """TVM's Adam; its dtype is handed to numpy, which since 2.4 takes no dtype of TVM."""

    def _set_params_and_dtype(self, params: Any) -> None:
        super()._set_params_and_dtype(params)
        self.dtype = str(self.dtype.dtype)


class Block(torch.nn.Module):
    """Causal attention and a gated MLP, each behind an RMS norm and beside a skip connection."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = torch.nn.RMSNorm(width, eps=1e-5)
        self.norm2 = torch.nn.RMSNorm(width, eps=1e-5)
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.gate = torch.nn.Linear(width, hidden, bias=False)
        self.up = torch.nn.Linear(width, hidden, bias=False)
        self.down = torch.nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        h = self.norm2(x)
        return x + self.down(torch.nn.functional.silu(self.gate(h)) * self.up(h))


def least(call: Callable[[], Any], count: int) -> float:
    """Milliseconds of the fastest of some calls, after one that warms up."""
    call()
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e3


def training_module(block: Block, x: torch.Tensor) -> tuple[Any, list[Any]]:
    """What `SetupTrainer` makes of the block, and its weights."""
    program = torch.export.export(block, (x,))
    module = from_exported_program(
        program, keep_params_as_input=True, unwrap_unit_return_tuple=True
    )
    module, params = relax.frontend.detach_params(module)
    function = module["main"].with_attr("global_symbol", "backbone").without_attr("num_input")
    weights = [one.numpy() for one in params["main"]]
    backbone = tvm.IRModule({"backbone": function})
    backbone = backbone.with_attr("param_num", len(weights)).with_attr("state_num", 0)
    types = [relax.TensorType(tuple(x.shape), "float32")] * 2
    return SetupTrainer(MSELoss(reduction="mean"), PlainAdam(RATE), types)(backbone), weights


def torch_step(block: Block, x: torch.Tensor, y: torch.Tensor) -> Callable[[], float]:
    optimizer = torch.optim.Adam(block.parameters(), RATE)

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(block(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--calls", type=int, default=10)
    options = parser.parse_args()
    torch.manual_seed(0)
    x, y = torch.randn(4, options.tokens, 256), torch.randn(4, options.tokens, 256)
    block = Block(256, 8, 512)
    register_gradients()
    module, weights = training_module(block, x)
    data, target = (x.numpy(), y.numpy()), as_target(None)
    finished, fused = clean(module), relax.get_default_pipeline(target)
    rows = {
        "this library's schedules": (build(module), options.calls),
        "TVM": (tvm.compile(finished, target), 3),
        "TVM, with its fusion": (tvm.compile(finished, target, relax_pipeline=fused), 3),
    }
    for name, (executable, calls) in rows.items():
        trainer = Trainer(finished, relax.VirtualMachine(executable, tvm.cpu()), tvm.cpu())
        trainer.load_params(weights)
        loss = trainer.update(*data).numpy()
        taken = least(lambda trainer=trainer: trainer.update(*data).numpy(), calls)
        print(f"{name:26s} {taken:9.2f} ms a step, first loss {float(loss):.6f}")
    step = torch_step(block, x, y)
    first = step()
    taken = least(step, options.calls)
    print(f"{'PyTorch, eager':26s} {taken:9.2f} ms a step, first loss {first:.6f}")


if __name__ == "__main__":
    main()
