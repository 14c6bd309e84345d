"""What a stage reads, how far apart in memory along each of its loops, and copies of it over loops
in another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....expr.nodes import Axis, Expr, is_load, load, node_id
from ....expr.rewrite import postorder, substituter
from ....graph.stage import Operation, axis_range, data_axis, loop_axes, make_stage
from ...kernel import Kernel, size_of
from ...nest.access import depends_on_any, stride_of
from ...nest.in_range import is_safe, loops_of


@dataclass(frozen=True)
class Read:
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

    def copied(self, loops: Sequence[Axis], name: str) -> tuple[Kernel, Expr]:
        """A copy over the loops of the read, in the order of `loops`, and a read of it."""
        axes = [axis for axis in loops if self.stride(axis)]
        new = [data_axis(axis.var.name, axis_range(axis)[1]) for axis in axes]
        rename = {old.var: own.var for old, own in zip(axes, new, strict=True)}
        [made] = make_stage(name, new, [substituter(rename)(self.expr)])
        return Kernel(made.op), load(made, [axis.var for axis in axes])

    def lines_between(self) -> int:
        """The lines that are read before a line is read again: 1 where that is at once."""
        order = [self.stride(axis) for axis in self.axes]
        inside = self.axes[order.index(1) + 1 :] if 1 in order else ()
        return size_of([axis_range(axis)[1] for axis in inside])


def reads_of(op: Operation, sources: Sequence[Expr]) -> list[Read]:
    """What is read, each element once; nothing if a loop or a distance is no constant."""
    axes = loop_axes(op)
    if any(low != 0 or not isinstance(extent, int) for low, extent in map(axis_range, axes)):
        return []
    variables = [axis.var for axis in axes]
    found: dict[int, Read] = {}
    for node in filter(is_load, postorder(sources)):
        used = tuple(axis for axis in axes if depends_on_any(node, axis.var))
        keys = [node_id(axis.var) for axis in used]
        strides = {key: stride_of(node, key, variables) for key in keys}
        known = {key: stride for key, stride in strides.items() if stride}
        if len(known) < len(used) or not is_safe([node], loops_of(axes)):
            return []
        found[node_id(node)] = Read(node, used, known)
    return list(found.values())
