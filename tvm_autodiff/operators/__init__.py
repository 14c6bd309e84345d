"""Operators that te cannot express: their stages are differentiated and scheduled like any other.
"""

from .scatter import scatter_add, segment_sum

__all__ = ["scatter_add", "segment_sum"]
