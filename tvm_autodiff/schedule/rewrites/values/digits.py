"""Stages for the values of an expression of loops, over the integers through which it depends on
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from ....expr.build import variable
from ....expr.integers.intervals import Intervals
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    const_value,
    dtype_of,
    load,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import replace_outermost
from ....expr.sharing.lets import bind_shared
from ....expr.structural import StructuralKeys
from ....graph.sizes.nonnegative import nonnegative
from ....graph.stage import (
    Extent,
    Operation,
    axis_range,
    data_axis,
    make_stage,
    reduction_of,
    reduction_stage,
    with_bodies,
)
from ...kernel import size_of
from ...nest.access import Interval
from ...nest.in_range import Loops, is_safe
from .dependence import divided_loop

Key = tuple[object, ...]


@dataclass(frozen=True)
class Digits:
    """The integers through which an expression depends on its loops: axes, or quotients of one.

    Attributes
    ----------
    nodes : list of Expr
        One node for each, in the order of the loops.
    extents : list of int or Expr
        Each is in ``0 .. extent-1``.
    same : mapping from id to int
        The number of the integer that a node is.
    depth : int
        How many loops there are up to the innermost one that it depends on.
    """

    nodes: list[Expr]
    extents: list[Extent]
    same: Mapping[int, int]
    depth: int

    @property
    def literal(self) -> list[int] | None:
        """The extents, where all of them are numbers."""
        numbers = [extent for extent in self.extents if isinstance(extent, int)]
        return numbers if len(numbers) == len(self.extents) else None

    @property
    def points(self) -> int:
        """How many values there are; a symbolic extent counts as usual."""
        return size_of(self.extents)

    @property
    def has_quotients(self) -> bool:
        """Whether one of the integers is a quotient of a loop."""
        return any(op_name(node) != "var" for node in self.nodes)


@dataclass
class ValueStages:
    """Stages of values that were made so far, by their expressions."""

    keys: StructuralKeys = field(default_factory=StructuralKeys)
    made: dict[Key, Tensor] = field(default_factory=dict)
    variables: list[Var] = field(default_factory=list)  #: of expressions that are compared

    def key(self, node: Expr, digits: Digits) -> Key:
        """Equal for expressions that have the same values."""
        sizes = (one if isinstance(one, int) else (self.keys.expr(one),) for one in digits.extents)
        return (self.keys.expr(_over(node, digits, self._here(digits))), *sizes)

    def stage(self, name: str, node: Expr, digits: Digits) -> Tensor | None:
        """A stage of an expression's values; None if not all of them can be computed."""
        here = self._here(digits)
        ranges: dict[int, Interval] = {}
        symbolic: dict[int, tuple[Extent, Extent]] = {}
        for var, extent in zip(here, digits.extents, strict=True):
            if isinstance(extent, int):
                ranges[node_id(var)] = (0, extent - 1)
            else:
                symbolic[node_id(var)] = (0, extent)
        if not is_safe([_over(node, digits, here)], Loops(tuple(here), ranges, symbolic)):
            return None
        axes = [data_axis(f"d{n}", extent, "int32") for n, extent in enumerate(digits.extents)]
        body = bind_shared(_over(node, digits, [axis.var for axis in axes]))
        [made] = make_stage(f"{name}_values", axes, [body])
        return made

    def read(self, key: Key, digits: Digits) -> Expr:
        """The read of an expression's values in place of the expression."""
        return load(self.made[key], digits.nodes)

    def _here(self, digits: Digits) -> list[Var]:
        for number in range(len(self.variables), len(digits.nodes)):
            self.variables.append(variable(f"d{number}", "int32"))
        return self.variables[: len(digits.nodes)]


def digits_of(
    root: Expr, axes: Sequence[Axis], ranges: Mapping[int, Interval], keys: StructuralKeys
) -> Digits | None:
    """The integers that an expression depends on; None if one of them does not begin at zero.

    An axis of which the quotients and remainders have as many values is taken itself, and so is one
    of symbolic extent.
    """
    order = {node_id(axis.var): number for number, axis in enumerate(axes)}
    bare: set[int] = set()  # loops that it depends on otherwise than by quotients
    divided: dict[int, list[Expr]] = {}
    seen: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if node_id(node) in seen:
            continue
        seen.add(node_id(node))
        if node_id(node) in order:
            bare.add(node_id(node))
        elif op_name(node) == "var":
            return None  # a size, or another variable
        elif (axis := divided_loop(node, order)) is not None:
            divided.setdefault(axis, []).append(node)
        else:
            pending += operands(node)
    bounds = Intervals(lambda var: ranges.get(node_id(var), (0, -1)))
    nodes: list[Expr] = []
    same: dict[int, int] = {}
    for var in (axis.var for axis in axes):
        quotients = divided.get(node_id(var), [])
        if node_id(var) not in bare and not quotients:
            continue
        if dtype_of(var) != "int32":
            return None
        if node_id(var) not in ranges:
            same[node_id(var)] = len(nodes)
            nodes.append(var)
            continue
        first = {keys.expr(node): node for node in reversed(quotients)}
        # quotients before remainders: they choose among blocks of memory
        own = sorted(first.values(), key=_span, reverse=True)
        if any(bounds.of(node)[0] != 0 or dtype_of(node) != "int32" for node in own):
            return None
        if node_id(var) in bare or prod(bounds.of(n)[1] + 1 for n in own) > ranges[node_id(var)][1]:
            same[node_id(var)] = len(nodes)
            nodes.append(var)
            continue
        numbers = {keys.expr(node): len(nodes) + place for place, node in enumerate(own)}
        same.update((node_id(node), numbers[keys.expr(node)]) for node in quotients)
        nodes += own
    whole = {node_id(axis.var): nonnegative(axis_range(axis)[1]) for axis in axes}
    symbolic = {key: extent for key, extent in whole.items() if not isinstance(extent, int)}
    extents = [symbolic.get(node_id(node), bounds.of(node)[1] + 1) for node in nodes]
    if any(isinstance(extent, int) and extent < 1 for extent in extents):
        return None
    used = [order[key] for key in (*bare, *divided)]
    return Digits(nodes, extents, same, max(used, default=-1) + 1)


def _span(node: Expr) -> int:
    """How many elements of its axis a quotient spans; 0 for remainders, and quotients of them."""
    numerator, divisor = operands(node)
    if op_name(node) != "floordiv" or op_name(numerator) != "var":
        return 0
    return int(const_value(divisor) or 0)


def ranges_of(axes: Sequence[Axis]) -> dict[int, Interval] | None:
    """The ranges of axes from 0 on with literal extents, by id; None for other lower bounds."""
    ranges: dict[int, Interval] = {}
    for axis in axes:
        low, extent = axis_range(axis)
        if low != 0:
            return None
        if isinstance(extent, int):
            ranges[node_id(axis.var)] = (0, extent - 1)
    return ranges


def with_sources(op: Operation, sources: Sequence[Expr]) -> list[Tensor]:
    """A stage over other bodies, or with another sum."""
    fresh = tuple(map(bind_shared, sources))
    reduction = reduction_of(op)
    if reduction is None:
        return with_bodies(op, fresh)
    return reduction_stage(op.name, list(op.axis), replace(reduction, sources=fresh))


def _over(node: Expr, digits: Digits, variables: Sequence[Var]) -> Expr:
    table: dict[int, Expr] = {key: variables[number] for key, number in digits.same.items()}
    return replace_outermost(node, table)
