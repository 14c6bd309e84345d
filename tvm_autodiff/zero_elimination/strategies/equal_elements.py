"""Computes sums of which many elements are equal once, for each quotient or remainder that they
depend on.

Who sums over the block of a place gets one sum for each place: ``k // 10 == j // 10`` leaves
``x[t + j // 10*10]``, which is the same for ten places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ...expr.build import variable
from ...expr.nodes import Axis, Expr, const_value, dtype_of, load, node_id, op_name, operands
from ...expr.rewrite import depends_on, expand_lets, postorder, rewrite
from ...expr.sharing.lets import bind_shared, merge_equal
from ...graph.stage import axis_range, data_axis, renew_axis
from ..sums.assemble import assemble
from ..sums.iterations import sum_iterations
from ..sums.sum import Sum, Target
from ..sums.windows import is_jagged

#: quotients and remainders of ``0 .. n - 1`` by c → how many there are
_DIGITS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda extent, divisor: -(-extent // divisor),
    "floormod": lambda extent, divisor: min(extent, divisor),
}


def equal_elements(whole: Sum) -> Sum | None:
    """``Σ_t x[t + b//10*10]  →  part[b//10], part[q] = Σ_t x[t + 10*q]``.

    None unless an axis of the result occurs in one of its quotients or remainders alone.
    """
    if whole.unsolved or not whole.axes or any(map(is_jagged, whole.axes)):
        return None
    if whole.combiner is not None or whole.dense:
        return None
    [source] = merge_equal([expand_lets(whole.source)])
    elements = whole.target.every_axis
    digits = [_digit(source, axis) for axis in elements]
    if all(digit is None for digit in digits):
        return None
    axes = [
        renew_axis(axis)
        if digit is None
        else data_axis(axis.var.name, _count(digit, axis), dtype_of(digit))
        for axis, digit in zip(elements, digits, strict=True)
    ]
    places = [
        axis.var if digit is None else digit for axis, digit in zip(elements, digits, strict=True)
    ]
    new = {node_id(place): axis.var for place, axis in zip(places, axes, strict=True)}
    outer = len(whole.target.prefix)
    part = Target(tuple(axes[:outer]), tuple(axes[outer:]))
    moved = bind_shared(rewrite(source, lambda node: new.get(node_id(node))))
    solved = replace(whole, source=moved, target=part, guards=())
    name = f"{whole.definition.name}_equal"
    stage = assemble(name, part, [[solved]], dtype=dtype_of(source))
    made = partial(sum_iterations, solved)
    return replace(whole, axes=(), guards=(), source=load(stage, places), made=(made,))


def _digit(source: Expr, axis: Axis) -> Expr | None:
    """The only quotient or remainder by which an expression depends on an axis of literal length.
    """
    low, extent = axis_range(axis)
    if low != 0 or not isinstance(extent, int):
        return None
    found = {
        node_id(node): node
        for node in postorder(source)
        if op_name(node) in _DIGITS
        and node_id(operands(node)[0]) == node_id(axis.var)
        and (const_value(operands(node)[1]) or 0) > 0
    }
    if len(found) != 1:
        return None
    [digit] = found.values()
    other = variable(axis.var.name, dtype_of(digit))
    without = rewrite(source, lambda node: other if node_id(node) == node_id(digit) else None)
    return None if depends_on(without, [axis.var]) else digit


def _count(digit: Expr, axis: Axis) -> int:
    """How many values a quotient or remainder of an axis has."""
    divisor = const_value(operands(digit)[1])
    assert divisor is not None
    return _DIGITS[op_name(digit)](axis_range(axis)[1], int(divisor))
