"""Sparse Jacobians: non-zeros computed directly or compressed by colours, whichever is less work.

The direct method computes a value at each point of the composed read sites. It is sufficient if at
most one stage on a path reduces. If several stages reduce, the points multiply, and products with
sums of unit vectors, one for each colour, may be cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ...cost import stage_cost
from ...errors import InvalidArgumentError
from ...expr.build import const, equal_integers, select
from ...expr.nodes import Expr, Tensor, const_value, dtype_of, load
from ...expr.rewrite import tree_size
from ...expr.simplify import simplify
from ...graph.bounded_stage import elementwise_stage
from ...graph.graph import Graph
from ...graph.stage import (
    bodies,
    is_compute,
    is_placeholder,
    placeholder,
    placeholder_like,
    shape_of,
)
from ...keywords import checked_keywords
from ...sparse.blocks import Block, Placed, blocks_of
from ...sparse.colouring import Colouring, colour_columns, colour_symmetric, transposed
from ...sparse.contributions import contributions_of
from ...sparse.gathered import Values
from ...sparse.matrix import FORMATS, Planned, SparseMatrix
from ...sparse.pattern import Entries, Pattern, pattern_of
from ...sparse.points import Array
from ...sparse.regular import affine_numbers, linear_combination
from ...sparse.symbolic import SymbolicMatrix
from ..arguments import as_tensor, require_float, shape_text
from ..differentiate import differentiate
from ..jvp import jvp
from ..vmap import vmap


@checked_keywords
def sparsity(output: Tensor, input: Tensor) -> Pattern:
    """The sparsity pattern of a Jacobian: which entries may be non-zero.

    Parameters
    ----------
    output, input : Tensor
        As in `jacobian`.

    Returns
    -------
    Pattern
        The pattern, found from the read sites of the stages in a time that does not depend on the
        extents. Its ``nnz``, ``rows`` and ``columns`` are computed on first access, and ``print``
        shows a picture.

    Raises
    ------
    NotDifferentiableError
        If a tensor is not floating point, or a stage is opaque or reads at an index that is data.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import sparsity
    >>> x, k = te.placeholder((12,), name="x"), te.reduce_axis((0, 3), "k")
    >>> y = te.compute((10,), lambda i: te.sum(x[i + k] * x[i + k], axis=k), name="y")
    >>> print(sparsity(y, x))
    10 × 12, 30 nonzeros (25.0%)
    ⠙⢷⣄⠀⠀⠀
    ⠀⠀⠙⢷⣄⠀
    ⠀⠀⠀⠀⠙⠓
    """
    output = require_float(as_tensor(output, "output"), "output")
    input = require_float(as_tensor(input, "input"), "input")
    return pattern_of(output, input)


def sparse_jacobian(
    output: Tensor, input: Tensor, format: str, symmetric: bool = False
) -> SparseMatrix:
    """`jacobian` in a sparse format; `symmetric` if the matrix is known to be symmetric."""
    if format not in FORMATS:
        raise InvalidArgumentError(
            f"format must be one of dense, {', '.join(FORMATS)}, got {format!r}"
        )
    pattern = sparsity(output, input)
    if pattern.symbols:
        return _symbolic(pattern, format)
    return SparseMatrix(pattern, format, dtype_of(input), partial(_planned, pattern, symmetric))


def _symbolic(pattern: Pattern, format: str) -> SparseMatrix:
    """A matrix whose sizes are known at the call; colourings would have to be found there."""
    found = contributions_of(pattern.output, pattern.input)
    if isinstance(found, str):
        raise InvalidArgumentError(
            f"{pattern.output.op.name} has the symbolic shape "
            f"{shape_text(shape_of(pattern.output))}, and {found}: its Jacobian needs a colouring, "
            'which requires constant extents. Use these, jacobian(format="dense"), or '
            "linearize(...) and J @ v"
        )
    return SymbolicMatrix(pattern, format, dtype_of(pattern.input), found)


#: the number of nodes per entry up to which no other method is tried
_LITTLE = 64
#: the cost of a step of a stage that te cannot express
_OPAQUE_NODES = 16


@dataclass(frozen=True)
class _Way:
    """Values of the entries, and their cost in evaluated nodes of expressions."""

    planned: Planned
    work: int


def _planned(pattern: Pattern, symmetric: bool, entries: Entries) -> Planned:
    """The cheaper method for the values of the entries."""
    if not entries.count:
        return Planned([], [], "no entries")
    symmetric = symmetric and np.array_equal(transposed(entries).keys, entries.keys)
    direct = _direct(pattern, symmetric, entries)
    if isinstance(direct, _Way) and direct.work <= _LITTLE * entries.count:
        return direct.planned
    most = direct.work if isinstance(direct, _Way) else None
    compressed = _compressed(pattern, symmetric, entries, most)
    if compressed is not None:
        return compressed
    assert isinstance(direct, _Way)
    return direct.planned


def _direct(pattern: Pattern, symmetric: bool, entries: Entries) -> _Way | str:
    """The values at the points of composed sites, or the reason why there are none."""
    output, input = pattern.output, pattern.input
    found = contributions_of(output, input)
    if isinstance(found, str):
        return found
    shapes = shape_of(output), shape_of(input)
    placed = [Placed.of(part, shapes, {}) for part in found]
    above = [one for one in placed if one.above]
    symmetric = symmetric and not any(one.any_above for one in placed if not one.above)
    if symmetric:
        placed = [one for one in placed if not one.above]
    # neighbours in a row become neighbours in memory
    placed.sort(key=lambda one: one.middle)
    name = f"d{output.op.name}_d{input.op.name}_values"
    blocks = blocks_of([one.part for one in placed], name)
    parts = [_numbered(block, placed, entries, symmetric) for block in blocks]
    points = sum(prod(shape_of(block.values)) for block in blocks)
    work = sum(one.part.points({}) * tree_size(one.part.value) for one in placed)
    mirrored = ", mirrored" if symmetric and above else ""
    return _Way(Planned(parts, [], f"directly, {points} values{mirrored}"), work)


def _numbered(block: Block, placed: Sequence[Placed], entries: Entries, mirrored: bool) -> Values:
    """The values of a block with the numbers of their entries.

    With `mirrored`, values below the diagonal also belong to the transposed entries.
    """
    keys, positions = block.places(placed, entries.shape[1])
    if mirrored:
        rows, columns = np.divmod(keys, entries.shape[1])
        below = rows > columns
        keys = np.concatenate([keys, columns[below] * entries.shape[1] + rows[below]])
        positions = np.concatenate([positions, positions[below]])
    # a path that ends in a tensor because of a condition on data has points outside the pattern
    found, known = entries.find(keys)
    if not known.all():
        found, positions = found[known], positions[known]
    return Values(block.values, found, positions, not mirrored)


def _work(tensor: Tensor, vector: Tensor) -> int:
    """The work of a product with a vector, without stages that do not depend on the vector."""
    graph = Graph([tensor])
    own = graph.depends_on([vector])
    total = 0
    for op in graph.ops:
        if hash(op) in own and not is_placeholder(op):
            iterations = _plain(stage_cost(op).iterations)
            nodes = sum(map(tree_size, bodies(op))) if is_compute(op) else _OPAQUE_NODES
            total += iterations * nodes
    return total


def _plain(count: Any) -> int:
    """A number of iterations of constant extents, which may be an expression of literals."""
    value = count if isinstance(count, int) else const_value(simplify(count))
    assert value is not None, f"{count} depends on a size"
    return int(value)


def _compressed(
    pattern: Pattern, symmetric: bool, entries: Entries, most: int | None
) -> Planned | None:
    """The values by products, one for each colour, in the cheaper mode; None above a cost of
    `most`.
    """
    output, input = pattern.output, pattern.input
    ways: list[tuple[int, str, Tensor, Tensor, Entries]] = []
    for name, product in (("forward", _forward), ("reverse", _reverse)):
        if name == "reverse" and symmetric:
            continue
        result, vector = product(output, input)
        ways.append((_work(result, vector), name, result, vector, entries))
    best: tuple[int, Planned] | None = None
    for cost, name, result, vector, _ in ways:
        lines = entries if name == "forward" else transposed(entries)
        star = symmetric and name == "forward"
        # a colouring has at least as many colours as the fullest line has entries
        least = 1 if star else int(np.bincount(lines.rows).max())
        limit = min(value for value in (most, best and best[0], 2**62) if value is not None)
        if least * cost >= limit:
            continue
        colouring = colour_symmetric(entries) if star else colour_columns(lines)
        if colouring.count * cost < limit:
            planned = _products(name, result, vector, entries, colouring, star)
            best = colouring.count * cost, planned
    return None if best is None else best[1]


def _forward(output: Tensor, input: Tensor) -> tuple[Tensor, Tensor]:
    vector = placeholder_like(input, f"{input.op.name}_unit")
    return jvp(output, input, vector)[0], vector


def _reverse(output: Tensor, input: Tensor) -> tuple[Tensor, Tensor]:
    vector = placeholder_like(output, f"{output.op.name}_unit")
    return differentiate(output, [input], vector)[0], vector


def _products(
    name: str, result: Tensor, vector: Tensor, entries: Entries, colouring: Colouring, star: bool
) -> Planned:
    """Products with the sum of the unit vectors of each colour, and the positions of the entries in
    them.
    """
    shape = shape_of(vector)
    numbers = colouring.colours.reshape(shape).astype(np.int32)
    form = affine_numbers(numbers)
    colours = placeholder(shape, "int32", f"{vector.op.name}_colours")
    one, zero = const(1, dtype_of(vector)), const(0, dtype_of(vector))

    def seed(at: Sequence[Expr]) -> Expr:
        colour = load(colours, at[1:]) if form is None else linear_combination(at[1:], *form)
        return select(equal_integers(colour, at[0]), one, zero)

    seeds = elementwise_stage(f"{vector.op.name}_seeds", (colouring.count, *shape), seed)
    [products] = vmap(result, {vector: seeds})
    lines, places = entries.columns, entries.rows
    if name == "reverse":
        lines, places = places, lines
    if star:
        lines, places = _read_from(entries, colouring)
    extent = prod(shape_of(result))
    positions = colouring.colours[lines] * extent + places
    values = Values(products, np.arange(entries.count), positions)
    text = f"{name} mode, {colouring.count} colours, {colouring.order} order"
    return Planned([values], [(colours, numbers)] if form is None else [], text)


def _read_from(entries: Entries, colouring: Colouring) -> tuple[Array, Array]:
    """For each entry of a symmetric matrix, the column whose colour it is read from, and its
    position.

    This is its own column and row, or the transposed ones if others of the colour meet the row.
    """
    keys = entries.rows * colouring.count + colouring.colours[entries.columns]
    counts = np.bincount(keys, minlength=entries.shape[0] * colouring.count)
    alone = counts[keys] == 1
    return (
        np.where(alone, entries.columns, entries.rows),
        np.where(alone, entries.rows, entries.columns),
    )
