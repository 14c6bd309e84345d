"""Computes functions of single elements once for each element, where a stage reads it at several
places.

A stencil of exponentials computes each of them once for every neighbour that reads the element, and
its gradient does so again. Stored, one function of the tensor serves all places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....expr.build import variable
from ....expr.costly import is_expensive
from ....expr.nodes import (
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_float,
    is_load,
    load,
    load_tensor,
    node_id,
    operands,
    tensor_key,
)
from ....expr.rewrite import (
    contains,
    contains_load,
    expand_lets,
    postorder,
    replace_outermost,
    substitute,
    variables_of,
)
from ....expr.sharing.lets import bind_shared
from ....expr.structural import StructuralKeys
from ....graph.graph import Graph, retarget
from ....graph.stage import (
    Operation,
    axis_range,
    data_axis,
    is_compute,
    is_placeholder,
    loop_axes,
    make_stage,
    outputs_of,
    shape_of,
    sources_of,
)
from ...cost import CALL, LAUNCH_CYCLES, STORE
from ...kernel import size_of
from .dependence import costs_of
from .digits import with_sources

Key = tuple[object, ...]

_SEVERAL = -1  #: what depends on several reads, or on loops themselves


def with_element_values(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y[i] = exp(x[i]) + exp(x[i + 1]) → e[i] = exp(x[i]), y[i] = e[i] + e[i + 1]``, and ``y[i] =
    Σ_k exp(x[i + k]) → e[i] = exp(x[i]), y[i] = Σ_k e[i + k]``, in all stages that need it.
    """
    graph = Graph(outputs)
    keys = StructuralKeys()
    uses: dict[Key, _Uses] = {}
    for op in graph.ops:
        for site in _sites(op, keys):
            uses.setdefault(site.key, _Uses()).add(op, site)
    kept = {key for key, found in uses.items() if found.pays()}
    if not kept:
        return list(outputs)
    replaced: dict[tuple[int, int], Tensor] = {}
    stored: dict[Key, Tensor] = {}
    for op in graph.ops:
        if is_placeholder(op):
            continue
        current = retarget(op, lambda tensor: replaced.get(tensor_key(tensor)))
        sites = [site for site in _sites(current[0].op, keys) if site.key in kept]
        if sites:
            current = _reading(current[0].op, sites, stored)
        for old, new in zip(outputs_of(op), current, strict=True):
            if tensor_key(old) != tensor_key(new):
                replaced[tensor_key(old)] = new
                keys.same_tensor(new, old)
    return [replaced.get(tensor_key(tensor), tensor) for tensor in outputs]


@dataclass(frozen=True)
class _Site:
    """A function of one element in a stage.

    Attributes
    ----------
    key : tuple
        Equal for equal functions of one tensor.
    place : int
        Equal for equal indices of the element.
    node, read : Expr
        The function, and the read of the element.
    function, element : Expr and Var
        The function of a variable.
    calls : int
        How many expensive functions it calls.
    """

    key: Key
    place: int
    node: Expr
    read: Expr
    function: Expr
    element: Var
    calls: int


@dataclass
class _Uses:
    """Where one function of a tensor's elements is computed."""

    sites: dict[tuple[int, int], tuple[Operation, _Site]] = field(default_factory=dict)

    def add(self, op: Operation, site: _Site) -> None:
        """Note a site; of equal places in a stage, the first one counts."""
        self.sites.setdefault((hash(op), site.place), (op, site))

    def pays(self) -> bool:
        """Whether stages compute elements so often, at several places, that it pays to store them.
        """
        [(_, first), *_] = self.sites.values()
        elements = size_of(shape_of(load_tensor(first.read)))
        by_stage: dict[int, list[tuple[Operation, _Site]]] = {}
        for op, site in self.sites.values():
            by_stage.setdefault(hash(op), []).append((op, site))
        points = sum(
            _points(op, site.read)
            for found in by_stage.values()
            for op, site in found
            if len(found) > 1 or _overlaps(op, site.read)
        )
        saved = (points - elements) * CALL * first.calls
        return saved >= elements * STORE + LAUNCH_CYCLES


