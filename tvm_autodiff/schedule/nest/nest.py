"""Loop nests of stores, and transformations of them.

A nest is a box of loops around stores. Every transformation returns a nest, or several that run one
after the other, which store the same values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from ...expr.build import add, compare, const, like, mul, sub, variable
from ...expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    binary,
    const_value,
    dtype_of,
    is_load,
    load_tensor,
    node_id,
    tensor_key,
)
from ...expr.rewrite import postorder, substituter, variables_of
from ...expr.simplify import simplify
from ...graph.stage import Extent, axis_range, index_dtype
from ..cost import MIN_LANES
from .access import Interval
from .axis_bounds import decided_piece
from .decided import decided
from .in_range import Loops
from .index_set_splitting import pieces
from .inside import borders, decided_between


@dataclass(frozen=True)
class Loop:
    """``for var in low .. low + extent``.

    Attributes
    ----------
    step : int
        The distance of turns. The last strip ends where the loop does, and overlaps the one before
        where the extent is no multiple.
    lanes : int
        The turns that run at once, each in a lane of a vector; `var` is that of the lane.
    copies : range
        The copies of the stores that a turn executes.
    left : int or Expr
        The copies that one more turn executes.
    base : Expr or None
        What `var` counts from, in place of 0.
    borders : (int, int)
        How many values at both ends of a symbolic loop are pieces of their own.
    within : (int, Expr) or None
        For a piece of a symbolic loop: the first of the values that it is known to lie in, and the
        end of them.
    when : Expr or None
        What the sizes fulfil where it runs at all.
    inside : bool
        Whether the longest piece where conditions with other loops are decided is one of its own.
    """

    var: Var
    extent: Extent
    low: int = 0
    step: int = 1
    lanes: int = 1
    copies: range = range(1)
    left: Extent = 0
    base: Expr | None = None
    borders: Interval = (0, 0)
    within: tuple[int, Expr] | None = None
    when: Expr | None = None
    inside: bool = False

    @property
    def width(self) -> int:
        """The values of the loop that a turn covers, in a loop inside or in its lanes."""
        return self.step * self.lanes

    @property
    def turns(self) -> int | None:
        """The number of turns, or None if it is symbolic."""
        return -(-self.extent // self.width) if isinstance(self.extent, int) else None

    @property
    def range(self) -> Interval | None:
        """The least and the greatest value of `var`; None for a symbolic extent."""
        if not isinstance(self.extent, int):
            return None
        return self.low, self.low + self.extent - self.step + (self.left != 0)

    @property
    def is_border(self) -> bool:
        """Whether it is one of the ends of a symbolic loop."""
        return self.within is not None and isinstance(self.extent, int)

    @property
    def overlaps(self) -> bool:
        """Whether two turns may cover the same value of `var`."""
        symbolic = not isinstance(self.extent, int)
        return self.width > 1 and (symbolic or self.extent % self.width > 0)


@dataclass(frozen=True)
class Store:
    """``tensor[indices] = value``, and for each loop the number of the copy that it is."""

    tensor: Tensor
    indices: tuple[Expr, ...]
    value: Expr
    copy: tuple[int, ...]


@dataclass(frozen=True)
class Nest:
    """Loops, the first one outermost, around stores."""

    loops: tuple[Loop, ...]
    stores: tuple[Store, ...]

    @property
    def values(self) -> list[Expr]:
        """What is stored."""
        return [store.value for store in self.stores]

    @property
    def variables(self) -> list[Var]:
        """The variables of the loops."""
        return [loop.var for loop in self.loops]

    @property
    def ranges(self) -> Mapping[int, Interval]:
        """The ranges of the variables by id, without those of symbolic loops."""
        found = {node_id(loop.var): loop.range for loop in self.loops}
        return {key: span for key, span in found.items() if span is not None}

    @property
    def known(self) -> Loops:
        """The same, with those of symbolic loops."""
        symbolic = {
            node_id(loop.var): (loop.low, loop.extent) for loop in self.loops if loop.range is None
        }
        return Loops(tuple(self.variables), self.ranges, symbolic)

    @property
    def sizes(self) -> list[Var]:
        """The variables of symbolic extents, and of what loops count from."""
        given = [one.extent for one in self.loops if not isinstance(one.extent, int)]
        given += [one.base for one in self.loops if one.base is not None]
        return variables_of(given)

    @cached_property
    def between(self) -> dict[tuple[object, ...], tuple[list[Expr], Expr]]:
        """Values that are decided within pieces of the first loops, by these, and the last end."""
        return {}

    def reads(self) -> list[Tensor]:
        """The tensors that the values read."""
        tensors = [load_tensor(node) for node in postorder(self.values) if is_load(node)]
        return list({tensor_key(tensor): tensor for tensor in tensors}.values())

    def with_loop(self, place: int, loop: Loop) -> Nest:
        """The nest with another loop at a place, over the same variable."""
        return replace(self, loops=(*self.loops[:place], loop, *self.loops[place + 1 :]))

    def with_values(self, values: Sequence[Expr]) -> Nest:
        """The nest with other values in its stores."""
        pairs = zip(self.stores, values, strict=True)
        return replace(self, stores=tuple(replace(store, value=value) for store, value in pairs))

    def at(self, table: Mapping[Var, Expr]) -> tuple[Store, ...]:
        """The stores with expressions in the place of variables."""
        rename = substituter(table)
        return tuple(
            replace(one, indices=tuple(map(rename, one.indices)), value=rename(one.value))
            for one in self.stores
        )


def nest_of(axes: Sequence[Axis], values: Sequence[Expr], results: Sequence[Tensor]) -> Nest:
    """``for axes: results[axes] = values``, for axes that begin at 0."""
    extents = [axis_range(axis)[1] for axis in axes]
    loops = [
        Loop(variable(axis.var.name, index_dtype(extent)), extent)
        for axis, extent in zip(axes, extents, strict=True)
    ]
    rename = substituter({axis.var: one.var for axis, one in zip(axes, loops, strict=True)})
    here, copy = tuple(one.var for one in loops), (0,) * len(loops)
    pairs = zip(results, values, strict=True)
    return Nest(tuple(loops), tuple(Store(t, here, rename(v), copy) for t, v in pairs))


def unrolled(nest: Nest, moduli: Sequence[int]) -> Nest:
    """``for i < m*n + r: S(i) → for q <= n: S(m*q), .., S(m*q + m - 1)``, the first r of them at n.

    A loop of a single turn disappears.
    """
    loops: list[Loop | None] = []
    for one, m in zip(nest.loops, moduli, strict=True):
        count, left = _divided(one.extent, m)
        whole = replace(one, extent=count, copies=range(m), left=left)
        loops.append(None if count == 1 and left == 0 else whole)
    stores: list[Store] = []
    kept = [place for place, one in enumerate(loops) if one is not None]
    for copy in product(*map(range, moduli)):
        table: dict[Var, Expr] = {}
        for one, made, m, number in zip(nest.loops, loops, moduli, copy, strict=True):
            residue = const(number, dtype_of(one.var))
            times = mul(one.var, const(m, dtype_of(one.var)))
            table[one.var] = residue if made is None else add(times, residue)
        own = tuple(copy[place] for place in kept)
        stores += [replace(store, copy=own) for store in nest.at(table)]
    return Nest(tuple(one for one in loops if one is not None), tuple(stores))


def _divided(extent: Extent, m: int) -> tuple[Extent, Extent]:
    """The quotient and the remainder of an extent."""
    if isinstance(extent, int):
        return divmod(extent, m)
    if m == 1:
        return extent, 0
    divisor = const(m, dtype_of(extent))
    left = simplify(binary("floormod", extent, divisor))
    known = const_value(left)
    return simplify(binary("floordiv", extent, divisor)), left if known is None else int(known)


def strip_mined(nest: Nest, place: int, width: int) -> Nest:
    """``for i < n: S(i) → for b = 0, w, 2*w, .. n - w: for i < w: S(b + i)``."""
    old = nest.loops[place]
    inner = Loop(variable(old.var.name, dtype_of(old.var)), width)
    stores = tuple(
        replace(one, copy=(*one.copy[: place + 1], 0, *one.copy[place + 1 :]))
        for one in nest.at({old.var: add(old.var, inner.var)})
    )
    loops = (*nest.loops[:place], replace(old, step=width), inner, *nest.loops[place + 1 :])
    return Nest(loops, stores)


def vectorised(nest: Nest, place: int, lanes: int) -> Nest:
    """``for i < n: S(i) → for i = 0, L, 2*L, .. n - L: S(i .. i + L - 1)``, in lanes of vectors."""
    return nest.with_loop(place, replace(nest.loops[place], lanes=lanes))


def bordered(nest: Nest, place: int) -> Nest:
    """``for i < n: S → for i < a: S; for a <= i < n - b: S; for n - b <= i < n: S`` for a symbolic
    n, so that no condition on i is left in the middle.

    The loop needs at least a + b turns.
    """
    one = nest.loops[place]
    if isinstance(one.extent, int):
        return nest
    variables = [*nest.variables, *nest.sizes]
    others = [var for var in variables if node_id(var) != node_id(one.var)]
    return nest.with_loop(
        place, replace(one, borders=borders(nest.values, one.var, one.extent, others))
    )


def apart_inside(nest: Nest, place: int) -> Nest:
    """``for p < 4: for r < 8: if p*8 + r < 30 then S(p, r)  →  for p < 3: for r < 8: S(p, r); for r
    < 8: if r < 6 then S(3, r)``
    """
    return nest.with_loop(place, replace(nest.loops[place], inside=True))


def interchanged(nest: Nest, order: Sequence[int]) -> Nest:
    """``for i: for j: S → for j: for i: S``: loops in the order of their places."""
    stores = [replace(s, copy=tuple(s.copy[place] for place in order)) for s in nest.stores]
    return Nest(tuple(nest.loops[place] for place in order), tuple(stores))


def split(nest: Nest, place: int, quotients: bool = True) -> list[Loop]:
    """``for i < n: S → for i < k: S; for k <= i < n: S``, where conditions on i change at k, or
    `quotients`.

    Pieces have as many lanes as they have turns for. A last turn of fewer copies is the last piece.
    """
    one = nest.loops[place]
    if not isinstance(one.extent, int):
        parts = _split_symbolic(nest, place) if any(one.borders) else [replace(one, left=0)]
        return [*parts, *_left_over(one)]
    if one.step > 1:
        return [one]
    cuts, known = [], ([*nest.variables, *nest.sizes], nest.ranges)
    if one.extent:
        cuts = pieces(nest.values, one.var, one.extent, *known, quotients=quotients)
        # without the last turn of fewer copies
        if len(cuts) == 1 and (one.lanes > 1 or one.inside):
            ranges = {**nest.ranges, node_id(one.var): cuts[0]}
            cuts = _around(decided_piece(nest.values, one.var, known[0], ranges), cuts[0])
    found = [
        replace(one, low=low, extent=high - low + 1, left=0, lanes=_fitting(one, high - low + 1))
        for low, high in cuts
    ]
    if one.left:
        assert isinstance(one.left, int)
        rest = range(one.left)
        found.append(replace(one, low=one.extent, extent=1, copies=rest, left=0, lanes=1))
    return found


def _around(piece: tuple[Interval, list[Expr]] | None, whole: Interval) -> list[Interval]:
    """A piece of an interval, and what lies on each side of it."""
    if piece is None:
        return [whole]
    (first, last), (low, high) = piece[0], whole
    parts = (low, first - 1), (first, last), (last + 1, high)
    return [part for part in parts if part[0] <= part[1]]


def _split_symbolic(nest: Nest, place: int) -> list[Loop]:
    """The pieces of the first border, the middle, and the pieces of the last border."""
    one, extent = nest.loops[place], nest.loops[place].extent
    assert not isinstance(extent, int)
    first, last = one.borders
    dtype = dtype_of(extent)
    end = sub(extent, const(last, dtype))
    middle = replace(
        one,
        low=first,
        extent=sub(extent, const(first + last, dtype)),
        borders=(0, 0),
        within=(first, end),
        left=0,
    )
    low = replace(middle, low=0, extent=first, within=(0, end))
    high = replace(low, extent=last, lanes=1, base=end, within=(first, extent))
    return [*_pieces_of(nest, place, low), middle, *_pieces_of(nest, place, high)]


def _left_over(one: Loop) -> list[Loop]:
    """One more turn of a symbolic loop: each copy where there are so many of them."""
    assert not isinstance(one.extent, int)
    end, left = one.extent, one.left
    within = 0, add(end, const(1, dtype_of(end)))
    turn = replace(one, extent=1, lanes=1, base=end, borders=(0, 0), within=within, left=0)
    if isinstance(left, int):
        return [replace(turn, copies=range(left))] if left else []
    return [
        replace(turn, copies=range(n, n + 1), when=compare("lt", like(left, n), left))
        for n in one.copies[:-1]
    ]


def _pieces_of(nest: Nest, place: int, part: Loop) -> list[Loop]:
    """The pieces of a literal part of a symbolic loop."""
    fresh = replace(part, var=variable(part.var.name, dtype_of(part.var)))
    found = narrowed(nest, nest.with_loop(place, fresh).loops, every=True)
    return [replace(piece, var=part.var) for piece in split(found, place)]


def _known_between(nest: Nest, loops: Sequence[Loop]) -> list[Expr]:
    """The values of a nest, without what is decided as pieces lie within symbolic loops."""
    values, variables = nest.values, [*nest.variables, *nest.sizes]
    key: tuple[object, ...] = ()
    for old, one in zip(nest.loops, loops, strict=True):
        key = *key, one.within and (one.within[0], node_id(one.within[1]))
        if one.within is None:
            continue
        if key not in nest.between:
            others = [var for var in variables if node_id(var) != node_id(old.var)]
            found = decided_between(values, old.var, *one.within, others, nest.ranges)
            nest.between[key] = found, one.within[1]
        values = nest.between[key][0]
    return values


def _fitting(one: Loop, extent: int) -> int:
    lanes = one.lanes
    while lanes > extent:
        lanes //= 2
    return lanes if lanes >= max(2, min(MIN_LANES, one.lanes)) else 1


def narrowed(nest: Nest, loops: Sequence[Loop], every: bool = False) -> Nest:
    """The nest over a piece of each of its loops, whose variables may be others, with everything
    gone from its values that is decided there; with the copies of a turn, or `every` copy.
    """
    pairs = list(zip(nest.loops, loops, strict=True))
    table = {
        old.var: one.var if one.base is None else add(one.base, one.var) for old, one in pairs
    }
    moved = substituter(table)
    chosen = [
        replace(store, indices=tuple(map(moved, store.indices)))
        for store in nest.with_values(_known_between(nest, loops)).stores
        if every
        or all(number in one.copies for number, one in zip(store.copy, loops, strict=True))
    ]
    found = Nest(tuple(loops), tuple(chosen))
    ranges, variables = found.ranges, [*found.variables, *found.sizes]
    return found.with_values(decided(found.values, variables, ranges, table))
