"""Reads a reduction over operands as one over the rows of some matrices and the columns of others.

Output axes are rows (only operands of the left side depend on them), columns (only those of the
right side), or batch. The matrices have flat axes; their elements are gathered from the operands,
with zeros where guards fail. Nothing is copied in memory, because the kernel fetches tiles. For a
sum of products it is an implicit GEMM.

    ``out[b, i, j] = ⊕_k f(left[b, k, i], right[b, k, j])``
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product as all_choices

from ....codegen.flat_axes import flat_extent, indices_at
from ....expr.build import cast, compare, mul, variable
from ....expr.dtypes import itemsize
from ....expr.nodes import Axis, Expr, Var, const_value, dtype_of, node_id
from ....expr.rewrite import expand_lets, substituter
from ....graph.stage import Reduction, axis_range
from ...cost import MAX_SEARCHED
from ...kernel import size_of
from ...nest.in_range import loops_of
from ...nest.reductions.elementwise_body import Body
from ...nest.reductions.operand_values import guarded, operand_value
from ...nest.reductions.products import Operand, Product, operand_stride


@dataclass(frozen=True)
class Matrix:
    """An operand, or the product of several.

    Attributes
    ----------
    element : Var
        Stands for an element of it in `Matrices.sources`.
    factors : tuple of Operand
    """

    element: Var
    factors: tuple[Operand, ...]


@dataclass(frozen=True)
class Matrices:
    """A reduction over two sides of matrices; axes keep the order of the nest.

    Attributes
    ----------
    still : tuple of Matrix
        What no axis of the reduction changes, but rows and columns may.
    sources : tuple of Expr
        What is reduced, in terms of the matrices' elements and of the loops.
    scale : tuple of Expr
        Factors of the sum.
    operations : float
        How many a point of the loops takes.
    neutral : bool
        Whether a point where all elements are zero adds nothing.
    """

    left: tuple[Matrix, ...]
    right: tuple[Matrix, ...]
    still: tuple[Matrix, ...]
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    reduction: Reduction
    sources: tuple[Expr, ...]
    scale: tuple[Expr, ...]
    operations: float
    neutral: bool

    @property
    def reduced(self) -> tuple[Axis, ...]:
        """The axes of the reduction."""
        return tuple(self.reduction.axes)

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

    @property
    def itemsize(self) -> int:
        """The bytes of a result; no element takes less than a bank or a register."""
        return _bytes(self.sources)

    @property
    def itemsize_held(self) -> int:
        """The bytes that a thread holds for a result."""
        return self.itemsize + _bytes(one.element for one in self.still)

    @property
    def itemsizes(self) -> tuple[int, int]:
        """The bytes of a place of both sides."""
        return _bytes(one.element for one in self.left), _bytes(one.element for one in self.right)


def _bytes(values: Iterable[Expr]) -> int:
    return sum(max(4, itemsize(dtype_of(value))) for value in values)


def matrices_of(found: Product | Body) -> Matrices | None:
    """The largest matrices as which a reduction can be read, or None."""
    axes = (*found.axes, *found.reduction.axes)
    reduced = {node_id(axis.var) for axis in found.reduction.axes}
    # factors of a sum are one element of each side
    moving = [o for o in found.operands if isinstance(found, Product) or o.variables() & reduced]
    if not 2 <= len(moving) <= MAX_SEARCHED or not all(map(_is_plain, axes)):
        return None
    best: Matrices | None = None
    for sides in all_choices((True, False), repeat=len(moving) - 1):
        left = [o for o, here in zip(moving, (True, *sides), strict=True) if here]
        right = [o for o, here in zip(moving, (True, *sides), strict=True) if not here]
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


def _sided(found: Product | Body, left: Sequence[Operand], right: Sequence[Operand]) -> Matrices:
    mine = set().union(*(operand.variables() for operand in left))
    theirs = set().union(*(operand.variables() for operand in right))
    batch: list[Axis] = []
    rows: list[Axis] = []
    columns: list[Axis] = []
    for axis in found.axes:
        key = node_id(axis.var)
        (columns if key not in mine else rows if key not in theirs else batch).append(axis)
    # columns hold the last axis of the output: neighbouring threads write neighbours
    if rows and columns and found.axes[-1] is rows[-1]:
        left, right, rows, columns = right, left, columns, rows
    axes = (tuple(batch), tuple(rows), tuple(columns), found.reduction)
    if isinstance(found, Product):
        rows_of, columns_of = _matrix("left", left), _matrix("right", right)
        source = mul(rows_of.element, columns_of.element)
        scale = tuple(found.scale)
        return Matrices((rows_of,), (columns_of,), (), *axes, (source,), scale, 1.0, True)
    sides = {id(operand): "left" for operand in left} | {id(operand): "right" for operand in right}
    groups: dict[str, list[Matrix]] = {"left": [], "right": [], "still": []}
    for operand in found.operands:
        group = sides.get(id(operand), "still")
        groups[group].append(_matrix(f"{group}{len(groups[group])}", [operand]))
    elements = {id(one.factors[0]): one.element for group in groups.values() for one in group}
    reads = [elements[id(operand)] for operand in found.operands]
    sources = tuple(map(expand_lets, found.over(reads)))
    operations = sum(work for _, work in found.steps)
    lefts, rights, still = map(tuple, groups.values())
    return Matrices(lefts, rights, still, *axes, sources, (), operations, False)


def _matrix(name: str, factors: Sequence[Operand]) -> Matrix:
    return Matrix(variable(name, dtype_of(factors[0].expr)), tuple(factors))


def matrix_element(
    matrix: Matrix,
    groups: tuple[tuple[Axis, ...], ...],
    places: tuple[Expr, ...],
    multiples: tuple[int, ...],
) -> Expr:
    """An element of a matrix; zero past the end of an axis, or where a guard fails.

    No operand is read where the guard of another one keeps it inside of its tensor.

    Parameters
    ----------
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
    for operand in matrix.factors:
        conditions, factor = operand_value(operand, loops)
        inside += [rename(condition) for condition in conditions]
        factor = rename(factor)
        value = factor if value is None else mul(value, factor)
    assert value is not None
    return guarded(inside, value) if inside else value


def runs_along(matrices: Sequence[Matrix], axes: Sequence[Axis], variables: Sequence[Var]) -> bool:
    """Whether neighbours along the last of some axes are neighbours in memory."""
    if not axes:
        return False
    key = node_id(axes[-1].var)
    factors = [operand for matrix in matrices for operand in matrix.factors]
    strides = [operand_stride(o, key, variables) for o in factors if key in o.variables()]
    return bool(strides) and all(stride is not None and abs(stride) == 1 for stride in strides)
