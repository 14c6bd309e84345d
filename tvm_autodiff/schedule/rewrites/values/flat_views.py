"""Tensors that are read at the digits of a place are read at the place, in a view of fewer
dimensions.

The view is the same memory: no kernel writes it (`emit/places.py`). Nothing divides the place any
more: windows of a signal that is stored in rows are those of a signal.

    ``y[t] = Σ_k w[k]*x[(4t - k)//256, (4t - k)%256]  →  flat[q] = x[q//256, q%256],
    y[t] = Σ_k w[k]*flat[4t - k]``
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import prod

from ....expr.build import add, const, mul
from ....expr.dtypes import integer_range
from ....expr.linear_terms import linear_sum, linear_terms
from ....expr.nodes import (
    INDEX_DTYPES,
    Expr,
    Tensor,
    binary,
    const_value,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ....expr.rewrite import contains, expand_lets, postorder, rewrite
from ....expr.structural import StructuralKeys
from ....graph.graph import each_stage
from ....graph.stage import (
    Extent,
    Operation,
    data_axis,
    is_compute,
    loop_axes,
    make_stage,
    reduction_of,
    shape_of,
    sources_of,
)
from ...nest.literals import FLOOR_DIVISIONS
from .digits import with_sources
from .layouts import digits_at

Groups = tuple[tuple[int, ...], ...]  #: the dimensions of a tensor that are one of a view

_LARGEST = integer_range("int32")[1]  #: extent of an axis


@dataclass
class _Views:
    """The views of tensors that were made so far."""

    made: dict[tuple[tuple[int, int], Groups], Tensor] = field(default_factory=dict)

    def of(self, tensor: Tensor, groups: Groups) -> Tensor:
        key = tensor_key(tensor), groups
        if key not in self.made:
            self.made[key] = _view(tensor, groups)
        return self.made[key]


def with_flat_views(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Equal tensors, whose stages read others at places instead of at their digits."""
    views = _Views()
    return each_stage(outputs, lambda op: _changed(op, views))


def _changed(op: Operation, views: _Views) -> list[Tensor] | None:
    if not is_compute(op):
        return None
    sources = list(map(expand_lets, sources_of(op)))
    if reduction_of(op) is None and is_load(sources[0]):
        return None  # a copy, as views are
    if not contains(sources, lambda node: op_name(node) in FLOOR_DIVISIONS):
        return None
    loops = {node_id(axis.var) for axis in loop_axes(op)}
    apart: set[int] = set()
    while True:
        changed, joined = _over_views(sources, views, apart)
        # a loop whose digits others read, too, is better split
        both = joined & loops & _divided(changed)
        if not both:
            return with_sources(op, changed) if joined else None
        apart |= both


def _over_views(
    sources: Sequence[Expr], views: _Views, apart: Collection[int]
) -> tuple[list[Expr], set[int]]:
    """Sources that read at places, which they are, by id; without those that are `apart`."""
    keys = StructuralKeys()
    joined: set[int] = set()

    def read(node: Expr) -> Expr | None:
        if not is_load(node):
            return None
        tensor = load_tensor(node)
        found = _places(operands(node), shape_of(tensor), keys, apart)
        if len(found) == len(shape_of(tensor)):
            return None
        joined.update(node_id(place) for dims, place in found if len(dims) > 1)
        view = views.of(tensor, tuple(dims for dims, _ in found))
        return load(view, [place for _, place in found])

    return [rewrite(source, read) for source in sources], joined


def _divided(sources: Sequence[Expr]) -> set[int]:
    """What is divided, by id."""
    nodes = postorder(list(sources))
    return {node_id(operands(node)[0]) for node in nodes if op_name(node) in FLOOR_DIVISIONS}


def _places(
    indices: Sequence[Expr], shape: Sequence[Extent], keys: StructuralKeys, apart: Collection[int]
) -> list[tuple[tuple[int, ...], Expr]]:
    """The dimensions that a read joins, and where it is in each."""
    found: list[tuple[tuple[int, ...], Expr]] = []
    for dim in reversed(range(len(indices))):
        if found:
            dims, inner = found[-1]
            size = _size([shape[n] for n in dims])
            place = None if size is None else _joined(indices[dim], inner, size, keys)
            whole = [shape[n] for n in (dim, *dims)]
            fits = _size(whole) is not None or not isinstance(whole[0], int)
            if place is not None and fits and node_id(place) not in apart:
                found[-1] = (dim, *dims), place
                continue
        found.append(((dim,), indices[dim]))
    return found[::-1]


def _size(extents: Sequence[Extent]) -> int | None:
    """The number of places, which an index counts, if it is known."""
    numbers = [extent for extent in extents if isinstance(extent, int)]
    size = prod(numbers)
    return size if len(numbers) == len(extents) and size <= _LARGEST else None


def _joined(outer: Expr, inner: Expr, size: int, keys: StructuralKeys) -> Expr | None:
    """``a + m//size, m%size → a*size + m``, and ``m//size%k, m%size → m%(k*size)``."""
    if op_name(inner) != "floormod" or const_value(operands(inner)[1]) != size:
        return None
    whole = operands(inner)[0]
    dtype = dtype_of(outer)
    if dtype not in INDEX_DTYPES or dtype_of(whole) != dtype:
        return None  # a narrow type may not hold the place
    terms, constant = linear_terms(outer)
    for number, (node, factor) in enumerate(terms):
        if factor != 1 or op_name(node) not in FLOOR_DIVISIONS:
            continue
        numerator, count = _division(node)
        if count <= 0:
            continue
        place: Expr | None = None
        if op_name(node) == "floormod":
            digit = _joined(numerator, inner, size, keys)
            if digit is not None and count * size <= _LARGEST:
                place = binary("floormod", digit, const(count * size, dtype))
        elif count == size and keys.expr(numerator) == keys.expr(whole):
            place = whole
        if place is not None:
            rest = [(other, by * size) for n, (other, by) in enumerate(terms) if n != number]
            before = linear_sum(rest, constant * size, dtype)
            return place if const_value(before) == 0 else add(before, place)
    return None


def _division(node: Expr) -> tuple[Expr, int]:
    """Numerator and divisor, of ``a//b//c`` a and b*c; zero for a divisor that is no literal."""
    numerator, divisor = operands(node)
    count = const_value(divisor)
    if not isinstance(count, int):
        return numerator, 0
    if op_name(node) == op_name(numerator) == "floordiv":
        inner, other = _division(numerator)
        return (inner, other * count) if other > 0 else (numerator, count)
    return numerator, count


def _view(tensor: Tensor, groups: Groups) -> Tensor:
    """A tensor with joined dimensions, as a stage that reads it."""
    shape, axes = shape_of(tensor), []
    indices: list[Expr] = []
    for dims in groups:
        extents = [shape[n] for n in dims]
        first, rest = extents[0], prod(int(e) for e in extents[1:])
        known = isinstance(first, int)
        extent = first * rest if known else mul(first, const(rest, dtype_of(first)))
        axes.append(data_axis(f"q{dims[0]}", extent))
        indices += digits_at(axes[-1].var, extents)
    [view] = make_stage(f"{tensor.op.name}_flat", axes, [load(tensor, indices)])
    return view
