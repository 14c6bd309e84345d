"""Copies large tensors that a reduction reads across their lines of memory, in the order in which
it reads them.

``y[b, a] = Σ_c x[b, a, c]*h[a, c, b]  →  p[b, a, c] = h[a, c, b], y[b, a] = Σ_c x[b, a, c]*p[b, a,
c]``
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ....expr.nodes import Axis, Expr, Tensor, is_load, load, load_tensor, node_id
from ....expr.rewrite import expand_lets, postorder, rewrite, substituter
from ....graph.stage import (
    Operation,
    Reduction,
    axis_range,
    data_axis,
    loop_axes,
    make_stage,
    reduction_of,
    reduction_stage,
    shape_of,
)
from ...cost import LAUNCH_CYCLES, MIN_LANES
from ...kernel import Kernel, iterations, size_of, with_root
from ...machine import Machine
from ...nest.access import depends_on_any, stride_of
from ...nest.in_range import is_safe, loops_of
from ...nest.reductions.commuting import commutes


@dataclass(frozen=True)
class _Read:
    """A read, the loops that it depends on, and how far apart it reads along each, by variable."""

    expr: Expr
    axes: tuple[Axis, ...]
    strides: Mapping[int, int]

    def stride(self, axis: Axis) -> int:
        """The distance in memory, in elements, of neighbours along a loop; 0 if there are none."""
        return self.strides.get(node_id(axis.var), 0)

    @property
    def elements(self) -> int:
        """Those of a copy over its loops."""
        return size_of([axis_range(axis)[1] for axis in self.axes])

    def lines_between(self) -> int:
        """The lines that are read before a line is read again: 1 where that is at once."""
        order = [self.stride(axis) for axis in self.axes]
        inside = self.axes[order.index(1) + 1 :] if 1 in order else ()
        return size_of([axis_range(axis)[1] for axis in inside])


def over_ordered_copies(kernel: Kernel, machine: Machine) -> tuple[list[Kernel], Kernel] | None:
    """Copies, and the kernel that reads them: of what returns to each line of memory after more
    lines than the first cache holds, and of what else is then not read in order along what is
    reduced last. None where nothing is read so, or a copy would have more elements than its tensor.
    """
    op = kernel.root
    reduction = reduction_of(op)
    if reduction is None or reduction.init or op.num_outputs != 1:
        return None
    if iterations(op) < LAUNCH_CYCLES or not commutes(reduction.combiner):
        return None
    sources = list(map(expand_lets, reduction.sources))
    reads = _reads_of(op, sources)
    if not any(_is_far(read, machine) for read in reads):
        return None
    order, apart = _order_of(reduction, reads)
    if not any(_is_far(read, machine) for read in apart) or not all(map(_is_copied_once, apart)):
        return None
    copies: list[Kernel] = []
    table: dict[int, Expr] = {}
    for number, read in enumerate(apart):
        axes = [axis for axis in (*op.axis, *order) if read.stride(axis)]
        copied = _copy(read.expr, axes, f"{op.name}_in_order{number}")
        copies.append(Kernel(copied.op))
        table[node_id(read.expr)] = load(copied, [axis.var for axis in axes])
    new = tuple(rewrite(source, lambda node: table.get(node_id(node))) for source in sources)
    changed = replace(reduction, sources=new, axes=order)
    return copies, with_root(kernel, reduction_stage(op.name, list(op.axis), changed))


def _order_of(reduction: Reduction, reads: Sequence[_Read]) -> tuple[tuple[Axis, ...], list[_Read]]:
    """The reduced axes in an order, and the reads that are then not in order in memory along the
    last one: as few elements as possible. The others go through the memory of the first read that
    is.
    """
    long = [axis for axis in reduction.axes if size_of([axis_range(axis)[1]]) >= MIN_LANES]
    orders = [(last, [one for one in reads if one.stride(last) not in (0, 1)]) for last in long]
    if not orders:
        return reduction.axes, []
    last, apart = min(orders, key=lambda order: sum(read.elements for read in order[1]))
    rest = [axis for axis in reduction.axes if axis is not last]
    for read in [one for one in reads if one.stride(last) == 1][:1]:
        rest.sort(key=read.stride, reverse=True)
    return (*rest, last), apart


def _is_far(read: _Read, machine: Machine) -> bool:
    """Whether lines leave the first cache before they are read again."""
    return read.lines_between() * machine.line_bytes > machine.first_cache_bytes


def _is_copied_once(read: _Read) -> bool:
    """Whether a copy has at most the elements of the tensor."""
    extents = shape_of(load_tensor(read.expr))
    return all(isinstance(n, int) for n in extents) and read.elements <= size_of(extents)


def _copy(read: Expr, axes: Sequence[Axis], name: str) -> Tensor:
    """A read over some loops as a stage."""
    new = [data_axis(axis.var.name, axis_range(axis)[1]) for axis in axes]
    rename = {old.var: own.var for old, own in zip(axes, new, strict=True)}
    [made] = make_stage(name, new, [substituter(rename)(read)])
    return made


def _reads_of(op: Operation, sources: Sequence[Expr]) -> list[_Read]:
    """What is read, each element once; nothing if a loop or a distance is no constant."""
    axes = loop_axes(op)
    if any(low != 0 or not isinstance(extent, int) for low, extent in map(axis_range, axes)):
        return []
    variables = [axis.var for axis in axes]
    found: dict[int, _Read] = {}
    for node in filter(is_load, postorder(sources)):
        used = tuple(axis for axis in axes if depends_on_any(node, axis.var))
        keys = [node_id(axis.var) for axis in used]
        strides = {key: stride_of(node, key, variables) for key in keys}
        known = {key: stride for key, stride in strides.items() if stride}
        if len(known) < len(used) or not is_safe([node], loops_of(axes)):
            return []
        found[node_id(node)] = _Read(node, used, known)
    return list(found.values())
