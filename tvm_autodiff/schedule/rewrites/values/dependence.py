"""What the parts of an expression depend on: loops, quotients of loops, and what tensors hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ....expr.costly import is_expensive
from ....expr.nodes import (
    Axis,
    Expr,
    const_value,
    is_const,
    is_float,
    is_load,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import postorder
from ....graph.stage import axis_range
from ...kernel import size_of
from ...nest.literals import FLOOR_DIVISIONS

Found = TypeVar("Found")


@dataclass(frozen=True)
class Dependence:
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
    def loops(self) -> frozenset[int]:
        """The numbers of the loops that it depends on."""
        return self.bare | self.divided

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


def dependences(sources: Sequence[Expr], order: Mapping[int, int]) -> dict[int, Dependence]:
    """What is known of each node, by id; `order` has the numbers of loops."""
    facts: dict[int, Dependence] = {}
    for node in postorder(list(sources)):
        parts = [facts[node_id(part)] for part in operands(node)]
        if node_id(node) in order:
            own = Dependence(bare=frozenset((order[node_id(node)],)))
        elif (axis := divided_loop(node, order)) is not None:
            own = Dependence(divided=frozenset((order[axis],)))
        else:
            own = Dependence(
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


def outermost(
    sources: Sequence[Expr], costs: Mapping[int, float], choice: Callable[[Expr], Found | None]
) -> dict[int, Found]:
    """What a choice is for nodes with expensive functions, by id: below a chosen node, and for
    other nodes, it is not asked for.
    """
    found: dict[int, Found] = {}
    seen: set[int] = set()
    pending = list(sources)
    while pending:
        node = pending.pop()
        if node_id(node) in seen or not costs[node_id(node)]:
            continue
        seen.add(node_id(node))
        chosen = choice(node)
        if chosen is None:
            pending += operands(node)
        else:
            found[node_id(node)] = chosen
    return found


def costs_of(
    sources: Sequence[Expr], counts: Callable[[Expr], bool] = is_expensive
) -> dict[int, int]:
    """The number of different expensive functions in each node, by id, or 0."""
    inside: dict[int, frozenset[int]] = {}
    for node in postorder(list(sources)):
        parts = (inside[node_id(part)] for part in operands(node))
        own = frozenset((node_id(node),)) if counts(node) else frozenset()
        inside[node_id(node)] = own.union(*parts)
    return {key: len(found) for key, found in inside.items()}


_NO_OPERATIONS = frozenset(("const", "var", "load", "likely"))
#: operations on loops from which on it takes less time to read a number: a 5x5 window with weights
#: of two choices for each axis takes 110 µs with its gradient, and 21 with tables (4x48x48, AVX2)
FEW_OPERATIONS = 2


def operations_of(sources: Sequence[Expr]) -> dict[int, int]:
    """The number of operations on floats in each node, by id, as a tree."""
    counts: dict[int, int] = {}
    for node in postorder(list(sources)):
        own = is_float(node) and op_name(node) not in _NO_OPERATIONS
        if op_name(node) == "cast" and is_float(operands(node)[0]):
            own = False  # of a number that was written with another dtype
        counts[node_id(node)] = own + sum(counts[node_id(part)] for part in operands(node))
    return counts


def bends(node: Expr) -> bool:
    """Whether an operation on floats takes its value out of the polynomials of its operands."""
    by_literal = op_name(node) == "div" and is_const(operands(node)[1])
    known = op_name(node) in ("add", "sub", "mul", "cast") or op_name(node) in _NO_OPERATIONS
    return is_float(node) and not known and not by_literal


def divided_loop(node: Expr, order: Mapping[int, int]) -> int | None:
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
