"""Parts of the expressions of a stage as stages over the axes that change them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...expr.costly import is_slow
from ...expr.nodes import (
    BRANCHES,
    Axis,
    Expr,
    Tensor,
    is_const,
    is_load,
    load,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import (
    contains_load,
    depends_on,
    expand_lets,
    postorder,
    replace_outermost,
    substituter,
)
from ...expr.sharing.lets import bind_shared, merge_equal
from ...graph.sizes.nonnegative import nonnegative
from ...graph.stage import (
    Operation,
    as_data_axis,
    axis_range,
    is_compute,
    loop_axes,
    make_stage,
    reduction_of,
    reduction_stage,
    renewed,
    sources_of,
    widened_axis,
    with_bodies,
)
from ..reductions.reducers import classify


@dataclass(frozen=True)
class Part:
    """What is known of an expression.

    Attributes
    ----------
    axes : frozenset of int
        The numbers of the axes that change it.
    reads : frozenset of int
        Two of the elements that it reads, by their nodes, or one; not those that say where.
    slow : bool
        Whether it holds a function of many operations.
    """

    axes: frozenset[int]
    reads: frozenset[int]
    slow: bool


@dataclass(frozen=True)
class Parts:
    """The expressions of a stage, and what is known of what they hold.

    Attributes
    ----------
    op : Operation
    sources : list of Expr
        The expressions; equal parts of them are one node.
    facts : mapping from int to Part
        By node.
    wide : frozenset of int
        The axes of several elements, by number.
    symbolic : frozenset of int
        The axes of symbolic extent. Of an axis that is empty at a call, no part may be read: its
        elements need not be there.
    """

    op: Operation
    sources: list[Expr]
    facts: dict[int, Part]
    wide: frozenset[int]
    symbolic: frozenset[int]

    def stored(self, parts: Sequence[Expr], name: str) -> list[Tensor]:
        """The stage that reads stages of some parts, which have the name with a number."""
        reads: dict[int, Expr] = {}
        wanted = {node_id(part) for part in parts}
        for node in postorder(self.sources):  # what others hold comes first
            key = node_id(node)
            if key not in wanted:
                continue
            own = [self.axes[number] for number in sorted(self.facts[key].axes)]
            axes, renames = renewed([_stored_axis(axis) for axis in own])
            body = bind_shared(substituter(renames)(replace_outermost(node, reads)))
            [stage] = make_stage(f"{self.op.name}_{name}{len(reads)}", axes, [body])
            reads[key] = load(stage, [axis.var for axis in own])
        changed = [bind_shared(replace_outermost(body, reads)) for body in self.sources]
        reduction = reduction_of(self.op)
        if reduction is None:
            return with_bodies(self.op, changed)
        reduced = replace(reduction, sources=tuple(changed))
        return reduction_stage(self.op.name, self.op.axis, reduced)

    @property
    def axes(self) -> list[Axis]:
        """The axes of the stage, output axes first."""
        return loop_axes(self.op)


def parts_of(op: Operation, sums: bool = False) -> Parts | None:
    """The parts of a stage; None for one that calls no slow function, has no elements, does not
    begin at 0, or reduces, unless `sums` are wanted, too, of all points of a box.
    """
    if not is_compute(op):
        return None
    reduction = reduction_of(op)
    if reduction is not None:
        if not sums or classify(reduction.combiner, 0) != "sum":
            return None
        if not is_const(reduction.condition, 1):
            return None
    ranges = list(map(axis_range, loop_axes(op)))
    if any(low != 0 or extent == 0 for low, extent in ranges):
        return None
    symbolic_extents = [extent for _, extent in ranges if not isinstance(extent, int)]
    variables = [axis.var for axis in loop_axes(op)]
    if any(depends_on(extent, variables) or contains_load(extent) for extent in symbolic_extents):
        return None
    sources = merge_equal([expand_lets(source) for source in sources_of(op)])
    if not any(map(is_slow, postorder(sources))):
        return None
    wide = frozenset(n for n, (_, size) in enumerate(ranges) if isinstance(size, int) and size > 1)
    symbolic = frozenset(n for n, (_, size) in enumerate(ranges) if not isinstance(size, int))
    return Parts(op, sources, _facts(sources, loop_axes(op)), wide, symbolic)


def _stored_axis(axis: Axis) -> Axis:
    """The axis of a tensor; a loop may have a negative extent."""
    return as_data_axis(widened_axis(axis, nonnegative(axis_range(axis)[1])))


def _facts(sources: Sequence[Expr], axes: Sequence[Axis]) -> dict[int, Part]:
    numbers = {node_id(axis.var): number for number, axis in enumerate(axes)}
    facts: dict[int, Part] = {}
    for node in postorder(list(sources)):
        key = node_id(node)
        inside = [facts[node_id(part)] for part in operands(node)]
        own = frozenset((numbers[key],)) if key in numbers else frozenset[int]()
        reads = frozenset[int]().union(*(part.reads for part in inside))
        facts[key] = Part(
            own.union(*(part.axes for part in inside)),
            frozenset((key,)) if is_load(node) else frozenset(sorted(reads)[:2]),
            is_slow(node) or any(part.slow for part in inside),
        )
    return facts


def needed_operands(node: Expr) -> tuple[Expr, ...]:
    """The operands that every element needs: not those of an index, nor the sides of a branch."""
    if is_load(node):
        return ()
    return operands(node)[:1] if op_name(node) in BRANCHES else operands(node)
