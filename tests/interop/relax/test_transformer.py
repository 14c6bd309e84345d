"""A transformer block of PyTorch, imported by TVM's front end and fine-tuned in Relax."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.training import SetupTrainer, Trainer
from tvm.relax.training.loss import MSELoss

from tests.interop.relax.checks import machine
from tests.interop.relax.test_trainer import PlainAdam
from tvm_autodiff.interop.relax import clean, explain, register_gradients, schedule

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="the block is a module of PyTorch")

STEPS, RATE = 50, 0.003
SHAPE = BATCH, TOKENS, WIDTH = 2, 10, 32
HEADS, HIDDEN = 4, 48


class Block(torch.nn.Module):
    """Causal attention and a gated MLP, each behind an RMS norm and beside a skip connection."""

    def __init__(self):
        super().__init__()
        self.norm1 = torch.nn.RMSNorm(WIDTH, eps=1e-5)
        self.norm2 = torch.nn.RMSNorm(WIDTH, eps=1e-5)
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = torch.nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = torch.nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = torch.nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        heads = self.qkv(self.norm1(x)).view(BATCH, TOKENS, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(SHAPE))
        h = self.norm2(x)
        return x + self.down(torch.nn.functional.silu(self.gate(h)) * self.up(h))


def imported(block, x):
    """The block as TVM's trainer takes it, and its weights."""
    from tvm.relax.frontend.torch import from_exported_program

    module = from_exported_program(
        torch.export.export(block, (x,)), keep_params_as_input=True, unwrap_unit_return_tuple=True
    )
    module, params = relax.frontend.detach_params(module)
    function = module["main"].with_attr("global_symbol", "backbone").without_attr("num_input")
    weights = [one.numpy() for one in params["main"]]
    backbone = tvm.IRModule({"backbone": function})
    return backbone.with_attr("param_num", len(weights)).with_attr("state_num", 0), weights


def trained_by_torch(block, x, y):
    optimizer = torch.optim.Adam(block.parameters(), RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(block(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture(scope="module")
def training():
    """The module of a training step, the weights, the data, and PyTorch's losses."""
    register_gradients()
    torch.manual_seed(0)
    x = torch.randn(SHAPE)
    y = torch.tanh(x.cumsum(1)) + x.flip(2)
    block = Block().double()
    losses = trained_by_torch(block, x.double(), y.double())
    torch.manual_seed(0)
    torch.randn(SHAPE)
    fresh = Block()
    module, weights = imported(fresh, x)
    types = [relax.TensorType(SHAPE, "float32")] * 2
    setup = SetupTrainer(MSELoss(reduction="mean"), PlainAdam(RATE), types)
    return setup(module), weights, (x.numpy(), y.numpy()), losses


def test_fine_tuned_as_in_pytorch(training):
    module, weights, data, expected = training
    scheduled = schedule(module)
    trainer = Trainer(scheduled, machine(scheduled), tvm.cpu())
    trainer.load_params(weights)
    losses = [float(trainer.update(*data).numpy()) for _ in range(STEPS)]
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert losses[-1] < 0.5 * losses[0]
    text = explain(scheduled)
    assert "left to TVM" not in text
    [step] = [line for line in text.splitlines() if line.startswith("backbone_loss_adjoint: ")]
    kernels, calls = (int(word) for word in step.split() if word.isdigit())
    assert kernels < calls / 2


def test_first_steps_in_kernels_of_tvm(training):
    module, weights, data, expected = training
    plain = clean(module)
    trainer = Trainer(plain, machine(plain, fuse=True), tvm.cpu())
    trainer.load_params(weights)
    losses = [float(trainer.update(*data).numpy()) for _ in range(3)]
    np.testing.assert_allclose(losses, expected[:3], rtol=1e-4)
