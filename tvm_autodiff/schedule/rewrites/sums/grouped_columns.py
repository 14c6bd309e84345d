"""Sums over short groups of neighbours, as those of a group norm with the channels last: first of
each element of the groups, in vectors along memory, then of those of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....expr.build import add, const, mul
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    binary,
    dtype_of,
    is_load,
    load,
    node_id,
    operands,
)
from ....expr.rewrite import (
    depends_on,
    expand_lets,
    postorder,
    replace_outermost,
    substitute,
    substituter,
)
from ....graph.graph import each_stage
from ....graph.sizes.loop_sizes import is_size
from ....graph.stage import (
    Operation,
    Reduction,
    axis_range,
    data_axis,
    is_compute,
    loop_axes,
    reduction_of,
    reduction_stage,
    renewed,
)
from ...cost import MAX_COPIES, MIN_LANES
from ...kernel import constant_extent, size_of
from ...nest.access import affine_forms, streamed, stride_of
from ...nest.decided import decided
from ...nest.inside import unit_strides_inside


def with_grouped_columns(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``s[n, g] = Σ_{i, c<7} f(x[n, i, g*7 + c], m[n, g])
    → p[n, h] = Σ_i f(x[n, i, h], m[n, h//7]), s[n, g] = Σ_c p[n, g*7 + c]``.

    What is read at quotients is copied afterwards.
    """
    return each_stage(outputs, _changed)


def _changed(op: Operation) -> list[Tensor] | None:
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None or reduction.init or len(reduction.axes) < 2 or not len(op.axis):
        return None
    axes = loop_axes(op)
    if any(low != 0 or not is_size(extent, axes) for low, extent in map(axis_range, axes)):
        return None
    if constant_extent(op.axis[-1]) < 1 or unit_strides_inside(op, op.axis[-1].var):
        return None
    known = [axis for axis in axes if constant_extent(axis) > 0]
    ranges = {node_id(axis.var): (0, constant_extent(axis) - 1) for axis in known}
    variables = [axis.var for axis in axes]
    [source] = decided([expand_lets(reduction.sources[0])], variables, ranges)
    for axis in reduction.axes:
        groups = _Groups(op, replace(reduction, sources=(source,)), axis)
        if groups.are_worth_it():
            return groups.split()
    return None


@dataclass
class _Groups:
    """A reduction whose last output axis counts groups, and the axis within a group."""

    op: Operation
    reduction: Reduction
    inside: Axis

    def __post_init__(self) -> None:
        self.outer: Axis = self.op.axis[-1]
        self.size = constant_extent(self.inside)
        self.rest = [a for a in self.reduction.axes if node_id(a.var) != node_id(self.inside.var)]
        dtype = dtype_of(self.outer.var)
        extent = self.size * constant_extent(self.outer)
        self.column = data_axis(f"{self.outer.var.name}_column", extent, dtype)
        self.variables = [axis.var for axis in loop_axes(self.op)]

    def are_worth_it(self) -> bool:
        """Whether memory is read in vectors along the groups, shorter than one, and the partial
        results are few.
        """
        if not 1 < self.size < 2 * MIN_LANES or constant_extent(self.column) < 2 * MIN_LANES:
            return False
        if size_of([axis_range(axis)[1] for axis in self.rest]) < MAX_COPIES:
            return False
        steps = {self._steps(node) for node in streamed(self.op, self.reduction)}
        return steps == {(self.size, 1)}

    def _steps(self, node: Expr) -> tuple[int | None, int | None]:
        along = self.outer.var, self.inside.var
        near, far = (stride_of(node, node_id(var), self.variables) for var in along)
        return near, far

    def split(self) -> list[Tensor] | None:
        """The sums of columns, and those of their groups; None where a term depends on more."""
        [source] = self.reduction.sources
        table: dict[int, Expr] = {}
        for node in postorder([source]):
            if is_load(node) and depends_on(node, [self.outer.var, self.inside.var]):
                moved = self._moved(node)
                if moved is None:
                    return None
                table[node_id(node)] = moved
        source = replace_outermost(source, table)
        if depends_on(source, [self.outer.var, self.inside.var]):
            return None
        before = [*self.op.axis[:-1], self.column]
        inner, names = renewed(self.rest)
        part = Reduction(
            self.reduction.combiner,
            (substituter(names)(source),),
            tuple(inner),
            self.reduction.condition,
            (),
        )
        columns = reduction_stage(f"{self.op.name}_column", before, part)[0]
        spatial, table_of = renewed(self.op.axis)
        [within], _ = renewed([self.inside])
        dtype = dtype_of(self.outer.var)
        place = add(mul(table_of[self.outer.var], const(self.size, dtype)), within.var)
        read = load(columns, [*(axis.var for axis in spatial[:-1]), place])
        whole = replace(self.reduction, sources=(read,), axes=(within,))
        return reduction_stage(self.op.name, spatial, whole)

    def _moved(self, node: Expr) -> Expr | None:
        """A read at the place of a column."""
        forms = affine_forms(list(operands(node)), self.variables)
        found = [forms.get(node_id(index)) for index in operands(node)]
        keys = node_id(self.outer.var), node_id(self.inside.var)
        if all(
            form is not None and form.coefficient(keys[0]) == self.size * form.coefficient(keys[1])
            for form in found
        ):
            zero = const(0, dtype_of(self.outer.var))
            return substitute(node, {self.outer.var: zero, self.inside.var: self.column.var})
        if depends_on(node, [axis.var for axis in self.rest]):
            return None
        here, size = self.column.var, const(self.size, dtype_of(self.outer.var))
        quotient, remainder = (binary(n, here, size) for n in ("floordiv", "floormod"))
        return substitute(node, {self.outer.var: quotient, self.inside.var: remainder})
