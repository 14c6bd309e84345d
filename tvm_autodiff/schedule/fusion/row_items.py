"""The work within a row of a fusion group, as loop nests that stages with equal loops share.

Each stage becomes an item with the loops it needs within a row, the last of which may be
vectorised. An item joins the nest that produces what it reads if it reads it at its own index; the
result of a reduction is available only after its nest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...expr.nodes import (
    Axis,
    Expr,
    Var,
    dtype_of,
    is_load,
    load_tensor,
    node_id,
    operands,
    tensor_key,
)
from ...expr.rewrite import postorder
from ...graph.stage import (
    Extent,
    Operation,
    Reduction,
    axis_range,
    loop_axes,
    outputs_of,
    reduced_axes,
    reduction_of,
    sources_of,
)
from ..machine import Machine
from ..nest.access import has_branches
from ..nest.inside import has_borders, unit_strides_inside
from ..rewrites.conditions.guards import selected
from .groups import FusionGroup
from .row_kernels import RowKernel, inner_axes

MAP, FOLD, BLOCK, SUM = "map", "fold", "block", "sum"


@dataclass(frozen=True)
class Item:
    """A stage of a group, as it runs in one row.

    Attributes
    ----------
    kind : str
        ``MAP`` computes elements of the row; ``FOLD`` reduces the row to one value; ``BLOCK``
        reduces to several; ``SUM`` adds to sums over the rows.
    op : Operation
    rows : tuple of Var
        The variables of the stage that are the rows.
    spatial, reduced : tuple of Axis
        The other axes, the vectorised one last in its tuple.
    sources : tuple of Expr
        The computed or reduced values, one expression per component.
    lanes : int
        The width of vectors.
    guarded : bool
        Whether a condition changes along the last loop, so that vectors cannot be written
        explicitly.
    straight : bool
        Whether all memory is contiguous along the last loop.
    still : tuple of Var
        Variables that stay at zero: axes of one element, and collapsed ones, which the next loop
        covers as well.
    """

    kind: str
    op: Operation
    rows: tuple[Var, ...]
    spatial: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    reduction: Reduction | None
    sources: tuple[Expr, ...]
    lanes: int
    guarded: bool
    straight: bool
    still: tuple[Var, ...] = ()

    @property
    def loops(self) -> tuple[Axis, ...]:
        """All loops within a row, outermost first."""
        if self.kind == FOLD:
            return self.reduced
        return (*self.reduced, *self.spatial) if self.kind == SUM else self.spatial

    @property
    def dims(self) -> list[int]:
        """The dimensions of a result along which it has several elements in a row."""
        others = {node_id(var) for var in (*self.rows, *self.still)}
        return [n for n, axis in enumerate(self.op.axis) if node_id(axis.var) not in others]

    @property
    def shape(self) -> tuple[object, ...]:
        """The key of items that can share loops."""
        extents = [axis_range(axis) for axis in self.loops]
        ids = tuple((_key(low), _key(extent)) for low, extent in extents)
        return (ids, self.lanes, self.guarded, self.kind == BLOCK and id(self))


def _key(extent: Extent) -> object:
    return extent if isinstance(extent, int) else ("symbol", node_id(extent))


@dataclass
class Nest:
    """Items that run in the same loops."""

    items: list[Item] = field(default_factory=list)

    @property
    def folds(self) -> list[Item]:
        """The items that keep a value over all iterations."""
        return [item for item in self.items if _is_fold(item)]


def _is_fold(item: Item) -> bool:
    return item.kind == FOLD or (item.kind == SUM and not item.spatial)


def items_of(group: FusionGroup, machine: Machine) -> list[Item]:
    """The stages of a fusion group that run in the row loop, in order."""
    found = []
    for member in group.members:
        for op in member.kernel.ops:
            if member.across and hash(op) != hash(member.kernel.root):
                continue  # what becomes of a sum over the rows comes after them
            found.append(_item(op, member, machine))
    return found


def _item(op: Operation, member: RowKernel, machine: Machine) -> Item:
    reduction = reduction_of(op)
    root = member.kernel.root
    inner = [n for n, axis in enumerate(root.axis) if axis in inner_axes(member)]
    numbers = [n for n in inner if not _is_single(op.axis[n])]
    spatial = tuple(op.axis[n] for n in numbers)
    still = tuple(op.axis[n].var for n in inner if n not in numbers)
    rows = tuple(member.row_vars(op))
    ids = {node_id(var) for var in rows}
    reduced = tuple(a for a in reduced_axes(op) if node_id(a.var) not in ids)
    kind = MAP
    if reduction is not None:
        kind = SUM if member.across else (BLOCK if spatial else FOLD)
    if kind == FOLD or (kind == SUM and not spatial):
        reduced = contiguous_last(op, reduced)
    last = (spatial or reduced)[-1:] if kind != FOLD else reduced[-1:]
    sources = _without_branches(op, tuple(sources_of(op)))
    lanes, guarded, straight = 1, False, True
    if last:
        lanes = machine.lanes(*map(dtype_of, outputs_of(op)))
        straight = unit_strides_inside(op, last[0].var)
        if spatial and not all(map(_is_single, root.axis[numbers[-1] + 1 :])):
            straight = False
        guarded = not straight or is_cut(sources, last[0].var)
    return Item(
        kind, op, rows, spatial, reduced, reduction, sources, lanes, guarded, straight, still
    )


def _is_single(axis: Axis) -> bool:
    return axis_range(axis)[1] == 1


def as_fold(item: Item) -> Item:
    """A block as one of its results: its other axes count as rows."""
    rows = (*item.rows, *(axis.var for axis in item.spatial))
    reduced = contiguous_last(item.op, item.reduced)
    straight = unit_strides_inside(item.op, reduced[-1].var)
    guarded = not straight or is_cut(item.sources, reduced[-1].var)
    return replace(
        item,
        kind=FOLD,
        rows=rows,
        spatial=(),
        reduced=reduced,
        guarded=guarded,
        straight=straight,
    )


def is_cut(sources: Sequence[Expr], var: Var) -> bool:
    """Whether vectors along a variable need its loop to be split, at conditions or at borders."""
    return has_branches(sources, var) or has_borders(sources, var)


def contiguous_last(op: Operation, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes with one along which memory is contiguous as the last."""
    for number in range(len(axes) - 1, -1, -1):
        constant = isinstance(axis_range(axes[number])[1], int)
        if constant and unit_strides_inside(op, axes[number].var):
            return (*axes[:number], *axes[number + 1 :], axes[number])
    return axes


