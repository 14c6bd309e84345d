"""Schedules reductions of bodies that are too large for the other rules: the terms are stored,
which takes little of the time that they take, and then reduced.

``out[i] = ⊕_k f(i, k)  →  t[i, k] = f(i, k), out[i] = ⊕_k t[i, k]``
"""

from __future__ import annotations

from dataclasses import replace

from ...expr.dtypes import itemsize
from ...expr.nodes import load, tensor_key
from ...expr.rewrite import substituter
from ...graph.graph import retarget
from ...graph.stage import (
    as_data_axis,
    axis_range,
    make_stage,
    reduction_of,
    reduction_stage,
    renewed,
)
from ..declined import Declined, no_gain
from ..kernel import Kernel, iterations, too_large
from ..machine import Machine
from ..nest.inside import unit_strides_inside
from ..rule import Made, Rest, writes_to


def stored_terms(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a reduction as an elementwise kernel and a small reduction."""
    op = kernel.root
    reduction = reduction_of(op)
    assert reduction is not None
    if too_large(replace(kernel, epilogue=None)) is None:
        return no_gain("its terms are small")
    if any(axis_range(axis)[0] != 0 for axis in (*op.axis, *reduction.axes)):
        return Declined("an axis does not begin at 0")
    points = iterations(op, machine.symbolic_size)
    if points * sum(map(itemsize, kernel.dtypes)) > machine.last_cache_bytes:
        return Declined("its terms take more than the last cache")
    spatial, outer = renewed(op.axis)
    reduced, inner = renewed(reduction.axes)
    axes = [*spatial, *reduced]
    if len(op.axis) and unit_strides_inside(op, op.axis[-1].var):
        axes = [*reduced, *spatial]
    rename = substituter({**outer, **inner})
    terms = [
        make_stage(f"{op.name}_terms", list(map(as_data_axis, axes)), [rename(source)])[0]
        for source in reduction.sources
    ]
    spatial, again = renewed(spatial)
    reduced, within = renewed(reduced)
    here = [{**again, **within}[axis.var] for axis in axes]
    sources = tuple(load(term, here) for term in terms)
    made = reduction_stage(
        op.name, spatial, replace(reduction, sources=sources, axes=tuple(reduced))
    )
    epilogue = kernel.epilogue
    if epilogue is not None:
        table = {tensor_key(op.output(n)): tensor for n, tensor in enumerate(made)}
        epilogue = retarget(epilogue, lambda tensor: table.get(tensor_key(tensor)))[0].op
    rest = Kernel(made[0].op, epilogue, kernel.repetition)
    parts = [Rest(Kernel(term.op, None, kernel.repetition)) for term in terms]
    return [*parts, *writes_to([Rest(rest)], kernel)]
