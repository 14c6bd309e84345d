"""Computes sums only for the results that a condition on an output axis lets have terms.

The gradient of a table of which some rows are never read is zero there, and the condition that says
so keeps the reads of the sum in bounds. Where those go through a quotient of the axis, no rule can
divide the loop at the condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....expr.build import add, compare, conjuncts, const, sub
from ....expr.nodes import (
    Expr,
    Tensor,
    Var,
    const_value,
    dtype_of,
    is_const,
    is_load,
    load,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import depends_on, expand_lets, postorder
from ....expr.sharing.lets import bind_shared
from ....graph.graph import each_stage
from ....graph.stage import (
    Operation,
    axis_range,
    axis_vars,
    data_axis,
    is_compute,
    make_stage,
    reduction_of,
    reduction_stage,
    renewed_reduction,
)
from ...cost import STORE
from ...kernel import size_of
from ...nest.literals import FLOOR_DIVISIONS
from ...nest.reductions.operand_values import guarded
from ...nest.reductions.products import is_sum


def with_narrowed_results(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y[j] = Σ_i if j <= 239 then h[i, j]*x[i, 7*j//5] else 0 → s[j] = Σ_i h[i, j]*x[i, 7*j//5]``
    for 240 results, ``y[j] = if j <= 239 then s[j] else 0``.
    """
    return each_stage(outputs, _changed)


def _changed(op: Operation) -> list[Tensor] | None:
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None or reduction.init or not is_sum(reduction):
        return None
    points = size_of([axis_range(axis)[1] for axis in reduction.axes])
    source = expand_lets(reduction.sources[0])
    if points < STORE or op_name(source) != "if_then_else" or not is_const(operands(source)[2], 0):
        return None  # another pass over the results takes as long
    condition, value, _ = operands(source)
    variables = axis_vars(op)
    limits = {node_id(axis.var): axis_range(axis) for axis in op.axis}
    bounds: dict[int, tuple[int, int]] = {}
    left: list[Expr] = []
    for part in conjuncts(condition):
        found = _bound(part, variables)
        whole = None if found is None else limits[found[0]]
        if found is None or whole is None or not all(isinstance(end, int) for end in whole):
            left.append(part)
            continue
        key, low, high = found
        first, last = bounds.get(key, (int(whole[0]), int(whole[0]) + int(whole[1]) - 1))
        bounds[key] = (max(first, low), min(last, high))
    divided = _divided(value, variables)
    empty = any(low > high for low, high in bounds.values())
    if empty or not any(key in divided for key in bounds):
        return None
    axes, inside, shown = [], {}, []
    for axis in op.axis:
        name, (low, extent) = str(axis.var.name), axis_range(axis)
        first, last = bounds.get(node_id(axis.var), (0, -1))
        narrow = node_id(axis.var) in bounds
        made = data_axis(name, last - first + 1 if narrow else extent)
        axes.append(made)
        shift = const(first, dtype_of(made.var))
        inside[axis.var] = add(made.var, shift) if narrow else made.var
        shown.append(sub(axis.var, const(first, dtype_of(axis.var))) if narrow else axis.var)
    summed = replace(reduction, sources=(bind_shared(guarded(left, value)),))
    [narrow_sums] = reduction_stage(
        f"{op.name}_narrowed", axes, renewed_reduction(summed, inside)
    )
    here = [
        compare(name, var, const(end, dtype_of(var)))
        for var in variables
        if node_id(var) in bounds
        for name, end in zip(("ge", "le"), bounds[node_id(var)], strict=True)
    ]
    return make_stage(op.name, list(op.axis), [guarded(here, load(narrow_sums, shown))])


def _bound(condition: Expr, variables: Sequence[Var]) -> tuple[int, int, int] | None:
    """``j <= 239 → (id of j, least, 239)``."""
    name = op_name(condition)
    if name not in ("lt", "le", "gt", "ge"):
        return None
    left, right = operands(condition)
    if const_value(left) is not None:
        left, right = right, left
        name = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}[name]
    end = const_value(right)
    if not isinstance(end, int) or node_id(left) not in map(node_id, variables):
        return None
    most = 1 << 62
    return {
        "lt": (node_id(left), -most, end - 1),
        "le": (node_id(left), -most, end),
        "gt": (node_id(left), end + 1, most),
        "ge": (node_id(left), end, most),
    }[name]


def _divided(value: Expr, variables: Sequence[Var]) -> set[int]:
    """The variables of which a read takes a quotient."""
    indices = [index for node in postorder(value) if is_load(node) for index in operands(node)]
    quotients = [n for n in postorder(indices) if op_name(n) in FLOOR_DIVISIONS] if indices else []
    return {
        node_id(var) for var in variables if any(depends_on(node, [var]) for node in quotients)
    }
