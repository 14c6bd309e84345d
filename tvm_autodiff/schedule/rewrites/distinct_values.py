"""Computes expensive functions once per distinct value, as stages of their own.

A positional encoding takes the sine of an angle that depends on a place and on the quotient of a
component, for each example of a batch. No order of the loops computes it less often: what it does
not depend on lies outside of what it does, or inside of a quotient. Where loops alone save as much,
stages stay whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from ...expr.build import variable
from ...expr.costly import is_expensive
from ...expr.integers.intervals import Intervals
from ...expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    const_value,
    dtype_of,
    is_load,
    load,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ...expr.rewrite import (
    contains,
    expand_lets,
    loaded_tensors,
    map_loads,
    postorder,
    replace_outermost,
    substituter,
)
from ...expr.sharing.lets import bind_shared
from ...expr.structural import StructuralKeys
from ...graph.graph import each_stage
from ...graph.stage import (
    Operation,
    axis_range,
    axis_vars,
    bodies,
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
from ..cost import CALL, THREAD_CYCLES
from ..kernel import size_of
from ..nest.access import Interval
from ..nest.decided import decided
from ..nest.in_range import Loops, is_safe
from ..nest.literals import FLOOR_DIVISIONS


def with_distinct_values(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y[b, t, j] = x[b, t, j] + sin(t*w[j//2]) → s[t, h] = sin(t*w[h]), y[b, t, j] = x[b, t, j] +
    s[t, j//2]``.
    """
    values = _Values()
    return each_stage(outputs, values.taken_out)


@dataclass(frozen=True)
class _Digits:
    """The integers through which an expression depends on its loops: axes, or quotients of one.

    Attributes
    ----------
    nodes : list of Expr
        One node for each, in the order of the loops.
    extents : list of int
        Each is in ``0 .. extent-1``.
    same : mapping from id to int
        The number of the integer that a node is.
    depth : int
        How many loops there are up to the innermost one that it depends on.
    """

    nodes: list[Expr]
    extents: list[int]
    same: Mapping[int, int]
    depth: int

    @property
    def has_quotients(self) -> bool:
        return any(op_name(node) != "var" for node in self.nodes)


