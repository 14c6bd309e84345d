"""The rules for CPUs, in the order in which they are tried."""

from __future__ import annotations

from ..rule import ChainRule, RaggedRule, Rule
from .contraction import contraction
from .elementwise import elementwise
from .fallback import fallback
from .interleaving import interleaving
from .ragged import ragged
from .reduction import reduction
from .row_chain import row_chain
from .rows import rows
from .running import running
from .scan import scan
from .scatter import scatter
from .transposition import transposition
from .windows import windows

CPU_RULES: tuple[Rule, ...] = (
    ChainRule(row_chain),
    running,
    windows,
    transposition,
    interleaving,
    elementwise,
    contraction,
    rows,
    reduction,
    scatter,
    scan,
    RaggedRule(ragged),
    fallback,
)
