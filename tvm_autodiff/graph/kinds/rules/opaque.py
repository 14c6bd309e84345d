"""Rules of opaque stages: the user's `te.extern` and `te.scan`."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ....expr.nodes import Expr, Var
from ....expr.printing.text import Printer
from ....expr.structural import StructuralKeys
from ...counting import Cost, Put, elements_of
from ...graph import tensors_read_by
from ...stage import Operation, is_scan, outputs_of
from .questions import KindRules, left_side, listed


def _key(op: Operation, kind: Any, keys: StructuralKeys) -> Hashable:
    """Unique to this stage, because no other stage is known to compute the same."""
    return "opaque", hash(op)


def _cost(op: Operation, kind: Any, put: Put) -> Cost:
    """One step per element of the result, and one per element of its largest input."""
    read = [elements_of(tensor, put) for tensor in tensors_read_by(op)]
    sizes = [size for size in read if isinstance(size, int)]
    memory = sum(elements_of(tensor, put) for tensor in outputs_of(op))
    return Cost(elements_of(op.output(0), put) + max(sizes, default=0), 0, memory)


def _text(op: Operation, kind: Any, printer: Printer) -> str:
    """``(two.v0, two.v1) = extern(B)``."""
    left = left_side(op, printer)
    what = "scan" if is_scan(op) else "extern"
    return f"{left} = {what}({listed(tensors_read_by(op), printer)})"


def _exprs(op: Operation, kind: Any) -> list[Expr]:
    return []


def _bound(op: Operation, kind: Any) -> list[Var]:
    return []


RULES = KindRules(_key, _cost, _text, _exprs, _bound)
