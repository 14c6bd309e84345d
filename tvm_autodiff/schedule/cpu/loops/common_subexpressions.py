"""Computes common subexpressions of the stages of a fusion group once for the row.

A value of an expensive function that several stages need at the same index is kept in the row, and
a row's divisor becomes factors (``x[i, j] / s[i] → x[i, j] * c[i] * (1 / (s[i]*c[i]))``, with one
more rounding) unless exact results are required. The power of two c keeps both products and the
reciprocal finite and normal wherever the quotient is. float16 and bfloat16 are divided in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ....codegen.passes.short_circuit import surely_evaluated
from ....expr.costly import EXPENSIVE
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    is_const,
    is_float,
    load,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ....expr.rewrite import postorder, replace_outermost, substituter, variables_of
from ....graph.graph import retarget
from ....graph.stage import (
    Operation,
    as_data_axis,
    axis_range,
    make_stage,
    outputs_of,
    reduced_axes,
    reduction_of,
    reduction_stage,
    renewed,
    sources_of,
)
from ....graph.structural import EqualStages
from ...cost import THREAD_CYCLES
from ...fusion.groups import FusionGroup
from ...fusion.row_kernels import RowKernel
from ...kernel import Kernel, size_of
from ...machine import Machine
from ...rewrites.reciprocals import divided, factors_for

Key = tuple[int, int]


@dataclass(frozen=True)
class _Use:
    """The replacement of a node: the value of a stage for a row, or its left operand times factors.

    Attributes
    ----------
    stages : tuple of Operation
        The stage that holds the value, or those that hold the factors.
    place : list of Var
        The indices of the values in them.
    divides : bool
        Whether they are factors.
    repeats : bool
        Whether the row needs a value at several indices, though not at all.
    """

    stages: tuple[Operation, ...]
    place: list[Var]
    divides: bool
    repeats: bool


def with_common_subexpressions(group: FusionGroup, machine: Machine) -> FusionGroup:
    """The fusion group with shared values and reciprocals as separate stages.

    The outputs are the tensors, in the same order, that the new stages compute.
    """
    stages = EqualStages()
    uses: list[dict[int, _Use]] = []
    counts: dict[int, int] = {}
    for member in group.members:
        mine = _uses(member, stages, machine)
        uses.append(mine)
        for key in {hash(use.stages[0]) for use in mine.values()}:
            counts[key] = counts.get(key, 0) + 1
    wanted = [
        {
            key: use
            for key, use in mine.items()
            if use.divides or use.repeats or counts[hash(use.stages[0])] > 1
        }
        for mine in uses
    ]
    if not any(wanted):
        return group
    renewed = _Renewed()
    for member, mine in zip(group.members, wanted, strict=True):
        renewed.add(member, mine)
    outputs = [renewed.current(tensor) for tensor in group.outputs]
    return replace(group, members=tuple(renewed.members), outputs=outputs)


def _uses(member: RowKernel, stages: EqualStages, machine: Machine) -> dict[int, _Use]:
    """The values of a member's root that could be stages, by node."""
    root = member.kernel.root
    if any(op_name(node) == "let" for node in postorder(sources_of(root))):
        return {}
    found: dict[int, _Use] = {}
    for node in surely_evaluated(sources_of(root)):
        name = op_name(node)
        if name in EXPENSIVE and is_float(node):
            values = [node]
        elif name == "div" and is_float(node) and not machine.exact_math:
            divisor = operands(node)[1]
            if is_const(divisor) or not _one_a_row(divisor, node, member):
                continue
            values = factors_for(divisor)
        else:
            continue
        made = [_stage(member, value) for value in values]
        known = [(stages.first(stage), place) for stage, place in filter(None, made)]
        if len(known) == len(values):
            held = tuple(stage for stage, _ in known)
            repeats = _repeats(known[0][1], member)
            found[node_id(node)] = _Use(held, known[0][1], name == "div", repeats)
    return found


def _repeats(place: list[Var], member: RowKernel) -> bool:
    """Whether loops of a row go several times over a value that others of them change."""
    inside = {node_id(var) for var in place}
    others = _other_axes(member)
    left = [axis_range(axis)[1] for axis in others if node_id(axis.var) not in inside]
    return len(left) < len(others) and size_of(left) > 1


