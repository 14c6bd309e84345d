"""Detects kernels whose expressions TVM's passes would walk for too long."""

from __future__ import annotations

from ..expr.weights import MAX_WEIGHT, weight
from ..graph.stage import bodies, is_compute, reduction_of
from .declined import Declined
from .fusion.kernel import Kernel


def too_large(kernel: Kernel) -> Declined | None:
    """The reason why rules that leave a kernel's bodies to TVM must not take it; None for small
    ones.
    """
    for op in kernel.ops:
        if not is_compute(op):
            continue
        reduction = reduction_of(op)
        for body in reduction.sources if reduction else bodies(op):
            if weight(body) > MAX_WEIGHT:
                return Declined(
                    f"the expression of {op.name} has more than {MAX_WEIGHT} nodes as TVM's "
                    "simplifier walks it"
                )
    return None
