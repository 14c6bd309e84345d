"""Computes sums into positions that are data as a scatter-add, in one pass.

``d out[n, j] = d table[I[n], j]`` becomes the stage ``dtable[I[n], j] += head[n, j]``, instead of
comparing every index with every row. A sum that is written as such a comparison is rewritten as
well. The stage is opaque to te; `rules.equal_forms` has the equal sum that is differentiated, whose
own pullback is a gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...domain import Domain, simplify_domain
from ...errors import UnsolvableError
from ...expr.build import all_of, compare, conjuncts, const, if_then_else, negate, zero_like
from ...expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_float,
    is_load,
    load,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import depends_on, substituter, variables_of
from ...graph.bounded_stage import bounded_stage, widths_in
from ...graph.kinds.scatter_add import (
    ScatterLayout,
    as_index,
    inside,
    scatter_add_stage,
)
from ...graph.sizes.nonnegative import nonnegative
from ...graph.stage import (
    Extent,
    axis_range,
    data_axis,
    reduce_axis_over,
    renew_axis,
    sum_over,
    whole_tensor,
)
from ...rules.terms import Condition, guarded
from ..sums.conditions import on_indices
from ..sums.data.equations import (
    Points,
    Ranges,
    is_data_equation,
    is_defined,
    reads_inside,
    solve_data_equations,
    unknowns_of,
)
from ..sums.iterations import (
    BY_DATA,
    box_iterations,
    element_count,
    extents_of,
    sample_size,
)
from ..sums.points import box_of, narrowed
from ..sums.split_updates import with_split_axes
from ..sums.sum import Sum, Updates
from ..sums.windows import is_jagged

#: how much more an update costs than a point of a box: its position is computed, and it is no
#: vector
OF_POINTS = BY_DATA * BY_DATA


def scatter_add(whole: Sum) -> Sum | None:
    """``Σ_{a,k} if g(a, k) == b then v  →  out[b], out[g(a, k)] += v for all (a, k)``.

    Equations with reads among the conditions determine axes first: with ``idx[e] == n``, the sum
    over e and n of ``out[n] += v[e]`` runs over e only, with ``out[idx[e]] += v[e]``. Axes that no
    index needs are summed first.

    None if no equation is left, for an identity cotangent, which is not a tensor, and if there is
    nothing to scatter: every index is an axis, or none depends on one.
    """
    return _scattered(whole) if whole.by_data else None


def scatter_points(whole: Sum) -> Sum | None:
    """`scatter_add` of a sum whose box has many times more points than there are updates, as that
    of an index that is put together from bits has.
    """
    if whole.by_data or not whole.axes:
        return None
    found = whole.definition.updates(whole.target)
    box, updates = [*whole.target.every_axis, *whole.axes], [*found.prefix, *found.axes]
    size = sample_size(extents_of([*box, *updates]))
    few = box_iterations(box, size) <= OF_POINTS * box_iterations(updates, size)
    return None if few else _scattered(whole)


def _scattered(whole: Sum) -> Sum | None:
    target, found = whole.target, with_split_axes(whole.definition.updates(whole.target))
    if len(found.place) != len(target.axes) or any(map(is_jagged, found.axes)):
        return None
    points = _points(found)
    if points is None:
        return None
    name = whole.definition.stage_name("scatter")
    prefix, indices = found.prefix, [points.move(index) for index in found.place]
    nest = _Nest(points, indices, target.axes, prefix)
    if not nest.point_vars or len(nest.trailing) == len(indices):
        return None
    tensor = _stage(name, nest, target.axes, points.move(found.value))
    outer = [axis_range(axis)[1] for axis in prefix]
    extents = [*outer, *(points.ranges[var][1] for var in points.variables)]
    return replace(
        whole,
        axes=(),
        source=load(tensor, [axis.var for axis in target.every_axis]),
        guards=(),
        unsolved=(),
        windows=(),
        masks=tuple(
            c.expr
            for c in points.conditions
            if is_data_equation(c.expr) and unknowns_of(c.expr, points)
        ),
        made=(partial(element_count, extents),),
    )


def _stage(name: str, nest: _Nest, result: Sequence[Axis], value: Expr) -> Tensor:
    """The stages of positions and updates, and their scatter-add."""
    points, prefix = nest.points, nest.prefix
    places: list[tuple[int, ...]] = []
    positions: list[Tensor] = []
    dims: list[int] = [-1] * len(prefix)
    for dim, index in enumerate(nest.indices):
        dims.append(-1 if dim in nest.trailing else len(positions))
        if dim not in nest.trailing:
            # positions are data to a later stage, whose arithmetic would not be widened
            fits = widths_in(points.ranges).index(index, axis_range(result[dim])[1])
            position, used = nest.position(f"{name}_place{len(positions)}", fits)
            positions.append(position)
            places.append(used)
    updates, axes_of_updates = nest.updates(f"{name}_updates", value)
    layout = ScatterLayout(tuple(dims), tuple(places), axes_of_updates)
    shape = [axis_range(axis)[1] for axis in (*prefix, *result)]
    return scatter_add_stage(name, positions, updates, shape, layout)


def _points(updates: Updates) -> Points | None:
    """The points of a box without the axes that data determines; None without a box or points.

    An axis that is an index itself stays whole: it may become a loop over a dimension.
    """
    try:
        box = box_of(updates.axes)
    except UnsolvableError:
        return None
    if box is None:
        return None
    moved = [
        Condition(part, c.guards)
        for c in updates.conditions
        for part in conjuncts(box.move(c.expr))
    ]
    points = replace(box, conditions=(*box.conditions, *moved))
    whole = [box.move(index) for index in updates.place]
    small = narrowed(points, [index for index in whole if op_name(index) == "var"])
    return None if small is None else solve_data_equations(small)


class _Nest:
    """The loops of a scatter-add: point axes, trailing axes, and axes that are summed before.

    Attributes
    ----------
    trailing : dict of int to Var
        Dimensions of the result that are loops themselves, in which no two updates coincide.
    point_vars : list of Var
        The other loops on which indices depend.
    """

    def __init__(
        self,
        points: Points,
        indices: Sequence[Expr],
        result: Sequence[Axis],
        prefix: Sequence[Axis],
    ) -> None:
        self.points, self.indices, self.prefix = points, list(indices), prefix
        self.shape = [axis_range(axis)[1] for axis in result]
        tied = self._tied()
        self.trailing = {
            dim: var for dim, var in self._trailing(result).items() if node_id(var) not in tied
        }
        rows = {node_id(var) for var in self.trailing.values()}
        used = {node_id(var) for var in variables_of(self.indices)} | tied
        own = points.variables
        self.point_vars = [v for v in own if node_id(v) in used and node_id(v) not in rows]
        self.summed = [v for v in own if node_id(v) not in used]
        self.axis_of = {node_id(axis.var): -1 - dim for dim, axis in enumerate(prefix)}
        self.axis_of |= {node_id(v): n for n, v in enumerate(self.point_vars)}
        self.axis_of |= {node_id(var): -1 - len(prefix) - dim for dim, var in self.trailing.items()}

    def _trailing(self, result: Sequence[Axis]) -> dict[int, Var]:
        by_id = {node_id(var): var for var in self.points.variables}
        found: dict[int, Var] = {}
        for dim, (index, own) in enumerate(zip(self.indices, result, strict=True)):
            var = by_id.get(node_id(index))
            others = [other for n, other in enumerate(self.indices) if n != dim]
            if var is None or any(depends_on(other, [var]) for other in others):
                continue
            if _same_extent(self.points.ranges[var][1], axis_range(own)[1]):
                found[dim] = var
        return found

    def _tied(self) -> set[int]:
        """The axes that guards compare with others, if positions need guards.

        The position of a point without these axes would be read where no guard of its elements
        holds.
        """
        if all(is_defined(index, self.points.ranges) for index in self.indices):
            return set()
        own = {node_id(var) for var in self.points.variables}
        groups = [
            own & {node_id(var) for var in variables_of(c.expr)}
            for c in self.points.conditions
            if c.guards
        ]
        return {var for group in groups if len(group) > 1 for var in group}

    def position(self, name: str, index: Expr) -> tuple[Tensor, tuple[int, ...]]:
        """A tensor of positions in one dimension, and its point axes.

        It is -1 at points that do not count, where the index cannot be read.
        """
        conditions: list[Condition] = []
        if not is_defined(index, self.points.ranges):
            conditions = [
                c
                for c in self.points.conditions
                if not depends_on(c.expr, [*self.trailing.values(), *self.summed])
            ]
            conditions = [*self._nonempty(index), *conditions]
        body = _where_allowed(index, conditions)
        over = [n for n, var in enumerate(self.point_vars) if depends_on(body, [var])] or [0]
        axes = [self._axis(self.point_vars[n]) for n in over]
        return _whole_or_stage(name, axes, body), tuple(over)

    def _nonempty(self, index: Expr) -> list[Condition]:
        """The condition that the loops which an index does not depend on are not empty.

        If they are empty, the index is not computed.
        """
        loops = [(v, self.points.ranges[v][1]) for v in self.points.variables]
        loops += [(axis.var, axis_range(axis)[1]) for axis in self.prefix]
        extents = [e for v, e in loops if not isinstance(e, int) and not depends_on(index, [v])]
        return [Condition(compare("gt", e, zero_like(e)), True) for e in extents]

    def updates(self, name: str, value: Expr) -> tuple[Tensor, tuple[int, ...]]:
        """The tensor to add, and the axis of each of its dimensions."""
        body = guarded(value, self._needed(value))
        summed = [reduce_axis_over(var, self.points.ranges[var][1]) for var in self.summed]
        own = {node_id(axis.var): axis for axis in self.prefix}
        own |= {node_id(v): self._axis(v) for v in (*self.point_vars, *self.trailing.values())}
        order = self._order(body)
        axes = [own[key] for key in order]
        return _whole_or_stage(name, axes, body, summed), tuple(self.axis_of[key] for key in order)

    def _order(self, body: Expr) -> list[int]:
        """The axes of the updates: of a tensor that is added directly, in its order; otherwise
        leading rows, points, the rest, without axes on which neither body nor its reads depend.
        """
        indices = {node_id(var) for var in variables_of(self.indices)}
        loose = {node_id(v) for v in self.point_vars} - indices  # which no position has
        if is_load(body) and not self.summed:
            read = [node_id(index) for index in operands(body)]
            known = set(self.axis_of)
            if read and len(set(read)) == len(read) and loose <= set(read) <= known:
                return read
        lead = min((dim for dim in range(len(self.indices)) if dim not in self.trailing), default=0)
        rows = [var for _, var in sorted(self.trailing.items())]
        split = sum(dim < lead for dim in self.trailing)
        extents = {axis.var: axis_range(axis)[1] for axis in self.prefix}
        extents |= {v: self.points.ranges[v][1] for v in (*self.point_vars, *rows)}
        every = [*extents][: len(self.prefix)]
        every += [*rows[:split], *self.point_vars, *rows[split:]]
        # an axis of symbolic extent may be empty, and then nothing is read
        used = [
            node_id(v)
            for v in every
            if node_id(v) in loose or not isinstance(extents[v], int) or depends_on(body, [v])
        ]
        return used or [node_id(v) for v in every[:1]]

    def _needed(self, value: Expr) -> Sequence[Condition]:
        """The conditions that do not follow from positions inside the result.

        Points with positions outside are skipped anyway.
        """
        conditions, ranges = self.points.conditions, self.points.ranges
        if not all(reads_inside(e, ranges) for e in (value, *(c.expr for c in conditions))):
            return conditions
        known = [
            part
            for dim, (index, extent) in enumerate(zip(self.indices, self.shape, strict=True))
            if dim not in self.trailing
            for part in inside(as_index(index), extent)
        ]
        return [c for c in conditions if not _follows(c.expr, known, ranges)]

    def _axis(self, var: Var) -> Axis:
        return reduce_axis_over(var, self.points.ranges[var][1])


def _same_extent(left: Extent, right: Extent) -> bool:
    if isinstance(left, int) or isinstance(right, int):
        return isinstance(left, int) and isinstance(right, int) and left == right
    return node_id(left) == node_id(right)


def _follows(condition: Expr, known: Sequence[Expr], ranges: Ranges) -> bool:
    """Whether the solver finds that a condition follows from others."""
    if op_name(condition) not in ("lt", "le", "gt", "ge") or is_float(operands(condition)[0]):
        return False
    opposite = Domain((), ranges, (*known, negate(condition)))
    return simplify_domain(opposite).new_domain.is_empty


def _where_allowed(index: Expr, conditions: Sequence[Condition]) -> Expr:
    """The index if the conditions hold, else -1.

    Conditions on indices come first, then those on data, because each may guard the reads of the
    next.
    """
    if not conditions:
        return index
    index = as_index(index)
    plain = all_of(c.expr for c in conditions if on_indices(c.expr))
    data = [c.expr for c in conditions if not on_indices(c.expr)]
    for test in reversed([plain, *data]):
        index = if_then_else(test, index, const(-1, dtype_of(index)))
    return index


def _whole_or_stage(
    name: str, axes: Sequence[Axis], body: Expr, summed: Sequence[Axis] = ()
) -> Tensor:
    """A stage over output axes, made from any axes that occur in its body.

    If the body is a whole tensor, the result is that tensor.
    """
    same = None if summed else whole_tensor(body, axes)
    if same is not None:
        return same
    fresh = [data_axis(a.var.name, nonnegative(axis_range(a)[1]), dtype_of(a.var)) for a in axes]
    inner = [renew_axis(axis) for axis in summed]
    table = {old.var: new.var for old, new in zip((*axes, *summed), (*fresh, *inner), strict=True)}
    return bounded_stage(name, fresh, [sum_over(substituter(table)(body), inner)])[0]
