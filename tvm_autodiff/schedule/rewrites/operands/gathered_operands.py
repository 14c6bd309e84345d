"""Copies operands that are read at quotients into the order of the loops.

A product over windows of a rolled image reads rows at ``(w//4*8 + a//8 + 4)%32``. A register tile
would pack its operands element by element, with the quotients of each; a stage that gathers them
copies rows of memory, all products of the same windows share it, and what they read is affine. The
mean of a group of channels is copied for each channel, so that vectors run over all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....expr.build import variable
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import (
    contains,
    contains_load,
    depends_on,
    expand_lets,
    postorder,
    replace_outermost,
    substitute,
)
from ....expr.sharing.lets import bind_shared
from ....expr.structural import StructuralKeys
from ....graph.graph import each_stage
from ....graph.sizes.loop_sizes import is_size
from ....graph.sizes.nonnegative import nonnegative
from ....graph.stage import (
    Extent,
    Operation,
    axis_range,
    data_axis,
    is_compute,
    loop_axes,
    make_stage,
    reduction_of,
    reduction_stage,
    shape_of,
    sources_of,
    with_bodies,
)
from ...cost import LAUNCH_CYCLES, STORE
from ...kernel import Kernel, size_of
from ...nest.access import affine_forms, streamed
from ...nest.in_range import is_safe, loops_of
from ..quotient_axes import split_at_quotients


def with_gathered_operands(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y[w, a, b] = Σ_d q[(w*8 + a + 4)%32, d]*k[w, b, d] → g[w, a, d] = q[(w*8 + a + 4)%32, d],
    y[w, a, b] = Σ_d g[w, a, d]*k[w, b, d]``.
    """
    return each_stage(outputs, _Gathered().read_by)


@dataclass
class _Gathered:
    """The copies that were made so far, by what they hold."""

    keys: StructuralKeys = field(default_factory=StructuralKeys)
    made: dict[tuple[object, ...], Tensor] = field(default_factory=dict)
    variables: list[Var] = field(default_factory=list)  #: of reads that are compared

    def read_by(self, op: Operation) -> list[Tensor] | None:
        """A reduction over copies, or None where nothing is gained by them."""
        if not is_compute(op):
            return None
        found = reduction_of(op)
        sources = [expand_lets(source) for source in sources_of(op)]
        if not contains(sources, _is_division):
            return None
        axes = loop_axes(op)
        extents: dict[int, Extent] = {}
        for axis in axes:
            low, extent = axis_range(axis)
            if low != 0 or dtype_of(axis.var) != "int32" or not is_size(extent, axes):
                return None
            extents[node_id(axis.var)] = extent
        if found is None and size_of(list(extents.values())) < LAUNCH_CYCLES:
            return None
        streams = True
        if found is not None:
            streams, split = bool(streamed(op, found)), split_at_quotients(Kernel(op))
            # tiles over split axes need no copies, but what streams has no tiles
            if split is not None and not _gathers(split.kernel.root) and not streams:
                return None
        table: dict[int, Expr] = {}
        for node in _gathers(op):
            if found is None and not contains(operands(node), _is_quotient):
                continue  # places that wrap around are neighbours, but for a border
            copy = self._copy(node, axes, extents, streams)
            if copy is not None:
                table[node_id(node)] = copy
        if not table:
            return None
        fresh = tuple(replace_outermost(source, table) for source in sources)
        if found is None:
            return with_bodies(op, list(map(bind_shared, fresh)))
        return reduction_stage(op.name, list(op.axis), replace(found, sources=fresh))

    def _copy(
        self, node: Expr, axes: Sequence[Axis], extents: Mapping[int, Extent], streams: bool
    ) -> Expr | None:
        """The read of a copy in place of a read, or None if the copy is not worth it: a larger one,
        unless it is little of what the loops stream from memory.
        """
        tensor, indices = load_tensor(node), operands(node)
        own = sorted(
            (axis for axis in axes if depends_on(list(indices), [axis.var])),
            key=lambda axis: _dimension(indices, axis.var),
        )
        sizes = [extents[node_id(axis.var)] for axis in own]
        points, total = size_of(sizes), size_of(list(extents.values()))
        if points > size_of(shape_of(tensor)) and not streams:
            return None
        if total < STORE * points:
            return None
        for number in range(len(self.variables), len(own)):
            self.variables.append(variable(f"d{number}", "int32"))
        here = self.variables[: len(own)]
        moved = substitute(node, {axis.var: var for axis, var in zip(own, here, strict=True)})
        key = (self.keys.expr(moved), self.keys.extents(sizes))
        if key not in self.made:
            if not is_safe([node], loops_of(own)):
                return None
            fresh = [data_axis(a.var.name, nonnegative(axis_range(a)[1])) for a in own]
            table = {old.var: new.var for old, new in zip(own, fresh, strict=True)}
            [self.made[key]] = make_stage(
                f"{tensor.op.name}_gathered", fresh, [substitute(node, table)]
            )
        return load(self.made[key], [axis.var for axis in own])


def _gathers(op: Operation) -> list[Expr]:
    """The reads of a stage at quotients or remainders of its loops."""
    variables = [axis.var for axis in loop_axes(op)]
    found = []
    for node in postorder([expand_lets(source) for source in sources_of(op)]):
        if is_load(node) and not contains_load(operands(node)):
            forms = affine_forms(list(operands(node)), variables)
            if any(node_id(index) not in forms for index in operands(node)):
                found.append(node)
    return [node for node in found if contains(operands(node), _is_division)]


def _is_division(node: Expr) -> bool:
    return op_name(node) in ("floordiv", "floormod")


def _is_quotient(node: Expr) -> bool:
    return op_name(node) == "floordiv"


def _dimension(indices: Sequence[Expr], var: Var) -> int:
    """The last dimension of a tensor whose index depends on a variable."""
    return max(place for place, index in enumerate(indices) if depends_on(index, [var]))
