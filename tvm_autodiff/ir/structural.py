"""Structural keys: two expressions or stages get the same key exactly when they compute the same
thing in the same way, up to the names of bound variables.

In: expressions and stages, with tensors inside (TVM's own structural hash refuses those). Out:
small ints, comparable within one `StructuralKeys` object. Shared sub-expressions are visited once.
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
)
from .rewrite import postorder
from .scan_kernel import Scan, scan_of
from .stage import (
    Operation,
    axis_vars,
    bodies,
    is_compute,
    marks_of,
    outputs_of,
    reduction_of,
    shape_of,
    tensor_key,
)


class StructuralKeys:
    """Interned keys of expressions and compute stages.

    Tensors are compared by identity, or by the representative that `same_tensor` gave them. Free
    variables are compared by identity, bound ones by position.
    """

    def __init__(self) -> None:
        self._table: dict[Any, int] = {}
        self._tensors: dict[tuple[int, int], Any] = {}
        self._alive: list[Any] = []

    def same_tensor(self, tensor: Tensor, representative: Tensor) -> None:
        """Treat reads of `tensor` as reads of `representative` from now on."""
        self._tensors[tensor_key(tensor)] = self._tensor_key(representative)
        self._alive += [tensor, representative]

    def _tensor_key(self, tensor: Tensor) -> Any:
        key = tensor_key(tensor)
        return self._tensors.get(key, key)

    def _intern(self, key: Any) -> int:
        return self._table.setdefault(key, len(self._table))

    def expr(self, expr: Expr, bound: Mapping[Var, Any] | None = None) -> int:
        """Key of an expression; `bound` numbers the variables that are compared by position."""
        self._alive.append(expr)
        numbers = {node_id(var): ("bound", number) for var, number in (bound or {}).items()}
        keys: dict[int, int] = {}
        for node in postorder(expr):
            name = op_name(node)
            own: Any = own_fields(node)
            if name == "var":
                own = numbers.get(node_id(node), own)
            elif name == "load":
                own = self._tensor_key(load_tensor(node))
            parts = tuple(keys[node_id(part)] for part in operands(node))
            keys[node_id(node)] = self._intern((name, dtype_of(node), own, parts))
        return keys[node_id(expr)]

    def stage(self, op: Operation) -> int:
        """Key of a stage: equal for scans, and for compute stages of one kind, of equal shape, axes
        and bodies.
        """
        self._alive.append(op)
        scan = scan_of(op)
        if scan is not None:
            return self._scan(scan)
        if not is_compute(op):
            return self._intern(("opaque", hash(op)))
        bound: dict[Var, Any] = {var: ("axis", n) for n, var in enumerate(axis_vars(op))}
        shape = self._extents(shape_of(op.output(0)), bound)
        reduction = reduction_of(op)
        if reduction is None:
            parts: tuple[Any, ...] = tuple(self.expr(body, bound) for body in bodies(op))
        else:
            ranges: list[Any] = []
            for n, axis in enumerate(reduction.axes):
                ranges += self._extents((axis.dom.min, axis.dom.extent), bound)
                bound[axis.var] = ("reduce", n)
            combiner = reduction.combiner
            formal: dict[Var, Any] = {
                var: ("formal", n) for n, var in enumerate((*combiner.lhs, *combiner.rhs))
            }
            parts = (
                tuple(ranges),
                tuple(int(body.value_index) for body in bodies(op)),
                tuple(self.expr(e, formal) for e in (*combiner.result, *combiner.identity)),
                tuple(
                    self.expr(e, bound)
                    for e in (*reduction.sources, *reduction.init, reduction.condition)
                ),
            )
        return self._intern(("stage", op.num_outputs, shape, repr(marks_of(op)), parts))

    def _scan(self, scan: Scan) -> int:
        recurrence = scan.recurrence
        formal: dict[Var, Any] = {
            var: ("formal", n) for n, var in enumerate((*recurrence.state, *recurrence.element))
        }
        parts = tuple(self.expr(e, formal) for e in (*recurrence.step, *recurrence.start))
        elements = tuple(self._tensor_key(tensor) for tensor in scan.elements)
        shape = (self._extents(scan.rows, {}), self._extents(scan.scanned, {}))
        return self._intern(("scan", shape, scan.backward, parts, elements))

    def _extents(self, extents: Sequence[Any], bound: Mapping[Var, Any]) -> tuple[Any, ...]:
        return tuple(
            extent if isinstance(extent, int) else self._intern_extent(extent, bound)
            for extent in extents
        )

    def _intern_extent(self, extent: Expr, bound: Mapping[Var, Any]) -> Any:
        value = const_value(extent)
        return value if value is not None else ("expr", self.expr(extent, bound))


class EqualStages:
    """The first of the stages that compute the same thing in the same way, for each stage shown.

    Stages are shown producers first, over the tensors of the first ones.
    """

    def __init__(self) -> None:
        self._keys = StructuralKeys()
        self._known: dict[int, Operation] = {}

    def first(self, op: Operation) -> Operation:
        """The first stage equal to this one; itself where it is new or opaque."""
        first = self._known.setdefault(self._keys.stage(op), op)
        if hash(first) != hash(op):
            for copy, original in zip(outputs_of(op), outputs_of(first), strict=True):
                self._keys.same_tensor(copy, original)
        return first
