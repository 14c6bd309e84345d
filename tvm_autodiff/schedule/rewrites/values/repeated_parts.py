"""Stores parts of stages that some of their axes do not change: the derivatives of these parts read
them, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....expr.nodes import Tensor
from ....graph.graph import each_stage
from ....rules.parts.repeated_parts import repeated_parts


def with_repeated_parts(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y[b, c] = c*exp(x[b, 0]*x[b, 1])  →  p[b] = exp(x[b, 0]*x[b, 1]), y[b, c] = c*p[b]``"""
    return each_stage(outputs, repeated_parts)
