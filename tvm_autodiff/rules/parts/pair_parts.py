"""What slow functions of pairs of points, or of several components of one, are of, as stages of
their own, which are differentiated instead.

Each component of both points gets a term of the adjoint. Without such a stage, each of the terms
computes the functions again, and the derivative of each term has as many terms again: a second
derivative of an energy of points with three components has six times six.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ...expr.build import all_of, cast, negate
from ...expr.costly import is_slow
from ...expr.integers.tried_values import literal_box, tried_values
from ...expr.nodes import (
    BRANCHES,
    Axis,
    Expr,
    Tensor,
    is_float,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ...expr.rewrite import contains_load, depends_on, postorder, preorder
from ...graph.out_of_bounds import is_inside
from ...graph.stage import Operation, axis_range, reduction_of
from .common_part import Place, Places, common_part, place_of, places_below
from .stored import Parts, parts_of


def pair_parts(op: Operation) -> list[Tensor] | None:
    """The results of an equal stage that reads what slow functions of pairs are of; None if there
    is no such part.

    ``y = Σ_ij exp(-((x[i, 0] - x[j, 0])**2 + (x[i, 1] - x[j, 1])**2))  →  p[i, j] = (x[i, 0] -
    x[j, 0])**2 + (x[i, 1] - x[j, 1])**2, y = Σ_ij exp(-p[i, j])``

    A part reads more elements than loops change it, and more than two: each by some of the loops
    or at data, or some of them components of one point. In a side of a choice by its own loops, a
    part calls no slow function, which may be undefined at points that are not chosen. What is read
    several times is a part beside these.
    """
    found = parts_of(op, sums=True)
    if found is None:
        return None
    order = postorder(found.sources)
    numbers = {node_id(node): number for number, node in enumerate(order)}
    of_pairs = places_below(order, lambda read: _pair_place(read, found.axes))
    of_all = places_below(order, lambda read: _place(read, found.axes))
    points = {_place(read, found.axes): _point(read, found.axes) for read in filter(is_load, order)}
    guards = _guards_of(found.sources)
    results = set() if reduction_of(op) else set(map(node_id, found.sources))

    def is_part(node: Expr, places: Mapping[int, Places]) -> bool:
        loops, elements = found.facts[node_id(node)].axes, places[node_id(node)]
        fewer = len({points[place] for place in elements}) if places is of_all else 0
        bounded = len(loops & found.symbolic) < 2  # the square of a size may be more than there is
        return bounded and len(elements) > max(2, len(loops), fewer)

    def is_there(part: Expr, node: Expr) -> bool:
        return _is_needed(part, guards[node_id(node)], found) or _is_defined(part, found)

    parts: dict[int, Expr] = {}
    for node in order:
        if not is_slow(node) or node_id(node) in results or node_id(node) not in guards:
            continue
        ways = (
            [one for one in _arguments(node, places, numbers) if is_part(one, places)]
            for places in (of_pairs, of_all)
        )
        under = next(filter(None, ways), [])
        parts |= {node_id(part): part for part in under if is_there(part, node)}
    if not parts:
        return None
    uses = Counter(node_id(part) for node in order for part in operands(node))
    for node in order:
        shared = uses[node_id(node)] > 1 and node_id(node) in guards and not is_load(node)
        several = is_part(node, of_pairs) or is_part(node, of_all)
        if shared and several and is_float(node) and is_there(node, node):
            parts[node_id(node)] = node
    return found.stored(list(parts.values()), "pair")


def _arguments(
    function: Expr, places: Mapping[int, Places], numbers: Mapping[int, int]
) -> list[Expr]:
    """The parts through which alone a function depends on several elements: one, or one for each
    operand.
    """
    whole = common_part(function, places, numbers)
    if whole is not None:
        return [whole]
    wide = [one for one in operands(function) if len(places[node_id(one)]) > 1]
    inner = [common_part(one, places, numbers) for one in wide]
    return [one if part is None else part for one, part in zip(wide, inner, strict=True)]


def _pair_place(read: Expr, axes: Sequence[Axis]) -> Place | None:
    """The place of a read whose elements are not as many as the points of all loops."""
    return _place(read, axes) if place_of(read, axes) is None else None


def _place(read: Expr, axes: Sequence[Axis]) -> Place | None:
    """The tensor and the indices of a read that loops change."""
    moved = any(depends_on(read, [axis.var]) for axis in axes)
    return (*tensor_key(load_tensor(read)), *map(node_id, operands(read))) if moved else None


def _point(read: Expr, axes: Sequence[Axis]) -> Place:
    """The tensor of a read, and the indices that loops change: its components have others."""
    variables = [axis.var for axis in axes]
    moved = (node_id(one) if depends_on(one, variables) else -1 for one in operands(read))
    return (*tensor_key(load_tensor(read)), *moved)


def _guards_of(sources: Sequence[Expr]) -> dict[int, tuple[Expr, ...]]:
    """The conditions under which loops choose a node, fewest where there are several ways to it; of
    the nodes that data choose, none is there.
    """
    found: dict[int, tuple[Expr, ...]] = {node_id(source): () for source in sources}
    for node in reversed(postorder(list(sources))):
        own, parts = found.get(node_id(node)), operands(node)
        if own is None or is_load(node):
            continue
        ways = [(part, own) for part in parts]
        if op_name(node) in BRANCHES:
            condition, *sides = parts
            chosen = zip(sides, (condition, negate(condition)), strict=True)
            ways = [(condition, own)]
            if not contains_load(condition):
                ways += [(side, (*own, guard)) for side, guard in chosen]
        for part, way in ways:
            known = found.get(node_id(part))
            if known is None or len(way) < len(known):
                found[node_id(part)] = way
    return found


def _is_needed(part: Expr, guards: Sequence[Expr], found: Parts) -> bool:
    """Whether each value of a part is needed at some point: other loops choose it there."""
    if not guards:
        return True
    own = [found.axes[number].var for number in found.facts[node_id(part)].axes]
    if any(depends_on(guard, own) for guard in guards):
        return False
    box = literal_box({axis.var: axis_range(axis) for axis in found.axes})
    values = tried_values(cast("int32", all_of(guards)), box)
    return values is not None and 1 in values


def _is_defined(part: Expr, found: Parts) -> bool:
    """Whether a part has a value, and a derivative, at all points of the loops."""
    reads = filter(is_load, preorder(part))
    return not found.facts[node_id(part)].slow and all(
        is_inside(read, found.axes) for read in reads
    )
