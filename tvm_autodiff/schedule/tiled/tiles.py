"""Writes a region of stages with shared axes as loops over tiles.

``s[n, a, b] = f(q[n, a], k[n, b]); y[n, a] = g(s[n, a]); w[n] = Σ_a h(s[n, a])``  →
``for n: for tiles t: s_t[a, b] = f(q_t[a], k_n[b]); y_t[a] = g(s_t[a]); w_n += Σ_a h(s_t[a])``

A loop over an axis is a stage of the kind `Loop`: what lies along the axis is a sequence, and sums
over the rows are carried.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from ...expr.build import add, cast, const, mul
from ...expr.nodes import Axis, Expr, Tensor, Var, dtype_of, load, node_id, tensor_key
from ...expr.rewrite import map_loads, substituter
from ...graph.bounded_stage import elementwise_stage
from ...graph.kinds.loop import Loop, loop_stage, slice_of, step_of
from ...graph.stage import (
    Operation,
    Reduction,
    bodies,
    data_axis,
    make_stage,
    placeholder_like,
    reduce_axis,
    reduction_of,
    reduction_stage,
    rename_bounds,
    renew_axis,
    shape_of,
    sum_over,
    with_bodies,
)
from .region import Key, Labels, Region, View, leading, positions_of, reads_of

#: where a tensor lies that a tile needs: a tensor with some shared axes, or the positions of one
Source = View | int


@dataclass(frozen=True)
class Level:
    """A loop over tiles.

    Attributes
    ----------
    axes : tuple of int
        The shared axes that it runs through.
    extent : int
        The number of its steps.
    carries : bool
        Whether sums over the rows are added up from step to step; else they are parts, which are
        added up at the end.
    """

    axes: tuple[int, ...]
    extent: int
    carries: bool = False


@dataclass(frozen=True)
class Tiling:
    """How tiles run through the shared axes of a region.

    Attributes
    ----------
    parts : int
        The parts of the rows that run apart from each other.
    tiles : int
        The tiles of each part, one after the other.
    """

    parts: int
    tiles: int


def sources_of(region: Region) -> dict[Source, Tensor]:
    """What a region reads; for positions along a shared axis a result that depends on them."""
    made = {tensor_key(op.output(0)) for op in region.members}
    found: dict[Source, Tensor] = {}
    for op in region.members:
        labels = region.labels[hash(op)]
        for tensor, indices in reads_of(op):
            if tensor_key(tensor) not in made:
                found[tensor_key(tensor), leading(op, labels, indices)] = tensor
        for axis in sorted(positions_of(op, labels)):
            found.setdefault(axis, op.output(0))
    return found


def outer_loops(region: Region) -> list[int]:
    """The extents of the loops over the outer axes."""
    return [level.extent for level in _levels(region, sources_of(region), Tiling(1, 1))]


def _levels(region: Region, sources: Collection[Source], tiling: Tiling) -> list[Level]:
    """The loops, outermost first; outer axes that all sources share alike are one loop."""
    rows = region.rows
    outer: list[list[int]] = []
    for axis in range(rows):
        alike = outer and all(
            (axis in _axes(source)) == (axis - 1 in _axes(source)) for source in sources
        )
        if alike:
            outer[-1].append(axis)
        else:
            outer.append([axis])
    levels = [Level(tuple(axes), prod(region.extents[axis] for axis in axes)) for axes in outer]
    levels.append(Level((rows,), tiling.parts))
    levels.append(Level((rows,), tiling.tiles, True))
    return [level for level in levels if level.extent > 1]


def tiled(region: Region, tiling: Tiling) -> list[Tensor]:
    """The results of a region, computed tile by tile."""
    return _Written(region, tiling).results()


@dataclass
class _Written:
    region: Region
    tiling: Tiling
    sources: dict[Source, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        region, tiling = self.region, self.tiling
        self.size = region.extents[-1] // (tiling.parts * tiling.tiles)
        self.made = {tensor_key(op.output(0)): op for op in region.members}
        whole = sources_of(region)
        self.levels = _levels(region, whole, tiling)
        for source, tensor in whole.items():
            if isinstance(source, int):
                step = self.size if source == region.rows else 1
                tensor = _positions(region.extents[source] // step, step)
            self.sources[source] = self._split(source, tensor)

    def _split(self, source: Source, tensor: Tensor) -> Tensor:
        """A tensor with one dimension for each loop that runs through it."""
        axes = _axes(source)
        sizes = [level.extent for level in self.levels if set(level.axes) <= set(axes)]
        if self.region.rows in axes and not isinstance(source, int):
            sizes.append(self.size)
        return _reshaped(tensor, sizes, len(axes), f"{tensor.op.name}_tiles")

    def results(self) -> list[Tensor]:
        """See `tiled`."""
        found = self._written(0, self.sources)
        whole = []
        for result in self.region.results:
            made = found[tensor_key(result)]
            shared = self.region.rows + (not self._is_sum(tensor_key(result)))
            first = self.region.extents[:shared]
            count = len(shape_of(made)) - (len(shape_of(result)) - shared)
            whole.append(_reshaped(made, first, count, str(result.op.name)))
        return whole

    def _written(self, number: int, given: Mapping[Source, Tensor]) -> dict[Key, Tensor]:
        """The results of the region within a step of the loops before `number`."""
        if number == len(self.levels):
            return self._tile(given)
        level = self.levels[number]
        moving = [source for source in given if set(level.axes) <= set(_axes(source))]
        fixed = [source for source in given if source not in moving]
        inside = {source: slice_of(given[source]) for source in moving}
        inside |= {source: placeholder_like(given[source]) for source in fixed}
        found = self._written(number + 1, {source: inside[source] for source in given})
        sums = [key for key in found if level.carries and self._is_sum(key)]
        rest = [key for key in found if key not in sums]
        carries = [placeholder_like(found[key], f"{found[key].op.name}_before") for key in sums]
        news = [_added(carry, found[key]) for carry, key in zip(carries, sums, strict=True)]
        step = step_of(
            carries,
            [inside[source] for source in moving],
            [inside[source] for source in fixed],
            news,
            [found[key] for key in rest],
        )
        loop = Loop(
            step,
            tuple(map(_zeros, carries)),
            tuple(given[source] for source in moving),
            tuple(given[source] for source in fixed),
            level.extent,
            carries_only=True,  # nothing is stored for all tiles
        )
        made = dict(zip([*sums, *rest], loop_stage(self._name, loop), strict=True))
        if level.axes == (self.region.rows,) and not level.carries:
            made |= {key: _summed(made[key]) for key in rest if self._is_sum(key)}
        return made

    @property
    def _name(self) -> str:
        return "_".join(str(tensor.op.name) for tensor in self.region.results) + "_tiled"

    def _is_sum(self, key: Key) -> bool:
        return hash(self.made[key]) in self.region.sums

    def _tile(self, given: Mapping[Source, Tensor]) -> dict[Key, Tensor]:
        """The results of one tile."""
        done: dict[Key, Tensor] = {}
        for op in self.region.members:
            labels = self.region.labels[hash(op)]
            done[tensor_key(op.output(0))] = self._stage(op, labels, given, done)
        return {tensor_key(t): done[tensor_key(t)] for t in self.region.results}

    def _stage(
        self,
        op: Operation,
        labels: Labels,
        given: Mapping[Source, Tensor],
        done: Mapping[Key, Tensor],
    ) -> Tensor:
        rows = self.region.rows
        table: dict[Var, Expr] = {}
        here: dict[int, Var] = {}  # of a row within the tile

        def renew(axes: Sequence[Axis], reduces: bool) -> list[Axis]:
            fresh = []
            for axis in axes:
                label = labels.get(node_id(axis.var))
                if label is None:
                    fresh.append(renew_axis(axis))
                    table[axis.var] = fresh[-1].var
                    continue
                dtype = dtype_of(axis.var)
                position: Expr = const(0, dtype)
                if label in given:
                    position = cast(dtype, load(given[label], []))
                if label == rows:
                    make = reduce_axis if reduces else data_axis
                    fresh.append(make(str(axis.var.name), self.size, dtype=dtype))
                    here[node_id(axis.var)] = fresh[-1].var
                    position = add(position, fresh[-1].var)
                table[axis.var] = position
            return fresh

        reduction = reduction_of(op)
        axes = renew(list(op.axis), False)
        reduced = [] if reduction is None else renew(list(reduction.axes), True)

        def moved(tensor: Tensor, indices: Sequence[Expr]) -> Expr:
            key, first = tensor_key(tensor), leading(op, labels, indices)
            place = done[key] if key in done else given[key, first]
            row = [here[node_id(indices[n])] for n, label in enumerate(first) if label == rows]
            return load(place, [*row, *indices[len(first) :]])

        rename = substituter(table)
        reduced = [rename_bounds(axis, rename) for axis in reduced]

        def renamed(body: Expr) -> Expr:
            return rename(map_loads(body, moved))

        if reduction is None:
            body = [renamed(part) for part in bodies(op)]
            return with_bodies(op, body, axes)[0]
        return reduction_stage(
            str(op.name),
            axes,
            Reduction(
                reduction.combiner,
                tuple(map(renamed, reduction.sources)),
                tuple(reduced),
                renamed(reduction.condition),
                tuple(map(renamed, reduction.init)),
            ),
        )[0]


def _axes(source: Source) -> tuple[int, ...]:
    return (source,) if isinstance(source, int) else source[1]


def _positions(count: int, step: int) -> Tensor:
    """The first positions of the tiles along a shared axis."""
    return elementwise_stage(
        "position", (count,), lambda at: cast("int32", mul(at[0], const(step, "int32")))
    )


def _reshaped(tensor: Tensor, first: Sequence[int], count: int, name: str) -> Tensor:
    """The elements of a tensor in the same order, with other extents for the `count` first ones."""
    old, rest = list(shape_of(tensor))[:count], list(shape_of(tensor))[count:]
    if old == list(first):
        return tensor

    def body(place: Sequence[Expr]) -> Expr:
        flat: Expr = const(0, "int32")
        for index, extent in zip(place, first, strict=False):
            flat = add(mul(flat, const(extent, "int32")), index)
        indices: list[Expr] = []
        for number in range(count):
            below = prod(old[number + 1 :])
            index = flat // below if below > 1 else flat
            indices.append(index % old[number] if number else index)
        return load(tensor, [*indices, *place[len(first) :]])

    return elementwise_stage(name, [*first, *rest], body)


def _zeros(tensor: Tensor) -> Tensor:
    dtype = dtype_of(tensor)
    return elementwise_stage("zeros", shape_of(tensor), lambda _: const(0, dtype))


def _added(carry: Tensor, part: Tensor) -> Tensor:
    return elementwise_stage(
        str(part.op.name), shape_of(part), lambda at: add(load(carry, at), load(part, at))
    )


def _summed(parts: Tensor) -> Tensor:
    """``sum[i] = Σ_p parts[p, i]``."""
    count, *shape = shape_of(parts)
    axes = [data_axis(f"i{n}", extent) for n, extent in enumerate(shape)]
    part = reduce_axis("part", count)
    body = sum_over(load(parts, [part.var, *(axis.var for axis in axes)]), [part])
    return make_stage(f"{parts.op.name}_sum", axes, [body])[0]
