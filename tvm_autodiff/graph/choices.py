"""Analyses how a reducer chooses between two operands: the conditions, and what a tie leaves
undetermined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..expr.build import NEGATED, negate
from ..expr.nodes import BRANCHES, Expr, node_id, op_name, operands
from ..expr.rewrite import depends_on
from .stage import Combiner
from .structural import StructuralKeys

#: comparison → the one with exchanged operands, and the strict one
_EXCHANGED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}
_STRICT = {"gt": "gt", "ge": "gt", "lt": "lt", "le": "lt"}


@dataclass(frozen=True)
class Choice:
    """Components that one condition takes from the left or the right operand."""

    keeps_left: Expr
    components: tuple[int, ...]


def choices(combiner: Combiner) -> list[Choice]:
    """The choices of a reducer, in order of their first components."""
    keys = StructuralKeys()
    found: dict[int, tuple[Expr, list[int]]] = {}
    for n, result in enumerate(combiner.result):
        keeps_left = _keeps_left(combiner, n, result)
        if keeps_left is not None:
            found.setdefault(keys.expr(keeps_left), (keeps_left, []))[1].append(n)
    return [Choice(condition, tuple(components)) for condition, components in found.values()]


def _keeps_left(combiner: Combiner, component: int, result: Expr) -> Expr | None:
    """The condition of ``select(condition, left, right)``, or of the same in other words."""
    if op_name(result) not in BRANCHES:
        return None
    condition, *sides = operands(result)
    pair = [node_id(combiner.lhs[component]), node_id(combiner.rhs[component])]
    kept = [node_id(side) for side in sides]
    if kept == pair:
        return condition
    return negate(condition) if kept == pair[::-1] else None


def is_open(choice: Choice, combiner: Combiner) -> bool:
    """Whether tied operands can differ in a component of the choice.

    This is False if the condition reads components that accumulate, because no single operand is
    chosen then.
    """
    chosen = {n for one in choices(combiner) for n in one.components}
    accumulated = [
        var
        for n, pair in enumerate(zip(combiner.lhs, combiner.rhs, strict=True))
        if n not in chosen and not _is_bound(combiner, n)
        for var in pair
    ]
    if depends_on(choice.keeps_left, accumulated):
        return False
    return not set(choice.components) <= _equal_in_ties(choice.keeps_left, combiner)


def _is_bound(combiner: Combiner, component: int) -> bool:
    """Whether a component is the maximum or minimum of its own two values."""
    result = combiner.result[component]
    formal = {node_id(combiner.lhs[component]), node_id(combiner.rhs[component])}
    return op_name(result) in ("max", "min") and {node_id(e) for e in operands(result)} == formal


def _equal_in_ties(condition: Expr, combiner: Combiner) -> set[int]:
    """The components that a condition compares one after the other, which are equal in a tie.

    ``l1 > r1 or l1 == r1 and l0 <= r0 → {0, 1}``.
    """
    if op_name(condition) == "not":
        return _equal_in_ties(operands(condition)[0], combiner)
    if op_name(condition) in _STRICT:
        return _compared(condition, combiner)
    if op_name(condition) != "or":
        return set()
    for better, tied in _either_way(operands(condition)):
        if op_name(better) not in ("gt", "lt") or op_name(tied) != "and":
            continue
        first = _compared(better, combiner)
        for equal, rest in _either_way(operands(tied)):
            if first and op_name(equal) == "eq" and _compared(equal, combiner) == first:
                return first | _equal_in_ties(rest, combiner)
    return set()


def prefers(condition: Expr, combiner: Combiner) -> tuple[int, str] | None:
    """The component that a condition of keeping the left operand compares first, and the direction.

    The direction is ``gt`` or ``lt``: how the better value compares with the other one.
    """
    name = op_name(condition)
    if name == "or":
        strict = [part for part in operands(condition) if op_name(part) in ("gt", "lt")]
        return prefers(strict[0], combiner) if len(strict) == 1 else None
    negated = name == "not"
    if negated:
        [condition] = operands(condition)
        name = op_name(condition)
    if name not in _STRICT or not _compared(condition, combiner):
        return None
    [component] = _compared(condition, combiner)
    if node_id(operands(condition)[0]) != node_id(combiner.lhs[component]):
        name = _EXCHANGED[name]
    return component, _STRICT[NEGATED[name] if negated else name]


def _either_way(pair: Sequence[Expr]) -> list[tuple[Expr, Expr]]:
    left, right = pair
    return [(left, right), (right, left)]


def _compared(comparison: Expr, combiner: Combiner) -> set[int]:
    """The component whose left and right values a comparison reads directly."""
    sides = {node_id(side) for side in operands(comparison)}
    return {
        n
        for n, pair in enumerate(zip(combiner.lhs, combiner.rhs, strict=True))
        if sides == {node_id(var) for var in pair}
    }
