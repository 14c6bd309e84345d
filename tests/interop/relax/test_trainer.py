"""TVM's own trainer over te operators and derived gradients, beside JAX in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tvm
from tvm import relax, te
from tvm.relax.training import SetupTrainer, Trainer
from tvm.relax.training.loss import MSELoss
from tvm.relax.training.optimizer import Adam

from tests.interop.relax.checks import machine
from tvm_autodiff.interop.relax import clean, emit_te, register_gradients

jax.config.update("jax_platforms", "cpu")

STEPS, BATCH, WIDTH, HIDDEN, RATE = 50, 16, 24, 12, 0.02
R = relax.op


def smoothed(x, kernel):
    """A convolution along rows, their ends repeated: no operator of Relax."""
    k = te.reduce_axis((0, kernel.shape[0]), "k")
    last = x.shape[1] - 1

    def at(i, j):
        return x[i, te.max(te.min(j, last), 0)]

    return te.compute(x.shape, lambda i, j: te.sum(at(i, j + k - 1) * kernel[k], k), name="smooth")


def softsign(x, slope):
    return te.compute(
        x.shape, lambda i, j: x[i, j] / (1.0 + te.abs(slope[j] * x[i, j])), name="softsign"
    )


class PlainAdam(Adam):
    """TVM's Adam; its dtype is handed to numpy, which since 2.4 takes no dtype of TVM."""

    def _set_params_and_dtype(self, params):
        super()._set_params_and_dtype(params)
        self.dtype = str(self.dtype.dtype)


def backbone():
    builder = relax.BlockBuilder()
    shapes = {"kernel": (3,), "weight": (WIDTH, HIDDEN), "slope": (HIDDEN,), "gain": (HIDDEN,)}
    shapes |= {"bias": (HIDDEN,), "out": (HIDDEN, 1)}
    x = relax.Var("x", relax.TensorType((BATCH, WIDTH), "float32"))
    params = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()]
    kernel, weight, slope, gain, bias, out = params
    with builder.function("backbone", [x, *params]):
        with builder.dataflow():
            hidden = builder.emit(R.matmul(emit_te(builder, smoothed, x, kernel), weight))
            hidden = emit_te(builder, softsign, hidden, slope)
            hidden = builder.emit(R.nn.gelu(R.nn.layer_norm(hidden, gain, bias, [-1])))
            y = builder.emit_output(R.matmul(hidden, out))
        builder.emit_func_output(y)
    module = builder.get().with_attr("param_num", len(params)).with_attr("state_num", 0)
    return module, shapes


def predicted(params, x):
    kernel, weight, slope, gain, bias, out = params
    padded = jnp.pad(x, ((0, 0), (1, 1)), mode="edge")
    smooth = sum(padded[:, k : k + WIDTH] * kernel[k] for k in range(3))
    hidden = smooth @ weight
    hidden = hidden / (1.0 + jnp.abs(slope * hidden))
    centred = hidden - hidden.mean(1, keepdims=True)
    normal = centred / jnp.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    return jax.nn.gelu(normal * gain + bias, approximate=False) @ out


def trained_by_jax(params, x, y):
    """Losses of Adam's steps, as its paper has it."""
    step = jax.jit(jax.value_and_grad(lambda params: ((predicted(params, x) - y) ** 2).mean()))
    first, second = [[np.zeros_like(one) for one in params] for _ in range(2)]
    losses = []
    for count in range(1, STEPS + 1):
        loss, gradients = step(params)
        losses.append(float(loss))
        first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients, strict=True)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, gradients, strict=True)]
        params = [
            p - RATE * (m / (1 - 0.9**count)) / (np.sqrt(v / (1 - 0.999**count)) + 1e-8)
            for p, m, v in zip(params, first, second, strict=True)
        ]
    return losses


@pytest.mark.slow
def test_two_te_operators_train_as_in_jax():
    register_gradients()
    module, shapes = backbone()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH, WIDTH)).astype("float32")
    y = np.sin(x[:, :3].sum(1, keepdims=True)).astype("float32")
    params = [rng.normal(0.3, 0.3, shape).astype("float32") for shape in shapes.values()]
    types = [relax.TensorType((BATCH, 1), "float32")] * 2
    training = clean(SetupTrainer(MSELoss(reduction="mean"), PlainAdam(RATE), types)(module))
    trainer = Trainer(training, machine(training), tvm.cpu())
    trainer.load_params(params)
    losses = [float(trainer.update(x, y).numpy()) for _ in range(STEPS)]
    wide = [one.astype("float64") for one in (x, y, *params)]
    with jax.enable_x64(True):
        expected = trained_by_jax(wide[2:], *wide[:2])
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert losses[-1] < 0.3 * losses[0]
