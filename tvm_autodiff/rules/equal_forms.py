"""Equal te tensors that are differentiated instead of a stage.

Scatter-adds and loops over updates become sums under an equation, which the solver turns into
gathers. A custom rule may have its own form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..expr.build import all_of, cast, compare, if_then_else, variable, zero_like
from ..expr.nodes import Axis, Expr, Tensor, Var, dtype_of, load
from ..expr.rewrite import substituter
from ..graph.bounded_stage import bounded_stage
from ..graph.kinds.custom import Custom
from ..graph.kinds.kind import kind_of
from ..graph.kinds.scatter_add import ScatterAdd, as_index
from ..graph.kinds.update_loops import UpdateLoops
from ..graph.stage import (
    Operation,
    bounds_of,
    data_axis,
    make_stage,
    reduce_axis,
    reduce_axis_within,
    rename_bounds,
    shape_of,
    sum_over,
)
from .terms import Condition, guarded


def equal_forms(op: Operation) -> list[Tensor] | None:
    """The tensors to differentiate instead of a stage's outputs, or None if there are none."""
    kind = kind_of(op)
    form = _FORMS.get(type(kind))
    return None if form is None else form(op, kind)


def _custom(op: Operation, stage: Custom) -> list[Tensor] | None:
    form = stage.rule.form
    return None if form is None else list(form(list(stage.inputs)))


def _scatter_add(op: Operation, found: ScatterAdd) -> list[Tensor]:
    """``out[p[n], j] += u[n, j]  →  out[b, j] = Σ_n if p[n] == b then u[n, j]``."""
    layout = found.layout
    shape = shape_of(found.result)
    axes = [data_axis(f"b{n}", extent) for n, extent in enumerate(shape)]
    points = {
        axis: reduce_axis(f"n{axis}", extent) for axis, extent in found.extents.items() if axis >= 0
    }
    index = {number: axis.var for number, axis in points.items()}
    index |= {-1 - dim: axes[dim].var for dim in layout.trailing}
    equal = [
        _equal(as_index(load(found.positions[n], layout.place(n, index))), axes[dim].var)
        for dim, n in enumerate(layout.dims)
        if n >= 0
    ]
    value = load(found.updates, layout.update(index))
    body = if_then_else(all_of(equal), value, zero_like(value))
    return bounded_stage(f"{op.name}_dense", axes, [sum_over(body, list(points.values()))])


def _update_loops(op: Operation, loops: UpdateLoops) -> list[Tensor]:
    """``out[place] += value, for all points  →  out[b] = Σ_points if place == b then value``."""
    shape = shape_of(op.output(0))
    axes = [data_axis(f"b{n}", extent) for n, extent in enumerate(shape)]
    table: dict[Var, Expr] = {}
    points: list[Axis] = []
    for loop in loops.axes:
        moved = rename_bounds(loop, substituter(table))
        table[loop.var] = variable(loop.var.name, dtype_of(loop.var))
        points.append(reduce_axis_within(table[loop.var], *bounds_of(moved)))
    move = substituter(table)
    equal = [
        Condition(_equal(as_index(move(index)), axis.var), False)
        for index, axis in zip(loops.place, axes, strict=True)
    ]
    known = [Condition(move(condition), True) for condition in loops.conditions]
    body = guarded(move(loops.value), [*known, *equal])
    return make_stage(f"{op.name}_plain", axes, [sum_over(body, points)])


def _equal(place: Expr, index: Expr) -> Expr:
    wide = "int64" if "int64" in (dtype_of(place), dtype_of(index)) else "int32"
    return compare("eq", cast(wide, place), cast(wide, index))


_FORMS: dict[type, Callable[[Operation, Any], list[Tensor] | None]] = {
    Custom: _custom,
    ScatterAdd: _scatter_add,
    UpdateLoops: _update_loops,
}
