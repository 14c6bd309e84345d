"""The interface of the rules of one kind of stage."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from ....expr.nodes import Expr, Tensor, Var
from ....expr.printing.text import Printer
from ....expr.structural import StructuralKeys
from ...counting import Cost, Put
from ...stage import Operation, outputs_of

Kind = Any  #: what `kind_of` gives for the stage


@dataclass(frozen=True)
class KindRules:
    """The rules of one kind; each takes a stage and its kind.

    Attributes
    ----------
    key : callable
        ``key(op, kind, keys)``: equal for stages that compute the same in the same way.
    cost : callable
        ``cost(op, kind, put)``: iterations, multiplications and memory.
    text : callable
        ``text(op, kind, printer)``: what is computed, without shape and dtype.
    exprs : callable
        ``exprs(op, kind)``: the expressions of the stage except its shape, including those in
        bounds.
    bound : callable
        ``bound(op, kind)``: the variables in them that are its own, such as those of axes.
    """

    key: Callable[[Operation, Kind, StructuralKeys], Hashable]
    cost: Callable[[Operation, Kind, Put], Cost]
    text: Callable[[Operation, Kind, Printer], str]
    exprs: Callable[[Operation, Kind], list[Expr]]
    bound: Callable[[Operation, Kind], list[Var]]


def listed(tensors: list[Tensor], printer: Printer) -> str:
    """``x, y``."""
    return ", ".join(printer.tensor(tensor) for tensor in tensors)


def left_side(op: Operation, printer: Printer) -> str:
    """``y``, or ``(y.v0, y.v1)`` for a stage of several outputs."""
    outputs = outputs_of(op)
    names = listed(outputs, printer)
    return names if len(outputs) == 1 else f"({names})"
