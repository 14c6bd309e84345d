"""Parts of a stage that some of its axes change only by the place of what they read, as stages over
these places.

An image of 17 rows that is resized to 40 is interpolated along each of its rows once, not for both
rows that each of the 40 lies between. The adjoint then goes back along one axis after the other:
through the whole stage, each element meets all pairs of places along both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from ...domain.from_floats import without_floats
from ...expr.build import const, sum_of, variable
from ...expr.factoring import factored
from ...expr.integers.tried_values import literal_box, tried_values
from ...expr.linear_terms import linear_terms
from ...expr.nodes import (
    Expr,
    Tensor,
    Var,
    const_value,
    dtype_of,
    is_float,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import (
    depends_on,
    expand_lets,
    outermost,
    postorder,
    preorder,
    replace_outermost,
    substituter,
    variables_of,
)
from ...expr.sharing.lets import bind_shared, merge_equal
from ...expr.simplify import simplify
from ...expr.structural import StructuralKeys
from ...graph.stage import (
    Extent,
    Operation,
    axis_range,
    bodies,
    data_axis,
    is_compute,
    make_stage,
    reduction_of,
    renew_axis,
    shape_of,
    with_bodies,
)
from ..places import OTHERWISE, PlaceFacts, place_facts, smooth

_SOME = 1 << 10  #: the number that sizes count as: a ratio of extents is that of large ones


@dataclass(frozen=True)
class Cost:
    """What a stage of parts saves.

    Attributes
    ----------
    ratio : float
        How often the whole stage computes each element of the stage of parts.
    reads : int
        How many elements a part reads at its place.
    work : int
        How many operations on floats a part takes.
    shape : tuple
        The extents of the stage of parts.
    keeps_zeros : bool
        Whether an adjoint of zero stays zero: for elements that no result reads, a derivative may
        be infinite, or no number.
    """

    ratio: float
    reads: int
    work: int
    shape: tuple[Extent, ...]
    keeps_zeros: bool


def adjoint_pays(cost: Cost) -> bool:
    """Whether the adjoint takes fewer terms by the stage of parts: one for each result and one for
    each read of an element of the stage, instead of one for each read of each result.
    """
    return cost.keeps_zeros and cost.ratio * cost.reads > cost.ratio + cost.reads


def placed_parts(
    op: Operation, pays: Callable[[Cost], bool] = adjoint_pays, reorder: bool = True
) -> list[Tensor] | None:
    """The results of an equal stage that reads its parts over places; None if it has none.

    ``y[i, j] = f(g(x[p(i), j], x[p(i), j + 1]))  →  t[q, j] = g(x[q, j], x[q, j + 1]), y[i, j] =
    f(t[p(i), j])``

    Parameters
    ----------
    op : Operation
        A stage without reductions, whose places are no plain shifts of axes.
    pays : callable
        Whether a stage of parts is worth it.
    reorder : bool
        Whether factors may be taken out of sums first.
    """
    if not is_compute(op) or reduction_of(op) is not None:
        return None
    ranges = list(map(axis_range, op.axis))
    if any(not isinstance(low, int) or low != 0 or _size(extent) == 0 for low, extent in ranges):
        return None
    sources = merge_equal([expand_lets(body) for body in bodies(op)])
    if not _irregular(sources):
        return None
    plain = _Parts(op, sources, pays).stage()
    if plain is not None or not reorder:
        return plain
    for axis in op.axis:
        changed = factored(_by_places(sources, axis.var), lambda node: True)
        found = _Parts(op, merge_equal([expand_lets(one) for one in changed]), pays).stage()
        if found is not None:
            return found
    return None


def _by_places(sources: Sequence[Expr], var: Var) -> list[Expr]:
    """``a*x[p(i), j] + b*x[q(i), j] + c*x[p(i), k]  →  (a*x[p(i), j] + c*x[p(i), k]) + b*x[q(i),
    j]`` for the variable i.
    """
    table: dict[int, Expr] = {}
    for root in outermost(sources, _is_sum, smooth):
        groups: dict[tuple[int, ...], list[Expr]] = {}
        for term in _terms(root):
            reads = [index for n in postorder(term) if is_load(n) for index in operands(n)]
            places = dict.fromkeys(node_id(one) for one in reads if depends_on(one, [var]))
            groups.setdefault(tuple(places), []).append(term)
        table[node_id(root)] = sum_of([sum_of(terms) for terms in groups.values()])
    return [replace_outermost(source, table) for source in sources]


def _is_sum(node: Expr) -> bool:
    return is_float(node) and op_name(node) == "add"


def _terms(node: Expr) -> list[Expr]:
    """The summands of a sum, in order."""
    found, pending = [], [node]
    while pending:
        one = pending.pop()
        if _is_sum(one):
            pending += reversed(operands(one))
        else:
            found.append(one)
    return found


def _irregular(sources: Sequence[Expr]) -> bool:
    """Whether there is a place that is no shift of an axis, of several reads."""
    reads = [node for node in postorder(list(sources)) if is_load(node)]
    indices = [index for node in reads for index in operands(node)]
    return len(reads) > 1 and not all(map(_is_shift, indices))


def _is_shift(index: Expr) -> bool:
    terms, _ = linear_terms(index)
    return len(terms) < 2 and all(op_name(term) == "var" and abs(by) == 1 for term, by in terms)


def _extents_at(index: Expr, nodes: Iterable[Expr]) -> list[Extent]:
    """The extents of the dimensions that nodes read at an index."""
    return [
        extent
        for read in nodes
        if is_load(read)
        for one, extent in zip(operands(read), shape_of(load_tensor(read)), strict=True)
        if node_id(one) == node_id(index)
    ]


def _size(extent: Extent) -> int:
    """An extent, where sizes that are known at the call count as a number of them."""
    if isinstance(extent, int):
        return extent
    sizes = {var: const(_SOME, dtype_of(var)) for var in variables_of(extent)}
    value = const_value(simplify(substituter(sizes)(extent)))
    return 0 if value is None else max(0, int(value))


@dataclass(frozen=True)
class _Part:
    """A part and the index that is its place; `function` is the part at `place`, which stands for
    the index, and `moved` are the axes that the index depends on.
    """

    node: Expr
    index: Expr
    place: Var
    function: Expr
    extent: Extent
    moved: frozenset[int]
    others: tuple[int, ...]


class _Parts:
    """The parts of one stage."""

    def __init__(
        self, op: Operation, sources: Sequence[Expr], pays: Callable[[Cost], bool]
    ) -> None:
        self._op, self._sources, self._pays = op, sources, pays
        self._extents = [axis_range(axis)[1] for axis in op.axis]
        self._nodes = {node_id(node): node for node in postorder(list(sources))}
        self._facts = place_facts(list(self._nodes.values()), op.axis)
        self._keys = StructuralKeys()
        self._most = self._at_most()

    def stage(self) -> list[Tensor] | None:
        """The stage that reads the stages of its parts."""
        parts = self._paying()
        if not parts:
            return None
        reads: dict[int, Expr] = {}
        for equal in parts:
            reads |= self._reads(equal)
        fresh = [bind_shared(replace_outermost(source, reads)) for source in self._sources]
        return with_bodies(self._op, fresh)

    def _paying(self) -> list[list[_Part]]:
        """The largest parts that pay, equal ones together."""
        declined: set[int] = set()
        while True:
            nodes = outermost(self._sources, partial(self._may_be_part, declined), smooth)
            groups: dict[object, list[_Part]] = {}
            for key, part in (pair for node in nodes for pair in self._parts_of(node)):
                groups.setdefault(key, []).append(part)
            costs = {key: self._cost(parts) for key, parts in groups.items()}
            best: dict[int, object] = {}  # the place by which a node pays most
            for key in sorted(groups, key=lambda one: costs[one].ratio):
                if self._pays(costs[key]):
                    best |= {node_id(part.node): key for part in groups[key]}
            left = {node_id(node) for node in nodes} - best.keys()
            if not left:
                of_best = (
                    [part for part in parts if best[node_id(part.node)] == key]
                    for key, parts in groups.items()
                )
                return list(filter(None, of_best))
            declined |= left

    def _may_be_part(self, declined: set[int], node: Expr) -> bool:
        fact = self._facts[node_id(node)]
        if node_id(node) in declined or not is_float(node) or len(fact.reads) < 2:
            return False
        return bool(self._places_of(fact))

    def _places_of(self, fact: PlaceFacts) -> list[Expr]:
        """The indices by which alone the axes that they depend on change an expression."""
        found = []
        for key in dict.fromkeys(fact.places.values()):
            if key == OTHERWISE:
                continue
            moved = self._facts[key].axes
            most = self._most.get((moved, fact.linear))
            alone = all(fact.places.get(n) == key for n in moved)
            if alone and most is not None and self._pays(most):
                found.append(self._nodes[key])
        return found

    def _at_most(self) -> dict[tuple[frozenset[int], bool], Cost]:
        """What parts that some axes move may save at most, of linear ones and of others: all
        places would be those of equal parts. Which pay is then seldom in doubt, from node to node.
        """
        found: dict[frozenset[int], dict[int, tuple[Expr, Extent]]] = {}
        reads = [node for node in self._nodes.values() if is_load(node)]
        for read in reads:
            for index, extent in zip(operands(read), shape_of(load_tensor(read)), strict=True):
                fact = self._facts[node_id(index)]
                if fact.axes and not fact.reads and _size(extent):
                    known = found.setdefault(fact.axes, {})
                    _, least = known.get(node_id(index), (index, extent))
                    known[node_id(index)] = index, min(least, extent, key=_size)
        costs = {}
        for moved, places in found.items():
            indices = [index for index, _ in places.values()]
            extent = min((least for _, least in places.values()), key=_size)
            rest = [one for n, one in enumerate(self._extents) if n not in moved]
            points = len(places) * prod(_size(self._extents[n]) for n in moved)
            ratio = 0.0 if all(map(_is_shift, indices)) else points / _size(extent)
            most = Cost(ratio, len(reads), len(self._nodes), (extent, *rest), True)
            costs[moved, True] = most
            costs[moved, False] = replace(most, keeps_zeros=self._are_all_read(indices, extent))
        return costs

    def _parts_of(self, node: Expr) -> list[tuple[object, _Part]]:
        """A node as a part by each of its places, and what equal parts have in common."""
        fact = self._facts[node_id(node)]
        found: list[tuple[object, _Part]] = []
        for index in self._places_of(fact):
            extents = _extents_at(index, postorder(node))
            # read for every result: all places are within these, and what is guarded is no shorter
            certain = _extents_at(index, preorder([node], smooth))
            extent = self._least(extents) if len(extents) > 1 else None
            if extent is None or not _size(extent):
                continue
            if self._extent_key(extent) not in map(self._extent_key, certain):
                continue
            moved = self._facts[node_id(index)].axes
            place = variable("q", dtype_of(index))
            function = replace_outermost(node, {node_id(index): place})
            others = tuple(sorted(fact.axes - moved))
            of_place = self._keys.expr(function, {place: dtype_of(index)})
            key = (self._extent_key(extent), of_place)
            found.append((key, _Part(node, index, place, function, extent, moved, others)))
        return found

    def _extent_key(self, extent: Extent) -> tuple[bool, int]:
        """Equal for equal numbers, and for equal expressions."""
        return (True, extent) if isinstance(extent, int) else (False, self._keys.expr(extent))

    def _least(self, extents: Sequence[Extent]) -> Extent | None:
        """The least of some extents, where it is known."""
        numbers = [extent for extent in extents if isinstance(extent, int)]
        if len(numbers) == len(extents):
            return min(numbers)
        return extents[0] if len(set(map(self._extent_key, extents))) == 1 else None

    def _cost(self, parts: Sequence[_Part]) -> Cost:
        """What one stage for equal parts saves; their other axes are the same."""
        places = {node_id(part.index): part for part in parts}
        shifts = all(_is_shift(part.index) for part in places.values())
        points = 0 if shifts else sum(
            prod(_size(self._extents[n]) for n in part.moved) for part in places.values()
        )
        nodes = postorder(parts[0].node)
        place = node_id(parts[0].index)
        reads = sum(is_load(n) and place in map(node_id, operands(n)) for n in nodes)
        work = sum(
            is_float(node) and not is_load(node) and bool(self._facts[node_id(node)].reads)
            for node in nodes
        )
        shape = (parts[0].extent, *(self._extents[n] for n in parts[0].others))
        indices = [part.index for part in places.values()]
        fact = self._facts[node_id(parts[0].node)]
        keeps = fact.linear or self._are_all_read(indices, parts[0].extent)
        return Cost(points / _size(parts[0].extent), reads, work, shape, keeps)

    def _are_all_read(self, indices: Sequence[Expr], extent: Extent) -> bool:
        """Whether each element of a stage is read, as far as it is known."""
        if not isinstance(extent, int):
            return False
        ranges = {axis.var: axis_range(axis) for axis in self._op.axis}
        found: set[int] = set()
        for index in indices:
            found |= tried_values(without_floats(index, ranges), literal_box(ranges)) or set()
        return found >= set(range(extent))

    def _reads(self, parts: Sequence[_Part]) -> dict[int, Expr]:
        """The reads of one stage for equal parts, in place of these."""
        first = parts[0]
        own = [self._op.axis[n] for n in first.others]
        place = data_axis("q", first.extent, dtype_of(first.index))
        fresh = [renew_axis(axis) for axis in own]
        renames = {old.var: new.var for old, new in zip(own, fresh, strict=True)}
        body = substituter({**renames, first.place: place.var})(first.function)
        before = sum(n < min(first.moved) for n in first.others)
        axes = [*fresh[:before], place, *fresh[before:]]
        [stage] = make_stage(f"{self._op.name}_placed", axes, [bind_shared(body)])
        deeper = placed_parts(stage.op, self._pays, False)
        values = stage if deeper is None else deeper[0]
        reads = {}
        for part in parts:
            at: list[Expr] = [self._op.axis[n].var for n in part.others]
            at.insert(before, part.index)
            reads[node_id(part.node)] = load(values, at)
        return reads