@dataclass
class _Values:
    """The stages that were made so far, by their expressions."""

    keys: StructuralKeys = field(default_factory=StructuralKeys)
    made: dict[tuple[object, ...], Tensor] = field(default_factory=dict)
    heights: set[int] = field(default_factory=set)  #: of these expressions
    variables: list[Var] = field(default_factory=list)  #: of expressions that are compared
    #: what stages compute that hold nothing but values of another one now, by their tensors
    copies: dict[tuple[int, int], Operation] = field(default_factory=dict)

    def taken_out(self, op: Operation) -> list[Tensor] | None:
        """The stage with the expensive functions that it computes repeatedly taken out."""
        if not is_compute(op):
            return None
        axes = loop_axes(op)
        ranges = _ranges(axes)
        if ranges is None or not contains(sources_of(op), is_expensive):
            return None
        variables = [axis.var for axis in axes]
        plain = [map_loads(expand_lets(source), self._value) for source in sources_of(op)]
        sources = decided(plain, variables, ranges)
        costs = _costs(sources)
        facts = _facts(sources, {node_id(var): number for number, var in enumerate(variables)})
        given = {tensor_key(tensor): tensor for src in sources for tensor in loaded_tensors(src)}
        # values take no more memory than what the stage reads and writes
        memory = sum(size_of(shape_of(tensor)) for tensor in (op.output(0), *given.values()))
        reduces = reduction_of(op) is not None
        summed = frozenset(range(len(op.axis), len(axes)))
        memo: dict[int, Expr] = {}
        seen: set[int] = set()
        pending = list(sources)
        while pending:
            node = pending.pop()
            if node_id(node) in seen or not costs[node_id(node)]:
                continue
            seen.add(node_id(node))
            found, cost = facts[node_id(node)], costs[node_id(node)]
            # rows that are fused keep what they compute of data for all that needs it, but not
            # for other rows: what a place in a sum is to the parameters of a row
            table = found.tabulates(summed)
            apart = not found.loads or table or (bool(found.divided) and not reduces)
            # what no loop changes is computed again after each store that may change what it reads
            depth = len(axes) if found.fixed else found.depth
            apart = apart and _pays(found.least(axes), depth, axes, cost)
            digits = None
            if apart or found.height in self.heights:
                digits = _digits(node, axes, ranges, self.keys)
            if digits is not None and prod(digits.extents) <= memory:
                apart = apart and (not found.loads or table or digits.has_quotients)
                depth = len(axes) if found.fixed else digits.depth
                apart = apart and _pays(prod(digits.extents), depth, axes, cost)
                read = self._read(op.name, node, digits, found.height, apart)
                if read is not None:
                    memo[node_id(node)] = read
                    continue
            pending += operands(node)
        if not memo:
            return None
        fresh = tuple(bind_shared(replace_outermost(source, memo)) for source in sources)
        reduction = reduction_of(op)
        if reduction is None:
            made = with_bodies(op, fresh)
            if len(made) == 1 and is_load(fresh[0]):
                self.copies[tensor_key(made[0])] = op
            return made
        return reduction_stage(op.name, list(op.axis), replace(reduction, sources=fresh))

    def _value(self, tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        """``f[i, j] → exp(w[j//2])`` for a tensor that holds nothing but values of a stage made
        here, so that what is computed of them is compared with what was.
        """
        op = self.copies.get(tensor_key(tensor))
        if op is None:
            return None
        return substituter(dict(zip(axis_vars(op), indices, strict=True)))(bodies(op)[0])

    def _read(
        self, name: str, node: Expr, digits: _Digits, height: int, apart: bool
    ) -> Expr | None:
        """The read of a stage of a node's values; None if not all of them can be computed, or if it
        would be a new one that does not pay.
        """
        count = len(digits.nodes)
        for number in range(len(self.variables), count):
            self.variables.append(variable(f"d{number}", "int32"))
        here = self.variables[:count]
        moved = _over(node, digits, here)
        key = (self.keys.expr(moved), *digits.extents)
        if key not in self.made:
            if not apart:
                return None
            ranges = {
                node_id(var): (0, extent - 1)
                for var, extent in zip(here, digits.extents, strict=True)
            }
            if not is_safe([moved], Loops(tuple(here), ranges)):
                return None
            axes = [data_axis(f"d{n}", extent, "int32") for n, extent in enumerate(digits.extents)]
            body = bind_shared(_over(node, digits, [axis.var for axis in axes]))
            [made] = make_stage(f"{name}_values", axes, [body])
            self.made[key] = (self.taken_out(made.op) or [made])[0]
            self.heights.add(height)
        return load(self.made[key], digits.nodes)


def _over(node: Expr, digits: _Digits, variables: Sequence[Var]) -> Expr:
    table: dict[int, Expr] = {key: variables[number] for key, number in digits.same.items()}
    return replace_outermost(node, table)


def _costs(sources: Sequence[Expr]) -> dict[int, int]:
    """The number of different expensive functions in each node, by id, or 0."""
    inside: dict[int, frozenset[int]] = {}
    for node in postorder(list(sources)):
        parts = (inside[node_id(part)] for part in operands(node))
        own = frozenset((node_id(node),)) if is_expensive(node) else frozenset()
        inside[node_id(node)] = own.union(*parts)
    return {key: len(found) for key, found in inside.items()}


def _ranges(axes: Sequence[Axis]) -> dict[int, Interval] | None:
    """The ranges of axes from 0 on with literal extents, by id; None for other lower bounds."""
    ranges: dict[int, Interval] = {}
    for axis in axes:
        low, extent = axis_range(axis)
        if low != 0:
            return None
        if isinstance(extent, int):
            ranges[node_id(axis.var)] = (0, extent - 1)
    return ranges


def _pays(distinct: int, depth: int, axes: Sequence[Axis], cost: int) -> bool:
    """Whether the loops around an expression compute each of its values twice or more often."""
    points = size_of([axis_range(axis)[1] for axis in axes[:depth]])
    return 2 * distinct <= points and (points - distinct) * CALL * cost >= THREAD_CYCLES


@dataclass(frozen=True)
class _Facts:
    """What is known of an expression by its parts: looking into each again, one that is n operators
    deep would be looked at n times.

    Attributes
    ----------
    bare, divided : frozenset of int
        The numbers of the loops that it depends on, by themselves and in quotients.
    loads : bool
        Whether it reads a tensor at places that a loop changes; others hold parameters.
    places : frozenset of int
        The numbers of the loops that change where it reads.
    height : int
        How many operators are above each other, quotients of loops apart.
    """

    bare: frozenset[int] = frozenset()
    divided: frozenset[int] = frozenset()
    loads: bool = False
    height: int = 0
    places: frozenset[int] = frozenset()

    def tabulates(self, summed: frozenset[int]) -> bool:
        """Whether it is a function of a summed place and of what is read at others:
        ``cos(f[b]*k)``.
        """
        return bool(self.bare & summed) and not self.places & summed

    @property
    def fixed(self) -> bool:
        """Whether no loop changes it."""
        return not self.bare | self.divided

    @property
    def depth(self) -> int:
        """How many loops there are up to the innermost one that it depends on."""
        return max(self.bare | self.divided, default=-1) + 1

    def least(self, axes: Sequence[Axis]) -> int:
        """No fewer different values are there: quotients may have one."""
        return size_of([axis_range(axes[number])[1] for number in sorted(self.bare)])


def _facts(sources: Sequence[Expr], order: Mapping[int, int]) -> dict[int, _Facts]:
    """What is known of each node, by id; `order` has the numbers of loops."""
    facts: dict[int, _Facts] = {}
    for node in postorder(list(sources)):
        parts = [facts[node_id(part)] for part in operands(node)]
        if node_id(node) in order:
            own = _Facts(bare=frozenset((order[node_id(node)],)))
        elif (axis := _divided(node, order)) is not None:
            own = _Facts(divided=frozenset((order[axis],)))
        else:
            own = _Facts(
                frozenset[int]().union(*(part.bare for part in parts)),
                frozenset[int]().union(*(part.divided for part in parts)),
                any(part.loads for part in parts),
                1 + max((part.height for part in parts), default=-1),
                frozenset[int]().union(*(part.places for part in parts)),
            )
            if is_load(node) and not own.fixed:
                own = replace(own, loads=True, places=own.bare | own.divided)
        facts[node_id(node)] = own
    return facts


def _digits(
    root: Expr, axes: Sequence[Axis], ranges: Mapping[int, Interval], keys: StructuralKeys
) -> _Digits | None:
    """The integers that an expression depends on; None if one of them has no literal range.

    An axis of which the quotients and remainders have as many values is taken itself.
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
        elif (axis := _divided(node, order)) is not None:
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
        if node_id(var) not in ranges or dtype_of(var) != "int32":
            return None
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
    extents = [bounds.of(node)[1] + 1 for node in nodes]
    if any(extent < 1 for extent in extents):
        return None
    used = [order[key] for key in (*bare, *divided)]
    return _Digits(nodes, extents, same, max(used, default=-1) + 1)


def _span(node: Expr) -> int:
    """How many elements of its axis a quotient spans; 0 for remainders, and quotients of them."""
    numerator, divisor = operands(node)
    if op_name(node) != "floordiv" or op_name(numerator) != "var":
        return 0
    return int(const_value(divisor) or 0)


def _divided(node: Expr, order: Mapping[int, int]) -> int | None:
    """The loop variable of which a node is a quotient, a remainder, or one of these of another."""
    if op_name(node) not in FLOOR_DIVISIONS:
        return None
    current = node
    while op_name(current) in FLOOR_DIVISIONS:
        numerator, divisor = operands(current)
        if const_value(divisor) is None:
            return None
        current = numerator
    return node_id(current) if node_id(current) in order else None
