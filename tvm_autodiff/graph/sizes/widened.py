"""Rewrites integer expressions over int64 variables, so that int32 and int64 sizes can be compared.

``cast(int64, i) + n → i' + n'`` with int64 variables ``i'`` and ``n'``. TVM's analyzer cannot prove
through casts between the two types. A cast that could lose bits stays, and a read becomes a
variable.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...expr.build import cast, const
from ...expr.dtypes import keeps_values
from ...expr.nodes import (
    Expr,
    Var,
    const_value,
    dtype_of,
    node_id,
    op_name,
    operands,
    with_operands,
)
from ...expr.rewrite import postorder
from ..stage import Extent

_NARROW, _WIDE = "int32", "int64"
_BOTH = (_NARROW, _WIDE)


class Widened:
    """Widens expressions; each variable gets the same new variable in all of them."""

    def __init__(self) -> None:
        self._variables: dict[int, tuple[Var, Var]] = {}
        self._reads: dict[int, tuple[Expr, Var]] = {}

    def variable(self, var: Var) -> Var:
        """The int64 variable that replaces an int32 or int64 one."""
        return self._variables.setdefault(node_id(var), (var, Var(var.name, _WIDE)))[1]

    def others(self, known: Iterable[Var]) -> list[Var]:
        """The new variables, except those for `known` ones."""
        keys = {node_id(var) for var in known}
        return [new for key, (_, new) in self._variables.items() if key not in keys]

    def __call__(self, expr: Extent) -> Expr:
        """The expression over int64 variables; conditions stay conditions."""
        if isinstance(expr, int):
            return const(expr, _WIDE)
        memo: dict[int, Expr] = {}
        for node in postorder(expr):
            parts = [memo[node_id(part)] for part in operands(node)]
            memo[node_id(node)] = self._node(node, parts)
        return memo[node_id(expr)]

    def _node(self, node: Expr, parts: list[Expr]) -> Expr:
        name, dtype = op_name(node), dtype_of(node)
        if name == "load":  # which the analyzer cannot hash
            fresh = Var("read", _WIDE if dtype in _BOTH else dtype)
            return self._reads.setdefault(node_id(node), (node, fresh))[1]
        if name == "const" and dtype in _BOTH:
            return const(int(const_value(node) or 0), _WIDE)
        if name == "var":
            return self.variable(node) if dtype in _BOTH else node
        if name == "cast" and dtype in _BOTH:
            kept = keeps_values(dtype_of(operands(node)[0]), dtype)
            return cast(_WIDE, parts[0] if kept else with_operands(node, parts))
        changed = any(node_id(a) != node_id(b) for a, b in zip(operands(node), parts, strict=True))
        new = with_operands(node, parts) if changed else node
        if dtype not in _BOTH or dtype_of(new) == _WIDE:
            return new
        return cast(_WIDE, new)
