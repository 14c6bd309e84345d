"""Microseconds that a call costs beyond its kernels: ``python benchmarks/call_overhead.py``.

Functions of tiny arrays, so that nearly all of the time is the call. Beside them, per call: a ufunc
of numpy, and eager PyTorch where it is installed, which dispatches each operation. Best of several
rounds, one thread.
"""

from __future__ import annotations

import argparse
import importlib.util
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm_ffi
from tvm import te, topi

import tvm_autodiff as ad
from tvm_autodiff.containers import flattened

SIZE = 8


def vector(name: str) -> te.Tensor:
    """An input."""
    return te.placeholder((SIZE,), name=name)


def one_kernel() -> dict[str, Any]:
    """``a + b``."""
    a, b = vector("a"), vector("b")
    return {"inputs": [a, b], "outputs": te.compute((SIZE,), lambda i: a[i] + b[i], name="c")}


def three_kernels() -> dict[str, Any]:
    """Two sums and what follows from them, by way of the virtual machine."""
    a, b = vector("a"), vector("b")
    k, m = te.reduce_axis((0, SIZE), "k"), te.reduce_axis((0, SIZE), "m")
    c = te.compute((SIZE,), lambda i: te.sum(a[k] * b[i], axis=k), name="c")
    d = te.compute((SIZE,), lambda i: te.max(c[m] + a[i], axis=m), name="d")
    return {"inputs": [a, b], "outputs": [te.compute((SIZE,), lambda i: d[SIZE - 1 - i] * 2.0), c]}


def update(count: int) -> dict[str, Any]:
    """``w - g`` in place, for some weights."""
    weights = [vector(f"w{n}") for n in range(count)]
    gradients = [vector(f"g{n}") for n in range(count)]
    new = [_difference(w, g) for w, g in zip(weights, gradients, strict=True)]
    return {
        "inputs": [*weights, *gradients],
        "outputs": [],
        "updates": list(zip(weights, new, strict=True)),
    }


def _difference(w: te.Tensor, g: te.Tensor) -> te.Tensor:
    return te.compute((SIZE,), lambda i: w[i] - g[i], name="new")


def microseconds(call: Callable[[], Any], number: int = 2000, rounds: int = 15) -> float:
    """The best mean time of a call."""
    return min(timeit.repeat(call, number=number, repeat=rounds)) / number * 1e6


def ours() -> list[tuple[str, float, float]]:
    """What is called, the call, and the compiled code alone, given tensors of TVM."""
    rows = []

    def row(name: str, function: Any, arrays: list[Any], out: Any = None) -> None:
        results = out if out is not None else function(*arrays)
        listed = list(results) if isinstance(results, (list, tuple)) else [results]
        raw = [tvm_ffi.from_dlpack(array) for array in (*arrays, *listed)]
        kernels = function._function()
        alone = microseconds(lambda: kernels(*raw))
        if out is None:
            rows.append((name, microseconds(lambda: function(*arrays)), alone))
        else:
            rows.append((name, microseconds(lambda: function(*arrays, out=out)), alone))

    a, b = np.ones(SIZE, "float32"), np.ones(SIZE, "float32")
    single = ad.build(**one_kernel(), num_threads=1)
    several = ad.build(**three_kernels(), num_threads=1)
    row("one kernel", single, [a, b])
    row("one kernel, out=", single, [a, b], np.empty_like(a))
    row("three kernels", several, [a, b])
    row("three kernels, out=", several, [a, b], [np.empty_like(a), np.empty_like(a)])
    for count in (1, 4, 8, 12):
        function = ad.build(**update(count), num_threads=1)
        arrays = [np.ones(SIZE, "float32") for _ in range(2 * count)]
        row(f"{count} updates in place", function, arrays)
    if importlib.util.find_spec("torch") is not None:
        import torch

        row("one kernel, PyTorch tensors", single, [torch.tensor(a), torch.tensor(b)])
    return rows


def functions() -> list[tuple[str, float, float]]:
    """Python functions of arrays: what is called, the call, and that of `build`'s function."""
    rows = []
    vector = np.ones(SIZE, "float32")
    weights = {"layers": [(vector, vector), (vector, vector)], "scale": vector}

    def loss(w: Any, x: te.Tensor) -> te.Tensor:
        for left, right in w["layers"]:
            x = x * left + right
        return topi.sum(x * w["scale"])

    def row(name: str, function: Any, *arguments: Any) -> None:
        leaves, _ = flattened(arguments)
        function(*arguments)
        inner = next(iter(function._programs.values())).function
        alone = microseconds(lambda: inner(*leaves))
        rows.append((name, microseconds(lambda: function(*arguments)), alone))

    row("jit, two arrays", ad.jit(lambda a, b: a + b, num_threads=1), vector, vector)
    row("value_and_grad, five weights", ad.value_and_grad(loss), weights, vector)
    return rows


def peers() -> list[tuple[str, float]]:
    """Calls of other libraries on the same arrays."""
    a, b, out = (np.ones(SIZE, "float32") for _ in range(3))
    rows = [
        ("numpy: np.add(a, b)", microseconds(lambda: np.add(a, b))),
        ("numpy: np.add(a, b, out=)", microseconds(lambda: np.add(a, b, out=out))),
        (
            "numpy: the three kernels",
            microseconds(lambda: ((c := a.sum() * b), (c + a[:, None]).max(1)[::-1] * 2)),
        ),
    ]
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
        x, y = torch.tensor(a), torch.tensor(b)
        rows.append(("PyTorch eager: x + y", microseconds(lambda: x + y)))
        rows.append(
            (
                "PyTorch eager: the three kernels",
                microseconds(lambda: ((c := x.sum() * y), (c + x[:, None]).amax(1).flip(0) * 2)),
            )
        )
    return rows


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    found, others = ours(), peers()
    add = others[0][1]
    print(f"{'microseconds':36} {'call':>6} {'kernels':>8} {'beyond':>7} {'np.add':>7}")
    for name, call, alone in found:
        print(f"{name:36} {call:6.2f} {alone:8.2f} {call - alone:7.2f} {call / add:6.1f}x")
    print(f"{'functions of arrays':36} {'call':>6} {'build':>8} {'beyond':>7}")
    for name, call, alone in functions():
        print(f"{name:36} {call:6.2f} {alone:8.2f} {call - alone:7.2f}")
    for name, call in others:
        print(f"{name:36} {call:6.2f} {'':8} {'':7} {call / add:6.1f}x")


if __name__ == "__main__":
    main()
