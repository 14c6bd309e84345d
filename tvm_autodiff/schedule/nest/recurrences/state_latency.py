"""Measures how long a step waits for the previous state: the longest dependency chain of
arithmetic.
"""

from __future__ import annotations

from ....expr.nodes import Expr, node_id, op_name, operands
from ....expr.rewrite import postorder
from ...cost import DIVISION, LATENCY
from .row_program import RowProgram

_FREE = ("var", "const", "cast", "load")
#: a quotient is computed before it takes as long as a sum, in the time of which this is
_SLOW = {"div": round(DIVISION / LATENCY) + 1}


def latency_of(program: RowProgram) -> int:
    """The operations from a state to a next state; a product that is added counts with its sum.

    ``h' = h + a·(x - h) → 2``, a difference and a product with its sum.
    """
    depths: dict[int, int | None] = {node_id(var): 0 for vars in program.states for var in vars}
    fused: set[int] = set()
    for var, value in program.bindings:
        depths[node_id(var)] = _depth(value, depths, fused)
        if node_id(value) in fused:
            fused.add(node_id(var))
    news = [value for values in program.news for value in values]
    return max((_depth(new, depths, fused) or 0 for new in news), default=0)


def _depth(root: Expr, depths: dict[int, int | None], fused: set[int]) -> int | None:
    """The depth of a value, or None if it depends on no state; `fused` collects products."""
    for node in postorder(root):
        if node_id(node) in depths:
            continue
        name = op_name(node)
        parts = [(part, depths[node_id(part)]) for part in operands(node)]
        waits = [
            depth - (name in ("add", "sub") and node_id(part) in fused)
            for part, depth in parts
            if depth is not None
        ]
        own = 0 if name in _FREE else _SLOW.get(name, 1)
        depths[node_id(node)] = max(waits) + own if waits else None
        if name == "mul" and waits:
            fused.add(node_id(node))
    return depths[node_id(root)]
