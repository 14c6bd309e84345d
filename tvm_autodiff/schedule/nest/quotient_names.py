"""Names for quotients of sizes, which are no sums of sizes: conditions over them are linear in the
names.

    ``2*i + 6 <= (n + 1)//2*2, i < (n - 3)//2  →  2*i + 6 <= q*2, i < q - 2  for q = (n + 1)//2``
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.build import add, const, variable
from ...expr.linear_terms import linear_sum, linear_terms
from ...expr.nodes import Expr, Var, binary, const_value, dtype_of, node_id, op_name, operands
from ...expr.rewrite import contains_load, depends_on, rewrite, substituter
from .literals import FLOOR_DIVISIONS

Key = tuple[object, ...]


class QuotientNames:
    """A variable for each quotient, and for each remainder, that a loop does not change.

    Parameters
    ----------
    loop : Var
        The variable of the loop.

    Examples
    --------
    >>> from tvm import te
    >>> i, n = te.var("i"), te.var("n")
    >>> names = QuotientNames(i)
    >>> names.of([(n + 3) // 2 + i, (n + 1) // 2, i // 2])
    [quotient + 1 + i, quotient, i // 2]
    >>> names.whole(names.of([(n + 3) // 2 + i]))
    [(n + 1) // 2 + 1 + i]
    """

    def __init__(self, loop: Var) -> None:
        self._loop = loop
        self._names: dict[Key, Var] = {}
        self._whole: dict[Var, Expr] = {}

    @property
    def variables(self) -> list[Var]:
        """The names that were given."""
        return list(self._whole)

    def of(self, exprs: Sequence[Expr]) -> list[Expr]:
        """Expressions with names in place of quotients."""
        return [rewrite(expr, self._named) for expr in exprs]

    def whole(self, exprs: Sequence[Expr]) -> list[Expr]:
        """Expressions with quotients in place of their names."""
        return list(map(substituter(self._whole), exprs)) if self._whole else list(exprs)

    def name(self, value: Expr) -> Var:
        """A name for any value."""
        return self._kept((node_id(value),), value)

    def _named(self, node: Expr) -> Expr | None:
        if op_name(node) not in FLOOR_DIVISIONS or depends_on(node, [self._loop]):
            return None
        numerator, divisor = operands(node)
        d = const_value(divisor)
        if not isinstance(d, int) or d < 1 or contains_load(numerator):
            return None
        terms, constant = linear_terms(numerator)
        dtype = dtype_of(node)
        rest = linear_sum(terms, constant % d, dtype)
        key = *sorted((node_id(term), factor) for term, factor in terms), constant % d, d
        name = self._kept((op_name(node), *key), binary(op_name(node), rest, divisor))
        whole = constant // d if op_name(node) == "floordiv" else 0
        return add(name, const(whole, dtype)) if whole else name

    def _kept(self, key: Key, value: Expr) -> Var:
        if key not in self._names:
            [whole] = self.whole([value])  # a quotient of a quotient has no name in it
            self._names[key] = variable("quotient", dtype_of(value))
            self._whole[self._names[key]] = whole
        return self._names[key]
