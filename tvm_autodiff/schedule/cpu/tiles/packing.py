"""Packs operands into the layout that an inner loop needs.

A stage holds the operand's value for every point of its linear forms, with zeros where its guard
fails or it would read outside, and with the vectorised axis innermost. Guards thus run once per
element of the copy and never in the inner loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
from ...nest.in_range import Loops
from ...nest.reductions.products import Atom, Operand, guarded, operand_value, rebased
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
) -> int | None:
    """The number of elements of an operand's copy, or None for unknown ranges.

    A loop without a numeric range, the only one of a linear form, counts as `symbolic`.
    """
    total = 1
    for atom in operand.atoms:
        bounds = interval(Affine(atom), ranges)
        if bounds is not None:
            total *= bounds[1] - bounds[0] + 1
            continue
        beside = _beside_a_size(atom, ranges)
        if beside is None:
            return None
        total *= symbolic + beside.high - beside.low
    return total


@dataclass(frozen=True)
class _Beside:
    """A linear form with one variable whose range is not numeric.

    Attributes
    ----------
    key : int
        The variable.
    factor : int
        Of the variable: 1 or -1.
    low, high : int
        The least and the greatest that is added: those of ``t - r, r < 5`` are -4 and 0.
    """

    key: int
    factor: int
    low: int
    high: int

    def least(self, size: Expr, dtype: str) -> Expr:
        """The least value of the form, for the extent of the variable."""
        if self.factor > 0:
            return const(self.low, dtype)
        return sub(const(self.low + 1, dtype), cast(dtype, size))


def _beside_a_size(atom: Atom, ranges: Mapping[int, Interval]) -> _Beside | None:
    unknown = [(key, c) for key, c in atom if key not in ranges]
    if len(unknown) != 1 or abs(unknown[0][1]) != 1:
        return None
    bounds = interval(Affine(tuple(term for term in atom if term not in unknown)), ranges)
    return None if bounds is None else _Beside(*unknown[0], *bounds)


def pack(
    operand: Operand,
    name: str,
    loops: Loops,
    spatial: Sequence[int],
    tile: TileAxes,
    pieces: Pieces | None = None,
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

    Returns
    -------
    Packed or None
        None if the range of a linear form is not numeric, unless that is due to one loop variable
        of symbolic extent.
    """
    by_id = {node_id(var): var for var in loops.variables}
    variables, ranges = loops.variables, loops.ranges
    guards, expr = operand_value(operand, loops)
    if pieces is not None:
        by_id[pieces.key] = tile.inside[pieces.key]
        ranges = {**ranges, pieces.key: (0, pieces.width - 1)}
    if packed_size(operand, ranges) is None:
        return None
    atoms = sorted(operand.atoms, key=lambda atom: _place_of(atom, spatial, tile))
    leading, trailing = [], []
    places: dict[Atom, Expr] = {}
    inside: list[tuple[Expr, Expr]] = []
    leading_reads: list[Expr] = []
    if pieces is not None:
        leading.append(pieces.axis)
        leading_reads.append(pieces.number)
    trailing_reads: list[Expr] = []
    for number, atom in enumerate(atoms):
        bounds = interval(Affine(atom), ranges)
        beside = None if bounds is not None else _beside_a_size(atom, ranges)
        low, high = bounds or ((beside.low, beside.high) if beside is not None else (0, 0))
        # a literal axis of int32 may stand beside a size of int64
        extent, dtype = high - low + 1, max(dtype_of(by_id[key]) for key, _ in atom)
        least: Expr = const(low, dtype)
        whole: Extent = extent
        if beside is not None:
            size = loops.symbolic[beside.key][1]
            least = beside.least(size, dtype)
            # of a loop without turns, its extent may be negative
            whole = nonnegative(size if high == low else size + (high - low))
        value = sub(_value(atom, by_id, dtype), least)
        width = tile.extents.get(atom[0][0], extent)
        if len(atom) == 1 and atom[0][1] == 1 and extent > width:
            # v → (v // width, ..., v % width): what one tile reads is contiguous
            outer = data_axis(f"d{number}o", extent // width, dtype)
            inner = data_axis(f"d{number}i", width, dtype)
            places[atom] = add(
                add(mul(outer.var, const(width, dtype)), inner.var), const(low, dtype)
            )
            leading.append(outer)
            leading_reads.append(tile.numbers[atom[0][0]])
            trailing.append(inner)
            trailing_reads.append(tile.inside[atom[0][0]])
            continue
        axis = data_axis(f"d{number}", whole, dtype)
        places[atom] = add(axis.var, least)
        along = 0 if pieces is None else dict(atom).get(pieces.key, 0)
        if pieces is not None and along:
            if along != 1:
                return None
            wide = dtype_of(pieces.start)
            places[atom] = add(pieces.start, cast(wide, places[atom]))
            if pieces.end is not None:
                beyond = const(high - pieces.width + 1, wide)
                if beside is not None and beside.factor > 0:  # its last value is that of the loop
                    turns = loops.symbolic[beside.key][1]
                    beyond = add(beyond, cast(wide, sub(turns, const(1, dtype_of(turns)))))
                inside.append((places[atom], add(pieces.end, beyond)))
        pure_outer = len(atom) == 1 and atom[0][0] in spatial and atom[0][0] not in tile.unrolled
        if pure_outer and atom[0][0] != tile.vector:
            leading.append(axis)
            leading_reads.append(value)
        else:
            trailing.append(axis)
            trailing_reads.append(value)
    body = guarded(
        [rebased(guard, variables, places) for guard in guards],
        rebased(expr, variables, places),
    )
    if inside:
        holds = all_of(compare("lt", place, end) for place, end in inside)
        body = if_then_else(holds, body, zero_like(body))
    axes = [*leading, *trailing]
    tensor = make_stage(name, axes, [with_guards(body, axes)])[0]
    read = load(tensor, [*leading_reads, *trailing_reads])
    return Packed(tensor, read, len(leading), tuple(inside))


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
