"""Computes functions of single elements once for each element, where a stage reads it at several
places.

A stencil of exponentials computes each of them once for every neighbour that reads the element, and
its gradient does so again. Stored, one function of the tensor serves all places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    op_name,
    operands,
    tensor_key,
)
from ....expr.rewrite import (
    contains,
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
from ...cost import CALL, LAUNCH_CYCLES, MAX_SEARCHED, STORE
from ...kernel import size_of
from ...nest.in_range import is_safe, loops_of
from .dependence import costs_of, outermost
from .digits import with_sources

Key = tuple[object, ...]


def with_element_values(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y[i] = exp(x[i]) + exp(x[i + 1]) → e[i] = exp(x[i]), y[i] = e[i] + e[i + 1]``, and ``y[i] =
    Σ_k exp(x[i + k]) → e[i] = exp(x[i]), y[i] = Σ_k e[i + k]``, in all stages that need it. What is
    read at indices of the element, as the p of ``exp(p[b]*x[b, i + k])``, belongs to the function.
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
    stored: dict[Key, Tensor | None] = {}
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
    places : mapping from Var to int
        The variables of the function that stand for indices of the element.
    calls : int
        How many expensive functions it calls.
    """

    key: Key
    place: int
    node: Expr
    read: Expr
    function: Expr
    element: Var
    places: Mapping[Var, int]
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
    facts = _facts(sources, loops, keys)
    costs = costs_of(sources)

    ranges = loops_of(loop_axes(op))

    def site(node: Expr) -> _Site | None:
        found = _site(node, facts, loops, keys, costs[node_id(node)]) if is_float(node) else None
        if found is None or not contains([node], _branches) or is_safe([found.read], ranges):
            return found
        return None  # the other side of a branch is for places outside of the tensor

    return list(outermost(sources, costs, site).values())


@dataclass(frozen=True)
class _Facts:
    """What a node depends on: reads, by structure, and loops outside of reads; None for too much.
    """

    reads: Mapping[int, Expr]
    loops: frozenset[int] = frozenset()


def _facts(
    sources: Sequence[Expr], loops: set[int], keys: StructuralKeys
) -> dict[int, _Facts | None]:
    """What each node depends on, by id."""
    facts: dict[int, _Facts | None] = {}
    for node in postorder(list(sources)):
        below = [facts[node_id(part)] for part in operands(node)]
        known = [fact for fact in below if fact is not None]
        own = {node_id(node)} & loops
        if is_load(node) and any(fact is None or fact.reads for fact in below):
            facts[node_id(node)] = None  # at a place that data tell
            continue
        if is_load(node):
            moves = any(fact.loops for fact in known)
            facts[node_id(node)] = _Facts({keys.expr(node): node} if moves else {})
            continue
        reads = {place: read for fact in known for place, read in fact.reads.items()}
        together = _Facts(reads, frozenset(own).union(*(fact.loops for fact in known)))
        too_much = len(known) < len(below) or len(reads) > MAX_SEARCHED
        facts[node_id(node)] = None if too_much else together
    return facts


def _site(
    node: Expr,
    facts: Mapping[int, _Facts | None],
    loops: set[int],
    keys: StructuralKeys,
    calls: int,
) -> _Site | None:
    """A node as a function of one element, and of what its place in the tensor determines."""
    fact = facts[node_id(node)]
    if fact is None or not fact.reads:
        return None
    place, read = max(fact.reads.items(), key=lambda pair: len(_loops_in(pair[1], loops)))
    # loops that are an index of the element by themselves
    coordinates = {
        node_id(index): number
        for number, index in enumerate(operands(read))
        if node_id(index) in loops
    }
    others = [one for number, one in fact.reads.items() if number != place]
    indices = [index for one in others for index in operands(one)]
    plain = all(node_id(index) in coordinates or not _loops_in(index, loops) for index in indices)
    if not plain or not fact.loops <= coordinates.keys():
        return None
    element = variable("element", dtype_of(read))
    at = {
        key: variable(f"c{number}", dtype_of(operands(read)[number]))
        for key, number in coordinates.items()
    }
    same = {
        node_id(part): element
        for part in postorder(node)
        if is_load(part) and (known := facts[node_id(part)]) is not None and place in known.reads
    }
    function = replace_outermost(replace_outermost(node, same), at)
    bound: dict[Var, Any] = {element: dtype_of(read)}
    bound |= {at[key]: number for key, number in coordinates.items()}
    key = (keys.tensor_key_of(load_tensor(read)), keys.expr(function, bound))
    places = {at[key]: number for key, number in coordinates.items()}
    return _Site(key, place, node, read, function, element, places, calls)


def _branches(node: Expr) -> bool:
    return op_name(node) == "if_then_else"


def _loops_in(expr: Expr, loops: set[int]) -> set[int]:
    return {node_id(var) for var in variables_of(expr)} & loops


def _reading(
    op: Operation, sites: Sequence[_Site], stored: dict[Key, Tensor | None]
) -> list[Tensor]:
    """The stage that reads the values of functions of single elements."""
    memo: dict[int, Expr] = {}
    for site in sites:
        if site.key not in stored:
            stored[site.key] = _stage_of(site)
        values = stored[site.key]
        if values is not None:
            memo[node_id(site.node)] = load(values, operands(site.read))
    return with_sources(op, [replace_outermost(expand_lets(s), memo) for s in sources_of(op)])


def _stage_of(site: _Site) -> Tensor | None:
    """The values of a function for all elements; None if it reads beyond another tensor for some.
    """
    tensor = load_tensor(site.read)
    axes = [data_axis(f"d{n}", extent) for n, extent in enumerate(shape_of(tensor))]
    places = {var: axes[number].var for var, number in site.places.items()}
    element = load(tensor, [axis.var for axis in axes])
    body = substitute(site.function, {site.element: element, **places})
    if not is_safe([body], loops_of(axes)):
        return None
    return make_stage(f"{tensor.op.name}_values", axes, [bind_shared(body)])[0]
