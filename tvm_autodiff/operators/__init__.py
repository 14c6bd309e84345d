"""Operators that te cannot write: stages that differentiate and schedule like any other."""

from .scatter import scatter_add, segment_sum

__all__ = ["scatter_add", "segment_sum"]
