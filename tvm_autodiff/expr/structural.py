"""Structural keys of expressions, equal exactly for expressions that compute the same value in the
same way.

Names of bound variables do not matter. Expressions may contain tensors, which TVM's own structural
hash refuses. Keys are small ints, comparable within one `StructuralKeys` object. Shared
sub-expressions are visited once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .nodes import (
    Expr,
    Tensor,
    Var,
    const_value,
    dtype_of,
    load_tensor,
    node_id,
    op_name,
    operands,
    own_fields,
    tensor_key,
)
from .rewrite import postorder


class StructuralKeys:
    """Interned keys of expressions.

    Tensors are compared by identity, or by the representative set with `same_tensor`. Free
    variables are compared by identity, bound variables by position.
    """

    def __init__(self) -> None:
        self._table: dict[Any, int] = {}
        self._tensors: dict[tuple[int, int], Any] = {}
        self.alive: list[Any] = []

    def same_tensor(self, tensor: Tensor, representative: Tensor) -> None:
        """Treat reads of `tensor` as reads of `representative` from now on."""
        self._tensors[tensor_key(tensor)] = self.tensor_key_of(representative)
        self.alive += [tensor, representative]

    def name_tensor(self, tensor: Tensor, key: Any) -> None:
        """Compare reads of `tensor` by a key from now on."""
        self._tensors[tensor_key(tensor)] = key
        self.alive.append(tensor)

    def inner(self) -> StructuralKeys:
        """An inner scope: representatives and keys set there stay in it."""
        scope = type(self)()
        scope._table, scope.alive = self._table, self.alive
        scope._tensors = dict(self._tensors)
        return scope

    def tensor_key_of(self, tensor: Tensor) -> Any:
        """Key of a tensor, or of its representative."""
        key = tensor_key(tensor)
        return self._tensors.get(key, key)

    def intern(self, key: Any) -> int:
        """The number of a key; equal keys have equal numbers."""
        return self._table.setdefault(key, len(self._table))

    def expr(self, expr: Expr, bound: Mapping[Var, Any] | None = None) -> int:
        """The key of an expression; `bound` numbers the variables that are compared by position."""
        return self.parts(expr, bound)[node_id(expr)]

    def parts(self, expr: Expr, bound: Mapping[Var, Any] | None = None) -> dict[int, int]:
        """The keys of all nodes of an expression, by id, operands first."""
        self.alive.append(expr)
        numbers = {node_id(var): ("bound", number) for var, number in (bound or {}).items()}
        keys: dict[int, int] = {}
        for node in postorder(expr):
            name = op_name(node)
            own: Any = own_fields(node)
            if name == "var":
                own = numbers.get(node_id(node), own)
            elif name == "load":
                own = self.tensor_key_of(load_tensor(node))
            parts = tuple(keys[node_id(part)] for part in operands(node))
            keys[node_id(node)] = self.intern((name, dtype_of(node), own, parts))
        return keys

    def extents(
        self, extents: Sequence[Any], bound: Mapping[Var, Any] | None = None
    ) -> tuple[Any, ...]:
        """Keys of extents: ints for literals, however they are written."""
        return tuple(
            extent if isinstance(extent, int) else self._extent(extent, bound) for extent in extents
        )

    def _extent(self, extent: Expr, bound: Mapping[Var, Any] | None) -> Any:
        value = const_value(extent)
        return value if value is not None else ("expr", self.expr(extent, bound))
