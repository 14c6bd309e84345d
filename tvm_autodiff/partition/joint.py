"""Joins a forward pass and a backward pass in one graph, and lists what can be kept.

The candidates are stages that depend on no cotangent. For each, the costs of keeping and of
recomputing its tensors are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ..cost import stage_cost
from ..expr.build import const
from ..expr.costly import EXPENSIVE
from ..expr.dtypes import itemsize
from ..expr.nodes import (
    Tensor,
    Var,
    const_value,
    dtype_of,
    op_name,
    tensor_key,
)
from ..expr.rewrite import postorder, substituter, variables_of
from ..expr.simplify import simplify
from ..graph.graph import Graph, tensors_read_by
from ..graph.kinds.custom import without_rules
from ..graph.marks.checkpoint import checkpoints, without_generations
from ..graph.stage import (
    Extent,
    Operation,
    bodies,
    is_compute,
    is_placeholder,
    outputs_of,
    reduction_of,
    shape_of,
)
from ..schedule.fusion.kernels import worth_inlining
from ..zero_elimination.passes.equal_stages import merge_equal_stages
from ..zero_elimination.walk import each_stage

Key = tuple[int, int]

#: the assumed value of an unknown symbolic size
SAMPLE = 64

#: operations of exp, tanh and the like: what `schedule/elementary` writes for one
FUNCTION = 20


@dataclass(frozen=True)
class Joint:
    """A program and its pullback.

    Attributes
    ----------
    outputs, adjoints : list of Tensor
        The tensors of both passes, which share stages.
    cotangents : list of Tensor
        Placeholders.
    stages : list of Stage
        The stages that the adjoints need and that depend on no cotangent, producers first.
    needed : list of Tensor
        The tensors of these stages, and the inputs, that are read by stages that depend on
        cotangents.
    """

    outputs: list[Tensor]
    adjoints: list[Tensor]
    cotangents: list[Tensor]
    stages: list[Stage]
    needed: list[Tensor]


@dataclass(frozen=True)
class Stage:
    """A stage of the forward pass that the backward pass may recompute.

    Attributes
    ----------
    op : Operation
    reads : list of Tensor
    iterations, operations : int
        The cost of one computation; `operations` counts arithmetic.
    never_kept : bool
        Whether it is a checkpoint.
    stored_forward, stored_backward : bool
        Whether the forward pass writes it to memory even if it is not kept, and the backward pass
        if it recomputes it. A stage that is not stored is fused into its readers.
    """

    op: Operation
    reads: list[Tensor]
    iterations: int
    operations: int
    never_kept: bool
    stored_forward: bool
    stored_backward: bool


class Sizes:
    """Values of extents: given values of symbols, and `SAMPLE` for others."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self._values = dict(values)

    def __call__(self, extent: Extent) -> int:
        if isinstance(extent, int):
            return extent
        table: dict[Var, Any] = {
            var: const(self._values.get(var.name, SAMPLE), dtype_of(var))
            for var in variables_of(extent)
        }
        value = const_value(simplify(substituter(table)(extent)))
        return SAMPLE if value is None else max(0, int(value))  # the size of data is unknown

    def known(self, extent: Extent) -> bool:
        """Whether all symbols of an extent have a value."""
        return isinstance(extent, int) or all(
            var.name in self._values for var in variables_of(extent)
        )

    def bytes_of(self, tensor: Tensor) -> int:
        """The size of a tensor in bytes."""
        return prod(self(extent) for extent in shape_of(tensor)) * itemsize(dtype_of(tensor))


def joint(
    outputs: Sequence[Tensor],
    adjoints: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    sizes: Sizes,
) -> Joint:
    """Both passes as one graph, with equal stages merged."""
    # stages that a gradient recomputes belong to the forward pass: this choice decides about them
    plain = each_stage(without_rules([*outputs, *adjoints]), without_generations)
    merged = merge_equal_stages(plain)
    outs, pulled = merged[: len(outputs)], merged[len(outputs) :]
    whole, backward = Graph(merged), Graph(pulled)
    moving = backward.depends_on([*cotangents, *pulled])
    needed: dict[Key, Tensor] = {}
    for op in backward.ops:
        for tensor in backward.reads(op) if hash(op) in moving else ():
            if hash(tensor.op) not in moving:
                needed.setdefault(tensor_key(tensor), tensor)
    banned = checkpoints(whole.ops)
    forward = Graph(outs)
    written = {tensor_key(tensor) for tensor in outs}
    stages = [
        _stage(op, banned, forward, written, backward, moving, sizes)
        for op in Graph(list(needed.values())).ops
        if not is_placeholder(op)
    ]
    return Joint(outs, pulled, list(cotangents), stages, list(needed.values()))


def _stage(
    op: Operation,
    banned: Mapping[Key, Tensor],
    forward: Graph,
    written: set[Key],
    backward: Graph,
    moving: set[int],
    sizes: Sizes,
) -> Stage:
    cost = stage_cost(op, sizes)
    iterations = sizes(cost.iterations)
    arithmetic = sizes(cost.multiplications) + iterations * (FUNCTION - 1) * _functions(op)
    read_forward = [reader for t in outputs_of(op) for reader in forward.consumers(t)]
    read_back = [reader for t in outputs_of(op) for reader in backward.consumers(t)]
    read_back = [reader for reader in read_back if hash(reader) in moving]
    keys = {tensor_key(tensor) for tensor in outputs_of(op)}
    return Stage(
        op,
        tensors_read_by(op),
        iterations,
        iterations + arithmetic,
        bool(keys & banned.keys()),
        bool(keys & written) or (bool(read_forward) and _stored(op, read_forward)),
        _stored(op, read_back),
    )


def _functions(op: Operation) -> int:
    """The number of functions that one iteration of a stage calls."""
    if not is_compute(op):
        return 0
    reduction = reduction_of(op)
    parts = bodies(op) if reduction is None else [*reduction.sources, *reduction.combiner.result]
    return sum(1 for node in postorder(parts) if op_name(node) in EXPENSIVE)


def _stored(op: Operation, readers: Sequence[Operation]) -> bool:
    """Whether a stage is written to memory and not fused into its readers."""
    fused = is_compute(op) and op.num_outputs == 1 and worth_inlining(op, op, readers)
    return not fused
