"""One step of data-parallel training in one of two processes, beside the gradients of the whole
batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from tvm import topi

from tvm_autodiff.interop.torch import function

WORLD, BATCH = 2, 8


def layer(x, w):
    """A dense layer with an activation."""
    return topi.tanh(topi.matmul(x, w))


LAYER = function(layer)


class Model(torch.nn.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first = torch.nn.Parameter(torch.randn(6, 4, generator=generator))
        self.second = torch.nn.Parameter(torch.randn(4, 2, generator=generator))

    def forward(self, x):
        return LAYER(LAYER(x, self.first), self.second)


def batch():
    """The whole batch."""
    return torch.randn(BATCH, 6, generator=torch.Generator().manual_seed(1))


def loss(model, x):
    """The mean over examples."""
    return model(x).square().sum(1).mean()


def wrapped(kind, model):
    """The model as PyTorch's engines train it."""
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=init_device_mesh("cpu", (WORLD,)))


@dataclass(frozen=True)
class Rank:
    """What one of the processes does, the other one at the same time."""

    number: int
    folder: str

    def perform(self) -> list[str]:
        """Take the step and compare gradients."""
        dist.init_process_group(
            "gloo",
            init_method=f"file://{self.folder}/store",
            rank=self.number,
            world_size=WORLD,
        )
        alone = Model()
        loss(alone, batch()).backward()
        share = BATCH // WORLD
        for kind in ("ddp", "fsdp"):
            model = wrapped(kind, Model())
            loss(model, batch()[self.number * share : (self.number + 1) * share]).backward()
            found = [p.grad.full_tensor() if kind == "fsdp" else p.grad for p in model.parameters()]
            for gradient, parameter in zip(found, alone.parameters(), strict=True):
                torch.testing.assert_close(gradient, parameter.grad)
        dist.barrier()
        dist.destroy_process_group()
        return []
