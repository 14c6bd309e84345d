"""Schedules stages of bodies that are too large for the other rules: the terms of a reduction, or a
part of an element, are stored first, which takes little of the time that they take.

``out[i] = ⊕_k f(i, k)  →  t[i, k] = f(i, k), out[i] = ⊕_k t[i, k]``,
``out[i] = f(i) + g(i)  →  t[i] = f(i), out[i] = t[i] + g(i)``
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from ...codegen.passes.short_circuit import nodes_with_marks, sure_operands
from ...expr.dtypes import itemsize
from ...expr.nodes import (
    BRANCHES,
    Axis,
    Expr,
    dtype_of,
    is_float,
    load,
    node_id,
    op_name,
    tensor_key,
)
from ...expr.rewrite import Rewriter, expand_lets, substituter
from ...expr.sharing.failing import Fails, can_fail
from ...expr.sharing.lets import bind_shared
from ...expr.sharing.weights import weights
from ...graph.graph import retarget
from ...graph.sizes.nonnegative import nonnegative
from ...graph.stage import (
    as_data_axis,
    axis_range,
    axis_vars,
    bodies,
    make_stage,
    reduction_of,
    reduction_stage,
    renewed,
    widened_axis,
    with_bodies,
)
from ..declined import Declined, no_gain, other_kind
from ..kernel import Kernel, iterations, too_large
from ..machine import Machine
from ..nest.in_range import Safety, loops_of
from ..nest.inside import unit_strides_inside
from ..rule import Made, Rest, writes_to


def stored_terms(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a reduction as an elementwise kernel and a small reduction."""
    op = kernel.root
    reduction = reduction_of(op)
    assert reduction is not None
    if too_large(replace(kernel, epilogue=None)) is None:
        return other_kind("its terms are small")
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
    stored = [  # a sum of a negative number of terms has none
        as_data_axis(widened_axis(axis, nonnegative(axis_range(axis)[1]))) for axis in axes
    ]
    terms = [
        make_stage(f"{op.name}_terms", stored, [rename(source)])[0]
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


def stored_part(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule an elementwise stage as one that computes a part of each element, and the rest."""
    op = kernel.root
    if too_large(kernel) is None:
        return other_kind("its expression is small")
    if iterations(op, machine.symbolic_size) < machine.lanes(dtype_of(op.output(0))):
        return no_gain("it has fewer elements than a vector has lanes")
    if op.num_outputs != 1 or any(axis_range(axis)[0] != 0 for axis in op.axis):
        return Declined("it has several results, or an axis that does not begin at 0")
    body = expand_lets(bodies(op)[0])
    part = _half(body)
    if part is None:
        return Declined("its expression is too large, and has no part of about half its size")
    axes, renames = renewed(op.axis)
    value = bind_shared(substituter(renames)(part), _fails_over(axes))
    stored = make_stage(f"{op.name}_part", axes, [value])[0]

    def visit(node: Expr) -> Expr | None:
        return load(stored, axis_vars(op)) if node_id(node) == node_id(part) else None

    rest = with_bodies(op, [bind_shared(Rewriter(visit)(body), _fails_over(op.axis))])
    parts = [Rest(Kernel(stored.op, None, kernel.repetition))]
    return [*parts, *writes_to([Rest(Kernel(rest[0].op, None, kernel.repetition))], kernel)]


def _fails_over(axes: Sequence[Axis]) -> Fails:
    """Which nodes need their guards somewhere in a box."""
    safety = Safety(loops_of(axes))
    return lambda node: can_fail(node) and not safety([node])


def _half(body: Expr) -> Expr | None:
    """The float that each element computes and whose size is nearest to half of the whole, if
    neither it nor the rest has more than three quarters of it.
    """
    sizes = weights(body, limit=sys.maxsize)
    whole = sizes[node_id(body)]
    late = nodes_with_marks([body])
    found, pending = body, [body]
    while pending:
        node = pending.pop()
        size = sizes[node_id(node)]
        if 4 * size < whole:
            continue
        if is_float(node) and abs(2 * size - whole) < abs(2 * sizes[node_id(found)] - whole):
            found = node
        sure = sure_operands(node, late)
        pending += sure[:1] if op_name(node) in BRANCHES else sure
    return found if 4 * sizes[node_id(found)] <= 3 * whole else None
