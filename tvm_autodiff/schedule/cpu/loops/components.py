"""Splits stages with a short last axis into one stage for each component.

Vectors then run along the axis before it, and choices between components are decided.

``t[r, n, c] = if c == 0 then f(u[r, n, 0]) else g(u[r, n, 1]) → u0[r, n] = u[r, n, 0], u1[r, n] =
u[r, n, 1], t0[r, n] = f(u0[r, n]), t1[r, n] = g(u1[r, n])``
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from ....expr.build import const
from ....expr.fold import fold
from ....expr.nodes import (
    BRANCHES,
    Axis,
    Expr,
    Tensor,
    Var,
    const_value,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ....expr.rewrite import (
    depends_on,
    expand_lets,
    map_loads,
    postorder,
    substitute,
    substituter,
)
from ....graph.graph import tensors_read_by
from ....graph.stage import (
    Extent,
    Operation,
    as_data_axis,
    axis_range,
    loop_axes,
    make_stage,
    reduced_axes,
    reduction_of,
    reduction_stage,
    renewed,
    shape_of,
    sources_of,
)
from ...cost import MAX_COPIES
from ...fusion.groups import FusionGroup
from ...fusion.row_kernels import RowKernel
from ...kernel import Kernel
from ...machine import Machine
from ...nest.access import stride_of
from ...nest.decided import decided

Key = tuple[int, int]
Points = tuple[dict[Var, int], ...]


def with_components(group: FusionGroup, machine: Machine) -> FusionGroup:
    """The fusion group with a stage for each component if components differ; its outputs stay."""
    ops = {hash(op): (op, member) for member in group.members for op in member.kernel.ops}
    if any(op.num_outputs != 1 for op, _ in ops.values()):
        return group
    outputs = set(map(tensor_key, group.outputs))
    split = {
        key: (op, member)
        for key, (op, member) in ops.items()
        if _last_is_short(op, member, machine) and tensor_key(op.output(0)) not in outputs
    }
    unresolved = True
    while unresolved:
        lacking = [
            hash(load_tensor(node).op)
            for key, (op, member) in ops.items()
            for node in _loads(op)
            if hash(load_tensor(node).op) in split
            and not _at_a_component(node, _expanded(op, member, key in split))
        ]
        unresolved = bool(lacking)
        split = {key: value for key, value in split.items() if key not in lacking}
    if not split or not any(_differ(*ops[key], key in split, split) for key in ops):
        return group
    made = _Made(machine, set(split))
    for member in group.members:
        made.add(member)
    current = [made.single[tensor_key(tensor)] for tensor in group.outputs]
    return replace(group, members=tuple(made.members), outputs=current)


def _sources(op: Operation) -> list[Expr]:
    return [expand_lets(source) for source in sources_of(op)]


def _loads(op: Operation) -> Iterator[Expr]:
    return (node for node in postorder(_sources(op)) if is_load(node))


def _is_short(axis: Axis) -> bool:
    low, extent = axis_range(axis)
    return low == 0 and isinstance(extent, int) and 2 <= extent <= MAX_COPIES


def _last_is_short(op: Operation, member: RowKernel, machine: Machine) -> bool:
    """Whether the last axis of a stage is short, the one before it long, and neither is a row."""
    if member.across or len(op.axis) < 2 or len(op.axis) - len(member.rows) < 2:
        return False
    before = len(op.axis) - 2
    if before in member.rows or before + 1 in member.rows or not _is_short(op.axis[-1]):
        return False
    low, extent = axis_range(op.axis[before])
    lanes = machine.lanes(dtype_of(op.output(0)))
    return low == 0 and isinstance(extent, int) and extent >= lanes


def _summed(op: Operation, member: RowKernel) -> list[Axis]:
    """The short axes of a reduction within a row, which are unrolled."""
    reduction = reduction_of(op)
    if reduction is None or const_value(reduction.condition) != 1 or reduction.init:
        return []
    rows = {node_id(var) for var in member.row_vars(op)}
    axes = [a for a in reduction.axes if node_id(a.var) not in rows and _is_short(a)]
    return axes if prod(int(axis_range(axis)[1]) for axis in axes) <= MAX_COPIES else []


def _expanded(op: Operation, member: RowKernel, is_split: bool) -> list[Axis]:
    """The axes of a stage that take one value in each of the stages derived from it."""
    own = _summed(op, member) if hash(op) == hash(member.kernel.root) else []
    return [*own, *([op.axis[-1]] if is_split else [])]


def _at_a_component(node: Expr, expanded: Sequence[Axis]) -> bool:
    last = operands(node)[-1]
    return const_value(last) is not None or any(
        node_id(last) == node_id(axis.var) for axis in expanded
    )


def _differ(op: Operation, member: RowKernel, is_split: bool, split: Mapping[int, object]) -> bool:
    """Whether components are computed by different formulas, or from each other."""
    expanded = [axis.var for axis in _expanded(op, member, is_split)]
    for node in postorder(_sources(op)):
        if op_name(node) in BRANCHES and depends_on(operands(node)[0], expanded):
            return True
        read = is_load(node) and hash(load_tensor(node).op) in split
        if read and const_value(operands(node)[-1]) is not None:
            return True
    return False


@dataclass
class _Made:
    """The members that replace others.

    Attributes
    ----------
    machine : Machine
    split : set of int
        The stages with components, by hash.
    members : list of Member
    components : dict
        The components of a tensor, by its key.
    single : dict
        The replacement of a tensor without components.
    """

    machine: Machine
    split: set[int]
    members: list[RowKernel] = field(default_factory=list)
    components: dict[Key, list[Tensor]] = field(default_factory=dict)
    single: dict[Key, Tensor] = field(default_factory=dict)
    _copies: dict[object, Tensor] = field(default_factory=dict)

    def add(self, member: RowKernel) -> None:
        """Append the replacement of a member."""
        root, epilogue = member.kernel.root, member.kernel.epilogue
        if not self._changes(member):
            self.members.append(member)
            for op in member.kernel.ops:
                self.single[tensor_key(op.output(0))] = op.output(0)
            return
        ops = [op for op in (root, epilogue) if op is not None]
        components = hash(ops[-1]) in self.split
        count = int(axis_range(root.axis[-1])[1]) if components else 1
        for number in range(count):
            news: list[Operation] = []
            for op in ops:
                new = self._component(op, member, number if components else None)
                key = tensor_key(op.output(0))
                if components:
                    self.components.setdefault(key, []).append(new.output(0))
                else:
                    self.single[key] = new.output(0)
                news.append(new)
            rows = _rows_of(news[0], root, member)
            self.members.append(RowKernel(Kernel(news[0], *news[1:]), rows, member.across))

    def _changes(self, member: RowKernel) -> bool:
        ops = member.kernel.ops
        if any(hash(op) in self.split for op in ops) or _summed(member.kernel.root, member):
            return True
        read = [tensor for op in ops for tensor in tensors_read_by(op)]
        keys = map(tensor_key, read)
        return any(key in self.components or self._is_new(key) for key in keys)

    def _is_new(self, key: Key) -> bool:
        return key in self.single and tensor_key(self.single[key]) != key

    def _component(self, op: Operation, member: RowKernel, number: int | None) -> Operation:
        """A stage at one value of its last axis, with short sums unrolled."""
        expanded = _expanded(op, member, number is not None)
        reduction = reduction_of(op)
        summed = [axis for axis in expanded if number is None or axis is not expanded[-1]]
        kept = list(op.axis) if number is None else list(op.axis)[:-1]
        left = [
            axis
            for axis in reduced_axes(op)
            if all(node_id(axis.var) != node_id(other.var) for other in summed)
        ]
        values: list[list[Expr]] = []
        for place in product(*(range(int(axis_range(axis)[1])) for axis in summed)):
            at = {axis.var: n for axis, n in zip(summed, place, strict=True)}
            if number is not None:
                at[op.axis[-1].var] = number
            values.append([self._value(op, member, source, at) for source in _sources(op)])
        result = values[0]
        for more in values[1:]:
            assert reduction is not None
            result = [fold(one) for one in reduction.combiner.apply(result, more)]
        name = op.name if number is None else f"{op.name}_{number}"
        axes, spatial = renewed(kept)
        fresh, reduced = renewed(left)
        rename = substituter(spatial | reduced)
        result = [rename(one) for one in result]
        if reduction is None or not fresh:
            return make_stage(name, axes, result)[0].op
        changed = replace(reduction, sources=tuple(result), axes=tuple(fresh))
        return reduction_stage(name, axes, changed)[0].op

    def _value(self, op: Operation, member: RowKernel, source: Expr, at: Mapping[Var, int]) -> Expr:
        """A source with some variables replaced by values, read from the replacements of tensors.
        """
        all_axes = loop_axes(op)
        variables = [axis.var for axis in all_axes]
        ranges = {
            node_id(axis.var): (0, extent - 1)
            for axis in all_axes
            for low, extent in [axis_range(axis)]
            if low == 0 and isinstance(extent, int)
        }
        ranges |= {node_id(var): (n, n) for var, n in at.items()}
        places = {var: const(n, dtype_of(var)) for var, n in at.items()}
        [found] = decided([source], variables, ranges)
        value = fold(substitute(found, places))
        rows = [axis for axis in all_axes if _among(axis.var, member.row_vars(op))]
        inner = [
            axis
            for axis in all_axes
            if not _among(axis.var, member.row_vars(op)) and not _among(axis.var, list(at))
        ]

        def read(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
            key = tensor_key(tensor)
            if key in self.components:
                component = const_value(indices[-1])
                assert component is not None
                return load(self.components[key][int(component)], list(indices[:-1]))
            if key in self.single:
                return load(self.single[key], list(indices))
            return self._copied(tensor, indices, rows, inner[-1:], variables)

        return map_loads(value, read)

    def _copied(
        self,
        tensor: Tensor,
        indices: Sequence[Expr],
        rows: Sequence[Axis],
        inner: Sequence[Axis],
        variables: Sequence[Var],
    ) -> Expr | None:
        """A strided read along the last axis, through a contiguous copy of the row; None for
        others.
        """
        if not inner:
            return None
        node = load(tensor, list(indices))
        if stride_of(node, node_id(inner[0].var), variables) in (0, 1):
            return None
        axes = [*rows, *inner]
        names: list[object] = []
        for index, dim in zip(indices, shape_of(tensor), strict=True):
            here = [n for n, axis in enumerate(axes) if node_id(axis.var) == node_id(index)]
            value = const_value(index)
            # a copy covers every index, guarded or not
            if here and _inside(axes[here[0]], dim):
                names.append(("axis", here[0]))
            elif value is not None and isinstance(dim, int) and 0 <= value < dim:
                names.append(("at", int(value)))
            else:
                return None
        key = (tensor_key(tensor), tuple(names), axis_range(inner[0]))
        if key not in self._copies:
            fresh, table = renewed(axes)
            copied = substituter(table)(node)
            made = make_stage(f"{tensor.op.name}_copy", list(map(as_data_axis, fresh)), [copied])[0]
            self._copies[key] = made
            self.members.append(RowKernel(Kernel(made.op), tuple(range(len(rows)))))
        return load(self._copies[key], [axis.var for axis in axes])


def _inside(axis: Axis, dim: Extent) -> bool:
    """Whether all values of an axis are valid indices of a dimension."""
    low, extent = axis_range(axis)
    if isinstance(extent, int) or isinstance(dim, int):
        return low == 0 and isinstance(extent, int) and isinstance(dim, int) and extent <= dim
    return low == 0 and node_id(extent) == node_id(dim)


def _among(var: Var, others: Sequence[Var]) -> bool:
    return any(node_id(var) == node_id(other) for other in others)


def _rows_of(new: Operation, old: Operation, member: RowKernel) -> tuple[int, ...]:
    """The numbers of the row axes that remain; a reduction may have lost others."""
    if not member.across:
        return member.rows
    before, after = reduction_of(old), reduction_of(new)
    assert before is not None
    assert after is not None
    gone = {node_id(axis.var) for axis in _summed(old, member)}
    kept = [n for n, axis in enumerate(before.axes) if node_id(axis.var) not in gone]
    return tuple(kept.index(number) for number in member.rows)
