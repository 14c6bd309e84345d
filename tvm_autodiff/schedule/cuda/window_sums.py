"""Schedules sums for the positions of a small window that read nearly the same: depthwise weight
gradients.

The last output axes are a window that only shifts what is read. A thread keeps the sums for all
positions of the window, so that data is read from memory once instead of once per position. One
more function arranges the results.

    ``out[c, k] = Σ_i x[c, i + k] * y[c, i]  →  s0[c], s1[c] = Σ_i (x[c, i] * y[c, i],
    x[c, i + 1] * y[c, i]),  out[c, k] = if k == 0 then s0[c] else s1[c]``
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from ...expr.build import add, all_of, compare, const, select, variable
from ...expr.fold import fold
from ...expr.nodes import Axis, Expr, Tensor, Var, dtype_of, is_load, load, node_id, tensor_key
from ...expr.rewrite import expand_lets, map_loads, postorder, substituter, tree_size
from ...graph.stage import (
    Combiner,
    Operation,
    Reduction,
    axis_range,
    bodies,
    is_compute,
    make_stage,
    reduction_of,
    reduction_stage,
    renew_axis,
    renewed,
)
from ..cost import MAX_COPIES, MAX_NODES, MAX_STRIDE
from ..declined import Declined, no_gain, other_kind
from ..kernel import Kernel, iterations
from ..machine import Machine
from ..nest.access import stride_of
from ..nest.reductions.products import is_sum
from ..rule import Made, Rest, writes_to
from .blocks.joint_reduction import joint_reduction


def window_sums(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule sums for the places of a window."""
    op = kernel.root
    found = reduction_of(op) if is_compute(op) else None
    if found is None or op.num_outputs != 1 or not is_sum(found):
        return other_kind("it is not a sum")
    count = _window_axes(op, found)
    if count == 0:
        return other_kind("its last axes are not a window")
    # a multiprocessor reads two operands again in half a cycle
    if iterations(op) < 2 * machine.multiprocessors * 2 * machine.launch_cycles:
        return no_gain("reading again takes less than two launches more")
    places = list(itertools.product(*(range(_extent(axis)) for axis in op.axis[-count:])))
    source = expand_lets(found.sources[0])
    if len(places) < 2 or len(places) * tree_size(source) > MAX_NODES:
        return Declined("its window has one place, or its code would be too large")
    sums = _sums(op, found, source, count, places)
    first = joint_reduction(Kernel(sums[0].op), machine)
    if isinstance(first, Declined):
        return first
    last = Kernel(_side_by_side(kernel, sums, count, places))
    return [*first, *writes_to([Rest(last)], kernel)]


def _extent(axis: Axis) -> int:
    low, extent = axis_range(axis)
    return extent if low == 0 and isinstance(extent, int) else MAX_COPIES + 1


def _window_axes(op: Operation, found: Reduction) -> int:
    """The number of last output axes that form a window."""
    variables = [axis.var for axis in (*op.axis, *found.axes)]
    reads = [node for node in postorder(list(found.sources)) if is_load(node)]
    count, places = 0, 1
    for axis in reversed(list(op.axis)[1:]):
        places *= _extent(axis)
        if places > MAX_COPIES or not all(_shifts(read, axis, found, variables) for read in reads):
            break
        count += 1
    return count


def _shifts(read: Expr, axis: Axis, found: Reduction, variables: Sequence[Var]) -> bool:
    """Whether the next index of an axis reads what the sum reads a step or so later."""
    step = stride_of(read, node_id(axis.var), variables)
    if step is None or step == 0 or _extent(axis) == 1:
        return step is not None
    along = (stride_of(read, node_id(other.var), variables) for other in found.axes)
    return any(way and way % step == 0 and 0 < way // step <= MAX_STRIDE for way in along)


def _sums(
    op: Operation,
    found: Reduction,
    source: Expr,
    count: int,
    places: Sequence[tuple[int, ...]],
) -> list[Tensor]:
    """A reduction with a component for each index of the window."""
    spatial, table = renewed(op.axis[:-count])
    reduced, inner = renewed(found.axes)
    window = op.axis[-count:]
    sources = []
    for place in places:
        here = {a.var: const(n, dtype_of(a.var)) for a, n in zip(window, place, strict=True)}
        sources.append(fold(substituter({**table, **inner, **here})(source)))
    dtype = dtype_of(op.output(0))
    lhs = tuple(variable(f"a{n}", dtype) for n in range(len(places)))
    rhs = tuple(variable(f"b{n}", dtype) for n in range(len(places)))
    result = tuple(add(left, right) for left, right in zip(lhs, rhs, strict=True))
    combiner = Combiner(lhs, rhs, result, tuple(const(0, dtype) for _ in places))
    return reduction_stage(
        f"{op.name}_places",
        spatial,
        replace(found, combiner=combiner, sources=tuple(sources), axes=tuple(reduced)),
    )


def _side_by_side(
    kernel: Kernel, sums: Sequence[Tensor], count: int, places: Sequence[tuple[int, ...]]
) -> Operation:
    """The stage that reads the sum of each index, or the epilogue of the sum."""
    root = kernel.root

    def element(indices: Sequence[Expr]) -> Expr:
        outer, inner = list(indices[:-count]), indices[-count:]
        value: Expr = load(sums[-1], outer)
        for tensor, place in zip(reversed(sums[:-1]), reversed(places[:-1]), strict=True):
            here = all_of(
                compare("eq", index, const(n, dtype_of(index)))
                for index, n in zip(inner, place, strict=True)
            )
            value = select(here, load(tensor, outer), value)
        return value

    def read(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        return element(indices) if tensor_key(tensor) == tensor_key(root.output(0)) else None

    if kernel.epilogue is None:
        axes = [renew_axis(axis) for axis in root.axis]
        return make_stage(f"{root.name}_window", axes, [element([a.var for a in axes])])[0].op
    body = map_loads(bodies(kernel.epilogue)[0], read)
    return make_stage(kernel.epilogue.name, list(kernel.epilogue.axis), [body])[0].op
