"""Computes expensive functions once per distinct value, as stages of their own.

A positional encoding takes the sine of an angle that depends on a place and on the quotient of a
component, for each example of a batch. No order of the loops computes it less often: what it does
not depend on lies outside of what it does, or inside of a quotient. Where loops alone save as much,
stages stay whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ....expr.costly import is_expensive
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    is_float,
    is_load,
    node_id,
    op_name,
    tensor_key,
)
from ....expr.rewrite import (
    contains,
    expand_lets,
    loaded_tensors,
    map_loads,
    replace_outermost,
    substituter,
)
from ....graph.graph import each_stage
from ....graph.stage import (
    Operation,
    axis_range,
    axis_vars,
    bodies,
    is_compute,
    loop_axes,
    reduction_of,
    shape_of,
    sources_of,
)
from ...cost import CALL, THREAD_CYCLES
from ...kernel import size_of
from ...nest.decided import decided
from .dependence import costs_of, dependences, outermost
from .digits import Digits, ValueStages, digits_of, ranges_of, with_sources


def with_distinct_values(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y[b, t, j] = x[b, t, j] + sin(t*w[j//2]) → s[t, h] = sin(t*w[h]), y[b, t, j] = x[b, t, j] +
    s[t, j//2]``, and ``y[b, j] = x[b, j]*exp(w[j]) → e[j] = exp(w[j]), y[b, j] = x[b, j]*e[j]``.
    """
    values = _Values()
    return each_stage(outputs, values.taken_out)


@dataclass
class _Values:
    """The stages that were made so far, by their expressions."""

    stages: ValueStages = field(default_factory=ValueStages)
    heights: set[int] = field(default_factory=set)  #: of these expressions
    #: what stages compute that hold nothing but values of another one now, by their tensors
    copies: dict[tuple[int, int], Operation] = field(default_factory=dict)

    def taken_out(self, op: Operation) -> list[Tensor] | None:
        """The stage with the expensive functions that it computes repeatedly taken out."""
        if not is_compute(op):
            return None
        axes = loop_axes(op)
        ranges = ranges_of(axes)
        if ranges is None or not contains(sources_of(op), _is_costly):
            return None
        variables = [axis.var for axis in axes]
        plain = [map_loads(expand_lets(source), self._value) for source in sources_of(op)]
        sources = decided(plain, variables, ranges)
        costs = costs_of(sources, _is_costly)
        facts = dependences(sources, {node_id(var): number for number, var in enumerate(variables)})
        given = {tensor_key(tensor): tensor for src in sources for tensor in loaded_tensors(src)}
        # values take no more memory than what the stage reads and writes
        memory = sum(size_of(shape_of(tensor)) for tensor in (op.output(0), *given.values()))
        reduces = reduction_of(op) is not None
        summed = frozenset(range(len(op.axis), len(axes)))

        def value(node: Expr) -> Expr | None:
            found, cost = facts[node_id(node)], costs[node_id(node)]
            # operands of a sum are copied for all that needs them, but not for other rows: what a
            # place in a sum is to the parameters of a row
            table = found.tabulates(summed)
            apart = not found.loads or table or not reduces
            # what no loop changes is computed again after each store that may change what it reads
            depth = len(axes) if found.fixed else found.depth
            apart = apart and _pays(found.least(axes), depth, axes, cost)
            digits = None
            if apart or found.height in self.heights:
                digits = digits_of(node, axes, ranges, self.stages.keys)
            if digits is None or digits.points > memory:
                return None
            exact = not found.divided or digits.has_quotients
            apart = apart and (not found.loads or table or exact)
            depth = len(axes) if found.fixed else digits.depth
            apart = apart and _pays(digits.points, depth, axes, cost)
            return self._read(op.name, node, digits, found.height, apart)

        memo = outermost(sources, costs, value)
        if not memo:
            return None
        fresh = [replace_outermost(source, memo) for source in sources]
        made = with_sources(op, fresh)
        if reduction_of(op) is None and len(made) == 1 and is_load(fresh[0]):
            self.copies[tensor_key(made[0])] = op
        return made

    def _value(self, tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        """``f[i, j] → exp(w[j//2])`` for a tensor that holds nothing but values of a stage made
        here, so that what is computed of them is compared with what was.
        """
        op = self.copies.get(tensor_key(tensor))
        if op is None:
            return None
        return substituter(dict(zip(axis_vars(op), indices, strict=True)))(bodies(op)[0])

    def _read(
        self, name: str, node: Expr, digits: Digits, height: int, apart: bool
    ) -> Expr | None:
        """The read of a stage of a node's values; None if not all of them can be computed, or if it
        would be a new one and does not pay.
        """
        key = self.stages.key(node, digits)
        if key not in self.stages.made:
            made = self.stages.stage(name, node, digits) if apart else None
            if made is None:
                return None
            self.stages.made[key] = (self.taken_out(made.op) or [made])[0]
            self.heights.add(height)
        return self.stages.read(key, digits)


def _is_costly(node: Expr) -> bool:
    """Whether a node is an expensive function or a root; quotients become products
    (`reciprocals.py`).
    """
    return is_expensive(node) or (op_name(node) in ("sqrt", "rsqrt") and is_float(node))


def _pays(distinct: int, depth: int, axes: Sequence[Axis], cost: int) -> bool:
    """Whether the loops around an expression compute each of its values twice or more often."""
    points = size_of([axis_range(axis)[1] for axis in axes[:depth]])
    return 2 * distinct <= points and (points - distinct) * CALL * cost >= THREAD_CYCLES
