"""Finds expressions whose integers stay in their types as they are, which most do.

Such expressions are left as they are, and no walk that rewrites has to look at them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....expr.dtypes import integer_range
from ....expr.integers.intervals import Interval, Intervals, contains, is_index, scalar_dtype
from ....expr.integers.widths import EXACT
from ....expr.nodes import COMPARISONS, Expr, Var, address, is_integer, op_name, operands


class Fitting:
    """Whether expressions of a function need no wider types; each node is looked at once.

    Parameters
    ----------
    variable : callable
        The interval of a variable.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> Fitting(lambda var: (0, 99))([i * 441 % 160]), Fitting(lambda var: (0, 9**8))([i * 441])
    (True, False)
    """

    def __init__(self, variable: Callable[[Var], Interval]) -> None:
        self._bounds = Intervals(variable)
        self._known: set[int] = set()  #: nodes that fit, with all below
        self._alive: list[Sequence[Expr]] = []

    def __call__(self, roots: Sequence[Expr]) -> bool:
        """Whether all intermediate values stay in their types, and TVM treats them as they are."""
        met: set[int] = set()
        pending = list(roots)
        while pending:
            node = pending.pop()
            key = address(node)
            if key in self._known or key in met:
                continue
            if not self._fits(node):
                return False
            met.add(key)
            pending += _parts(node)
        self._known |= met
        self._alive.append(roots)  # ids are addresses: keep what was keyed
        return True

    def _fits(self, node: Expr) -> bool:
        """Whether one node does."""
        name = op_name(node)
        if name in COMPARISONS:
            return not scalar_dtype(operands(node)[0]).startswith("uint")
        if not is_integer(node):
            return True
        if name == "cast":
            [source] = operands(node)
            own = integer_range(scalar_dtype(node))
            return not is_integer(source) or contains(own, self._bounds.of(source))
        if name not in EXACT:
            return True
        return is_index(node) and contains(
            integer_range(scalar_dtype(node)), self._bounds.of(node)
        )


def _parts(node: Expr) -> Sequence[Expr]:
    name = op_name(node)
    if name == "tensorload":
        return list(node.indices)
    if name == "ramp":
        return (node.base, node.stride)
    if name == "broadcast":
        return (node.value,)
    return [part for part in operands(node) if hasattr(part, "ty")]
