"""Cotangents of constants that a reversed loop accumulates.

Each step does ``w̄ ← w̄ + ∂step/∂wᵀ λ``. If this is elementwise, it reads and writes as many
elements as a sum after the loop would read from the stacks, which then need not be stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...expr.build import add
from ...expr.nodes import Tensor, load, tensor_key
from ...graph.bounded_stage import elementwise_stage
from ...graph.graph import tensors_read_by, topological
from ...graph.kinds.loop import Step
from ...graph.stage import is_compute, is_placeholder, placeholder_like, reduction_of, shape_of
from .stored import elements_of


@dataclass(frozen=True)
class Totals:
    """The cotangents that a reversed loop accumulates.

    Attributes
    ----------
    numbers : list of int
        The numbers of the constants.
    before, after : list of Tensor
        Placeholders for the sums before a step, and the sums after it.
    """

    numbers: list[int]
    before: list[Tensor]
    after: list[Tensor]

    @staticmethod
    def of(step: Step, numbers: Sequence[int], pulled: Sequence[Tensor]) -> Totals:
        """The sums for some constants, given their cotangents in a step."""
        before = [
            placeholder_like(step.consts[n], f"d{step.consts[n].op.name}_sum") for n in numbers
        ]
        after = [_added(one, other) for one, other in zip(before, pulled, strict=True)]
        return Totals(list(numbers), before, after)


def cheap_to_add_up(step: Step, leaving: Sequence[Tensor], pulled: Sequence[Tensor]) -> bool:
    """Whether cotangents of a step are cheap to accumulate.

    Each must need no sum, and have at most as many elements as its time-dependent inputs. `leaving`
    is computed in any case.
    """
    computed = {hash(op) for op in topological([*step.outputs, *leaving])}
    fixed = {tensor_key(tensor) for tensor in step.consts}

    def is_cheap(tensor: Tensor) -> bool:
        own = [op for op in topological([tensor]) if hash(op) not in computed]
        stages = [op for op in own if not is_placeholder(op)]
        if not all(is_compute(op) and reduction_of(op) is None for op in stages):
            return False
        read = {
            tensor_key(source): source
            for op in stages
            for source in tensors_read_by(op)
            if (hash(source.op) in computed or is_placeholder(source.op))
            and tensor_key(source) not in fixed
        }
        sources = list(read.values()) or [tensor]
        return elements_of(tensor) <= sum(map(elements_of, sources))

    return all(map(is_cheap, pulled))


def _added(one: Tensor, other: Tensor) -> Tensor:
    return elementwise_stage(
        f"{other.op.name}_sum",
        shape_of(one),
        lambda place: add(load(one, place), load(other, place)),
    )
