"""Rules of loops over updates: ``y[place] += value`` for all points where conditions hold."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ....expr.build import all_of
from ....expr.nodes import Expr, Var
from ....expr.printing.text import Printer
from ....expr.structural import StructuralKeys
from ...counting import Cost, Put, elements_of, loop_iterations, multiplications_in
from ...stage import Operation, bounds_of, shape_of
from ..update_loops import UpdateLoops
from .questions import KindRules, left_side


def _key(op: Operation, loops: UpdateLoops, keys: StructuralKeys) -> Hashable:
    """Equal for loops of equal bounds, conditions, places and values, up to names."""
    bound: dict[Var, Any] = {}
    ranges: list[Any] = []
    for n, axis in enumerate(loops.axes):
        ranges += keys.extents(bounds_of(axis), bound)
        bound[axis.var] = ("loop", n)
    shape = keys.extents(shape_of(op.output(0)))
    inside = (loops.conditions, loops.place, (loops.value,))
    parts = tuple(tuple(keys.expr(e, bound) for e in exprs) for exprs in inside)
    return "update_loops", shape, tuple(ranges), parts


def _cost(op: Operation, loops: UpdateLoops, put: Put) -> Cost:
    """One step per element of the result, which is cleared, and one per point of the loops."""
    memory = elements_of(op.output(0), put)
    points = loop_iterations(loops.axes, put)
    parts = (*loops.conditions, *loops.place, loops.value)
    return Cost(memory + points, points * sum(map(multiplications_in, parts)), memory)


def _text(op: Operation, loops: UpdateLoops, printer: Printer) -> str:
    """``y[i[n], k] += x[n, k]*2.0 for n<5, k<length[n] | n > 0``."""
    left = left_side(op, printer)
    condition = all_of(list(loops.conditions))
    over = printer.axes(loops.axes, condition)
    place = ", ".join(map(printer, loops.place))
    target = f"{left}[{place}]" if place else left
    return f"{target} += {printer(loops.value)}" + (f" for {over}" if over else "")


def _exprs(op: Operation, loops: UpdateLoops) -> list[Expr]:
    return loops.exprs


def _bound(op: Operation, loops: UpdateLoops) -> list[Var]:
    return [axis.var for axis in loops.axes]


RULES = KindRules(_key, _cost, _text, _exprs, _bound)
