"""Rules of prefix scans: ``y[i, k] = the state of row i before element k``."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ....expr.build import variable
from ....expr.nodes import Expr, Var
from ....expr.printing.text import Printer
from ....expr.structural import StructuralKeys
from ...counting import Cost, Put, elements_of, multiplications_in
from ...stage import Operation, outputs_of
from ..prefix_scan import Scan
from .questions import KindRules, left_side


def _key(op: Operation, scan: Scan, keys: StructuralKeys) -> Hashable:
    """Equal for scans of equal recurrences over the same elements, in the same order."""
    recurrence = scan.recurrence
    formal: dict[Var, Any] = {
        var: ("formal", n) for n, var in enumerate((*recurrence.state, *recurrence.element))
    }
    parts = tuple(keys.expr(e, formal) for e in (*recurrence.step, *recurrence.start))
    elements = tuple(keys.tensor_key_of(tensor) for tensor in scan.elements)
    shape = (keys.extents(scan.rows), keys.extents(scan.scanned))
    return "scan", shape, scan.backward, parts, elements


def _cost(op: Operation, scan: Scan, put: Put) -> Cost:
    """One step per element."""
    elements = elements_of(op.output(0), put)
    memory = sum(elements_of(tensor, put) for tensor in outputs_of(op))
    return Cost(elements, elements * sum(map(multiplications_in, scan.recurrence.step)), memory)


def _text(op: Operation, scan: Scan, printer: Printer) -> str:
    """``P[i, k] = scan_{k}[s, x → s + x; start 0.0] A[i, k]``."""
    left = left_side(op, printer)
    axes = [printer.variable(variable(f"i{n}")) for n in range(len(scan.rows))]
    axes += [printer.variable(variable(f"k{n}")) for n in range(len(scan.scanned))]
    order = ", ".join(axes[len(scan.rows) :]) + (" from last" if scan.backward else "")
    recurrence = scan.recurrence
    rule = printer.rule(recurrence.state, recurrence.element, recurrence.step)
    start = printer.tuple_of(recurrence.start)
    reads = [
        f"{printer.tensor(tensor)}[{', '.join(axes[len(axes) - len(tensor.shape) :])}]"
        for tensor in scan.elements
    ]
    source = reads[0] if len(reads) == 1 else f"({', '.join(reads)})"
    return f"{left}[{', '.join(axes)}] = scan_{{{order}}}[{rule}; start {start}] {source}"


def _exprs(op: Operation, scan: Scan) -> list[Expr]:
    return []  # the variables of a recurrence are its own


def _bound(op: Operation, scan: Scan) -> list[Var]:
    return []


RULES = KindRules(_key, _cost, _text, _exprs, _bound)
