"""Sums over a box in place of sums whose bounds vary along the output.

What lies outside of the bounds counts as the identity, so that rules for boxes can take the sum.

    ``Σ_{k=l(i)}^{h(i)-1} f(i, k)  →  Σ_{k=L}^{H-1} if l(i) <= k and k < h(i) then f(i, k) else 0``
"""

from __future__ import annotations

from dataclasses import replace

from ....errors import UnsolvableError
from ....expr.build import add, all_of, cast, compare, const, if_then_else
from ....expr.nodes import Expr, Var, const_value, dtype_of, op_name, operands, tensor_key
from ....expr.rewrite import contains_load, substituter
from ....expr.simplify import constant_bounds, simplify
from ....graph.graph import retarget
from ....graph.stage import (
    axis_range,
    bounds_of,
    reduce_axis,
    reduction_of,
    reduction_stage,
    renewed,
)
from ...kernel import Kernel


def boxed(kernel: Kernel) -> Kernel | None:
    """The kernel with its reduction over a box; None if a bound is data or has no constant bounds.
    """
    op = kernel.root
    reduction = reduction_of(op)
    assert reduction is not None
    if reduction.init or len(reduction.sources) > 1:
        return None
    spatial, table = renewed(op.axis)
    ranges: dict[Var, tuple[int, int]] = {}
    for axis in spatial:
        low, extent = axis_range(axis)
        if not isinstance(low, int) or not isinstance(extent, int):
            return None
        ranges[axis.var] = (low, extent)
    axes, conditions = [], []
    for old in reduction.axes:
        if any(map(contains_load, bounds_of(old))):
            return None
        dtype = dtype_of(old.var)
        low, extent = (cast(dtype, substituter(table)(bound)) for bound in bounds_of(old))
        end = simplify(add(low, extent), ranges)
        try:
            first, last = constant_bounds(low, ranges), constant_bounds(end, ranges)
        except UnsolvableError:
            return None
        if last[1] <= first[0]:
            return None
        axis = reduce_axis(old.var.name, last[1] - first[0], 0, dtype)
        place: Expr = add(axis.var, const(first[0], dtype))
        table[old.var] = place
        ranges[axis.var] = (0, last[1] - first[0])
        axes.append(axis)
        if first[0] != first[1]:
            conditions += [compare("le", one, place) for one in _bounds(low, "max")]
        if last[0] != last[1]:
            conditions += [compare("lt", place, one) for one in _bounds(end, "min")]
    rename = substituter(table)
    [source], [identity] = reduction.sources, reduction.combiner.identity
    inside = if_then_else(all_of(conditions), rename(source), identity)
    whole = replace(
        reduction, sources=(inside,), axes=tuple(axes), condition=rename(reduction.condition)
    )
    root = reduction_stage(op.name, spatial, whole)[0].op
    if kernel.epilogue is None:
        return replace(kernel, root=root)
    replaced = {tensor_key(op.output(0)): root.output(0)}
    [result] = retarget(kernel.epilogue, lambda tensor: replaced.get(tensor_key(tensor)))
    return replace(kernel, root=root, epilogue=result.op)


def _bounds(bound: Expr, name: str) -> list[Expr]:
    """``min(a, b) + 1 → a + 1, b + 1``: each may belong to an operand of its own."""
    if op_name(bound) == name:
        return [one for part in operands(bound) for one in _bounds(part, name)]
    if op_name(bound) == "add" and const_value(operands(bound)[1]) is not None:
        parts = _bounds(operands(bound)[0], name)
        return [add(part, operands(bound)[1]) for part in parts]
    return [bound]
