"""Sparsity patterns: which entries of a Jacobian may be non-zero.

A `Pattern` holds the read sites of the stages between output and input, and is found from
expressions only. The entries are enumerated on first access: the points of each stage's sites,
composed along the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..expr.nodes import Tensor, Var, node_id, tensor_key
from ..expr.rewrite import variables_of
from ..graph.stage import axis_range, outputs_of, shape_of
from .paths import Paths
from .picture import picture
from .points import Array, Sizes, extents_of, points_of
from .sites import Site, copy_site, read_sites

_Key = tuple[int, int]


@dataclass(frozen=True)
class Entries:
    """Entries of a matrix, sorted by row and column without duplicates.

    Attributes
    ----------
    shape : pair of int
        Rows and columns.
    rows, columns : array of int64
        The row and column of each entry.
    """

    shape: tuple[int, int]
    rows: Array
    columns: Array

    @property
    def count(self) -> int:
        """The number of entries."""
        return len(self.rows)

    @cached_property
    def keys(self) -> Array:
        """An increasing number for each entry."""
        return self.rows * self.shape[1] + self.columns

    def find(self, keys: Array) -> tuple[Array, NDArray[np.bool_]]:
        """The numbers of the entries with given keys, and which keys belong to entries."""
        places = np.searchsorted(self.keys, keys)
        known = places < self.count
        known[known] = self.keys[places[known]] == keys[known]
        return places, known

    def starts(self) -> Array:
        """The first entry of each row, followed by the number of entries."""
        counts = np.bincount(self.rows, minlength=self.shape[0])
        return np.concatenate([[0], np.cumsum(counts)])

    @staticmethod
    def of(shape: tuple[int, int], keys: Sequence[Array]) -> Entries:
        """The entries for ``row * columns + column`` in any order, with duplicates allowed."""
        joined = np.concatenate([np.zeros(0, np.int64), *keys])
        if len(joined) > 1 and not (joined[1:] > joined[:-1]).all():
            joined.sort()
            joined = joined[np.concatenate([[True], joined[1:] != joined[:-1]])]
        rows, columns = np.divmod(joined, max(shape[1], 1))
        return Entries(shape, rows, columns)


@dataclass(frozen=True, eq=False)
class Pattern:
    """The entries of the Jacobian of `output` with respect to `input` that may be non-zero.

    Rows count the elements of the output, columns those of the input, both in row-major order.
    ``print`` shows a picture, and `text` the read sites behind it.

    Attributes
    ----------
    output, input : Tensor
        The differentiated tensor, and the tensor it is differentiated with respect to.
    stages : tuple of (Tensor, tuple of Site)
        The tensors in between, inputs first, with the sites through which they depend on the input.
    sizes : mapping from Var to int
        Values of symbolic sizes.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import sparsity
    >>> x = te.placeholder((6,), name="x")
    >>> y = te.compute((5,), lambda i: x[i + 1] - x[i], name="y")
    >>> pattern = sparsity(y, x)
    >>> pattern.shape, pattern.nnz
    ((5, 6), 10)
    >>> print(pattern.text())
    y[i] reads x[i + 1]
    y[i] reads x[i]
    >>> print(pattern)
    5 × 6, 10 nonzeros (33.3%)
    ⠙⢦⡀
    ⠀⠀⠉
    """

    output: Tensor
    input: Tensor
    stages: tuple[tuple[Tensor, tuple[Site, ...]], ...]
    sizes: Mapping[Var, int] = field(default_factory=dict)
    _found: list[Entries] = field(default_factory=list, init=False, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        shapes = (shape_of(tensor) for tensor in (self.output, self.input))
        rows, columns = (prod(extents_of(shape, self.sizes)) for shape in shapes)
        return rows, columns

    @property
    def symbols(self) -> tuple[Var, ...]:
        """The symbolic sizes without a value that it depends on."""
        shapes = [*shape_of(self.output), *shape_of(self.input)]
        sites = [site for _, own in self.stages for site in own]
        axes = [axis for site in sites for axis in site.axes]
        bounds = [*shapes, *(bound for axis in axes for bound in axis_range(axis))]
        bounds += [expr for site in sites for expr in (*site.columns, *site.conditions)]
        own = {node_id(var) for var in (*self.sizes, *(axis.var for axis in axes))}
        free = variables_of([bound for bound in bounds if not isinstance(bound, int)])
        return tuple(var for var in free if node_id(var) not in own)

    @property
    def entries(self) -> Entries:
        """The entries, computed on first access."""
        if not self._found:
            self._found.append(_entries(self))
        return self._found[0]

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return self.entries.count

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each entry, in row-major order."""
        return self.entries.rows

    @property
    def columns(self) -> NDArray[np.int64]:
        """The column of each entry."""
        return self.entries.columns

    def with_sizes(self, sizes: Sizes) -> Pattern:
        """The pattern for other values of symbolic sizes."""
        return Pattern(self.output, self.input, self.stages, dict(sizes))

    def text(self) -> str:
        """One line for each read site."""
        lines = [site.text(tensor.op.name) for tensor, sites in self.stages for site in sites]
        return "\n".join(lines) or f"{self.output.op.name} does not depend on {self.input.op.name}"

    def picture(self, width: int | None = None, height: int | None = None) -> str:
        """The entries as dots, scaled down to a number of characters.

        Parameters
        ----------
        width, height : int, optional
            The size of the picture in characters of two by four dots. None fits it to the terminal.
        """
        return picture(self.shape, self.rows, self.columns, width, height)

    def __str__(self) -> str:
        rows, columns = self.shape
        share = f" ({self.nnz / (rows * columns):.1%})" if rows * columns else ""
        return f"{rows} × {columns}, {self.nnz} nonzeros{share}\n{self.picture()}".rstrip("\n")

    def __repr__(self) -> str:
        names = f"{self.output.op.name}, {self.input.op.name}"
        return f"<Pattern of {names}: {sum(len(s) for _, s in self.stages)} read sites>"


