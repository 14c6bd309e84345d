"""Reverse mode over a few stages, which treats everything below some tensors as constant."""

from __future__ import annotations

from collections.abc import Sequence

from ..expr.nodes import Tensor, tensor_key
from ..graph.graph import tensors_read_by, topological
from ..graph.stage import Operation, shape_of
from ..zero_elimination.transposition.gather import Cotangent
from .reports.explain import warn_of_dense_sums


def local_vjp(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    constants: Sequence[Tensor],
) -> list[Tensor]:
    """`vjp` that stops at `inputs` and `constants`.

    Its time depends only on the stages in between, however large the program is.
    """
    from .sweep import Sweep  # whose rules of custom stages come here

    prefix = shape_of(cotangents[0])[: len(cotangents[0].shape) - len(outputs[0].shape)]
    seeds = [(y, Cotangent(g)) for y, g in zip(outputs, cotangents, strict=True)]
    ends = {tensor_key(tensor) for tensor in (*inputs, *constants)}
    sweep = Sweep(list(outputs), seeds, list(inputs), prefix, ends=ends)
    warn_of_dense_sums(sweep.sites)
    return [sweep.whole(tensor) for tensor in inputs]


def local_contains(
    results: Sequence[Tensor], tensors: Sequence[Tensor], constants: Sequence[Tensor]
) -> bool:
    """Whether results depend on any of the tensors, except through constants."""
    ends = {hash(tensor.op) for tensor in constants}

    def reads(op: Operation) -> list[Tensor]:
        return [] if hash(op) in ends else tensors_read_by(op)

    found = {hash(op) for op in topological(results, reads)}
    return any(hash(tensor.op) in found for tensor in tensors)
