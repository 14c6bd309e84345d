"""Adds up the updates of several scatter-adds into one tensor, so that there are fewer passes over
its places.

What reads the components of gathered rows one by one, ``u[i[e], 0]*u[j[e], 1]``, has a gradient of
one scatter-add for each read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from ....expr.build import compare, const, select, sum_of, zero_like
from ....expr.factoring import addends_of
from ....expr.nodes import (
    Expr,
    Tensor,
    const_value,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    operands,
    tensor_key,
)
from ....expr.rewrite import expand_lets, substituter, tree_size
from ....graph.graph import Graph, Replacement, each_original_stage, retarget
from ....graph.kinds.kind import kind_of
from ....graph.kinds.scatter_add import ScatterAdd, ScatterLayout, scatter_add_stage
from ....graph.stage import (
    Operation,
    axis_vars,
    bodies,
    data_axis,
    is_compute,
    make_stage,
    reduction_of,
    shape_of,
)
from ...cost import CALL


def with_added_updates(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``s[p[e]] += u[e], t[p[e]] += v[e], y = s + t  →  y[p[e]] += u[e] + v[e]``, and
    ``s[p[e], 0] += u[e], t[p[e], 1] += v[e], y = s + t  →  y[p[e], j] += select(j == 0, u[e],
    v[e])``, where most places of the dimension have updates.
    """
    graph = Graph(outputs)
    wanted = {tensor_key(tensor) for tensor in outputs}
    plans = {hash(op): found for op in graph.ops if (found := _terms(op, graph, wanted))}
    if not plans:
        return list(outputs)

    def change(op: Operation, replacement: Replacement) -> list[Tensor]:
        current = retarget(op, replacement)
        found = plans.get(hash(op))
        return current if found is None else _added(current[0].op, found, replacement)

    return each_original_stage(outputs, change)


def _terms(op: Operation, graph: Graph, wanted: set[tuple[int, int]]) -> list[ScatterAdd]:
    """The scatter-adds whose results a stage adds up, if no other stage reads them, and some of
    them can be one.
    """
    if not is_compute(op) or op.num_outputs != 1 or reduction_of(op) is not None:
        return []
    here = list(map(node_id, axis_vars(op)))
    found = []
    for term in addends_of(bodies(op)[0]):
        if is_load(term) and list(map(node_id, operands(term))) == here:
            tensor = load_tensor(term)
            kind, alone = kind_of(tensor.op), len(graph.consumers(tensor)) == 1
            if isinstance(kind, ScatterAdd) and alone and tensor_key(tensor) not in wanted:
                found.append(kind)
    keys = {tensor_key(kind.result) for kind in found}
    together = len(_rows(_sums(found))) < len(found)
    return found if together and len(keys) == len(found) else []


@dataclass(frozen=True)
class _Sum:
    """Scatter-adds at the same places: one of them, and the updates of all."""

    kind: ScatterAdd
    updates: tuple[Tensor, ...]


@dataclass(frozen=True)
class _Rows:
    """Scatter-adds that differ in the place of one dimension, which is a literal.

    Attributes
    ----------
    dim : int or None
        The dimension; None for a single sum.
    sums : dict of int to _Sum
        The sum of each place.
    """

    dim: int | None
    sums: Mapping[int, _Sum]


def _sums(kinds: Sequence[ScatterAdd]) -> list[_Sum]:
    found: dict[Hashable, _Sum] = {}
    for kind in kinds:
        key = (kind.layout, tuple(map(_place_key, kind.positions)), _form(kind))
        known = found.get(key, _Sum(kind, ()))
        found[key] = replace(known, updates=(*known.updates, kind.updates))
    return list(found.values())


def _literal(position: Tensor) -> int | None:
    """The place that all elements of a position tensor are."""
    place = const_value(bodies(position.op)[0]) if is_compute(position.op) else None
    return place if isinstance(place, int) else None


def _place_key(position: Tensor) -> Hashable:
    """The key of places: equal literals may be tensors of their own."""
    place = _literal(position)
    return tensor_key(position) if place is None else ("literal", place)


def _form(kind: ScatterAdd) -> tuple[Hashable, ...]:
    """The shapes of the updates and of the result."""
    shapes = [*shape_of(kind.updates), *shape_of(kind.result)]
    return tuple(("size", node_id(n)) if not isinstance(n, int) else n for n in shapes)


