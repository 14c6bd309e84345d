"""Gathers the non-zeros from tensors of values, in the order of a format.

The result is one tensor of the entries' values, and the index arrays that it reads, as placeholders
with their contents.

    entry[n] = values[source[n]]                        each entry has one value
    entry[i, j] = values[j, i]                          a regular arrangement
    entry[n] = Σ_{m < count[n]} values[source[first[n] + m]]   an entry has several
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..codegen.flat_axes import unflattened
from ..expr.build import add, compare, const, if_then_else, sub, zero_like
from ..expr.nodes import Expr, Tensor, dtype_of, load
from ..expr.rewrite import substituter
from ..graph.bounded_stage import bounded_stage
from ..graph.stage import (
    axis_vars,
    bodies,
    data_axis,
    is_compute,
    placeholder,
    reduce_axis,
    reduction_of,
    shape_of,
    sum_over,
)
from .points import Array
from .regular import AffinePlaces, affine_places, linear_combination

Constant = tuple[Tensor, NDArray[np.int32] | NDArray[np.int64]]

#: the maximum padding per value for which each entry reads equally many positions
_MOST_PADDING = 2


@dataclass(frozen=True)
class Values:
    """A flattened tensor of values, and their entries.

    Attributes
    ----------
    tensor : Tensor
        A tensor of any rank.
    entries, positions : array of int64
        The number of an entry, and the position of a value that is added to it.
    once : bool
        Whether no position is read twice.
    """

    tensor: Tensor
    entries: Array
    positions: Array
    once: bool = False

    def element(self, indices: Sequence[Expr], alone: bool) -> Expr:
        """``values[i]``, or its definition if this is the only read of the element.

        ``values[i] = f(i); entry[n] = values[source[n]] → entry[n] = f(source[n])``.
        """
        op = self.tensor.op
        if not (alone and self.once and is_compute(op) and reduction_of(op) is None):
            return load(self.tensor, indices)
        table = dict(zip(axis_vars(op), indices, strict=True))
        return substituter(table)(bodies(op)[self.tensor.value_index])


def gathered(
    parts: Sequence[Values], count: int, name: str, dtype: str
) -> tuple[Tensor, list[Constant]]:
    """The entries' values as one tensor, and the contents of the placeholders that it reads.

    Parameters
    ----------
    parts : sequence of Values
        Values with constant shapes and a common dtype.
    count : int
        The number of entries.
    name, dtype : str
        The name and dtype of the stage.

    Returns
    -------
    tensor : Tensor
        A tensor that has one element for each entry when flattened.
    constants : list of (Tensor, array)
        Its placeholders and their contents.
    """
    if not parts:  # every entry is zero
        return bounded_stage(name, [data_axis("n", count)], [const(0, dtype)])[0], []
    sizes = [prod(shape_of(part.tensor)) for part in parts]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    entries = np.concatenate([part.entries for part in parts])
    source = np.concatenate(
        [part.positions + start for part, start in zip(parts, starts, strict=False)]
    )
    counts = np.bincount(entries, minlength=count)
    if (counts == 1).all():
        ordered = np.empty(count, np.int64)
        ordered[entries] = source
        source = ordered
        if len(parts) == 1 and sizes[0] == count and (source == np.arange(count)).all():
            return parts[0].tensor, []
        if len(parts) == 1:
            places = affine_places(source, [int(n) for n in shape_of(parts[0].tensor)])
            if places is not None:
                return _affine(parts[0], places, name), []
        return _single(parts, starts, source, name)
    if (entries[1:] < entries[:-1]).any():
        order = np.argsort(entries, kind="stable")
        entries, source = entries[order], source[order]
    most = int(counts.max(initial=0))
    if most * count <= _MOST_PADDING * len(source):
        padded = np.full((count, most), -1, np.int64)
        first = np.cumsum(counts) - counts
        padded[entries, np.arange(len(entries)) - first[entries]] = source
        return _padded(parts, starts, padded, name)
    return _ragged(parts, starts, source, counts, name)


def _constant(name: str, array: Array, limit: int) -> Constant:
    """A placeholder for an index array, int32 where its values fit."""
    dtype = "int32" if limit < 2**31 else "int64"
    return placeholder(array.shape, dtype, name), array.astype(dtype)


def _affine(part: Values, places: AffinePlaces, name: str) -> Tensor:
    axes = [data_axis(f"i{n}", extent) for n, extent in enumerate(places.extents)]
    box = [axis.var for axis in axes]
    indices = [
        linear_combination(box, [step[dim] for step in places.steps], base)
        for dim, base in enumerate(places.base)
    ]
    return bounded_stage(name, axes, [part.element(indices, alone=True)])[0]


def _single(
    parts: Sequence[Values], starts: Array, source: Array, name: str
) -> tuple[Tensor, list[Constant]]:
    constant = _constant(f"{name}_source", source, int(starts[-1]))
    axis = data_axis("n", len(source))
    body = _read(parts, starts, load(constant[0], [axis.var]), alone=True)
    return bounded_stage(name, [axis], [body])[0], [constant]


def _padded(
    parts: Sequence[Values], starts: Array, source: Array, name: str
) -> tuple[Tensor, list[Constant]]:
    """Each entry reads equally many positions; negative ones hold nothing."""
    constant = _constant(f"{name}_source", source, int(starts[-1]))
    axis, inner = data_axis("n", source.shape[0]), reduce_axis("m", source.shape[1])
    place = load(constant[0], [axis.var, inner.var])
    value = _read(parts, starts, place)
    there = compare("ge", place, const(0, dtype_of(place)))
    body = sum_over(if_then_else(there, value, zero_like(value)), [inner])
    return bounded_stage(name, [axis], [body])[0], [constant]


def _ragged(
    parts: Sequence[Values], starts: Array, source: Array, counts: Array, name: str
) -> tuple[Tensor, list[Constant]]:
    """Each entry reads its own number of positions."""
    places = _constant(f"{name}_source", source, int(starts[-1]))
    firsts = _constant(f"{name}_first", np.concatenate([[0], np.cumsum(counts)]), len(source))
    first = firsts[0]
    axis = data_axis("n", len(counts))
    begin = load(first, [axis.var])
    end = load(first, [add(axis.var, const(1, dtype_of(axis.var)))])
    inner = reduce_axis("m", sub(end, begin), dtype=dtype_of(first))
    place = load(places[0], [add(begin, inner.var)])
    body = sum_over(_read(parts, starts, place), [inner])
    return bounded_stage(name, [axis], [body])[0], [places, firsts]


def _read(parts: Sequence[Values], starts: Array, place: Expr, alone: bool = False) -> Expr:
    """The value at a position in the concatenation of all tensors."""
    found: Expr | None = None
    for number in reversed(range(len(parts))):
        start, end = (const(int(bound), dtype_of(place)) for bound in starts[number : number + 2])
        indices = unflattened(sub(place, start), shape_of(parts[number].tensor))
        value = parts[number].element(indices, alone)
        found = value if found is None else if_then_else(compare("lt", place, end), value, found)
    assert found is not None
    return found
