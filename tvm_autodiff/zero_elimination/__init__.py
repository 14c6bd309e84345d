"""Transposition of derivative terms, and the removal of sums over zeros from any tensors."""

from .nonzeroness import lift_nonzeroness_condition
from .reductions import simplify_reductions

__all__ = [
    "lift_nonzeroness_condition",
    "simplify_reductions",
]
