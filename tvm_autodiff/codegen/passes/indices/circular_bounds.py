"""Hides conditions from a pass of TVM that would bound two variables by each other.

TVM solves each condition for its variables and keeps the ranges inside it. ``3*i + j >= 10`` leaves
one i for each j, and ``0 <= j - i < 3`` inside it one j for each i; TVM then rewrites i in j and j
in i until its stack overflows. A comparison of a nested condition is therefore wrapped in a call
that does not change its value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import prim

from ....expr.build import conjuncts, negate
from ....expr.integers.intervals import Interval, Intervals
from ....expr.linear_terms import linear_terms
from ....expr.nodes import Expr, Var, is_integer, node_id, op_name, operands
from ....expr.rewrite import substituter, variables_of
from ...functions import with_body

_COMPARISONS = (prim.LT, prim.LE, prim.GT, prim.GE, prim.EQ)
_ROUNDS = 4  #: of narrowing bounds by each other
_LEAVES, _SUMS = ("const", "var"), ("add", "sub", "mul", "floordiv", "floormod")
_AT_LEAST: Mapping[str, tuple[tuple[int, int], ...]] = {
    "ge": ((1, 0),), "gt": ((1, -1),), "le": ((-1, 0),), "lt": ((-1, -1),),
    "eq": ((1, 0), (-1, 0)),
}  # fmt: skip
"""comparison of a and b → (sign, shift) with ``sign*(a - b) + shift >= 0``"""


@dataclass(frozen=True)
class _Constraint:
    """``sum(k * atom) + constant >= 0``: linear forms are variables and divisions of them."""

    terms: tuple[tuple[Expr, int], ...]
    constant: int


_Path = tuple[_Constraint, ...]


def hide_circular_bounds(
    func: Any, hidden: Callable[[Expr], Expr], interval: Callable[[Var], Interval]
) -> Any:
    """``if 3*i + j >= 10: if j >= i: ...`` → ``if 3*i + j >= 10: if hidden(j) >= hidden(i): ...``,
    only if the conditions may leave one value for each of two variables.

    Parameters
    ----------
    func : PrimFunc
    hidden : callable
        Wraps an integer in a call that TVM does not analyse.
    interval : callable
        The bounds of a variable.
    """
    every: list[Any] = []
    tvm_ffi.structural_walk(func.body, [(kind, every.append) for kind in _COMPARISONS])
    if len([node for node in every if is_integer(node.a)]) < 2:
        return func  # one inside another is needed
    found = _Search(func, interval).found
    if not found:
        return func

    def comparison(node: Any) -> Any:
        return type(node)(hidden(node.a), hidden(node.b)) if node_id(node) in found else node

    body = tvm_ffi.structural_map(func.body, [(kind, comparison) for kind in _COMPARISONS])
    return with_body(func, body)


class _Search:
    """Walks statements and branches with their enclosing conditions; loops are not conditions."""

    def __init__(self, func: Any, interval: Callable[[Var], Interval]) -> None:
        self.found: dict[int, Expr] = {}
        self._bounds = Intervals(interval)
        self._values: dict[Var, Expr] = {}
        self._branches: dict[int, bool] = {}
        self._kept: list[Any] = []
        pending: list[tuple[Any, _Path]] = [(func.body, ())]
        while pending:
            node, path = pending.pop()
            self._kept.append(node)
            pending += self._parts(node, path)

    def _parts(self, node: Any, path: _Path) -> list[tuple[Any, _Path]]:
        """The parts of a node that TVM walks, and the constraints on them."""
        if isinstance(node, s_tir.SBlockRealize):
            resolve = substituter(self._values)
            for axis, value in zip(node.block.iter_vars, node.iter_values, strict=True):
                self._values[axis.var] = resolve(value)
            inside = self._entered(node.predicate, path)
            parts = [node.block.body, *([node.block.init] if node.block.init is not None else [])]
            return [(part, inside) for part in parts]
        if isinstance(node, tirx.IfThenElse):
            sides = [(node.then_case, node.condition)]
            if node.else_case is not None:
                sides.append((node.else_case, negate(node.condition)))
            return [(side, self._entered(condition, path)) for side, condition in sides]
        if isinstance(node, tirx.SeqStmt):
            return [(part, path) for part in node.seq]
        if isinstance(node, tirx.BufferStore):
            return [(part, path) for part in (node.value, *node.indices)]
        if isinstance(node, (tirx.Bind, tirx.Evaluate)):
            return [(node.value, path)]
        if hasattr(node, "body") and not isinstance(node, prim.Let):
            return [(node.body, path)]
        if not isinstance(node, tirx.Stmt) and self._branching(node):
            if op_name(node) == "if_then_else":
                condition, *sides = operands(node)
                conditions = (condition, negate(condition))
                pairs = zip(sides, conditions, strict=True)
                inner = [(side, self._entered(holds, path)) for side, holds in pairs]
                return [(condition, path), *inner]
            return [(part, path) for part in _inside(node)]
        return []

    def _branching(self, root: Expr) -> bool:
        """Whether an expression holds a branch."""
        pending = [root]
        while pending:
            node = pending[-1]
            key = node_id(node)
            parts = [] if key in self._branches else _inside(node)
            missing = [part for part in parts if node_id(part) not in self._branches]
            if missing:
                pending += missing
                continue
            pending.pop()
            if key not in self._branches:
                self._kept.append(node)
                below = any(self._branches[node_id(part)] for part in parts)
                self._branches[key] = below or op_name(node) == "if_then_else"
        return self._branches[node_id(root)]

    def _entered(self, condition: Expr, path: _Path) -> _Path:
        """The constraints inside a condition; circular ones are recorded."""
        resolve = substituter(self._values)
        own = [(part, self._constraints(resolve(part))) for part in conjuncts(condition)]
        inside = [*path, *(one for _, made in own for one in made)]
        pinned = self._pinned(inside) if path else set()
        if len(pinned) < 2:
            return tuple(inside)
        for part, made in own:
            names = {node_id(var) for one in made for var in _variables(one)}
            if len(names) > 1 and names & pinned:
                comparison = operands(part)[0] if op_name(part) == "not" else part
                self.found[node_id(comparison)] = comparison
        return path

    def _constraints(self, comparison: Expr) -> list[_Constraint]:
        """The constraints that TVM derives from a comparison."""
        name = op_name(comparison)
        if name not in _AT_LEAST or not is_integer(operands(comparison)[0]):
            return []
        left, right = operands(comparison)
        if not all(map(_is_simple, (left, right))):
            return []
        terms, constant = linear_terms(left - right)
        return [
            _Constraint(tuple((atom, sign * k) for atom, k in terms), sign * constant + shift)
            for sign, shift in _AT_LEAST[name]
        ]

    def _pinned(self, constraints: Sequence[_Constraint]) -> set[int]:
        """Variables for which others may leave a single value."""
        variables = {node_id(v): v for one in constraints for v in _variables(one)}
        box = {key: self._bounds.of(var) for key, var in variables.items()}
        for _ in range(_ROUNDS):
            bounds = _bounds_in(box)
            box = {k: _narrowed(var, box[k], constraints, bounds) for k, var in variables.items()}
            if any(low > high for low, high in box.values()):
                return set(variables)
        bounds = _bounds_in(box)
        found = set()
        for key, var in variables.items():
            low, high = box[key]
            ends = [_Constraint(((var, 1),), -low), _Constraint(((var, -1),), high)]
            lower = [one for one in (*ends, *constraints) if _factor(one, var) > 0]
            upper = [one for one in (*ends, *constraints) if _factor(one, var) < 0]
            if any(_pins(one, other, var, bounds) for one in lower for other in upper):
                found.add(key)
        return found


def _bounds_in(box: Mapping[int, Interval]) -> Intervals:
    return Intervals(lambda var: box[node_id(var)])


def _narrowed(
    var: Var, own: Interval, constraints: Sequence[_Constraint], bounds: Intervals
) -> Interval:
    """The interval of a variable where constraints hold."""
    low, high = own
    for one in constraints:
        factor = _factor(one, var)
        if not factor:
            continue
        others = [(atom, k) for atom, k in one.terms if node_id(atom) != node_id(var)]
        most = one.constant + sum(max(k * end for end in bounds.of(atom)) for atom, k in others)
        if factor > 0:
            low = max(low, -(most // factor))
        else:
            high = min(high, most // -factor)
    return low, high


def _pins(lower: _Constraint, upper: _Constraint, var: Var, bounds: Intervals) -> bool:
    """Whether a lower and an upper bound of a variable always differ by less than two.

    At least one of them depends on other variables.
    """
    if all(len(one.terms) < 2 for one in (lower, upper)):
        return False
    a, b = _factor(lower, var), -_factor(upper, var)
    terms: dict[int, tuple[Expr, int]] = {}
    for one, factor in ((lower, b), (upper, a)):
        for atom, k in one.terms:
            terms[node_id(atom)] = (atom, terms.get(node_id(atom), (atom, 0))[1] + factor * k)
    widest = b * lower.constant + a * upper.constant
    widest += sum(max(k * end for end in bounds.of(atom)) for atom, k in terms.values() if k)
    return widest < 2 * a * b


def _inside(node: Expr) -> list[Expr]:
    if hasattr(node, "indices") and hasattr(node, "source"):
        return list(node.indices)
    return [part for part in operands(node) if hasattr(part, "ty")]


def _is_simple(expr: Expr) -> bool:
    """Whether TVM tries to solve a comparison with such a side."""
    pending = [expr]
    while pending:
        node = pending.pop()
        if op_name(node) in _SUMS:
            pending += operands(node)
        elif op_name(node) not in _LEAVES:
            return False
    return True


def _variables(constraint: _Constraint) -> list[Var]:
    return variables_of([atom for atom, _ in constraint.terms])


def _factor(constraint: _Constraint, var: Var) -> int:
    own = node_id(var)
    return next((k for atom, k in constraint.terms if node_id(atom) == own), 0)
