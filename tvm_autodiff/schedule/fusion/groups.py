"""Joins kernels that process the same rows into fusion groups, which run one row after the other.

The members of a group share leading loops, its rows, and read each other's results only in their
own row, so that a row stays in cache from its first stage to its last. Reductions over the rows
themselves (a bias gradient) may end a group. A rule decides how its loops run. Elementwise kernels
that share work are a group without rows, which runs in one pass.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ...expr.nodes import Tensor, node_id, tensor_key
from ...expr.structural import StructuralKeys
from ...graph.sizes.equal_sizes import is_same
from ...graph.stage import Extent, Operation, axis_range
from ..kernel import Kernel
from .joined_maps import MapWork, map_work
from .placed_rows import placed_rows
from .row_kernels import RowKernel, natural_rows

Key = tuple[int, int]


@dataclass(frozen=True)
class FusionGroup:
    """A fusion group: kernels that run as one function, row by row or in one pass.

    Attributes
    ----------
    parts : tuple of Kernel
        The kernels, in order of execution.
    members : tuple of RowKernel
        Their stages, and the row axes of each; empty for elementwise kernels in one pass.
    extents : tuple
        The extents of the row axes.
    outputs : list of Tensor
        The tensors that others read, or the program returns.
    """

    parts: tuple[Kernel, ...]
    members: tuple[RowKernel, ...]
    extents: tuple[Extent, ...]
    outputs: list[Tensor]

    @property
    def ops(self) -> tuple[Operation, ...]:
        """All stages, producers first."""
        return tuple(op for part in self.parts for op in part.ops)

    @property
    def name(self) -> str:
        """A name for the function."""
        return "_".join(part.root.name for part in self.parts)


@dataclass
class _Group:
    """Kernels that will run together; `extents` is None until the rows are determined."""

    kernels: list[Kernel]
    members: list[RowKernel] = field(default_factory=list)
    extents: tuple[Extent, ...] | None = None

    def __post_init__(self) -> None:
        self.writes = set().union(*(kernel.write_keys for kernel in self.kernels))
        self.reads = set().union(*(kernel.read_keys for kernel in self.kernels)) - self.writes

    @cached_property
    def natural(self) -> RowKernel | None:
        """Its first kernel with natural rows."""
        return natural_rows(self.kernels[0], certain=False)

    def needs(self, other: _Group) -> bool:
        return bool(self.reads & other.writes)


def fusion_groups(kernels: Sequence[Kernel], wanted: Container[Key]) -> list[Kernel | FusionGroup]:
    """Join kernels into fusion groups; `wanted` holds the keys of the program's results."""
    groups: list[_Group] = []
    for kernel in kernels:
        _add(groups, _group(kernel))
    groups = _joined_maps(groups)
    readers: dict[Key, set[int]] = {}
    for number, group in enumerate(groups):
        for key in group.reads:
            readers.setdefault(key, set()).add(number)
    return [_finished(group, wanted, readers) for group in groups]


def _joined_maps(groups: Sequence[_Group]) -> list[_Group]:
    """``u = f(e); a = s(u); v = g(e); b = s(v) → (u, v) = (f(e), g(e)); a = s(u); b = s(v)``."""
    joined: list[_Group] = []
    works: list[MapWork | None] = []
    keys = StructuralKeys()
    for group in groups:
        alone = len(group.kernels) == 1 and not group.members
        work = map_work(group.kernels[0], keys) if alone else None
        for number, known in enumerate(works):
            if work is None or known is None or not known.shared_with(work):
                continue
            if not any(group.needs(other) for other in joined[number:]):
                works[number] = all_of_them = known.joined(work)
                joined[number] = _Group(all_of_them.kernels)
                break
        else:
            joined.append(group)
            works.append(work)
    return joined


def _group(kernel: Kernel) -> _Group:
    member = natural_rows(kernel, certain=True)
    if member is None:
        return _Group([kernel])
    return _Group([kernel], [member], _extents(member))


def _extents(member: RowKernel) -> tuple[Extent, ...]:
    return tuple(axis_range(axis)[1] for axis in member.row_axes)


