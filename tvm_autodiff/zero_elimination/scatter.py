"""Gradients of reads whose index is data or cannot be solved: a scatter-add, in one pass.

In: a term such as ``d out[n, j] = d table[I[n], j]``. Out: ``dtable[I[n], j] += head[n, j]`` as a
stage, in place of the comparison of every index with every row. The stage is opaque to te;
`dense_form` gives the sum of equal value that it is differentiated as, whose own pullback is a
gather.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..calculus.terms import Condition, Term, guarded
from ..ir.build import all_of, cast, compare, const, if_then_else, zero_like
from ..ir.nodes import Expr, Tensor, Var, dtype_of, load, node_id
from ..ir.rewrite import contains_load, depends_on, substituter
from ..ir.scatter_kernel import SCATTER_DIMS, scatter_add_stage
from ..ir.stage import (
    Axis,
    Extent,
    Operation,
    axis_range,
    data_axis,
    is_extern,
    make_stage,
    outputs_of,
    reduce_axis,
    renew_axis,
    shape_of,
    sum_over,
    whole_tensor,
)
from .gather import Cotangent, Target, on_indices


def reads_by_data(term: Term) -> bool:
    """Whether some index of a term's read site is read from a tensor."""
    return any(contains_load(index) for index in term.indices)


def scatter(
    op: Operation, term: Term, cotangent: Cotangent, target: Target, name: str
) -> Tensor | None:
    """Transpose one term by scattering.

    ``d out[a] += [c] p · dx[g(a, k)]  →  dx[g(a, k)] += if c then head[a]·p, for all (a, k)``

    Returns None for an identity cotangent, which is no tensor to scatter, for axes that do not
    start at zero or depend on each other, and where every index is an axis: nothing to scatter.
    """
    axes = [*op.axis, *term.reduce_axes]
    if cotangent.tensor is None or not _is_box(axes):
        return None
    trailing = _trailing(term, target, axes)
    ids = {node_id(var) for var in trailing.values()}
    point_axes = [axis for axis in axes if node_id(axis.var) not in ids]
    trailing_axes = {node_id(axis.var): axis for axis in axes if node_id(axis.var) in ids}
    if not point_axes or len(trailing) == len(term.indices):
        return None
    positions: list[Tensor] = []
    dims: list[int] = [-1] * len(target.prefix)
    kept = [trailing_axes[node_id(var)] for var in trailing.values()]
    reachable = [
        condition
        for condition in term.conditions
        if not depends_on(condition.expr, [axis.var for axis in kept])
    ]
    for place, index in enumerate(term.indices):
        if place in trailing:
            dims.append(-1)
            continue
        dims.append(len(positions))
        positions.append(_position(name, len(positions), index, reachable, point_axes))
    prefix = [renew_axis(axis) for axis in target.prefix]
    head = load(cotangent.tensor, [*(axis.var for axis in prefix), *(a.var for a in op.axis)])
    value = guarded(substituter({term.seed: head})(term.value), term.conditions)
    updates = _whole_or_stage(f"{name}_updates", [*point_axes, *prefix, *kept], value)
    shape = [axis_range(axis)[1] for axis in (*target.prefix, *target.axes)]
    return scatter_add_stage(name, positions, updates, shape, dims, {SCATTER_DIMS: dims})


def _is_box(axes: Sequence[Axis]) -> bool:
    variables = [axis.var for axis in axes]
    for axis in axes:
        low, extent = axis_range(axis)
        if not (isinstance(low, int) and low == 0):
            return False
        if not isinstance(extent, int) and depends_on(extent, variables):
            return False
    return True


def _trailing(term: Term, target: Target, axes: Sequence[Axis]) -> dict[int, Var]:
    """Dimensions of the result that are an axis of the stage as it stands: no two tasks meet
    there.
    """
    by_id = {node_id(axis.var): axis for axis in axes}
    found: dict[int, Var] = {}
    for place, (index, own) in enumerate(zip(term.indices, target.axes, strict=True)):
        axis = by_id.get(node_id(index))
        others = [other for n, other in enumerate(term.indices) if n != place]
        if axis is None or any(depends_on(other, [axis.var]) for other in others):
            continue
        if _same_extent(axis_range(axis)[1], axis_range(own)[1]):
            found[place] = axis.var
    return found


def _same_extent(left: Extent, right: Extent) -> bool:
    if isinstance(left, int) or isinstance(right, int):
        return isinstance(left, int) and isinstance(right, int) and left == right
    return node_id(left) == node_id(right)


def _position(
    name: str, number: int, index: Expr, conditions: Sequence[Condition], axes: Sequence[Axis]
) -> Tensor:
    """The position of every point in one dimension, -1 where the point does not count."""
    body = index
    if conditions:
        body = if_then_else(
            all_of(c.expr for c in conditions if on_indices(c.expr)),
            _where_data_allows(index, conditions),
            const(-1, dtype_of(index)),
        )
    return _whole_or_stage(f"{name}_place{number}", axes, body)


def _where_data_allows(index: Expr, conditions: Sequence[Condition]) -> Expr:
    data = [c.expr for c in conditions if not on_indices(c.expr)]
    return if_then_else(all_of(data), index, const(-1, dtype_of(index)))


def _whole_or_stage(name: str, axes: Sequence[Axis], body: Expr) -> Tensor:
    """A stage over output axes made from any axes that occur in its body.

    A body that is another tensor as it stands is that tensor.
    """
    same = whole_tensor(body, axes)
    if same is not None:
        return same
    fresh = [data_axis(a.var.name, axis_range(a)[1], dtype_of(a.var)) for a in axes]
    rename = substituter({old.var: new.var for old, new in zip(axes, fresh, strict=True)})
    return make_stage(name, fresh, [rename(body)])[0]


def dense_form(op: Operation) -> Tensor | None:
    """The te tensor of equal value to differentiate in place of a scatter-add; None for others.

    ``out[p[n], j] += u[n, j]  →  out[b, j] = Σ_n if p[n] == b then u[n, j]``
    """
    if not is_extern(op) or SCATTER_DIMS not in op.attrs:
        return None
    dims = [int(dim) for dim in op.attrs[SCATTER_DIMS]]
    *positions, updates = list(op.inputs)
    rank = len(positions[0].shape)
    result = outputs_of(op)[0]
    axes = [data_axis(f"b{n}", extent) for n, extent in enumerate(shape_of(result))]
    points = [reduce_axis(f"n{n}", extent) for n, extent in enumerate(shape_of(updates)[:rank])]
    point = [axis.var for axis in points]
    equal: list[Expr] = []
    for axis, dim in zip(axes, dims, strict=True):
        if dim >= 0:
            where = load(positions[dim], point)
            equal.append(compare("eq", where, cast(dtype_of(where), axis.var)))
    trailing = [axis.var for axis, dim in zip(axes, dims, strict=True) if dim < 0]
    value = load(updates, [*point, *trailing])
    body = if_then_else(all_of(equal), value, zero_like(value))
    return make_stage(f"{op.name}_dense", axes, [sum_over(body, points)])[0]
