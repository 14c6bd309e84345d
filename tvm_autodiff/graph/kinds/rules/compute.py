"""Rules of compute stages: ``y[i] = Σ_k f(i, k)``."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ....expr.nodes import Expr, Var
from ....expr.printing.text import Printer
from ....expr.structural import StructuralKeys
from ...counting import Cost, Put, elements_of, loop_iterations, multiplications_in
from ...stage import (
    Operation,
    axis_vars,
    bodies,
    bounds_of,
    outputs_of,
    reduction_of,
    shape_of,
)
from ..kind import Compute
from .questions import KindRules, left_side


def _key(op: Operation, kind: Compute, keys: StructuralKeys) -> Hashable:
    """Equal for stages of equal shape, axes and bodies, up to the names of axes."""
    bound: dict[Var, Any] = {var: ("axis", n) for n, var in enumerate(axis_vars(op))}
    shape = keys.extents(shape_of(op.output(0)), bound)
    reduction = reduction_of(op)
    if reduction is None:
        parts: tuple[Any, ...] = tuple(keys.expr(body, bound) for body in bodies(op))
    else:
        ranges: list[Any] = []
        for n, axis in enumerate(reduction.axes):
            ranges += keys.extents(bounds_of(axis), bound)
            bound[axis.var] = ("reduce", n)
        combiner = reduction.combiner
        formal: dict[Var, Any] = {
            var: ("formal", n) for n, var in enumerate((*combiner.lhs, *combiner.rhs))
        }
        parts = (
            tuple(ranges),
            tuple(int(body.value_index) for body in bodies(op)),
            tuple(keys.expr(e, formal) for e in (*combiner.result, *combiner.identity)),
            tuple(
                keys.expr(e, bound)
                for e in (*reduction.sources, *reduction.init, reduction.condition)
            ),
        )
    return "stage", op.num_outputs, shape, parts


def _cost(op: Operation, kind: Compute, put: Put) -> Cost:
    """One evaluation of the bodies, or of a source and the combiner, per point of the loops."""
    elements = elements_of(op.output(0), put)
    memory = sum(elements_of(tensor, put) for tensor in outputs_of(op))
    reduction = reduction_of(op)
    if reduction is None:
        return Cost(elements, elements * sum(map(multiplications_in, bodies(op))), memory)
    iterations = loop_iterations((*op.axis, *reduction.axes), put)
    parts = [*reduction.sources, reduction.condition, *reduction.combiner.result]
    return Cost(iterations, iterations * sum(map(multiplications_in, parts)), memory)


def _text(op: Operation, kind: Compute, printer: Printer) -> str:
    """``C[i, j] = Σ_{k<6} A[i, k]*B[k, j]``."""
    left = left_side(op, printer)
    axes = ", ".join(printer.variable(var) for var in axis_vars(op))
    # the components of a tuple reduction are one reduction and differ only in their number
    right = printer.tuple_of(bodies(op) if reduction_of(op) is None else bodies(op)[:1])
    return f"{left}[{axes}] = {right}" if axes else f"{left} = {right}"


def _exprs(op: Operation, kind: Compute) -> list[Expr]:
    reduction = reduction_of(op)
    axes = [] if reduction is None else reduction.axes
    return [*(bound for axis in axes for bound in bounds_of(axis)), *bodies(op)]


def _bound(op: Operation, kind: Compute) -> list[Var]:
    reduction = reduction_of(op)
    axes = [] if reduction is None else reduction.axes
    return [*axis_vars(op), *(axis.var for axis in axes)]


RULES = KindRules(_key, _cost, _text, _exprs, _bound)
