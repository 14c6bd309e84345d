"""Packs operands into the layout that an inner loop needs.

A stage holds the operand's value for every point of its linear forms, with zeros where its guard
fails or it would read outside, and with the vectorised axis innermost. Guards thus run once per
element of the copy and never in the inner loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from ....expr.build import (
    add,
    all_of,
    cast,
    compare,
    const,
    if_then_else,
    mul,
    sub,
    zero_like,
)
from ....expr.nodes import Expr, Tensor, Var, dtype_of, load, node_id
from ....graph.sizes.nonnegative import nonnegative
from ....graph.stage import Axis, Extent, data_axis, make_stage
from ...cost import SYMBOLIC_SIZE
from ...nest.access import Affine, Interval, interval
from ...nest.in_range import Loops, is_safe, loops_of
from ...nest.reductions.operand_values import guarded, operand_value, read_inside
from ...nest.reductions.products import Atom, Operand, rebased
from ...rewrites.conditions.guards import with_guards


@dataclass(frozen=True)
class TileAxes:
    """Ids of the variables of a register tile: the vectorised one, the unrolled ones, and the
    summed ones in order; with the extents of the tile along the first two.

    What is read of copies depends on `numbers`, variables for the number of a tile along an axis,
    and `inside`, for the place in it: no index is divided.
    """

    vector: int | None
    extents: Mapping[int, int]
    unrolled: tuple[int, ...]
    reduced: tuple[int, ...] = ()
    numbers: Mapping[int, Var] = field(default_factory=dict)
    inside: Mapping[int, Var] = field(default_factory=dict)


@dataclass(frozen=True)
class Pieces:
    """Pieces of an output axis, each with a copy of its own as one element of the first dimension.

    Attributes
    ----------
    key : int
        The id of the variable of the axis.
    axis : Axis
        Over all pieces.
    number : Var
        The number of a piece, in reads of copies.
    start : Expr
        The first place of a piece, over the variable of `axis`.
    width : int
    end : Expr or None
        The extent of the axis, where the last piece may go beyond it.
    """

    key: int
    axis: Axis
    number: Var
    start: Expr
    width: int
    end: Expr | None = None


@dataclass(frozen=True)
class Packed:
    """The copy of an operand.

    Attributes
    ----------
    tensor : Tensor
    read : Expr
        What replaces the operand.
    leading : int
        How many of its dimensions a panel has one place of.
    inside : tuple of (Expr, Expr)
        The places of its body that have to be below ends for it not to be zero.
    """

    tensor: Tensor
    read: Expr
    leading: int
    inside: tuple[tuple[Expr, Expr], ...] = ()


def packed_size(
    operand: Operand, ranges: Mapping[int, Interval], symbolic: int = SYMBOLIC_SIZE
) -> int:
    """The number of elements of an operand's copy; a loop without a numeric range has `symbolic`
    turns.
    """
    return prod(_span_of(atom, ranges).count(symbolic) for atom in operand.atoms)


@dataclass(frozen=True)
class _Span:
    """The values of a linear form.

    Attributes
    ----------
    low, high : int
        The least and the greatest value of its terms with numeric ranges: those of ``t - r, r < 5``
        are -4 and 0.
    unknown : tuple of (id of a variable, coefficient)
        The other terms.
    """

    low: int
    high: int
    unknown: tuple[tuple[int, int], ...]

    def count(self, symbolic: int) -> int:
        """How many there are if all unknown variables have so many values."""
        steps = sum(abs(factor) for _, factor in self.unknown)
        return self.high - self.low + 1 + steps * (symbolic - 1)

    def least(self, loops: Loops, dtype: str) -> Expr:
        """The least value."""
        value: Expr = const(self.low, dtype)
        for key, factor in self.unknown:
            if factor < 0:
                value = add(value, _scaled(_last(loops, key, dtype), factor))
        return value

    def greatest(self, loops: Loops, dtype: str) -> Expr:
        """The greatest value."""
        value: Expr = const(self.high, dtype)
        for key, factor in self.unknown:
            if factor > 0:
                value = add(value, _scaled(_last(loops, key, dtype), factor))
        return value

    def extent(self, loops: Loops, dtype: str) -> Extent:
        """How many values there are; loops without turns may have a negative extent."""
        if not self.unknown:
            return self.high - self.low + 1
        total: Expr = const(self.count(0), dtype)
        for key, factor in self.unknown:
            total = add(_scaled(cast(dtype, loops.symbolic[key][1]), abs(factor)), total)
        return nonnegative(total)


def _span_of(atom: Atom, ranges: Mapping[int, Interval]) -> _Span:
    known = [term for term in atom if term[0] in ranges]
    bounds = interval(Affine(tuple(known)), ranges)
    assert bounds is not None
    return _Span(*bounds, tuple(term for term in atom if term[0] not in ranges))


def _last(loops: Loops, key: int, dtype: str) -> Expr:
    """The last value of a symbolic loop."""
    return sub(cast(dtype, loops.symbolic[key][1]), const(1, dtype))


def _scaled(value: Expr, factor: int) -> Expr:
    return mul(value, const(factor, dtype_of(value)))


def pack(
    operand: Operand,
    name: str,
    loops: Loops,
    spatial: Sequence[int],
    tile: TileAxes,
    pieces: Pieces | None = None,
    along: int | None = None,
) -> Packed | None:
    """The copy of an operand and the read that replaces it.

    Parameters
    ----------
    operand : Operand
        An operand over the loop variables of the nest.
    loops : Loops
        The range of each of them, including padding.
    spatial : sequence of int
        Ids of the output axes.
    tile : TileAxes
        The innermost variables.
    pieces : Pieces, optional
        Of an output axis that the operand depends on.
    along : int, optional
        The id of a variable. What is read of the copy at its next place is the next element.

    Returns
    -------
    Packed or None
        None if a loop has no extent before all others, or pieces are not read in order.
    """
    by_id = {node_id(var): var for var in loops.variables}
    ranges = loops.ranges
    guards, expr = operand_value(operand, loops)
    layout = _Layout()
    if pieces is not None:
        by_id[pieces.key] = tile.inside[pieces.key]
        ranges = {**ranges, pieces.key: (0, pieces.width - 1)}
        layout.leading.append((pieces.axis, pieces.number))
    spans = {atom: _span_of(atom, ranges) for atom in operand.atoms}
    if any(key not in loops.symbolic for span in spans.values() for key, _ in span.unknown):
        return None
    inside: list[tuple[Expr, Expr]] = []
    atoms = sorted(operand.atoms, key=lambda atom: _place_of(atom, spatial, tile))
    for number, atom in enumerate(atoms):
        # a literal axis of int32 may stand beside a size of int64
        span, dtype = spans[atom], max(dtype_of(by_id[key]) for key, _ in atom)
        first, factor = atom[0]
        width = tile.extents.get(first, span.count(1))
        if len(atom) == 1 and factor == 1 and not span.unknown and span.count(1) > width:
            layout.put_in_tiles(f"d{number}", atom, span, width, tile, dtype)
            continue
        step = 1 if along is None else dict(atom).get(along, 1)
        if along is not None and step not in (1, -1):
            parts = tuple(term for term in atom if term[0] != along), ((along, 1),)
            known = [(part, _span_of(part, ranges)) for part in parts]
            layout.put_apart(f"d{number}", atom, step, known, loops, by_id, dtype)
            continue
        axis = data_axis(f"d{number}", span.extent(loops, dtype), dtype)
        value = _value(atom, by_id, dtype)
        if step == -1:
            greatest = span.greatest(loops, dtype)
            place, value = sub(greatest, axis.var), sub(greatest, value)
        else:
            least = span.least(loops, dtype)
            place, value = add(axis.var, least), sub(value, least)
        over = 0 if pieces is None else dict(atom).get(pieces.key, 0)
        if pieces is not None and over:
            if over != 1:
                return None
            wide = dtype_of(pieces.start)
            place = add(pieces.start, cast(wide, place))
            if pieces.end is not None:
                beyond = sub(span.greatest(loops, wide), const(pieces.width - 1, wide))
                inside.append((place, add(pieces.end, beyond)))
        layout.places[atom] = place
        pure_outer = len(atom) == 1 and first in spatial and first not in tile.unrolled
        outside = pure_outer and first != tile.vector
        (layout.leading if outside else layout.trailing).append((axis, value))
    axes = [axis for axis, _ in (*layout.leading, *layout.trailing)]
    body = _safe_value(
        [rebased(guard, loops.variables, layout.places) for guard in guards],
        rebased(expr, loops.variables, layout.places),
        loops_of(axes),
    )
    if inside:
        holds = all_of(compare("lt", place, end) for place, end in inside)
        body = if_then_else(holds, body, zero_like(body))
    tensor = make_stage(name, axes, [with_guards(body, axes)])[0]
    read = load(tensor, [value for _, value in (*layout.leading, *layout.trailing)])
    return Packed(tensor, read, len(layout.leading), tuple(inside))


def _safe_value(guards: Sequence[Expr], expr: Expr, loops: Loops) -> Expr:
    """``if guards then expr else 0`` over the loops of a copy, which may hold more than the points
    that it is made for: ``x[i % 3 + (j - i % 3)]`` is read at j there, and anywhere by the parts.
    """
    safe: list[Expr] = []
    for guard in guards:
        inside = is_safe([guard], loops, given=safe, thorough=True)
        safe.append(guard if inside else read_inside(guard, loops))
    if not is_safe([expr], loops, given=guards, thorough=True):
        expr = read_inside(expr, loops)
    return guarded(safe, expr)


@dataclass
class _Layout:
    """The dimensions of a copy, each with the place that is read, and the values of linear forms
    over them.
    """

    leading: list[tuple[Axis, Expr]] = field(default_factory=list)
    trailing: list[tuple[Axis, Expr]] = field(default_factory=list)
    places: dict[Atom, Expr] = field(default_factory=dict)

    def put_in_tiles(
        self, name: str, atom: Atom, span: _Span, width: int, tile: TileAxes, dtype: str
    ) -> None:
        """``v → (v // width, ..., v % width)``: what one tile reads is contiguous."""
        outer = data_axis(f"{name}o", span.count(1) // width, dtype)
        inner = data_axis(f"{name}i", width, dtype)
        place = add(_scaled(outer.var, width), inner.var)
        self.places[atom] = add(place, const(span.low, dtype))
        [(key, _)] = atom
        self.leading.append((outer, tile.numbers[key]))
        self.trailing.append((inner, tile.inside[key]))

    def put_apart(
        self,
        name: str,
        atom: Atom,
        step: int,
        parts: Sequence[tuple[Atom, _Span]],
        loops: Loops,
        by_id: Mapping[int, Var],
        dtype: str,
    ) -> None:
        """``2*j + v → (v, j)``: what neighbours along j read is contiguous."""
        place: Expr = const(0, dtype)
        for (part, span), times, letter in zip(parts, (1, step), "rv", strict=True):
            axis = data_axis(f"{name}{letter}", span.extent(loops, dtype), dtype)
            least = span.least(loops, dtype)
            place = add(place, _scaled(add(axis.var, least), times))
            self.trailing.append((axis, sub(_value(part, by_id, dtype), least)))
        self.places[atom] = place


def _value(atom: Atom, by_id: Mapping[int, Var], dtype: str) -> Expr:
    value: Expr | None = None
    for key, c in atom:
        term = mul(by_id[key], const(c, dtype))
        value = term if value is None else add(value, term)
    assert value is not None
    return value


def _place_of(atom: Atom, spatial: Sequence[int], tile: TileAxes) -> tuple[int, int]:
    """The order of dimensions: reduced and mixed forms, then unrolled axes, then the vectorised
    one.
    """
    keys = [key for key, _ in atom]
    if tile.vector in keys:
        return (3, 0)
    if len(keys) == 1 and keys[0] in tile.unrolled:
        return (2, tile.unrolled.index(keys[0]))
    return (1, max((tile.reduced.index(key) for key in keys if key in tile.reduced), default=-1))
