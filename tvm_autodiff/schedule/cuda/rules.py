"""The rules for CUDA, in the order in which they are asked."""

from __future__ import annotations

from ..rule import ChainRule, Rule
from .contraction import contraction
from .elementwise import elementwise
from .fallback import fallback
from .library_chain import library_chain
from .library_matmul import library_matmul
from .reduction import reduction
from .scatter import scatter
from .transposition import transposition
from .verify import verified

_RULES: tuple[Rule, ...] = (
    transposition,
    elementwise,
    contraction,
    library_matmul,
    reduction,
    scatter,
)

CUDA_RULES: tuple[Rule, ...] = (
    ChainRule(verified(library_chain)),
    *map(verified, _RULES),
    fallback,
)
