"""Estimates the iterations of sums and loops, as numbers for the comparison of strategies.

Symbolic sizes are replaced by one sample value, at which the symbolic extents that are compared are
not smaller than it; so are extents that are data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

from ...cost import stage_cost
from ...domain.affine import Atoms
from ...domain.nominal import NOMINAL_SIZE, nominal_size
from ...expr.build import const
from ...expr.nodes import Axis, Expr, Var, const_value, dtype_of, node_id
from ...expr.rewrite import contains_load, depends_on, substituter, variables_of
from ...expr.simplify import simplify
from ...graph.counting import loop_iterations
from ...graph.stage import Extent, Operation, bounds_of, is_compute, reduction_of
from ...rules.reductions.reducers import classify
from .prefix_sums import places_of
from .sum import Sum

#: how much a point costs that reads or tests data: an update needs a position and a value from
#: other stages, and modifies memory; a dense sum tests an equation with data at every point
BY_DATA = 4

#: how much a step of a scan costs: it waits for the addition before, which takes 4 cycles (Intel
#: from Skylake on, AMD Zen 4: 3; uops.info, VADDPS), where sums add one for each cycle
SCAN_STEP = 4


def sample_size(extents: Iterable[Extent]) -> int:
    """The sample value of sizes for some extents: at 64, ``n - 700`` would be no element.

    Examples
    --------
    >>> from tvm import te
    >>> n = te.var("n")
    >>> sample_size([n, 4]), sample_size([n - 700, 4])
    (64, 1024)
    """
    atoms = Atoms()
    return nominal_size(
        atoms,
        [atoms.form(e) for e in extents if not isinstance(e, int) and not contains_load(e)],
    )


def element_count(extents: Iterable[Extent], size: int | None = None) -> int:
    """The product of extents, with sample values for symbolic ones."""
    extents = list(extents)
    return prod(map(sampled(size=sample_size(extents) if size is None else size), extents))


def sampled(loops: Iterable[Var] = (), size: int = NOMINAL_SIZE) -> Callable[[Extent], Any]:
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
            return NOMINAL_SIZE
        sizes = [var for var in variables_of(extent) if node_id(var) not in own]
        value = simplify(substituter({var: const(size, dtype_of(var)) for var in sizes})(extent))
        number = const_value(value)
        if number is not None:
            return max(0, int(number))
        return value if own else NOMINAL_SIZE

    return sample


def extents_of(axes: Iterable[Axis]) -> list[Extent]:
    """The extents of axes that depend on sizes alone."""
    axes = list(axes)
    own = [axis.var for axis in axes]
    extents = [bounds_of(axis)[1] for axis in axes]
    return [e for e in extents if isinstance(e, int) or not depends_on(e, own)]


def box_iterations(axes: Sequence[Axis], size: int | None = None) -> int:
    """The number of points of a loop nest whose extents may depend on outer loops, or be data."""
    if size is None:
        size = sample_size(extents_of(axes))
    jagged = [axis for axis in axes if contains_load(bounds_of(axis)[1])]
    known = [axis for axis in axes if not contains_load(bounds_of(axis)[1])]
    put = sampled((axis.var for axis in known), size)
    count: int = sampled(size=size)(loop_iterations(known, put))
    return count * NOMINAL_SIZE ** len(jagged)


def stage_iterations(op: Operation, size: int = NOMINAL_SIZE, scans: bool = False) -> int:
    """The iterations of one stage; with `scans`, of a sum up to a place its steps as a scan."""
    reduction = reduction_of(op) if is_compute(op) else None
    loops = [] if reduction is None else [*op.axis, *reduction.axes]
    if scans and reduction is not None and classify(reduction.combiner, 0) == "sum":
        steps = _scan_steps(reduction.sources[0], list(op.axis), list(reduction.axes), size)
        if steps is not None:
            return steps
    put = sampled((axis.var for axis in loops), size)
    count: int = sampled(size=size)(stage_cost(op, put).iterations)
    return count


def sum_iterations(part: Sum, size: int) -> int:
    """The iterations of a sum, of one up to a place as a scan, and of the stages that were made for
    it.
    """
    elements = part.target.every_axis
    own = None
    if part.combiner is None:
        own = _scan_steps(part.source, elements, part.axes, size)
    if own is None:
        own = box_iterations([*elements, *part.axes], size)
    return own + sum(made(size) for made in part.made)


def _scan_steps(
    source: Expr, elements: Sequence[Axis], summed: Sequence[Axis], size: int
) -> int | None:
    """The iterations of a sum up to a place as a scan, with one more for each element; None for
    other sums.
    """
    places = places_of(source, elements, summed)
    if places is None:
        return None
    ended = {node_id(axis.var) for axis in places}
    others = [axis for axis in elements if node_id(axis.var) not in ended]
    steps = box_iterations([*others, *summed], size)
    return SCAN_STEP * steps + box_iterations(elements, size)
