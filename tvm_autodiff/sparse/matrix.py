"""`SparseMatrix`: a Jacobian of which only the non-zeros are computed, as te tensors and index
arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..expr.nodes import Tensor, Var
from ..expr.printing.text import text
from ..graph.stage import shape_of
from .gathered import Constant, Values, gathered
from .pattern import Entries, Pattern
from .points import Array, Sizes

FORMATS = ("csr", "csc", "coo")

#: makes the values of the non-zeros from the entries of the pattern
Plan = Callable[[Entries], "Planned"]


@dataclass(frozen=True)
class Planned:
    """The computation of the entries' values.

    Attributes
    ----------
    parts : sequence of Values
        The values to sum.
    constants : sequence of (Tensor, array)
        Contents of placeholders that the values read.
    text : str
        A description of the method.
    """

    parts: Sequence[Values]
    constants: Sequence[Constant]
    text: str


@dataclass(frozen=True)
class Bound:
    """The structure of a matrix for given sizes.

    Attributes
    ----------
    arrays : tuple of array
        Contents of the placeholders that the values read.
    indices : pair of arrays
        The index arrays of the format.
    shape : pair of int
        Rows and columns.
    """

    arrays: tuple[NDArray[Any], ...]
    indices: tuple[NDArray[Any], NDArray[Any]]
    shape: tuple[int, int]


class SparseMatrix:
    """A Jacobian or Hessian that stores only the entries that may be non-zero.

    Rows count the elements of the output, columns those of the input, both in row-major order.
    `build` accepts it as an output, and the compiled function returns a scipy.sparse matrix. The
    values can also be used as a tensor; a program that reads `values` needs `constants`.

    Attributes
    ----------
    pattern : Pattern
        The positions of the entries.
    format : {"csr", "csc", "coo"}
        The order of the entries: by rows (CSR, COO) or by columns (CSC).
    dtype : str
        The dtype of the values.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm import te
    >>> from tvm_autodiff import build, jacobian
    >>> x = te.placeholder((4,), "float64", name="x")
    >>> y = te.compute((3,), lambda i: x[i] * x[i + 1], name="y")
    >>> J = jacobian(y, x, format="csr")
    >>> J
    <SparseMatrix dy_dx: float64 of shape (3, 4), csr>
    >>> build(x, J)(np.array([1.0, 2.0, 3.0, 4.0])).toarray()
    array([[2., 1., 0., 0.],
           [0., 3., 2., 0.],
           [0., 0., 4., 3.]])
    """

    def __init__(self, pattern: Pattern, format: str, dtype: str, plan: Plan) -> None:
        self.pattern = pattern
        self.format = format
        self.dtype = dtype
        self._plan = plan

    @property
    def name(self) -> str:
        """``dy_dx``."""
        return f"d{self.pattern.output.op.name}_d{self.pattern.input.op.name}"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.pattern.shape

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return self.pattern.nnz

    @property
    def values(self) -> Tensor:
        """The entries' values in the order of the format, as a tensor to be flattened."""
        return self._made[0]

    @property
    def constants(self) -> list[Constant]:
        """The additional placeholders that `values` reads, with their contents."""
        return self._made[1]

    @property
    def method(self) -> str:
        """A description of how the values are computed."""
        return self._planned.text

    @cached_property
    def _planned(self) -> Planned:
        return self._plan(self.pattern.entries)

    @property
    def symbols(self) -> tuple[Var, ...]:
        """The sizes that are known only at the call."""
        return self.pattern.symbols

    @property
    def placeholders(self) -> list[Tensor]:
        """The placeholders that `values` reads in addition to the program's inputs."""
        return [tensor for tensor, _ in self.constants]

    def at(self, sizes: Sizes) -> Bound:
        """The arrays for values of the symbolic sizes."""
        return Bound(
            tuple(array for _, array in self.constants),
            indices_of(self.pattern.entries, self.format, self._order),
            self.shape,
        )

    def indices(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The index arrays of the format, which must not be changed.

        These are indices and starts of rows (CSR) or columns (CSC), or rows and columns (COO).
        """
        return self.at({}).indices

    @cached_property
    def _made(self) -> tuple[Tensor, list[Constant]]:
        place = inverse(self._order)
        parts = [replace(part, entries=place[part.entries]) for part in self._planned.parts]
        values, constants = gathered(parts, self.nnz, self.name, self.dtype)
        return values, [*self._planned.constants, *constants]

    @cached_property
    def _order(self) -> Array:
        return order_of(self.pattern.entries, self.format)

    def __repr__(self) -> str:
        shapes = (shape_of(tensor) for tensor in (self.pattern.output, self.pattern.input))
        extents = ["·".join(_text(extent) for extent in shape) or "1" for shape in shapes]
        if all(extent.replace("·", "").isdigit() for extent in extents):
            extents = [str(extent) for extent in self.shape]
        shape = ", ".join(extents)
        return f"<SparseMatrix {self.name}: {self.dtype} of shape ({shape}), {self.format}>"


def order_of(entries: Entries, format: str) -> Array:
    """The order of a format, for entries numbered by rows."""
    if format == "csc":
        return np.argsort(entries.columns, kind="stable")
    return np.arange(entries.count)


def inverse(order: Array) -> Array:
    """The inverse of a permutation."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


def indices_of(entries: Entries, format: str, order: Array) -> tuple[NDArray[Any], NDArray[Any]]:
    """The index arrays of a format, for entries in its order; read-only."""
    rows, columns = entries.rows[order], entries.columns[order]
    dtype = np.int32 if max(*entries.shape, entries.count) < 2**31 else np.int64
    if format == "coo":
        found = rows, columns
    else:
        by_rows = format == "csr"
        inner, outer = (columns, rows) if by_rows else (rows, columns)
        counts = np.bincount(outer, minlength=entries.shape[0 if by_rows else 1])
        found = inner, np.concatenate([[0], np.cumsum(counts)])
    first, second = (array.astype(dtype) for array in found)
    first.flags.writeable = second.flags.writeable = False
    return first, second


def _text(extent: Any) -> str:
    return str(extent) if isinstance(extent, int) else text(extent)
