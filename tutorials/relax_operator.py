"""A custom operator in Relax.

`emit_te` adds a soft threshold to a Relax function, and `relax.transform.Gradient` differentiates
the whole function. Run it: ``python tutorials/relax_operator.py``.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax, te

from tvm_autodiff.interop.relax import build, emit_te

ROWS, COLUMNS = 4, 6


def soft_threshold(x: te.Tensor, width: te.Tensor) -> te.Tensor:
    """Move values toward zero by a width for each column; smaller values become zero."""

    def element(i: te.Var, j: te.Var) -> object:
        shorter = te.max(te.abs(x[i, j]) - width[j], 0.0)
        return te.if_then_else(x[i, j] < 0.0, -shorter, shorter)

    return te.compute(x.shape, element, name="soft_threshold")


def main() -> None:
    """Build the module with its gradient, and compare the gradient with the formula."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((ROWS, COLUMNS), "float32"))
    width = relax.Var("width", relax.TensorType((COLUMNS,), "float32"))
    with builder.function("main", [x, width]):
        with builder.dataflow():
            kept = emit_te(builder, soft_threshold, x, width)
            loss = builder.emit_output(relax.op.sum(relax.op.multiply(kept, kept)))
        builder.emit_func_output(loss)
    module = relax.transform.Gradient("main")(builder.get())
    print("functions:", ", ".join(sorted(f.name_hint for f in module.functions)))

    machine = relax.VirtualMachine(build(module), tvm.cpu())
    random = np.random.default_rng(0)
    values = random.normal(size=(ROWS, COLUMNS)).astype("float32")
    widths = np.full(COLUMNS, 0.5, "float32")
    adjoint = machine["main_adjoint"]
    total, [dx, dwidth] = adjoint(tvm.runtime.tensor(values), tvm.runtime.tensor(widths))

    shorter = np.maximum(np.abs(values) - widths, 0)
    print(f"loss {float(total.numpy()):.4f}, from numpy {np.sum(shorter**2):.4f}")
    expected = 2 * shorter * np.sign(values), -2 * shorter.sum(axis=0)
    errors = [np.abs(a.numpy() - b).max() for a, b in zip((dx, dwidth), expected, strict=True)]
    print(f"largest difference from the formula: {max(errors):.0e}")


if __name__ == "__main__":
    main()
