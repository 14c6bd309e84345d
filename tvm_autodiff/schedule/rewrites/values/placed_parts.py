"""Computes parts of stages over the places that they read, where several results lie between the
same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ....expr.nodes import Tensor
from ....graph.graph import each_stage
from ....rules.parts.placed_parts import Cost, placed_parts
from ...cost import LAUNCH_CYCLES, STORE
from ...kernel import size_of


def with_placed_parts(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y[i, j] = f(x[i//4, j] + x[i//4, j + 1])  →  t[q, j] = x[q, j] + x[q, j + 1], y[i, j] =
    f(t[i//4, j])``
    """
    return each_stage(outputs, partial(placed_parts, pays=_pays, reorder=False))


def with_ordered_placed_parts(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y[i, j] = a[i]*b[j]*x[p(i), j] + a[i]*c[j]*x[p(i), j + 1]  →  t[q, j] = b[j]*x[q, j] +
    c[j]*x[q, j + 1], y[i, j] = a[i]*t[p(i), j]``
    """
    return each_stage(outputs, partial(placed_parts, pays=_pays))


def _pays(cost: Cost) -> bool:
    saved = (cost.ratio - 1) * cost.work - STORE
    return saved * size_of(cost.shape) >= LAUNCH_CYCLES
