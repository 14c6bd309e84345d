"""Computes the summands of several sums over the same loops in one pass, and stores them, where
each sum would compute again most of what the others do.

The derivatives of a loss by the twelve numbers of a pose are sums over all points of twelve values
that hold the same projection. Few sums are joined in one pass instead (`joined_sums`); more of them
leave no registers, and large bodies are no single loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .....expr.costly import is_slow
from .....expr.dtypes import itemsize
from .....expr.nodes import (
    Expr,
    Tensor,
    dtype_of,
    is_float,
    load,
    node_id,
    op_name,
    operands,
)
from .....expr.rewrite import expand_lets, postorder, substituter
from .....expr.sharing.lets import bind_shared
from .....expr.structural import StructuralKeys
from .....graph.graph import Graph, Replacement, each_original_stage, retarget
from .....graph.sizes.loop_sizes import is_size
from .....graph.stage import (
    Operation,
    Reduction,
    axis_range,
    data_axis,
    is_compute,
    loop_axes,
    make_stage,
    reduction_of,
    reduction_stage,
)
from ....cost import DIVISION, LATENCY, LAUNCH_CYCLES, STORE
from ....kernel import iterations, size_of
from ....machine import Machine
from ....nest.reductions.products import is_sum


@dataclass(frozen=True)
class _Sum:
    """A sum, and the work of its operations by their keys, over the loops by position."""

    op: Operation
    reduction: Reduction
    work: dict[int, float]


def with_stored_summands(outputs: Sequence[Tensor], machine: Machine) -> list[Tensor]:
    """``s = Σ_i f(g(i)), t = Σ_i h(g(i)), … → (u, v, …)[i] = (f(g(i)), h(g(i)), …), s = Σ_i u[i], t
    = Σ_i v[i], …`` where g is most of the work.
    """
    stored = {hash(one.op) for group in _groups(Graph(outputs), machine) for one in group}

    def change(op: Operation, replacement: Replacement) -> list[Tensor]:
        current = retarget(op, replacement)
        return _of_stored(current[0].op) if hash(op) in stored else current

    return each_original_stage(outputs, change) if stored else list(outputs)


def _groups(graph: Graph, machine: Machine) -> list[list[_Sum]]:
    """The sums whose summands are stored, those of one pass together."""
    keys = StructuralKeys()
    alike: dict[object, list[_Sum]] = {}
    for op in graph.ops:
        found = _sum(op, keys)
        if found is not None:
            extents = keys.extents([axis_range(axis)[1] for axis in loop_axes(op)])
            key = (len(op.axis), extents, dtype_of(found.reduction.sources[0]))
            alike.setdefault(key, []).append(found)
    return [group for sums in alike.values() if _pays(group := _sharing(sums, graph), machine)]


def _sum(op: Operation, keys: StructuralKeys) -> _Sum | None:
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None or not is_sum(reduction) or reduction.init:
        return None
    axes = loop_axes(op)
    if any(low != 0 or not is_size(extent, axes) for low, extent in map(axis_range, axes)):
        return None
    source = expand_lets(reduction.sources[0])
    if not is_float(source) or iterations(op) < LAUNCH_CYCLES:
        return None
    parts = keys.parts(source, {axis.var: number for number, axis in enumerate(axes)})
    work = {
        parts[node_id(node)]: DIVISION if is_slow(node) else 1.0
        for node in postorder(source)
        if operands(node) and op_name(node) != "cast"
    }
    return _Sum(op, reduction, work)


def _sharing(sums: Sequence[_Sum], graph: Graph) -> list[_Sum]:
    """The sums that have most of their work in common with the first of them, and do not need each
    other.
    """
    group: list[_Sum] = []
    for one in sums:
        shared = not group or 2 * _shared(one, group[0]) > sum(one.work.values())
        late = graph.depends_on([other.op.output(0) for other in group]) if group else ()
        if shared and hash(one.op) not in late:
            group.append(one)
    return group


def _shared(one: _Sum, other: _Sum) -> float:
    return sum(one.work[key] for key in one.work.keys() & other.work.keys())


def _pays(group: Sequence[_Sum], machine: Machine) -> bool:
    """Whether to store all summands and to read them takes less than to compute them apart."""
    if len(group) <= LATENCY:  # so few are joined, or share a pass over rows
        return False
    together: dict[int, float] = {}
    for one in group:
        together |= one.work
    apart = sum(sum(one.work.values()) for one in group)
    first = group[0].op
    points = size_of([axis_range(axis)[1] for axis in loop_axes(first)], machine.symbolic_size)
    size = len(group) * points * itemsize(dtype_of(first.output(0)))
    saved = apart - sum(together.values()) - len(group) * STORE
    return saved > 0 and size <= machine.last_cache_bytes


def _of_stored(op: Operation) -> list[Tensor]:
    """The sum of stored summands."""
    reduction = reduction_of(op)
    assert reduction is not None
    own = loop_axes(op)
    axes = [data_axis(a.var.name, axis_range(a)[1], dtype_of(a.var)) for a in own]
    move = substituter({old.var: new.var for old, new in zip(own, axes, strict=True)})
    source = bind_shared(move(expand_lets(reduction.sources[0])))
    [stored] = make_stage(f"{op.name}_summands", axes, [source])
    read: Expr = load(stored, [axis.var for axis in own])
    return reduction_stage(op.name, list(op.axis), replace(reduction, sources=(read,)))