def pattern_of(output: Tensor, input: Tensor, sizes: Sizes | None = None) -> Pattern:
    """The pattern of a Jacobian, from the read sites of the stages between two tensors."""
    paths = Paths(output, input)
    active: set[_Key] = {tensor_key(input)}
    stages: list[tuple[Tensor, tuple[Site, ...]]] = []
    for op in paths.ops:
        wanted = [tensor for tensor in paths.reads(op) if tensor_key(tensor) in active]
        equal = paths.equal(op)
        for tensor in outputs_of(op):
            sites: tuple[Site, ...] = ()
            if wanted:
                sites = (
                    tuple(read_sites(tensor, wanted)) if equal is None else (copy_site(op, equal),)
                )
            if sites:
                active.add(tensor_key(tensor))
                stages.append((tensor, sites))
    return Pattern(output, input, tuple(stages), dict(sizes or {}))


def _entries(pattern: Pattern) -> Entries:
    """The points of the sites, composed along the graph, without duplicates in each stage."""
    sizes = pattern.sizes
    columns = prod(extents_of(shape_of(pattern.input), sizes))
    known: dict[_Key, Entries | None] = {tensor_key(pattern.input): None}  # the identity
    for tensor, sites in pattern.stages:
        shape = extents_of(shape_of(tensor), sizes)
        keys = []
        for site in sites:
            places = shape, extents_of(shape_of(site.tensor), sizes)
            at = points_of(site.axes, site.rows, site.columns, site.conditions, places, sizes)
            inner = known[tensor_key(site.tensor)]
            if inner is None:
                keys.append(at.rows * columns + at.columns)
            else:
                keys.append(joined(at.rows, at.columns, inner))
        known[tensor_key(tensor)] = Entries.of((prod(shape), columns), keys)
    found = known.get(tensor_key(pattern.output), Entries.of(pattern.shape, []))
    if found is None:  # the output is the input
        every = np.arange(columns, dtype=np.int64)
        return Entries((columns, columns), every, every)
    return found


def joined(rows: Array, between: Array, inner: Entries) -> Array:
    """Keys of the pairs (row, column) that are connected by an element in between, with duplicates.
    """
    starts = inner.starts()
    counts = (starts[1:] - starts[:-1])[between]
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    place = np.arange(total) + np.repeat(starts[between] - (ends - counts), counts)
    return np.repeat(rows, counts) * inner.shape[1] + inner.columns[place]
