"""Estimates the iterations of sums and loops, as numbers for the comparison of strategies.

Symbolic sizes, and extents that are data, are replaced by one sample value.
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

#: the sample value of an unknown size
_SAMPLE = 64


def element_count(extents: Iterable[Extent]) -> int:
    """The product of extents, with sample values for symbolic ones."""
    return prod(map(sampled(), extents))


def sampled(loops: Iterable[Var] = ()) -> Callable[[Extent], Any]:
    """A function from extents to numbers; loop variables stay in extents that depend on them.

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
    """The number of points of a loop nest whose extents may depend on outer loops, or be data."""
    jagged = [axis for axis in axes if contains_load(bounds_of(axis)[1])]
    known = [axis for axis in axes if not contains_load(bounds_of(axis)[1])]
    count: int = sampled()(loop_iterations(known, sampled(axis.var for axis in known)))
    return count * _SAMPLE ** len(jagged)


def stage_iterations(op: Operation) -> int:
    """The iterations of one stage."""
    reduction = reduction_of(op) if is_compute(op) else None
    loops = [] if reduction is None else [*op.axis, *reduction.axes]
    count: int = sampled()(stage_cost(op, sampled(axis.var for axis in loops)).iterations)
    return count


def sum_iterations(part: Sum) -> int:
    """The iterations of a sum, and of the stages that were made for it."""
    return box_iterations([*part.target.every_axis, *part.axes]) + part.made
