"""Transposition of derivative terms, and the removal of sums over zeros from any tensors."""

from .equal_stages import merge_equal_stages
from .inlining import inline_tensors
from .nonzeroness import lift_nonzeroness_condition
from .reductions import simplify_reductions
from .unused_dims import remove_unused_dims

__all__ = [
    "inline_tensors",
    "lift_nonzeroness_condition",
    "merge_equal_stages",
    "remove_unused_dims",
    "simplify_reductions",
]
