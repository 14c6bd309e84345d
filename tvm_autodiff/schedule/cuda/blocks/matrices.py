"""Reads a sum of products over any axes as a batch of matrix products: an implicit GEMM.

Output axes are rows (only the left operands depend on them), columns (only the right ones), or
batch (both). Both matrices become stages over flat, padded axes, whose elements are gathered from
the operands, with zeros where guards fail. Nothing is copied in memory, because the kernel fetches
tiles of these stages.

    ``out[b, i, j] = Σ_k left[b, k, i] * right[b, k, j]``
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product as all_choices

from ....codegen.flat_axes import flat_extent, indices_at
from ....expr.build import add, cast, compare, const, mul
from ....expr.nodes import Axis, Expr, Tensor, Var, const_value, dtype_of, node_id
from ....expr.rewrite import substituter
from ....graph.stage import axis_range, data_axis, make_stage
from ...cost import MAX_SEARCHED
from ...kernel import size_of
from ...nest.in_range import loops_of
from ...nest.products import Operand, Product, guarded, operand_stride, operand_value


@dataclass(frozen=True)
class Matrices:
    """Operands and axes of a batch of matrix products; axes keep the order of the nest."""

    left: tuple[Operand, ...]
    right: tuple[Operand, ...]
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    reduced: tuple[Axis, ...]

    @property
    def literal(self) -> bool:
        """Whether all extents are numbers."""
        axes = (*self.batch, *self.rows, *self.columns, *self.reduced)
        return all(isinstance(axis_range(axis)[1], int) for axis in axes)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The number of elements of the batch, of rows, of columns and of the reduction; a symbolic
        extent counts as `SYMBOLIC_SIZE`.
        """
        groups = (self.batch, self.rows, self.columns, self.reduced)
        batch, rows, columns, reduced = (
            size_of([axis_range(axis)[1] for axis in axes]) for axes in groups
        )
        return batch, rows, columns, reduced


def matrices_of(found: Product) -> Matrices | None:
    """The largest matrices as which a sum of products can be read, or None."""
    axes = (*found.axes, *found.reduction.axes)
    if not 2 <= len(found.operands) <= MAX_SEARCHED or not all(map(_is_plain, axes)):
        return None
    best: Matrices | None = None
    for sides in all_choices((True, False), repeat=len(found.operands) - 1):
        left = [o for o, here in zip(found.operands, (True, *sides), strict=True) if here]
        right = [o for o, here in zip(found.operands, (True, *sides), strict=True) if not here]
        if right:
            candidate = _sided(found, left, right)
            if best is None or _reuse(candidate) > _reuse(best):
                best = candidate
    return best


def _is_plain(axis: Axis) -> bool:
    low, extent = axis_range(axis)
    return low == 0 and (extent > 0 if isinstance(extent, int) else True)


def _reuse(matrices: Matrices) -> int:
    _, rows, columns, _ = matrices.sizes
    return min(rows, columns)


def _sided(found: Product, left: Sequence[Operand], right: Sequence[Operand]) -> Matrices:
    mine = set().union(*(operand.variables() for operand in left))
    theirs = set().union(*(operand.variables() for operand in right))
    batch: list[Axis] = []
    rows: list[Axis] = []
    columns: list[Axis] = []
    for axis in found.axes:
        key = node_id(axis.var)
        (columns if key not in mine else rows if key not in theirs else batch).append(axis)
    reduced = tuple(found.reduction.axes)
    # columns hold the last axis of the output: neighbouring threads write neighbours
    if rows and columns and found.axes[-1] is rows[-1]:
        left, right, rows, columns = right, left, columns, rows
    return Matrices(tuple(left), tuple(right), tuple(batch), tuple(rows), tuple(columns), reduced)


def flat_index(axes: Sequence[Axis], indices: Mapping[int, Expr], dtype: str) -> Expr:
    """``(i * extent of j + j) * ...``: the position of indices in a flat axis."""
    place = const(0, dtype)
    for axis in axes:
        extent = axis_range(axis)[1]
        place = add(mul(place, const(int(extent), dtype)), indices[node_id(axis.var)])
    return place


def matrix_stage(
    name: str,
    operands: Sequence[Operand],
    groups: tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[Axis, ...]],
    padded: tuple[int, int, int],
) -> Tensor:
    """The product of some operands over flat axes (batch, reduced, rows or columns).

    Elements past the end of an axis are zero and read nothing.
    """
    names = ("b", "k", "i")
    flat = [data_axis(n, extent) for n, extent in zip(names, padded, strict=True)]
    b, k, i = (axis.var for axis in flat)
    return make_stage(name, flat, [matrix_element(operands, groups, (b, k, i), padded)])[0]


def matrix_element(
    operands: Sequence[Operand],
    groups: tuple[tuple[Axis, ...], ...],
    places: tuple[Expr, ...],
    multiples: tuple[int, ...],
) -> Expr:
    """An element of a matrix; zero past the end of an axis, or where a guard fails.

    No operand is read where the guard of another one keeps it inside of its tensor.

    Parameters
    ----------
    operands : sequence of Operand
        The factors of the element.
    groups : tuple of tuples of Axis
        The axes that each flat axis consists of.
    places : tuple of Expr
        The position along each flat axis, below the next of its `multiples`.
    """
    table: dict[Var, Expr] = {}
    inside: list[Expr] = []
    for place, axes, multiple in zip(places, groups, multiples, strict=True):
        table.update(indices_at(axes, place))
        extent = flat_extent(axes)
        known = const_value(extent)
        if multiple > 1 and (known is None or int(known) % multiple):
            inside.append(compare("lt", place, cast(dtype_of(place), extent)))
    rename = substituter(table)
    value: Expr | None = None
    loops = loops_of([axis for group in groups for axis in group])
    for operand in operands:
        conditions, factor = operand_value(operand, loops)
        inside += [rename(condition) for condition in conditions]
        factor = rename(factor)
        value = factor if value is None else mul(value, factor)
    assert value is not None
    return guarded(inside, value) if inside else value


def runs_along(operands: Sequence[Operand], axes: Sequence[Axis], variables: Sequence[Var]) -> bool:
    """Whether neighbours along the last of some axes are neighbours in memory."""
    if not axes:
        return False
    key = node_id(axes[-1].var)
    strides = [operand_stride(o, key, variables) for o in operands if key in o.variables()]
    return bool(strides) and all(stride is not None and abs(stride) == 1 for stride in strides)
