"""Takes windows of nearly equal lengths as windows of one length, in loops that rules for boxes
know.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ....expr.nodes import Tensor
from ....graph.graph import each_stage
from ....rules.equal_windows import equal_windows


def with_equal_windows(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y[i] = Σ_{a < n(i)} x[p(i) + a]  →  Σ_{a < max n} if a < n(i) then x[p(i) + a] else 0``"""
    return each_stage(outputs, partial(equal_windows, reorder=False))
