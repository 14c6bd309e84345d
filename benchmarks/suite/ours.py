"""Runs a case in tvm_autodiff: te, `differentiate`, `build`.

By default each call writes its results into the same arrays (`out=`), as a training loop does. In
the mode "new" each call allocates them, as PyTorch and JAX do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te

from tvm_autodiff import build, differentiate, hvp, jacobian, vmap
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import shape_of

from .case import RATE, Array, Case, aligned

Tensors = Sequence[Any]


def _gradient(case: Case, output: Any, wrt: Tensors, heads: Tensors) -> list[Any]:
    return [output, *differentiate(output, wrt)]


def _gradients(case: Case, output: Any, wrt: Tensors, heads: Tensors) -> list[Any]:
    return list(differentiate(output, wrt))


def _pullback(case: Case, output: Any, wrt: Tensors, heads: Tensors) -> list[Any]:
    return list(differentiate(output, wrt, *heads))


def _both(case: Case, output: Any, wrt: Tensors, heads: Tensors) -> list[Any]:
    return [output, *differentiate(output, wrt, *heads)]


def _step(case: Case, output: Any, wrt: Tensors, heads: Tensors) -> list[Any]:
    gradients = differentiate(output, wrt)
    return [output, *(map(_descended, wrt, gradients))]


def _descended(weight: Any, gradient: Any) -> Any:
    return te.compute(
        weight.shape,
        lambda *place: weight(*place) - RATE * gradient(*place),
        name=f"new_{weight.op.name}",
    )


def _jacobian(case: Case, output: Any, wrt: Tensors, heads: Tensors) -> list[Any]:
    count, outputs = shape_of(output)
    unit = te.compute(
        (outputs, count, outputs),
        lambda i, n, j: te.if_then_else(i == j, 1.0, 0.0).astype(output.dtype),
        name="unit",
    )
    return list(differentiate(output, wrt, unit))


def _hessian(case: Case, output: Any, wrt: Tensors, heads: Tensors) -> list[Any]:
    [gradient] = differentiate(output, wrt)
    return list(differentiate(gradient, wrt))


def _hvp(case: Case, output: Any, wrt: Tensors, heads: Tensors) -> list[Any]:
    return hvp(output, wrt, heads)


def _csr(case: Case, output: Any, wrt: Tensors, heads: Tensors) -> list[Any]:
    [by] = wrt
    return [jacobian(output, by, format="csr")]


_DERIVATIVES: dict[str, Callable[..., list[Any]]] = {
    "gradient": _gradient,
    "pullback": _pullback,
    "both": _both,
    "step": _step,
    "jacobian": _jacobian,
    "hessian": _hessian,
    "hvp": _hvp,
    "per-example": _gradients,
    "csr": _csr,
}


def tensors_of(case: Case, dtype: str = "float32") -> tuple[list[Any], list[Any]]:
    """Placeholders for the inputs, then for the heads, and the outputs computed from them."""

    def placeholder(name: str, spec: Any, first: int = 0) -> Any:
        kind = dtype if spec.dtype == "float32" else spec.dtype
        return te.placeholder(spec.shape[first:], kind, name=name)

    inputs = [placeholder(name, spec) for name, spec in case.inputs.items()]
    heads = [placeholder(name, spec) for name, spec in case.heads.items()]
    members = {
        tensor: placeholder(f"one_{name}", case.inputs[name], 1)
        for name, tensor in zip(case.inputs, inputs, strict=True)
        if name in case.examples
    }
    used = [members.get(tensor, tensor) for tensor in inputs]
    wrt = [used[place] for place in case.places]
    outputs = _DERIVATIVES[case.derivative](case, case.te(*used), wrt, heads)
    if members:
        outputs = vmap(outputs, {member: batch for batch, member in members.items()})
    return [*inputs, *heads], outputs


def prepare(case: Case, arrays: Sequence[Array], threads: int, mode: str = "") -> Callable[[], Any]:
    """Compile a case; inputs that no answer depends on are left out."""
    inputs, outputs = tensors_of(case)
    if case.derivative == "csr":  # matrices of scipy, which are new at each call
        matrices = build(inputs, outputs, num_threads=threads, cache=False)
        return lambda: [matrix.data for matrix in matrices(*arrays)]
    graph = Graph(outputs)
    used = [place for place, tensor in enumerate(inputs) if graph.contains(tensor)]
    needed = [inputs[place] for place in used]
    function = build(needed, outputs, num_threads=threads, cache=False)
    values = [arrays[place] for place in used]
    if mode == "new":
        return lambda: function(*values)
    results = [aligned(result) for result in function(*values)]
    return lambda: function(*values, out=results)


def answers(results: Any) -> list[Array]:
    """The results of a call as numpy arrays."""
    return list(results)


def warm() -> None:
    """Do nothing: the imports above have loaded everything."""
