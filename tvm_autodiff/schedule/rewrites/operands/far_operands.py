"""Copies what a reduction reads across lines of memory, in the order in which it reads it: large
tensors, and small ones that it reads many times.

``y[b, a] = Σ_c x[b, a, c]*h[a, c, b]  →  p[b, a, c] = h[a, c, b], y[b, a] = Σ_c x[b, a, c]*p[b, a,
c]``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....expr.nodes import Axis, Expr, load_tensor, node_id
from ....expr.rewrite import expand_lets, rewrite
from ....graph.stage import Reduction, axis_range, reduction_of, reduction_stage, shape_of
from ...cost import LAUNCH_CYCLES, MIN_LANES, STORE
from ...kernel import Kernel, iterations, size_of, with_root
from ...machine import Machine
from ...nest.reductions.commuting import commutes
from .reads import Read, reads_of


def over_ordered_copies(kernel: Kernel, machine: Machine) -> tuple[list[Kernel], Kernel] | None:
    """Copies, and the kernel that reads them: of what returns to each line of memory after more
    lines than the first cache holds, and of what else is then not read in order along what is
    reduced last. None where nothing is read so, or a copy would have more elements than its tensor.
    """
    found = _reads_of_sums(kernel)
    if found is None:
        return None
    reduction, reads = found
    if not any(_is_far(read, machine) for read in reads):
        return None
    order, apart = _order_of(reduction, reads)
    if not any(_is_far(read, machine) for read in apart) or not all(map(_is_copied_once, apart)):
        return None
    return _over_copies(kernel, reduction, order, apart)


def over_copies_along(kernel: Kernel) -> tuple[list[Kernel], Kernel] | None:
    """Copies of what is not in order in memory along what is reduced last, and the kernel that
    reads them, which reads each element of them many times. None where all is in order, or what is
    not is read too seldom.
    """
    found = _reads_of_sums(kernel)
    if found is None:
        return None
    reduction, reads = found
    order, apart = _order_of(reduction, reads)
    most = iterations(kernel.root) // (STORE * MIN_LANES)
    if not apart or any(read.elements > most for read in apart):
        return None
    return _over_copies(kernel, reduction, order, apart)


def _reads_of_sums(kernel: Kernel) -> tuple[Reduction, list[Read]] | None:
    """A reduction in any order, without lets, and what it reads."""
    op = kernel.root
    reduction = reduction_of(op)
    if reduction is None or reduction.init or op.num_outputs != 1:
        return None
    if iterations(op) < LAUNCH_CYCLES or not commutes(reduction.combiner):
        return None
    sources = tuple(map(expand_lets, reduction.sources))
    return replace(reduction, sources=sources), reads_of(op, sources)


def _over_copies(
    kernel: Kernel, reduction: Reduction, order: tuple[Axis, ...], apart: Sequence[Read]
) -> tuple[list[Kernel], Kernel]:
    op = kernel.root
    copies: list[Kernel] = []
    table: dict[int, Expr] = {}
    for number, read in enumerate(apart):
        copy, new_read = read.copied([*op.axis, *order], f"{op.name}_in_order{number}")
        copies.append(copy)
        table[node_id(read.expr)] = new_read
    new = tuple(rewrite(one, lambda node: table.get(node_id(node))) for one in reduction.sources)
    changed = replace(reduction, sources=new, axes=order)
    return copies, with_root(kernel, reduction_stage(op.name, list(op.axis), changed))


def _order_of(reduction: Reduction, reads: Sequence[Read]) -> tuple[tuple[Axis, ...], list[Read]]:
    """The reduced axes in an order, and the reads that are then not in order in memory along the
    last one: as few elements as possible. The others go through the memory of the first read that
    is.
    """
    long = [axis for axis in reduction.axes if size_of([axis_range(axis)[1]]) >= MIN_LANES]
    orders = [(last, [one for one in reads if one.stride(last) not in (0, 1)]) for last in long]
    if not orders:
        return reduction.axes, []
    last, apart = min(orders, key=lambda order: sum(read.elements for read in order[1]))
    rest = [axis for axis in reduction.axes if axis is not last]
    for read in [one for one in reads if one.stride(last) == 1][:1]:
        rest.sort(key=read.stride, reverse=True)
    return (*rest, last), apart


def _is_far(read: Read, machine: Machine) -> bool:
    """Whether lines leave the first cache before they are read again."""
    return read.lines_between() * machine.line_bytes > machine.first_cache_bytes


def _is_copied_once(read: Read) -> bool:
    """Whether a copy has at most the elements of the tensor."""
    extents = shape_of(load_tensor(read.expr))
    return all(isinstance(n, int) for n in extents) and read.elements <= size_of(extents)
