"""The table ``type of a kind → its rules``."""

from __future__ import annotations

from ...stage import Operation
from ..custom import Custom
from ..kind import Compute, Kind, Opaque, kind_of
from ..loop import Loop
from ..prefix_scan import Scan
from ..rewind import KeptLoop, Rewind
from ..scatter_add import ScatterAdd
from ..update_loops import UpdateLoops
from . import compute, custom, loop, opaque, prefix_scan, rewind, scatter_add, update_loops
from .questions import KindRules

TABLE: dict[type, KindRules] = {
    Compute: compute.RULES,
    Scan: prefix_scan.RULES,
    ScatterAdd: scatter_add.RULES,
    UpdateLoops: update_loops.RULES,
    Loop: loop.RULES,
    KeptLoop: rewind.KEPT_RULES,
    Rewind: rewind.RULES,
    Custom: custom.RULES,
    Opaque: opaque.RULES,
}


def rules_of(op: Operation) -> tuple[Kind, KindRules]:
    """The kind of a stage that is not an input, and the rules of that kind.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((3,), name="x")
    >>> y = te.compute((3,), lambda i: 2 * x[i])
    >>> kind, rules = rules_of(y.op)
    >>> rules.cost(y.op, kind, lambda extent: extent).iterations
    3
    """
    kind = kind_of(op)
    return kind, TABLE[type(kind)]
