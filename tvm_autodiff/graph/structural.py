"""Structural keys of stages, and the first of several stages that compute the same thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..expr.nodes import (
    Expr,
    Var,
    const_value,
)
from ..expr.structural import StructuralKeys
from .kinds.prefix_scan import Scan, scan_of
from .stage import (
    Operation,
    axis_vars,
    bodies,
    is_compute,
    marks_of,
    outputs_of,
    reduction_of,
    shape_of,
)


class StageKeys(StructuralKeys):
    """Interned keys of expressions and stages."""

    def stage(self, op: Operation) -> int:
        """Key of a stage: equal for scans, and for compute stages of one kind, of equal shape, axes
        and bodies.
        """
        self.alive.append(op)
        scan = scan_of(op)
        if scan is not None:
            return self._scan(scan)
        if not is_compute(op):
            return self.intern(("opaque", hash(op)))
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
        return self.intern(("stage", op.num_outputs, shape, repr(marks_of(op)), parts))

    def _scan(self, scan: Scan) -> int:
        recurrence = scan.recurrence
        formal: dict[Var, Any] = {
            var: ("formal", n) for n, var in enumerate((*recurrence.state, *recurrence.element))
        }
        parts = tuple(self.expr(e, formal) for e in (*recurrence.step, *recurrence.start))
        elements = tuple(self.tensor_key_of(tensor) for tensor in scan.elements)
        shape = (self._extents(scan.rows, {}), self._extents(scan.scanned, {}))
        return self.intern(("scan", shape, scan.backward, parts, elements))

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
        self._keys = StageKeys()
        self._known: dict[int, Operation] = {}

    def first(self, op: Operation) -> Operation:
        """The first stage equal to this one; itself where it is new or opaque."""
        first = self._known.setdefault(self._keys.stage(op), op)
        if hash(first) != hash(op):
            for copy, original in zip(outputs_of(op), outputs_of(first), strict=True):
                self._keys.same_tensor(copy, original)
        return first
