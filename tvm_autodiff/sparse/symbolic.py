"""Sparse Jacobians of symbolic shapes, whose pattern and index arrays are made at the call.

The values are tensors over symbolic boxes. An entry is a sum over a list of their elements. Each
element is given by the number of its tensor and its indices, since positions in flattened tensors
would depend on the sizes.

    entry[n] = Σ_{m < count[n]} values_t[i, ...], (t, i, ...) = source[first[n] + m]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError
from ..expr.build import add, compare, const, if_then_else, variable
from ..expr.nodes import Expr, Tensor, load
from ..graph.bounded_stage import bounded_stage
from ..graph.stage import data_axis, placeholder, reduce_axis, shape_of, sum_over
from .blocks import Block, Placed, blocks_of
from .contributions import Contribution
from .gathered import Constant
from .matrix import Bound, Planned, SparseMatrix, indices_of, inverse, order_of
from .pattern import Entries, Pattern
from .points import Array, Sizes, extents_of


class SymbolicMatrix(SparseMatrix):
    """A `SparseMatrix` with sizes that are known only at the call."""

    def __init__(
        self, pattern: Pattern, format: str, dtype: str, parts: Sequence[Contribution]
    ) -> None:
        super().__init__(pattern, format, dtype, _no_plan)
        self._parts = list(parts)

    @property
    def values(self) -> Tensor:
        """The values in the order of the format."""
        return self._stage[0]

    @property
    def placeholders(self) -> list[Tensor]:
        """The placeholders for the index arrays."""
        return self._stage[1]

    @property
    def constants(self) -> list[Constant]:
        """Raise an error, because the index arrays depend on the sizes."""
        raise InvalidArgumentError(
            f"{self.name} depends on {', '.join(var.name for var in self.symbols)}: its index "
            "arrays are those of .at(sizes), one for each of .placeholders"
        )

    @property
    def method(self) -> str:
        """A description of how the values are computed."""
        return "directly, index arrays made at the call"

    def at(self, sizes: Sizes) -> Bound:
        """The structure of the matrix for values of the symbolic sizes."""
        pattern = self.pattern.with_sizes(sizes)
        entries = pattern.entries
        order = order_of(entries, self.format)
        shapes = [extents_of(shape_of(tensor), sizes) for tensor in (pattern.output, pattern.input)]
        placed = [Placed.of(part, (shapes[0], shapes[1]), sizes) for part in self._parts]
        arrays = self._contents(placed, entries, inverse(order), sizes)
        return Bound(arrays, indices_of(entries, self.format, order), entries.shape)

    @cached_property
    def _blocks(self) -> list[Block]:
        return blocks_of(self._parts, f"{self.name}_values")

    @cached_property
    def _stage(self) -> tuple[Tensor, list[Tensor]]:
        """The values in the order of the format, and the placeholders of their index arrays."""
        nnz, points = variable(f"{self.name}_nnz"), variable(f"{self.name}_points")
        width = 1 + max((len(shape_of(block.values)) for block in self._blocks), default=0)
        source = placeholder((points, width), "int32", f"{self.name}_source")
        first = placeholder((nnz,), "int32", f"{self.name}_first")
        count = placeholder((nnz,), "int32", f"{self.name}_count")
        axis = data_axis("n", nnz)
        inner = reduce_axis("m", load(count, [axis.var]))
        place = add(load(first, [axis.var]), inner.var)
        value: Expr = const(0, self.dtype)
        for number in reversed(range(len(self._blocks))):
            tensor = self._blocks[number].values
            at = [
                load(source, [place, const(1 + dim, "int32")]) for dim in range(len(tensor.shape))
            ]
            here = compare("eq", load(source, [place, const(0, "int32")]), const(number, "int32"))
            value = if_then_else(here, load(tensor, at), value)
        body = sum_over(value, [inner])
        return bounded_stage(self.name, [axis], [body])[0], [source, first, count]

    def _contents(
        self, placed: Sequence[Placed], entries: Entries, place: Array, sizes: Sizes
    ) -> tuple[Any, ...]:
        width = int(self.placeholders[0].shape[1])
        numbers, rows = [np.zeros(0, np.int64)], [np.zeros((0, width), np.int32)]
        for number, block in enumerate(self._blocks):
            keys, positions = block.places(placed, entries.shape[1])
            found, known = entries.find(keys)
            found, positions = found[known], positions[known]
            numbers.append(place[found])
            box = extents_of(shape_of(block.values), sizes)
            told = np.zeros((len(positions), width), np.int32)
            told[:, 0] = number
            told[:, 1 : 1 + len(box)] = (
                np.stack(np.unravel_index(positions, box or (1,))[: len(box)], 1) if box else 0
            )
            rows.append(told)
        joined = np.concatenate(numbers)
        order = np.argsort(joined, kind="stable")
        counts = np.bincount(joined, minlength=entries.count)
        source = np.concatenate(rows)[order]
        return source, (np.cumsum(counts) - counts).astype(np.int32), counts.astype(np.int32)


def _no_plan(entries: Entries) -> Planned:
    raise InvalidArgumentError("a matrix of symbolic shape has no plan before the call")
