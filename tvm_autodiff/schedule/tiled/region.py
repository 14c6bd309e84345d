"""Finds stages that can run together, tile by tile of the leading axes that they share.

The last shared axis is the *rows*, which tiles divide; those before it are *outer* axes. A member
of the region reads what another member computes only at its own place along all shared axes, so a
tile needs nothing of other tiles. Members may sum over the rows; such results are complete after
the last tile, and only stages outside read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...expr.nodes import (
    Axis,
    Expr,
    Tensor,
    const_value,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ...expr.rewrite import depends_on, postorder
from ...graph.graph import Graph
from ...graph.stage import (
    Operation,
    axis_range,
    bodies,
    is_compute,
    outputs_of,
    reduced_axes,
    reduction_bounds,
    reduction_of,
    shape_of,
)

Key = tuple[int, int]
Labels = Mapping[int, int]  #: of a stage: the id of a variable → the number of the shared axis
View = tuple[Key, tuple[int, ...]]  #: a tensor, and the shared axes that are its leading ones


@dataclass(frozen=True)
class Region:
    """Stages with shared axes.

    Attributes
    ----------
    members : tuple of Operation
        The stages, producers first.
    extents : tuple of int
        The extents of the shared axes; the last one is the rows.
    labels : dict
        For each member, by hash, its variables that are shared axes.
    sums : frozenset of int
        The hashes of the members that sum over the rows.
    results : tuple of Tensor
        What members compute and others read, or the program returns.
    kept : tuple of Tensor
        What only members read.
    """

    members: tuple[Operation, ...]
    extents: tuple[int, ...]
    labels: dict[int, Labels]
    sums: frozenset[int]
    results: tuple[Tensor, ...]
    kept: tuple[Tensor, ...]

    @property
    def rows(self) -> int:
        """The number of the axis that tiles divide."""
        return len(self.extents) - 1


def leading(op: Operation, labels: Labels, indices: Sequence[Expr]) -> tuple[int, ...]:
    """The shared axes that are the leading indices of a read, each by itself and in order."""
    found: list[int] = []
    for index in indices:
        label = labels.get(node_id(index))
        if label is None or (found and label <= found[-1]):
            break
        found.append(label)
    return tuple(found)


def region_around(
    graph: Graph, seed: Tensor, outer: int, wanted: set[Key], is_large: Callable[[Tensor], bool]
) -> Region | None:
    """The region that grows from a tensor along large ones, or None.

    Parameters
    ----------
    graph : Graph
        The program.
    seed : Tensor
        A tensor whose first axes are shared.
    outer : int
        How many of them there are before the rows.
    wanted : set of (int, int)
        The keys of the results of the program.
    is_large : callable
        Whether a tensor is worth to be kept in a cache.
    """
    extents = shape_of(seed)[: outer + 1]
    if not all(isinstance(extent, int) for extent in extents) or not is_compute(seed.op):
        return None
    growth = _Growth(graph, tuple(int(n) for n in extents), is_large)
    if not growth.add(seed.op):
        return None
    growth.grow()
    growth.close()
    return growth.region(wanted)


class _Growth:
    """A region while it grows."""

    def __init__(
        self, graph: Graph, extents: tuple[int, ...], is_large: Callable[[Tensor], bool]
    ) -> None:
        self.graph, self.extents, self.is_large = graph, extents, is_large
        self.labels: dict[int, Labels] = {}
        self.sums: set[int] = set()
        self.refused: set[int] = set()

    def add(self, op: Operation) -> bool:
        """Make a stage a member, if it is one."""
        if hash(op) in self.labels:
            return True
        found = None if hash(op) in self.refused else self._labelled(op)
        if found is None:
            self.refused.add(hash(op))
            return False
        self.labels[hash(op)], sums = found
        if sums:
            self.sums.add(hash(op))
        return True

    def grow(self) -> None:
        """Add the writers and readers of large tensors."""
        pending = [op for op in self.graph.ops if hash(op) in self.labels]
        while pending:
            op = pending.pop()
            near = [t.op for t in self.graph.reads(op) if self.is_large(t) and is_compute(t.op)]
            if hash(op) not in self.sums:
                large = filter(self.is_large, outputs_of(op))
                near += [reader for tensor in large for reader in self.graph.consumers(tensor)]
            for other in near:
                is_new = hash(other) not in self.labels
                if is_new and self.add(other):
                    pending = [*pending, other]

    def close(self) -> None:
        """Add stages between members, and remove what depends on stages that cannot be added."""
        while True:
            late: set[int] = set()  # depends on a result that is complete after the last tile
            below: set[int] = set()  # depends on a member
            between: list[Operation] = []
            for op in self.graph.ops:
                own = hash(op)
                reads = [hash(tensor.op) for tensor in self.graph.reads(op)]
                if any(h in late or h in self.sums for h in reads):
                    late.add(own)
                elif any(h in below and h not in self.labels for h in reads) and (
                    own in self.labels
                ):
                    between += [
                        t.op
                        for t in self.graph.reads(op)
                        if hash(t.op) in below and hash(t.op) not in self.labels
                    ]
                if own in self.labels or any(h in below for h in reads):
                    below.add(own)
            changed = False
            for own in late & self.labels.keys():
                self._remove(own)
                changed = True
            for op in between:
                if hash(op) in self.labels or changed:
                    continue
                if not self.add(op):
                    for reader in self._readers(op):
                        self._remove(reader)
                changed = True
            if not changed:
                return

    def _readers(self, op: Operation) -> list[int]:
        """The members that depend on a stage."""
        after = {hash(op)}
        for other in self.graph.ops:
            if any(hash(tensor.op) in after for tensor in self.graph.reads(other)):
                after.add(hash(other))
        return [own for own in after if own in self.labels]

    def _remove(self, own: int) -> None:
        del self.labels[own]
        self.sums.discard(own)
        self.refused.add(own)

    def region(self, wanted: set[Key]) -> Region | None:
        """The region, if it has several members."""
        members = tuple(op for op in self.graph.ops if hash(op) in self.labels)
        results: list[Tensor] = []
        kept: list[Tensor] = []
        for op in members:
            for tensor in outputs_of(op):
                readers = [hash(reader) for reader in self.graph.consumers(tensor)]
                outside = any(reader not in self.labels for reader in readers)
                is_result = tensor_key(tensor) in wanted or outside or not readers
                (results if is_result else kept).append(tensor)
        if len(members) < 2 or not kept:
            return None
        return Region(
            members, self.extents, self.labels, frozenset(self.sums), tuple(results), tuple(kept)
        )

    def _labelled(self, op: Operation) -> tuple[Labels, bool] | None:
        """The shared axes of a stage, and whether it sums over the rows; None for no member."""
        if not is_compute(op) or op.num_outputs != 1:
            return None
        labels: dict[int, int] = {}
        if not all(_agree(labels, index, label) for index, label in self._known(op, list(op.axis))):
            return None
        axes = {node_id(axis.var): axis for axis in (*op.axis, *reduced_axes(op))}
        for var, label in labels.items():
            if var not in axes or axis_range(axes[var]) != (0, self.extents[label]):
                return None
        count = len(self.extents)
        first = [labels.get(node_id(axis.var)) for axis in op.axis]
        sums = any(node_id(axis.var) in labels for axis in reduced_axes(op))
        whole = count - 1 if sums else count
        if first[:whole] != list(range(whole)) or any(n is not None for n in first[whole:]):
            return None
        if sums and not (_is_sum(op) and sorted(labels.values()) == list(range(count))):
            return None
        fits = self._reads_fit(op, labels) and (sums or self._is_read_in_place(op))
        return (labels, sums) if fits else None

    def _is_read_in_place(self, op: Operation) -> bool:
        """Whether members read a stage only at their own place along all shared axes."""
        key = tensor_key(op.output(0))
        return all(
            len(leading(reader, self.labels[hash(reader)], indices)) == len(self.extents)
            for reader in self.graph.consumers(op.output(0))
            if hash(reader) in self.labels
            for tensor, indices in reads_of(reader)
            if tensor_key(tensor) == key
        )

    def _known(self, op: Operation, axes: Sequence[Axis]) -> Iterator[tuple[Expr, int]]:
        """The indices of a stage that are shared axes, because of members that it reads or that
        read it.
        """
        count = len(self.extents)
        for tensor, indices in reads_of(op):
            if hash(tensor.op) in self.labels and hash(tensor.op) not in self.sums:
                yield from zip(indices[:count], range(count), strict=True)
        if not self.labels:
            yield from ((axis.var, n) for n, axis in enumerate(axes[:count]))
        key = tensor_key(op.output(0))
        for reader in self.graph.consumers(op.output(0)):
            labels = self.labels.get(hash(reader))
            for tensor, indices in reads_of(reader) if labels is not None else ():
                if tensor_key(tensor) == key and labels is not None:
                    for axis, index in zip(axes, indices, strict=True):
                        if node_id(index) in labels:
                            yield axis.var, labels[node_id(index)]

    def _reads_fit(self, op: Operation, labels: Labels) -> bool:
        """Whether a tile of what a stage reads begins at its place along the shared axes."""
        axes = [axis.var for axis in (*op.axis, *reduced_axes(op)) if node_id(axis.var) in labels]
        for tensor, indices in reads_of(op):
            found = leading(op, labels, indices)
            if any(depends_on(index, axes) for index in indices[len(found) :]):
                return False
            member = hash(tensor.op) in self.labels
            if member and len(found) < len(self.extents):
                return False
        return reduction_of(op) is None or not positions_of(op, labels)


def _agree(labels: dict[int, int], index: Expr, label: int) -> bool:
    """Note that an index is a shared axis; False if it is another one, or no variable."""
    if op_name(index) != "var" or (label in labels.values() and node_id(index) not in labels):
        return False
    return labels.setdefault(node_id(index), label) == label


def _is_sum(op: Operation) -> bool:
    """Whether a stage is a sum of one value under no condition, from zero."""
    reduction = reduction_of(op)
    if reduction is None or len(reduction.sources) != 1 or len(reduction.init):
        return False
    combiner = reduction.combiner
    return (
        op_name(combiner.result[0]) == "add"
        and const_value(combiner.identity[0]) == 0
        and bool(const_value(reduction.condition))
    )


def reads_of(op: Operation) -> list[tuple[Tensor, Sequence[Expr]]]:
    """The reads of a stage."""
    return [(load_tensor(node), operands(node)) for node in postorder(_roots(op)) if is_load(node)]


def _roots(op: Operation) -> list[Expr]:
    reduction = reduction_of(op) if is_compute(op) else None
    if reduction is None:
        return list(bodies(op)) if is_compute(op) else []
    return [*reduction.sources, reduction.condition, *reduction_bounds(op)]


def positions_of(op: Operation, labels: Labels) -> set[int]:
    """The shared axes whose position is a value in a stage, such as the row in ``j <= row``."""
    found: set[int] = set()
    pending = _roots(op)
    while pending:
        node = pending.pop()
        if node_id(node) in labels:
            found.add(labels[node_id(node)])
        inside = list(operands(node))
        if is_load(node):
            inside = inside[len(leading(op, labels, inside)) :]
        pending += inside
    return found
