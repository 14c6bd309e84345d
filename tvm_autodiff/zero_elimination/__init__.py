"""Transposes derivative terms, and removes sums over zeros from any tensors."""

from .passes.equal_stages import merge_equal_stages
from .passes.inlining import inline_tensors
from .passes.nonzeroness import lift_nonzeroness_condition
from .passes.reductions import simplify_reductions
from .passes.unused_dims import remove_unused_dims

__all__ = [
    "inline_tensors",
    "lift_nonzeroness_condition",
    "merge_equal_stages",
    "remove_unused_dims",
    "simplify_reductions",
]
