"""Comparisons of floats in a form that TVM leaves as it is, because a number may be NaN.

TVM reverses a negated comparison, and decides one of a number with itself, as if numbers were real:
``not x < 1 → x >= 1``, ``x == x → true``. On LLVM its ``x != y`` is false for NaN. NaN is neither
smaller than a number, nor larger, nor equal to itself.

``if not x < 1 then a else b → if x < 1 then b else a``, ``not x < 1 → not itself(x < 1)``, ``x != y
→ not itself(x == y)``, ``x == x → x == itself(x)``, where TVM looks into `itself` only after it has
simplified.
"""

from __future__ import annotations

from ....expr.build import all_of, any_of, compare, negate
from ....expr.intrinsics import itself
from ....expr.nodes import (
    BRANCHES,
    COMPARISONS,
    Expr,
    is_float,
    node_id,
    op_name,
    operands,
    with_operands,
)
from ....expr.rewrite import contains, rewrite
from ....expr.sharing.lets import merge_equal


def with_unordered_comparisons(root: Expr) -> Expr:
    """The body of a stage with comparisons that hold as written, whatever a float is."""
    if not contains(root, lambda node: op_name(node) in ("not", "eq", "ne")):
        return root
    return rewrite(rewrite(root, _turned), _kept)


def _of_floats(node: Expr) -> bool:
    return op_name(node) in COMPARISONS and is_float(operands(node)[0])


def _turned(node: Expr) -> Expr | None:
    """``if not c then a else b → if c then b else a``, for ``c`` an equality, too."""
    if op_name(node) not in BRANCHES:
        return None
    condition, then, otherwise = operands(node)
    if op_name(condition) == "not":
        [opposite] = operands(condition)
    elif op_name(condition) == "ne" and _of_floats(condition):
        opposite = compare("eq", *operands(condition))
    else:
        return None
    return with_operands(node, (opposite, otherwise, then))


def _kept(node: Expr) -> Expr | None:
    name = op_name(node)
    if name == "not":
        return _negation(operands(node)[0])
    if name not in ("eq", "ne") or not _of_floats(node):
        return None
    left, right = operands(node)
    if len(set(map(node_id, merge_equal([left, right])))) == 1:
        right = itself(right)
    elif name == "eq":
        return None
    equal = compare("eq", left, right)
    return equal if name == "eq" else negate(itself(equal))


def _negation(condition: Expr) -> Expr:
    """The negation of a condition whose comparisons TVM does not reverse."""
    name, parts = op_name(condition), operands(condition)
    if name == "and":
        return any_of(map(_negation, parts))
    if name == "or":
        return all_of(map(_negation, parts))
    return negate(itself(condition) if _of_floats(condition) else condition)
