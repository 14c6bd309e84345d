"""Whether a reducer may combine elements in any order, as far as numbers tell.

TVM takes every reducer to commute, so lanes and interleaved parts are combined as they come. The
composition of affine maps and products of matrices do not commute: their elements stay in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose

from ....expr.build import const
from ....expr.nodes import Expr, const_value, dtype_of, node_id, op_name, operands
from ....expr.simplify import simplify
from ....graph.stage import Combiner

_COMMUTE = frozenset(("add", "mul", "max", "min"))


def commutes(combiner: Combiner) -> bool:
    """Whether ``a ⊕ b = b ⊕ a`` for some numbers; a result that is no number counts as equal."""
    if all(_is_plain(combiner, number) for number in range(len(combiner.result))):
        return True
    # no two are equal, so that nothing ties
    left = _values(combiner, (3, 5, 2, 7, 13, 19))
    right = _values(combiner, (4, 11, 17, 6, 9, 23))
    sides = zip(combiner.apply(left, right), combiner.apply(right, left), strict=True)
    pairs = [tuple(const_value(simplify(side)) for side in pair) for pair in sides]
    return all(a is None or b is None or isclose(a, b, rel_tol=1e-3) for a, b in pairs)


def _values(combiner: Combiner, numbers: Sequence[int]) -> list[Expr]:
    """A literal for each component."""
    pairs = [(numbers[n % len(numbers)], dtype_of(var)) for n, var in enumerate(combiner.lhs)]
    return [const(value % 2 if dtype == "bool" else value, dtype) for value, dtype in pairs]


def _is_plain(combiner: Combiner, number: int) -> bool:
    """Whether a component is the sum, product or extreme of its own two values."""
    result = combiner.result[number]
    pair = {node_id(combiner.lhs[number]), node_id(combiner.rhs[number])}
    return op_name(result) in _COMMUTE and {node_id(part) for part in operands(result)} == pair
