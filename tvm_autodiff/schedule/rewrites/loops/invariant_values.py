"""Takes expensive functions that no step changes out of the expressions of a step, as stages of
their own, which then leave the loop over time.

    ``h' = exp(x_t[i]*exp(a[j]))*h[i, j]  →  e[j] = exp(a[j]); h' = exp(x_t[i]*e[j])*h[i, j]``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....expr.build import variable
from ....expr.costly import is_expensive
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_float,
    load,
    node_id,
)
from ....expr.rewrite import (
    contains,
    expand_lets,
    loaded_tensors,
    replace_outermost,
    substituter,
    variables_of,
)
from ....expr.sharing.lets import bind_shared
from ....expr.structural import StructuralKeys
from ....graph.graph import Graph, Replacement, each_original_stage, retarget
from ....graph.kinds.loop import Loop
from ....graph.stage import (
    Operation,
    axis_range,
    data_axis,
    is_compute,
    loop_axes,
    make_stage,
    sources_of,
)
from ...nest.in_range import is_safe, loops_of
from ..values.dependence import costs_of, outermost
from ..values.digits import with_sources


def with_invariant_values(loop: Loop) -> Loop:
    """The loop over a step in which what no step changes has stages."""
    step = loop.step
    graph = Graph(list(step.outputs))
    changing = graph.depends_on(step.carries) | graph.depends_on(step.xs)
    values = _Values(changing)
    outputs = each_original_stage(step.outputs, values.over_values)
    return loop if not values.made else replace(loop, step=step.with_outputs(outputs))


class _Values:
    """The stages that were made so far, by their expressions."""

    def __init__(self, changing: set[int]) -> None:
        self._changing = changing
        self._keys = StructuralKeys()
        self._variables: dict[tuple[int, str], Var] = {}
        self.made: dict[tuple[object, ...], Tensor] = {}

    def over_values(self, op: Operation, replacement: Replacement) -> Sequence[Tensor]:
        """A stage of a step over values that are not computed in it."""
        if hash(op) in self._changing and is_compute(op):  # another one leaves as a whole
            op = self._taken_out(op)
        return retarget(op, replacement)

    def _taken_out(self, op: Operation) -> Operation:
        if not contains(sources_of(op), is_expensive):
            return op
        sources = [expand_lets(source) for source in sources_of(op)]
        axes = list(loop_axes(op))
        memo = outermost(sources, costs_of(sources), lambda node: self._value(op, node, axes))
        fresh = [replace_outermost(source, memo) for source in sources]
        return with_sources(op, fresh)[0].op if memo else op

    def _changes(self, node: Expr) -> bool:
        return any(hash(tensor.op) in self._changing for tensor in loaded_tensors(node))

    def _value(self, op: Operation, node: Expr, axes: Sequence[Axis]) -> Expr | None:
        """A node as a read of a stage; None if steps change it, or it has no value somewhere."""
        if not is_float(node) or self._changes(node) or not list(loaded_tensors(node)):
            return None
        used = {node_id(var) for var in variables_of([node])}
        over = [axis for axis in axes if node_id(axis.var) in used]
        if any(axis_range(axis)[0] != 0 for axis in over) or not is_safe([node], loops_of(over)):
            return None
        here = {axis.var: self._place(n, dtype_of(axis.var)) for n, axis in enumerate(over)}
        key = (self._keys.expr(substituter(here)(node)), *(str(axis_range(a)[1]) for a in over))
        if key not in self.made:
            fresh = [
                data_axis(axis.var.name, axis_range(axis)[1], dtype_of(axis.var)) for axis in over
            ]
            table = {old.var: new.var for old, new in zip(over, fresh, strict=True)}
            body = bind_shared(substituter(table)(node))
            self.made[key] = make_stage(f"{op.name}_values", fresh, [body])[0]
        return load(self.made[key], [axis.var for axis in over])

    def _place(self, number: int, dtype: str) -> Var:
        """The variable that stands for a loop in expressions that are compared."""
        return self._variables.setdefault((number, dtype), variable(f"d{number}", dtype))
