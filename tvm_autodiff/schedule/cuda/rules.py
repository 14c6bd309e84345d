"""The rules for CUDA, in the order in which they are tried."""

from __future__ import annotations

from ..rule import ChainRule, ElementwiseRule, ReductionRule, Rule
from .contraction import contraction
from .elementwise import elementwise
from .fallback import fallback
from .library_chain import library_chain
from .library_matmul import library_matmul
from .loops import loops
from .reduction import reduction
from .rows import any_reducer, row_chain
from .scatter import scatter
from .transposition import transposition
from .verify import verified
from .window_sums import window_sums

CUDA_RULES: tuple[Rule, ...] = (
    ChainRule(verified(library_chain)),
    ChainRule(verified(row_chain)),
    ElementwiseRule(verified(transposition)),
    ElementwiseRule(verified(elementwise)),
    ReductionRule(verified(contraction)),
    ReductionRule(verified(library_matmul)),
    ReductionRule(verified(window_sums)),
    ReductionRule(verified(reduction)),
    ReductionRule(verified(any_reducer)),
    verified(scatter),
    loops,
    fallback,
)
