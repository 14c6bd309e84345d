"""What an operand of a reduction is at a point: its value, under conditions that keep what it reads
inside of its tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....expr.build import all_of, const, if_then_else
from ....expr.nodes import Expr, Var, dtype_of, is_load, node_id, op_name, operands
from ....expr.rewrite import contains_load, postorder, rewrite
from ..access import AffineForms, affine_forms, combine
from ..in_range import Loops, range_conditions, read_conditions
from .products import Operand

#: comparison → (sign, slack) with ``sign * (left - right) - slack >= 0``
_AT_LEAST = {"ge": (1, 0), "gt": (1, 1), "le": (-1, 0), "lt": (-1, 1)}


def operand_value(operand: Operand, loops: Loops) -> tuple[list[Expr], Expr]:
    """The conditions under which an operand is not zero, and its value then.

    The conditions are its guards, and those that keep its reads and the reads of its guards in
    bounds. A read under its own branch stays inside it, because the other side counts as well.
    """
    conditions: list[Expr] = []
    for guard in operand.guards:
        around, inside = _kept_in_bounds(guard, loops)
        conditions += [*around, inside]
    around, value = _kept_in_bounds(operand.expr, loops)
    return distinct([*conditions, *around], loops.variables), value


def _kept_in_bounds(expr: Expr, loops: Loops) -> tuple[list[Expr], Expr]:
    """An expression that reads inside of its tensors where some conditions hold."""
    if any(_branches(node) and contains_load(node) for node in postorder(expr)):
        return [], read_inside(expr, loops)
    return range_conditions([expr], loops), expr


def _branches(node: Expr) -> bool:
    return op_name(node) in ("if_then_else", "select")


def read_inside(expr: Expr, loops: Loops) -> Expr:
    """``if c then x[i] else 1 → if c then (if 0 <= i < n then x[i] else 0) else 1``."""
    forms = AffineForms(loops.variables)
    return rewrite(
        expr,
        lambda node: guarded(read_conditions(node, loops, forms), node) if is_load(node) else None,
    )


def distinct(conditions: Sequence[Expr], variables: Sequence[Var]) -> list[Expr]:
    """The conditions without repetitions such as ``p >= 0`` and ``p > -1``."""
    order = {node_id(var): number for number, var in enumerate(variables)}
    found: dict[object, Expr] = {}
    for condition in conditions:
        key: object = node_id(condition)
        sign, slack = _AT_LEAST.get(op_name(condition), (0, 0))
        if sign:
            left, right = operands(condition)
            forms = affine_forms([left, right], variables)
            a, b = forms.get(node_id(left)), forms.get(node_id(right))
            if a is not None and b is not None:
                # both sides as one form that is at least zero
                form = combine(a, b, -1, order) if sign > 0 else combine(b, a, -1, order)
                key = (form.terms, form.constant - slack)
        found.setdefault(key, condition)
    return list(found.values())


def guarded(conditions: Sequence[Expr], value: Expr) -> Expr:
    """``if all conditions then value else 0``.

    A condition that reads is evaluated after those before it, which keep it in bounds.
    """
    zero = const(0, dtype_of(value))
    pending: list[Expr] = []
    for condition in reversed(conditions):
        pending.insert(0, condition)
        if contains_load(condition):
            value = if_then_else(all_of(pending), value, zero)
            pending = []
    return if_then_else(all_of(pending), value, zero)