def _one_a_row(divisor: Expr, whole: Expr, member: RowKernel) -> bool:
    """Whether a divisor is constant along a row in which the quotient varies."""
    rows = {node_id(axis.var) for axis in member.row_axes}
    others = {node_id(axis.var) for axis in _other_axes(member)}
    inside = {node_id(var) for var in variables_of(divisor)}
    varies = {node_id(var) for var in variables_of(whole)} & others
    return inside <= rows and bool(varies)


def _other_axes(member: RowKernel) -> list[Axis]:
    """The axes of the root that are not the rows, as the loops of a row run."""
    root = member.kernel.root
    rows = {node_id(axis.var) for axis in member.row_axes}
    axes = [*reduced_axes(root), *root.axis]
    return [axis for axis in axes if node_id(axis.var) not in rows]


#: node that a separate stage computes → its name, if that differs
_NAMES = {"div": "reciprocal", "select": "scale"}


def _stage(member: RowKernel, value: Expr) -> tuple[Operation, list[Var]] | None:
    """``value`` as a stage over the rows and the other axes that it depends on."""
    inside = {node_id(var) for var in variables_of(value)}
    others = [axis for axis in _other_axes(member) if node_id(axis.var) in inside]
    axes = [*member.row_axes, *others]
    if not inside <= {node_id(axis.var) for axis in axes}:
        return None
    extents = [axis_range(axis) for axis in others]
    if any(low != 0 for low, _ in extents):
        return None
    if size_of([extent for _, extent in extents]) > 2 * THREAD_CYCLES:
        return None
    fresh, table = renewed(axes)
    name = _NAMES.get(op_name(value), op_name(value))
    made = make_stage(name, list(map(as_data_axis, fresh)), [substituter(table)(value)])
    return made[0].op, [axis.var for axis in axes]


class _Renewed:
    """Members rewritten to use shared values and the stages that replaced others."""

    def __init__(self) -> None:
        self.members: list[RowKernel] = []
        self._table: dict[Key, Tensor] = {}
        self._made: dict[int, Tensor] = {}

    def current(self, tensor: Tensor) -> Tensor:
        """The replacement of a tensor, or the tensor."""
        return self._table.get(tensor_key(tensor), tensor)

    def add(self, member: RowKernel, uses: dict[int, _Use]) -> None:
        """Append a member."""
        root = member.kernel.root
        values: dict[int, Expr] = {}
        for node in _outermost(sources_of(root), uses):
            use = uses[node_id(node)]
            for stage in use.stages:
                if hash(stage) not in self._made:
                    self._make(stage, len(member.rows))
            found = [load(self._made[hash(stage)], use.place) for stage in use.stages]
            values[node_id(node)] = divided(operands(node)[0], found) if use.divides else found[0]
        new = self._current(_withsources_of(root, lambda e: replace_outermost(e, values)))
        self._replaced(root, new)
        epilogue = member.kernel.epilogue
        if epilogue is not None:
            changed = self._current(epilogue)
            self._replaced(epilogue, changed)
            epilogue = changed
        self.members.append(replace(member, kernel=Kernel(new, epilogue)))

    def _make(self, stage: Operation, rows: int) -> None:
        current = self._current(stage)
        self._made[hash(stage)] = current.output(0)
        self.members.append(RowKernel(Kernel(current), tuple(range(rows))))

    def _current(self, op: Operation) -> Operation:
        return retarget(op, lambda tensor: self._table.get(tensor_key(tensor)))[0].op

    def _replaced(self, old: Operation, new: Operation) -> None:
        if hash(old) != hash(new):
            for before, after in zip(outputs_of(old), outputs_of(new), strict=True):
                self._table[tensor_key(before)] = after


def _outermost(roots: list[Expr], uses: dict[int, _Use]) -> list[Expr]:
    pending, seen, found = list(reversed(roots)), set(), []
    while pending:
        node = pending.pop()
        if node_id(node) in seen:
            continue
        seen.add(node_id(node))
        if node_id(node) in uses:
            found.append(node)
            if op_name(node) != "div":
                continue
        pending += reversed(operands(node))
    return found


def _withsources_of(op: Operation, change: Callable[[Expr], Expr]) -> Operation:
    old = sources_of(op)
    new = [change(source) for source in old]
    if all(node_id(a) == node_id(b) for a, b in zip(old, new, strict=True)):
        return op
    reduction = reduction_of(op)
    if reduction is None:
        return make_stage(op.name, list(op.axis), new, op.tag)[0].op
    return reduction_stage(op.name, list(op.axis), replace(reduction, sources=tuple(new)))[0].op