def _without_branches(op: Operation, sources: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The sources without unnecessary branches; see `selected`."""
    return selected(sources, loop_axes(op))


def nests_of(items: Sequence[Item]) -> list[Nest]:
    """Items combined into nests, in order of execution."""
    nests: list[Nest] = []
    made: dict[tuple[int, int], tuple[int, Item]] = {}
    for item in items:
        earliest = 0
        for tensor, same_place in _own_reads(item, made):
            number, source = made[tensor]
            later = source.kind != MAP or not same_place
            earliest = max(earliest, number + 1 if later else number)
        for number in range(earliest, len(nests)):
            if nests[number].items[0].shape == item.shape:
                break
        else:
            number = len(nests)
            nests.append(Nest())
        nests[number].items.append(item)
        made.update({tensor_key(tensor): (number, item) for tensor in outputs_of(item.op)})
    return nests


def _own_reads(
    item: Item, made: dict[tuple[int, int], tuple[int, Item]]
) -> list[tuple[tuple[int, int], bool]]:
    """Reads of what other items produce, and whether each is at the current index of the loops."""
    found = []
    here = [node_id(axis.var) for axis in item.loops]
    for node in postorder(list(item.sources)):
        if not is_load(node) or tensor_key(load_tensor(node)) not in made:
            continue
        key = tensor_key(load_tensor(node))
        source = made[key][1]
        place = [node_id(operands(node)[n]) for n in source.dims]
        found.append((key, place == here))
    return found
