"""Recognises reducers that have a mathematical sign: Σ, Π, max, min, argmax, argmin.

Other reducers are spelled out. The derivative of a reducer is defined elsewhere (`rules`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..nodes import Expr, is_const, node_id, op_name, operands

#: reducers with a sign of their own: operator of the combiner → (sign, identity or None for any)
_SIGNS: dict[str, tuple[str, float | None]] = {
    "add": ("Σ", 0),
    "mul": ("Π", 1),
    "max": ("max", None),
    "min": ("min", None),
}
#: comparison of the left value with the right one → sign of a pair (value, index)
_PAIR_SIGNS = {"gt": "argmax", "lt": "argmin"}


def sign_of(combiner: Expr) -> str | None:
    """The sign of a combiner, or None.

    A pair (value, index) that keeps the best value, and the first index of equal values, is
    ``argmax`` or ``argmin``.
    """
    if len(combiner.result) == 2:
        return _pair_sign(list(combiner.lhs), list(combiner.rhs), list(combiner.result))
    if len(combiner.result) != 1:
        return None
    result = combiner.result[0]
    formal = {node_id(combiner.lhs[0]), node_id(combiner.rhs[0])}
    if op_name(result) not in _SIGNS or {node_id(part) for part in operands(result)} != formal:
        return None
    sign, identity = _SIGNS[op_name(result)]
    return sign if identity is None or is_const(combiner.identity_element[0], identity) else None


def _pair_sign(lhs: Sequence[Expr], rhs: Sequence[Expr], result: Sequence[Expr]) -> str | None:
    """``select(l0 > r0 or l0 == r0 and l1 <= r1, l, r)`` in both components → ``argmax``."""
    for kept, left, right in zip(result, lhs, rhs, strict=True):
        if op_name(kept) != "select" or not _is(operands(kept)[1:], (left, right)):
            return None
    conditions = [operands(kept)[0] for kept in result]
    if len({_shape(condition, lhs, rhs) for condition in conditions}) != 1:
        return None
    return _shape(conditions[0], lhs, rhs)


def _shape(condition: Expr, lhs: Sequence[Expr], rhs: Sequence[Expr]) -> str | None:
    """The sign for the condition that keeps the left pair."""
    if op_name(condition) != "or":
        return None
    better, tied = operands(condition)
    if op_name(better) not in _PAIR_SIGNS or op_name(tied) != "and":
        return None
    equal, earlier = operands(tied)
    values, places = (lhs[0], rhs[0]), (lhs[1], rhs[1])
    fits = (
        _is(operands(better), values)
        and op_name(equal) == "eq"
        and _is(operands(equal), values)
        and op_name(earlier) == "le"
        and _is(operands(earlier), places)
    )
    return _PAIR_SIGNS[op_name(better)] if fits else None


def _is(parts: Sequence[Expr], wanted: Sequence[Expr]) -> bool:
    return [node_id(part) for part in parts] == [node_id(part) for part in wanted]
