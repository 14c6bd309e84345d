"""Stores parts of elements whose expressions are far larger as trees than any pass can take.

Derivatives of nested choices, such as reflections at borders, read a coordinate many times at every
level: a graph of 1,600 nodes was a tree of ten million. A part that is stored is a single node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ....expr.nodes import (
    BRANCHES,
    Axis,
    Expr,
    Tensor,
    is_float,
    is_integer,
    load,
    node_id,
    op_name,
    operands,
    with_operands,
)
from ....expr.rewrite import (
    contains_load,
    depends_on,
    expand_lets,
    postorder,
    substituter,
    tree_size,
)
from ....expr.sharing.lets import bind_shared, merge_equal
from ....graph.graph import each_stage
from ....graph.stage import (
    Operation,
    as_data_axis,
    axis_range,
    is_compute,
    make_stage,
    reduced_axes,
    reduction_of,
    reduction_stage,
    renewed,
    sources_of,
    with_bodies,
)
from ...cost import LATENCY, MAX_COPIES, MAX_NODES, STORE
from ...nest.in_range import is_safe, loops_of

#: nodes of a tree above which a part is stored, as of what is written into its readers
_PART = MAX_NODES // LATENCY
_SHARED = STORE * LATENCY  #: as of one that is read twice
#: how often a node of the graph is written out on average, below which an expression is left whole
_REPEATED = MAX_COPIES * LATENCY
#: nodes of a tree up to which it is left whole, however few the nodes of the graph are
_WRITTEN = MAX_NODES * MAX_COPIES


def with_stored_parts(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y[i] = f(g(i), g(i))  →  t[i] = g(i), y[i] = f(t[i], t[i])`` for large f and g, and where g
    is a place that data determine.
    """
    return each_stage(outputs, _stored)


def _stored(op: Operation) -> list[Tensor] | None:
    if not is_compute(op):
        return None
    sources = merge_equal([expand_lets(source) for source in sources_of(op)])
    order = postorder(sources)
    if sum(map(tree_size, sources)) <= max(_REPEATED * len(order), _WRITTEN):
        return None
    if len(order) <= _PART and reduction_of(op) is None:
        return None  # the rules for elementwise stages write each node once
    axes = [*op.axis, *reduced_axes(op)]
    plain = [axis for axis in axes if _is_plain(axis, axes)]
    bound = [axis.var for axis in axes if not any(axis is other for other in plain)]
    always, loops = _computed_always(sources), loops_of(axes)
    uses = Counter(node_id(part) for node in order for part in operands(node))
    weights: dict[int, int] = {}
    written: dict[int, Expr] = {}
    count = 0
    for node in order:
        key, parts = node_id(node), [node_id(part) for part in operands(node)]
        weights[key] = 1 + sum(weights[part] for part in parts)
        inner = [written[part] for part in parts]
        same = all(node_id(part) == old for part, old in zip(inner, parts, strict=True))
        written[key] = node if same else with_operands(node, inner)
        shared = uses[key] > 1 and weights[key] > _SHARED
        by_data = is_float(node) or (is_integer(node) and contains_load([node]))
        if not (shared or weights[key] > _PART) or not by_data or depends_on(node, bound):
            continue
        if key in always or is_safe([node], loops):
            written[key] = _part(f"{op.name}_part{count}", written[key], plain)
            weights[key] = 1
            count += 1
    if not count:
        return None
    new = [bind_shared(written[node_id(source)]) for source in sources]
    reduction = reduction_of(op)
    if reduction is None:
        return with_bodies(op, new)
    return reduction_stage(op.name, list(op.axis), replace(reduction, sources=tuple(new)))


def _is_plain(axis: Axis, axes: Sequence[Axis]) -> bool:
    """Whether an axis begins at 0 and ends at what no other one changes."""
    low, extent = axis_range(axis)
    return low == 0 and (
        isinstance(extent, int) or not depends_on(extent, [other.var for other in axes])
    )


def _computed_always(sources: Sequence[Expr]) -> set[int]:
    """The ids of the nodes that every element needs, whatever its conditions are."""
    found: set[int] = set()
    pending = list(sources)
    while pending:
        node = pending.pop()
        if node_id(node) not in found:
            found.add(node_id(node))
            needed = operands(node)
            pending += needed[:1] if op_name(node) in BRANCHES else needed
    return found


def _part(name: str, value: Expr, axes: Sequence[Axis]) -> Expr:
    """A read of a stage that computes a value over the axes that it depends on."""
    own = [axis for axis in axes if depends_on(value, [axis.var])]
    fresh, renames = renewed(own)
    body = bind_shared(substituter(renames)(value))
    [part] = make_stage(name, list(map(as_data_axis, fresh)), [body])
    return load(part, [axis.var for axis in own])