def _rows(sums: Sequence[_Sum]) -> list[_Rows]:
    """The sums, those joined that write most places of a dimension."""
    groups: dict[Hashable, dict[int, _Sum]] = {}
    for number, one in enumerate(sums):
        fixed = _fixed(one.kind)
        if fixed is None:
            groups[number] = {0: one}
            continue
        dim, place = fixed
        layout = one.kind.layout
        others = [_place_key(t) for n, t in enumerate(one.kind.positions) if n != layout.dims[dim]]
        groups.setdefault((dim, layout, tuple(others), _form(one.kind)), {})[place] = one
    found = []
    for group in groups.values():
        first = next(iter(group.values())).kind
        fixed = _fixed(first)
        extent = None if fixed is None else shape_of(first.result)[fixed[0]]
        if fixed and isinstance(extent, int) and len(group) > 1 and 2 * len(group) > extent:
            found.append(_Rows(fixed[0], dict(sorted(group.items()))))
        else:
            found += [_Rows(None, {0: one}) for one in group.values()]
    return found


def _fixed(kind: ScatterAdd) -> tuple[int, int] | None:
    """The last dimension whose place is a literal, and the place; None if points would be left
    without an axis.
    """
    layout = kind.layout
    for dim in reversed(range(len(layout.dims))):
        number = layout.dims[dim]
        place = _literal(kind.positions[number]) if number >= 0 else None
        if place is None:
            continue
        moved = _without(layout, dim)
        if moved.points == layout.points and any(moved.places):
            return dim, place
    return None


def _without(layout: ScatterLayout, dim: int) -> ScatterLayout:
    """The layout with a dimension as a trailing axis, the last one of the updates."""
    gone = layout.dims[dim]
    dims = [number - (number > gone) for number in layout.dims]
    dims[dim] = -1
    places = tuple(axes for number, axes in enumerate(layout.places) if number != gone)
    return ScatterLayout(tuple(dims), places, (*layout.updates, -1 - dim))


def _added(op: Operation, kinds: Sequence[ScatterAdd], replacement: Replacement) -> list[Tensor]:
    """The stage over fewer scatter-adds."""

    def now(tensor: Tensor) -> Tensor:
        new = replacement(tensor)
        return tensor if new is None else new

    mine = {tensor_key(now(kind.result)) for kind in kinds}
    rest = [term for term in addends_of(bodies(op)[0]) if not _reads(term, mine)]
    joined = [_scatter(f"{op.name}_scatter", rows, now) for rows in _rows(_sums(kinds))]
    here = axis_vars(op)
    body = sum_of([*(load(tensor, here) for tensor in joined), *rest])
    return make_stage(op.name, list(op.axis), [body], op.tag)


def _reads(term: Expr, keys: set[tuple[int, int]]) -> bool:
    return is_load(term) and tensor_key(load_tensor(term)) in keys


def _scatter(name: str, rows: _Rows, now: Callable[[Tensor], Tensor]) -> Tensor:
    """The scatter-add of some rows; `now` is what is read in place of a tensor."""
    first = next(iter(rows.sums.values()))
    kind, layout = first.kind, first.kind.layout
    if rows.dim is None and len(first.updates) == 1:
        return now(kind.result)
    positions = [now(tensor) for tensor in kind.positions]
    shape = shape_of(kind.result)
    axes = [data_axis(f"n{n}", extent) for n, extent in enumerate(shape_of(kind.updates))]
    places = [axis.var for axis in axes]
    values = {
        place: sum_of([_value(now(update), places) for update in one.updates])
        for place, one in rows.sums.items()
    }
    [value] = list(values.values())[:1]
    if rows.dim is not None:
        del positions[layout.dims[rows.dim]]
        layout = _without(layout, rows.dim)
        axes.append(data_axis("row", shape[rows.dim]))
        own = axes[-1].var
        value = zero_like(value)
        for place, part in reversed(values.items()):
            value = select(compare("eq", own, const(place, dtype_of(own))), part, value)
    [updates] = make_stage(f"{name}_updates", axes, [value])
    return scatter_add_stage(name, positions, updates, shape, layout)


def _value(updates: Tensor, places: Sequence[Expr]) -> Expr:
    """An update; what computes it, if that is small, since one place of a row reads each."""
    op = updates.op
    if is_compute(op) and op.num_outputs == 1 and reduction_of(op) is None:
        body = expand_lets(bodies(op)[0])
        if tree_size(body) <= CALL:
            return substituter(dict(zip(axis_vars(op), places, strict=True)))(body)
    return load(updates, places)
