"""The rules for CUDA, in the order in which they are tried."""

from __future__ import annotations

from ..rule import ElementwiseRule, GroupRule, ReductionRule, Rule
from .contraction import contraction
from .elementwise import elementwise
from .fallback import fallback
from .loops import loops
from .prefix_reduction import prefix_reduction
from .reduction import reduction
from .rows import fused_rows
from .scatter import scatter
from .transposition import transposition
from .verify import verified
from .window_sums import window_sums

CUDA_RULES: tuple[Rule, ...] = (
    GroupRule(verified(fused_rows)),
    ElementwiseRule(verified(transposition)),
    ElementwiseRule(verified(elementwise)),
    ReductionRule(verified(prefix_reduction)),
    ReductionRule(verified(contraction)),
    ReductionRule(verified(window_sums)),
    ReductionRule(verified(reduction)),
    verified(scatter),
    loops,
    fallback,
)