def _points(op: Operation, read: Expr) -> int:
    """How often the loops of a stage compute a function of what is read."""
    axes = loop_axes(op)
    used = {node_id(var) for index in operands(read) for var in variables_of(index)}
    depth = max(n for n, axis in enumerate(axes) if node_id(axis.var) in used) + 1
    return size_of([axis_range(axis)[1] for axis in axes[:depth]])


def _overlaps(op: Operation, read: Expr) -> bool:
    """Whether several loops move along one axis of the tensor: ``x[i + k]``."""
    loops = {node_id(axis.var) for axis in loop_axes(op)}
    found = [{node_id(var) for var in variables_of(index)} & loops for index in operands(read)]
    return any(len(one) > 1 for one in found)


def _sites(op: Operation, keys: StructuralKeys) -> list[_Site]:
    """The largest functions of single elements in a stage that call an expensive one."""
    if not is_compute(op) or not contains(sources_of(op), is_expensive):
        return []
    sources = [expand_lets(source) for source in sources_of(op)]
    loops = {node_id(axis.var) for axis in loop_axes(op)}
    places, reads = _places(sources, loops, keys)
    costs = costs_of(sources)
    found: list[_Site] = []
    seen: set[int] = set()
    pending = list(sources)
    while pending:
        node = pending.pop()
        if node_id(node) in seen or not costs[node_id(node)]:
            continue
        seen.add(node_id(node))
        place = places[node_id(node)]
        if place is None or place == _SEVERAL or not is_float(node):
            pending += operands(node)
            continue
        read = reads[place]
        element = variable("element", dtype_of(read))
        function = _over(node, place, places, element)
        same = keys.expr(function, {element: dtype_of(read)})
        key = (keys.tensor_key_of(load_tensor(read)), same)
        found.append(_Site(key, place, node, read, function, element, costs[node_id(node)]))
    return found


def _places(
    sources: Sequence[Expr], loops: set[int], keys: StructuralKeys
) -> tuple[dict[int, int | None], dict[int, Expr]]:
    """For each node, by id, the one read that it depends on, by structure; None if no loop changes
    it, and `_SEVERAL` if it depends on more. And a read of each structure.
    """
    places: dict[int, int | None] = {}
    reads: dict[int, Expr] = {}
    for node in postorder(list(sources)):
        below = {places[node_id(part)] for part in operands(node)} - {None}
        if is_load(node) and below:
            gathers = any(contains_load(index) for index in operands(node))
            place = _SEVERAL if gathers else keys.expr(node)
            reads.setdefault(place, node)
            places[node_id(node)] = place
        elif node_id(node) in loops or len(below) > 1:
            places[node_id(node)] = _SEVERAL
        else:
            places[node_id(node)] = next(iter(below), None)
    return places, reads


def _over(node: Expr, place: int, places: Mapping[int, int | None], element: Expr) -> Expr:
    """A function of one read as one of a variable."""
    table = {
        node_id(part): element
        for part in postorder(node)
        if is_load(part) and places[node_id(part)] == place
    }
    return replace_outermost(node, table)


def _reading(op: Operation, sites: Sequence[_Site], stored: dict[Key, Tensor]) -> list[Tensor]:
    """The stage that reads the values of functions of single elements."""
    memo: dict[int, Expr] = {}
    for site in sites:
        if site.key not in stored:
            tensor = load_tensor(site.read)
            axes = [data_axis(f"d{n}", extent) for n, extent in enumerate(shape_of(tensor))]
            element = load(tensor, [axis.var for axis in axes])
            body = bind_shared(substitute(site.function, {site.element: element}))
            [stored[site.key]] = make_stage(f"{tensor.op.name}_values", axes, [body])
        memo[node_id(site.node)] = load(stored[site.key], operands(site.read))
    return with_sources(op, [replace_outermost(expand_lets(s), memo) for s in sources_of(op)])
