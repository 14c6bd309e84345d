"""The rules for CPUs, in the order in which they are tried."""

from __future__ import annotations

from ..rule import (
    AddedScattersRule,
    ElementwiseRule,
    GroupRule,
    KindRule,
    LoopRule,
    MapsRule,
    RaggedRule,
    ReductionRule,
    Rule,
)
from .contraction import contraction
from .elementwise import elementwise, joined_maps
from .fallback import fallback
from .interleaving import interleaving
from .masked_reduction import masked_reduction
from .prefix_reduction import prefix_reduction
from .ragged import ragged
from .recurrences.row_loop import row_loop
from .recurrences.scan import scan
from .recurrences.small_loop import small_loop
from .recurrences.time_parts import time_parts
from .reduction import reduction
from .rows import fused_rows, rows
from .scatter import added_scatters, scatter
from .split_rows import split_rows
from .stored_terms import stored_part, stored_terms
from .transposition import transposition
from .windows import windows

CPU_RULES: tuple[Rule, ...] = (
    GroupRule(fused_rows),
    MapsRule(joined_maps, in_statements=True),
    AddedScattersRule(added_scatters),
    prefix_reduction,
    ElementwiseRule(split_rows, in_statements=True),
    ElementwiseRule(interleaving, in_statements=True),
    KindRule(windows, in_statements=True),
    ElementwiseRule(stored_part, in_statements=True),
    ElementwiseRule(transposition),
    ElementwiseRule(elementwise),
    ReductionRule(masked_reduction),
    ReductionRule(contraction),
    ReductionRule(rows),
    ReductionRule(split_rows),
    ReductionRule(reduction),
    ReductionRule(stored_terms, in_statements=True),
    scatter,
    scan,
    RaggedRule(ragged),
    fallback,
)

#: for loops over time that call no kernels
LOOP_RULES: tuple[LoopRule, ...] = (time_parts, row_loop, small_loop)
