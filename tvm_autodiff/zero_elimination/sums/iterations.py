"""How many iterations sums and loops take, as numbers that strategies are compared by.

Symbolic sizes, and extents that are data, are given one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

from ...cost import stage_cost
from ...expr.build import const
from ...expr.nodes import Axis, Var, const_value, dtype_of, node_id
from ...expr.rewrite import contains_load, substituter, variables_of
from ...expr.simplify import simplify
from ...graph.counting import loop_iterations
from ...graph.stage import Extent, Operation, bounds_of, is_compute, reduction_of
from .sum import Sum

#: value of a size that is not known
_SAMPLE = 64


def element_count(extents: Iterable[Extent]) -> int:
    """The product of extents, symbolic ones sampled."""
    return prod(map(sampled(), extents))


def sampled(loops: Iterable[Var] = ()) -> Callable[[Extent], Any]:
    """A function from extents to numbers; the variables of loops stay in extents that follow them.

    Examples
    --------
    >>> from tvm import te
    >>> n, i = te.var("n"), te.var("i")
    >>> sampled()(n + 1), sampled([i])(n - i)
    (65, 64 - i)
    """
    own = {node_id(var) for var in loops}

    def sample(extent: Extent) -> Any:
        if isinstance(extent, int):
            return extent
        if contains_load(extent):
            return _SAMPLE
        sizes = [var for var in variables_of(extent) if node_id(var) not in own]
        value = simplify(substituter({var: const(_SAMPLE, dtype_of(var)) for var in sizes})(extent))
        number = const_value(value)
        if number is not None:
            return max(0, int(number))
        return value if own else _SAMPLE

    return sample


def box_iterations(axes: Sequence[Axis]) -> int:
    """The points of a loop nest whose extents may follow outer loops, or be data."""
    jagged = [axis for axis in axes if contains_load(bounds_of(axis)[1])]
    known = [axis for axis in axes if not contains_load(bounds_of(axis)[1])]
    count: int = sampled()(loop_iterations(known, sampled(axis.var for axis in known)))
    return count * _SAMPLE ** len(jagged)


def stage_iterations(op: Operation) -> int:
    """Of one stage."""
    reduction = reduction_of(op) if is_compute(op) else None
    loops = [] if reduction is None else [*op.axis, *reduction.axes]
    count: int = sampled()(stage_cost(op, sampled(axis.var for axis in loops)).iterations)
    return count


def sum_iterations(part: Sum) -> int:
    """Of a sum, and of the stages that were made for it."""
    return box_iterations([*part.target.every_axis, *part.axes]) + part.made
