"""Decomposes expressions into sums of values with conditions: ``Σ [conditions] value``.

Branches, selects and booleans cast to numbers become conditions of summands, outermost first. A
structural zero times anything is zero, including infinity and NaN, as everywhere in the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...expr.build import (
    add,
    affirmed,
    all_of,
    any_of,
    div,
    like,
    mul,
    neg,
    negate,
    sum_of,
)
from ...expr.nodes import (
    BRANCHES,
    Expr,
    const_value,
    dtype_of,
    is_const,
    is_float,
    is_load,
    node_id,
    op_name,
    operands,
    with_operands,
)
from ...expr.rewrite import contains_load, expand_lets, postorder, variables_of
from ...expr.sharing.lets import merge_equal
from ...rules.terms import Condition, guarded
from .conditions import on_indices

#: functions of one operand that are zero at zero
_ZERO_AT_ZERO = frozenset(
    ("abs", "sqrt", "tanh", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh", "erf")
    + ("log1p", "floor", "ceil", "trunc", "round", "nearbyint")
)
_DIVISIONS = ("div", "truncdiv", "floordiv", "truncmod", "floormod", "fmod")


@dataclass(frozen=True)
class Summand:
    """A value that counts if all conditions hold, outermost first, and is zero otherwise."""

    value: Expr
    conditions: tuple[Condition, ...] = ()

    def key(self) -> frozenset[int]:
        """Equal for summands with equal conditions."""
        return frozenset(node_id(condition.expr) for condition in self.conditions)

    def where(self, conditions: Sequence[Condition]) -> Summand | None:
        """The summand under further conditions, or None if they never hold."""
        found = _conjunction(conditions, self.conditions)
        return None if found is None else Summand(self.value, found)


def where(summand: Summand) -> Expr:
    """``if conditions then value else 0``: conditions on indices in one branch, data conditions
    inside it.
    """
    indices = [c for c in summand.conditions if on_indices(c.expr)]
    data = [c for c in summand.conditions if not on_indices(c.expr)]
    outer = Condition(all_of(c.expr for c in indices), any(c.guards for c in indices))
    return guarded(summand.value, [outer, *data] if indices else data)


def summands(expr: Expr, most: int = 4, either: bool = False) -> list[Summand]:
    """Values with conditions whose sum is the expression; empty if it is zero.

    ``(if a then x else 0) - y*(if b then z else 0)  →  [a] x, [b] y*z*(-1)``

    Parameters
    ----------
    expr : Expr
        An expression without reductions.
    most : int
        The maximum number of summands into which a product of sums is expanded. With 1, branches
        stay together as well.
    either : bool
        Whether a sum that remains a factor gets the disjunction of its summands' conditions.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.expr.printing.text import text
    >>> x, i = te.var("x", "float32"), te.var("i")
    >>> e = (te.if_then_else(i < 4, 1.0, 0.0) + te.if_then_else(i > 2, x, 0.0)) * x
    >>> [(text(s.value), text(s.conditions[0].expr)) for s in summands(e)]
    [('x', 'i < 4'), ('x*x', 'i > 2')]
    """
    [root] = merge_equal([expand_lets(expr)])
    return _Splitter(most, either).split(root)


class _Splitter:
    """The walk of `summands`: one list of summands for each node, from the lists of its operands.
    """

    def __init__(self, most: int, either: bool) -> None:
        self._most = most
        self._either = either
        self._negations: dict[int, list[Expr]] = {}  # equal conditions stay one node

    def split(self, root: Expr) -> list[Summand]:
        found: dict[int, list[Summand]] = {}
        for node in postorder(root):
            found[node_id(node)] = self._node(node, [found[node_id(p)] for p in operands(node)])
        return found[node_id(root)]

    def _node(self, node: Expr, parts: list[list[Summand]]) -> list[Summand]:
        if is_const(node, 0) and dtype_of(node) != "bool":
            return []
        rule = _RULES.get(op_name(node))
        plain = all(
            len(part) == 1 and not part[0].conditions and node_id(part[0].value) == node_id(old)
            for part, old in zip(parts, operands(node), strict=True)
        )
        whole = dtype_of(node).startswith(("bool", "uint"))  # which have no negatives
        if rule is None or whole or (plain and op_name(node) not in _BRANCHING):
            return [Summand(node)]
        return rule(self, node, parts)

    def _sum(self, node: Expr, parts: list[list[Summand]]) -> list[Summand]:
        """``[a] x + [b] y → [a] x, [b] y``; ``[a] x + [a] y → [a] x + y``."""
        left, right = parts
        chosen = _chosen_number(node)
        if chosen is not None:
            return self.split(chosen)
        if op_name(node) == "sub":
            right = [Summand(neg(summand.value), summand.conditions) for summand in right]
        return _merged([*left, *right])

    def _product(self, node: Expr, parts: list[list[Summand]]) -> list[Summand]:
        """``[a] x * [b] y → [a, b] x*y``."""
        left, right = parts
        if self._most == 1 or min(len(left), len(right)) > 1 < len(left) * len(right) > self._most:
            left, right = self._one(left), self._one(right)
        products = [
            Summand(mul(a.value, b.value), b.conditions).where(a.conditions)
            for a in left
            for b in right
        ]
        return _merged([product for product in products if product is not None])

    def _quotient(self, node: Expr, parts: list[list[Summand]]) -> list[Summand]:
        """``[a] x / y → [a] x/y``."""
        _, divisor = operands(node)
        if op_name(node) != "div":  # (x + y) // z is no sum of quotients
            return self._of_one(node, parts)
        numerators = self._one(parts[0]) if self._most == 1 else parts[0]
        return [Summand(div(s.value, divisor), s.conditions) for s in numerators]

    def _of_one(self, node: Expr, parts: list[list[Summand]]) -> list[Summand]:
        """``f([a] x) → [a] f(x)`` if f is zero at zero; further operands stay."""
        return [
            Summand(with_operands(node, [s.value, *operands(node)[1:]]), s.conditions)
            for s in self._one(parts[0])
        ]

    def _power(self, node: Expr, parts: list[list[Summand]]) -> list[Summand]:
        exponent = const_value(operands(node)[1])
        return (
            self._of_one(node, parts) if exponent is not None and exponent > 0 else [Summand(node)]
        )

    def _cast(self, node: Expr, parts: list[list[Summand]]) -> list[Summand]:
        """``float32(a) → [a] 1``."""
        [old] = operands(node)
        if dtype_of(old) != "bool":
            return self._of_one(node, parts)
        truth = Summand(like(node, 1)).where(conditions_of([old], False))
        return [] if truth is None else [truth]

    def _branch(self, node: Expr, parts: list[list[Summand]]) -> list[Summand]:
        """``if a then x else 0 → [a] x``, ``if a then x else y → [a] x, [not a] y``.

        Numbers that one loop chooses, as those of a window, stay one number.
        """
        condition = operands(node)[0]
        then, otherwise = parts[1:]
        if then and otherwise and _is_number(node, (*then, *otherwise)):
            return [Summand(node)]
        guards = op_name(node) == "if_then_else"
        apart = self._most > 1 and on_indices(condition)
        if then and otherwise and not apart:
            return self._choice(node, parts)
        sides = (([condition], then), (self._negation(condition), otherwise))
        found = [
            summand.where(conditions_of(holds, guards)) for holds, side in sides for summand in side
        ]
        return _merged([summand for summand in found if summand is not None])

    def _choice(self, node: Expr, parts: list[list[Summand]]) -> list[Summand]:
        """``if a then [b, c] x else [b, d] y → [b] if a then [c] x else [d] y``."""
        sides = [*self._one(parts[1]), *self._one(parts[2])]
        common, rests = _common(sides)
        if not common or not all(_is_total(c.expr) for c in common):
            return [Summand(node)]
        branches = [where(rest) for rest in rests]
        return [Summand(with_operands(node, [operands(node)[0], *branches]), tuple(common))]

    def _one(self, parts: list[Summand]) -> list[Summand]:
        whole = joined(parts, self._either)
        return [] if whole is None else [whole]

    def _negation(self, condition: Expr) -> list[Expr]:
        """``not (a or b) → not a, not b``, with the same nodes each time."""
        known = self._negations.get(node_id(condition))
        if known is None:
            pending, known = [condition], []
            while pending:
                part = pending.pop()
                if op_name(part) == "or":
                    pending += reversed(operands(part))
                else:
                    known.append(negate(part))
            self._negations[node_id(condition)] = known
        return known


def _chosen_number(node: Expr) -> Expr | None:
    """``1 - (if c then 1 else 0) → if c then 0 else 1``: a sum of two numbers, one of them chosen.
    """
    sides = operands(node)
    choice = next((n for n, side in enumerate(sides) if op_name(side) in BRANCHES), None)
    if choice is None or not is_const(sides[1 - choice]):
        return None
    condition, *numbers = operands(sides[choice])
    values = [const_value(number) for number in (*numbers, sides[1 - choice])]
    then, otherwise, other = (value if value is not None else math.nan for value in values)
    sign = 1 if op_name(node) == "add" else -1
    first, second = ((n, other) if choice == 0 else (other, n) for n in (then, otherwise))
    sums = [left + sign * right for left, right in (first, second)]
    if any(map(math.isnan, sums)):
        return None
    return with_operands(sides[choice], [condition, *(like(node, total) for total in sums)])


def _is_number(node: Expr, sides: Sequence[Summand]) -> bool:
    """Whether a choice is a number for each value of one loop, and none that is zero for some."""
    whole = not any(side.conditions for side in sides)
    return whole and not contains_load(node) and len(variables_of([node])) == 1


_Rule = Callable[[_Splitter, Expr, list[list[Summand]]], list[Summand]]
_BRANCHING = ("if_then_else", "select", "cast")
_RULES: dict[str, _Rule] = {
    "add": _Splitter._sum,
    "sub": _Splitter._sum,
    "mul": _Splitter._product,
    "power": _Splitter._power,
    "cast": _Splitter._cast,
    "if_then_else": _Splitter._branch,
    "select": _Splitter._branch,
    **dict.fromkeys(_DIVISIONS, _Splitter._quotient),
    **dict.fromkeys(_ZERO_AT_ZERO, _Splitter._of_one),
}


def conditions_of(exprs: Sequence[Expr], guards: bool) -> list[Condition]:
    """The conditions that all expressions hold, one for each part of a conjunction."""
    return [Condition(part, guards) for expr in exprs for part in affirmed(expr)]


def _conjunction(
    outer: Sequence[Condition], inner: Sequence[Condition]
) -> tuple[Condition, ...] | None:
    """All conditions, each once, or None if one is literally false."""
    found: dict[int, Condition] = {}
    for condition in (*outer, *inner):
        if is_const(condition.expr, 0):
            return None
        key = node_id(condition.expr)
        known = found.get(key)
        guards = condition.guards or (known is not None and known.guards)
        found[key] = Condition(condition.expr, guards)
    return tuple(found.values())


def _merged(parts: Sequence[Summand]) -> list[Summand]:
    """``[a] x, [b] y, [a] z → [a] x + z, [b] y``."""
    found: dict[frozenset[int], Summand] = {}
    for part in parts:
        known = found.get(part.key())
        if known is not None:
            conditions = _conjunction(known.conditions, part.conditions)
            part = Summand(add(known.value, part.value), conditions or ())
        found[part.key()] = part
    return [part for part in found.values() if not is_const(part.value, 0)]


def joined(parts: Sequence[Summand], either: bool) -> Summand | None:
    """``[a, c] x, [b, c] y → [c, a or b] (if a then x else 0) + (if b then y else 0)``."""
    if len(parts) < 2:
        return parts[0] if parts else None
    common, rests = _common(parts)
    value = sum_of([where(rest) for rest in rests])
    own = [list(rest.conditions) for rest in rests]
    if either and all(own) and all(on_indices(c.expr) for rest in own for c in rest):
        disjunction = any_of(all_of(c.expr for c in rest) for rest in own)
        common = [*common, Condition(disjunction, any(c.guards for rest in own for c in rest))]
    return Summand(value, tuple(common))


def _common(parts: Sequence[Summand]) -> tuple[list[Condition], list[Summand]]:
    """The conditions that all summands share, and the summands without them.

    A condition that reads or divides stays after those that precede it.
    """
    shared = frozenset.intersection(*(part.key() for part in parts))
    bound: set[int] = set()
    for part in parts:
        free = True
        for condition in part.conditions:
            key = node_id(condition.expr)
            if key not in shared or key in bound:
                free = False
            elif not free and not _is_total(condition.expr):
                bound.add(key)
    lifted = shared - bound
    common: dict[int, Condition] = {}
    for part in parts:
        for condition in part.conditions:
            key = node_id(condition.expr)
            if key in lifted:
                known = common.setdefault(key, condition)
                common[key] = Condition(condition.expr, condition.guards or known.guards)
    rests = [
        Summand(part.value, tuple(c for c in part.conditions if node_id(c.expr) not in lifted))
        for part in parts
    ]
    return list(common.values()), rests


def _is_total(condition: Expr) -> bool:
    """Whether a condition may be evaluated anywhere: it has no reads and divides only by literals.
    """
    return not any(
        is_load(node)
        or (op_name(node) in _DIVISIONS and not is_float(node) and not is_const(operands(node)[1]))
        for node in postorder(condition)
    )