def _add(groups: list[_Group], new: _Group) -> None:
    """Append a group, joined with those that it can be joined with."""
    groups.append(new)
    joined = True
    while joined:
        joined = False
        last = groups[-1]
        for number in range(len(groups) - 2, -1, -1):
            candidate = groups[number]
            if not _related(candidate, last):
                continue
            between = groups[number + 1 : -1]
            later = not any(group.needs(candidate) for group in between)
            if not later and any(last.needs(group) for group in between):
                continue
            union = _union(candidate, last)
            if union is None:
                continue
            groups.pop()
            if later:
                del groups[number]
                groups.append(union)
                joined = True
            else:
                groups[number] = union
                return
            break


def _related(left: _Group, right: _Group) -> bool:
    return right.needs(left) or bool(left.reads & right.reads)


def _union(left: _Group, right: _Group) -> _Group | None:
    """Both groups as one, if the rows of one can be found in the other."""
    if left.extents is None and right.extents is None:
        for group, other in ((right, left), (left, right)):
            member = group.natural
            if member is not None:
                resolved = _Group(group.kernels, [member], _extents(member))
                union = _taken(resolved, other)
                if union is not None:
                    return _ordered(union, left, right)
        return None
    for group, other in ((left, right), (right, left)):
        if group.extents is not None:
            union = _taken(group, other)
            if union is not None:
                return _ordered(union, left, right)
    return None


def _taken(group: _Group, other: _Group) -> list[RowKernel] | None:
    """The members of `group`, and the kernels of `other` as members of its rows."""
    assert group.extents is not None
    members = list(group.members)
    pending = list(other.kernels)
    while pending:
        for kernel in pending:
            member = placed_rows(kernel, members)
            if member is not None and _same_extents(_extents(member), group.extents):
                members.append(member)
                pending.remove(kernel)
                break
        else:
            return None
    return members


def _same_extents(left: Sequence[Extent], right: Sequence[Extent]) -> bool:
    return len(left) == len(right) and all(map(is_same, left, right))


def _ordered(members: list[RowKernel], left: _Group, right: _Group) -> _Group | None:
    kernels = [*left.kernels, *right.kernels]
    found = {hash(member.kernel.root): member for member in members}
    in_order = [found[hash(kernel.root)] for kernel in kernels]
    home = {id(member): n for n, group in enumerate((left, right)) for member in group.members}
    written: dict[Key, RowKernel] = {}
    for member in in_order:
        for key in member.kernel.read_keys & written.keys():
            source = written[key]
            apart = id(member) not in home or home[id(member)] != home.get(id(source))
            if apart and not _rows_are_read(member, key, source):
                return None
        written |= dict.fromkeys(member.kernel.write_keys, member)
    return _Group(kernels, in_order, _extents(in_order[0]))


def _rows_are_read(member: RowKernel, key: Key, source: RowKernel) -> bool:
    """Whether all stages of a member read a tensor of the group only in their own row."""
    return all(
        _row_local(op, member, tensor, source)
        for op in member.kernel.ops
        for tensor in {tensor_key(t): t for t, _ in member.kernel.reads[hash(op)]}.values()
        if tensor_key(tensor) == key
    )


def _row_local(op: Operation, member: RowKernel, tensor: Tensor, source: RowKernel) -> bool:
    """Whether a stage reads a tensor of the group only in its own row."""
    if hash(tensor.op) == hash(member.kernel.root) and hash(op) != hash(tensor.op):
        return True  # an epilogue, at its root's own place
    if source.across:
        return False
    here = [node_id(var) for var in member.row_vars(op)]
    key = tensor_key(tensor)
    return all(
        [node_id(indices[dim]) for dim in source.rows] == here
        for read, indices in member.kernel.reads[hash(op)]
        if tensor_key(read) == key
    )


def _finished(
    group: _Group, wanted: Container[Key], readers: dict[Key, set[int]]
) -> Kernel | FusionGroup:
    if len(group.kernels) == 1:
        return group.kernels[0]
    outputs = [
        tensor
        for kernel in group.kernels
        for tensor in kernel.outputs
        if tensor_key(tensor) in wanted or tensor_key(tensor) in readers
    ]
    return FusionGroup(tuple(group.kernels), tuple(group.members), group.extents or (), outputs)
