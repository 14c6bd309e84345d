"""Finds states of a row program that change affinely, and the order in which they can be composed.

For ``h' = a·h + b`` with a and b free of h, steps compose to one step, so parts of time can be
folded separately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ....expr.build import add, cast, const, div, mul, neg, select, sub, variable
from ....expr.nodes import (
    Expr,
    Var,
    const_value,
    dtype_of,
    is_float,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import postorder
from .row_program import RowProgram

#: the derivative of a value by one state; None for what does not depend on it
Slope: TypeAlias = "Expr | None"


@dataclass(frozen=True)
class AffineStates:
    """A program whose states change affinely.

    Attributes
    ----------
    program : RowProgram
        The program with bindings for the factors.
    factors : tuple of Expr
        The factor of each variable of the state, in order.
    levels : tuple of int
        The level of each: its factor and its term depend on states of lower levels only.
    result_levels : tuple of int
        For each stacked result, one more than the highest level that it depends on.
    """

    program: RowProgram
    factors: tuple[Expr, ...]
    levels: tuple[int, ...]
    result_levels: tuple[int, ...]

    @property
    def passes_for_states(self) -> int:
        """The number of passes until all states are known: one per level."""
        return max(self.levels) + 1

    @property
    def passes(self) -> int:
        """The number of passes until all results are written."""
        return self.passes_for_states + (self.passes_for_states in self.result_levels)


def affine_states(program: RowProgram) -> AffineStates | None:
    """``h' = h + a·(x - h) → the factor 1 + a·(-1)``.

    None if a state is not affine in itself, or if states depend on each other in a cycle.
    """
    states = [var for vars in program.states for var in vars]
    news = [value for values in program.news for value in values]
    reach = _Reach(program, states)
    levels = _levels([reach.of(new) - {n} for n, new in enumerate(news)])
    if levels is None:
        return None
    bindings = list(program.bindings)
    factors = []
    for state, new in zip(states, news, strict=True):
        slopes = _Slopes(program, state, bindings)
        if not slopes.of(new):
            return None
        factor = slopes.value(new)
        factor = const(0, dtype_of(state)) if factor is None else factor
        if not is_float(state) and const_value(factor) != 1:
            return None
        factors.append(factor)
    results = tuple(
        1 + max((levels[n] for value in values for n in reach.of(value)), default=-1)
        for values in program.ys
    )
    whole = replace(program, bindings=tuple(bindings))
    return AffineStates(whole, tuple(factors), tuple(levels), results)


class _Reach:
    """The numbers of the states that values depend on."""

    def __init__(self, program: RowProgram, states: Sequence[Var]) -> None:
        self._known: dict[int, frozenset[int]] = {
            node_id(state): frozenset((n,)) for n, state in enumerate(states)
        }
        for var, value in program.bindings:
            self._known[node_id(var)] = self.of(value)

    def of(self, value: Expr) -> frozenset[int]:
        """Those of one value."""
        nothing: frozenset[int] = frozenset()
        return nothing.union(
            *(self._known.get(node_id(node), nothing) for node in postorder(value))
        )


def _levels(depends: Sequence[frozenset[int] | set[int]]) -> list[int] | None:
    """One more than the levels of the dependences; None if they are cyclic."""
    levels: list[int | None] = [None] * len(depends)
    for _ in depends:
        for n, others in enumerate(depends):
            below = [levels[other] for other in others]
            if levels[n] is None and None not in below:
                levels[n] = 1 + max((level for level in below if level is not None), default=-1)
    found = [level for level in levels if level is not None]
    return found if len(found) == len(levels) else None


class _Slopes:
    """Derivatives with respect to one state, which must not depend on it; bindings for them are
    appended.
    """

    def __init__(self, program: RowProgram, state: Var, bindings: list[tuple[Var, Expr]]) -> None:
        self._state, self._bindings = state, bindings
        self._slopes: dict[int, Slope] = {node_id(state): const(1, dtype_of(state))}
        self._curved: set[int] = set()
        for var, value in program.bindings:
            if not self.of(value):
                self._curved.add(node_id(var))
                continue
            slope = self.value(value)
            if slope is not None and op_name(slope) not in ("const", "var"):
                fresh = variable(f"d{var.name}", dtype_of(slope))
                bindings.append((fresh, slope))
                slope = fresh
            if slope is not None:
                self._slopes[node_id(var)] = slope

    def of(self, value: Expr) -> bool:
        """Whether a value is affine in the state, so that its slope is known."""
        for node in postorder(value):
            if node_id(node) in self._curved:
                return False
            parts = operands(node)
            slopes = [self.value(part) for part in parts]
            if all(slope is None for slope in slopes):
                continue
            rule = _RULES.get(op_name(node))
            found = None if rule is None or not is_float(node) else rule(node, parts, slopes)
            if found is None and op_name(node) in ("add", "sub") and not is_float(node):
                found = _RULES[op_name(node)](node, parts, slopes)
            if found is None:
                return False
            self._slopes[node_id(node)] = found
        return True

    def value(self, value: Expr) -> Slope:
        """The slope of an affine value."""
        return self._slopes.get(node_id(value))


_Rule: TypeAlias = Callable[[Expr, Sequence[Expr], Sequence[Slope]], Slope]


def _sum(node: Expr, parts: Sequence[Expr], slopes: Sequence[Slope]) -> Slope:
    left, right = slopes
    if left is None or right is None:
        return left if right is None else right
    return add(left, right)


def _difference(node: Expr, parts: Sequence[Expr], slopes: Sequence[Slope]) -> Slope:
    left, right = slopes
    if right is None:
        return left
    return neg(right) if left is None else sub(left, right)


def _product(node: Expr, parts: Sequence[Expr], slopes: Sequence[Slope]) -> Slope:
    left, right = slopes
    if left is not None and right is not None:
        return None
    return mul(left, parts[1]) if left is not None else mul(parts[0], right)


def _quotient(node: Expr, parts: Sequence[Expr], slopes: Sequence[Slope]) -> Slope:
    return None if slopes[1] is not None or slopes[0] is None else div(slopes[0], parts[1])


def _choice(node: Expr, parts: Sequence[Expr], slopes: Sequence[Slope]) -> Slope:
    if slopes[0] is not None:
        return None
    zero = const(0, dtype_of(node))
    then, otherwise = (zero if slope is None else slope for slope in slopes[1:])
    return select(parts[0], then, otherwise)


def _cast(node: Expr, parts: Sequence[Expr], slopes: Sequence[Slope]) -> Slope:
    return cast(dtype_of(node), slopes[0]) if is_float(parts[0]) else None


_RULES: Mapping[str, _Rule] = {
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "div": _quotient,
    "select": _choice,
    "cast": _cast,
}
