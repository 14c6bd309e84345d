"""Maps symbolic sizes of a Relax function to te variables and back.

Functions of a module share no variables: `n` of a Relax function is a different variable in each
function that it calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...expr.build import variable
from ...expr.nodes import Expr, Tensor, Var, dtype_of, op_name
from ...expr.rewrite import substitute, variables_of
from ...graph.stage import shape_of


@dataclass
class Sizes:
    """Variables of Relax and of te, in both directions."""

    _inner: dict[Var, Var] = field(default_factory=dict)
    _outer: dict[Var, Expr] = field(default_factory=dict)

    @staticmethod
    def matching(inputs: Sequence[tuple[Tensor, Sequence[Expr]]]) -> Sizes:
        """The sizes of tensors that have given shapes in Relax."""
        found = Sizes()
        for tensor, shape in inputs:
            for dim, outer in zip(shape_of(tensor), shape, strict=True):
                if not isinstance(dim, int) and op_name(dim) == "var":
                    found._outer.setdefault(dim, outer)
        return found

    def inner(self, expr: Expr) -> Expr:
        """An expression over Relax variables as one over te variables."""
        if isinstance(expr, int):
            return expr
        for var in variables_of(expr):
            if var not in self._inner:
                own = variable(str(var.name), dtype_of(var))
                self._inner[var], self._outer[own] = own, var
        return substitute(expr, self._inner)

    def outer(self, expr: Expr) -> Expr:
        """An expression over te variables as one over Relax variables."""
        return expr if isinstance(expr, int) else substitute(expr, self._outer)

    def shape(self, tensor: Tensor) -> Sequence[Any]:
        """The shape of a tensor over Relax variables."""
        return [self.outer(dim) for dim in shape_of(tensor)]
