"""Schedules reductions along columns: sums, maxima, pairs of value and place, and any other
reducer, that no other rule takes.

There are two functions if the output is small and the reduction long: split-K parts in parallel,
then their combination. Along a contiguous output axis, whole vectors of outputs are reduced.
"""

from __future__ import annotations

from dataclasses import replace

from ...expr.costly import is_expensive
from ...expr.integers.exact_quotient import exact_quotient
from ...expr.rewrite import postorder
from ...graph.stage import Reduction, axis_range, bodies, reduction_of
from ..cost import CALL, LAUNCH_CYCLES, MIN_LANES, STORE
from ..declined import Declined
from ..kernel import Kernel, iterations, size_of
from ..machine import Machine
from ..nest.access import has_branches, strides_along
from ..nest.reductions.commuting import commutes
from ..rewrites.conditions.guards import selected
from ..rewrites.results.turned_results import turned_columns
from ..rewrites.sums.split_reduction import even_part, split_reduction
from ..rule import Made, Rest, in_parts, writes_to
from .loops.columns import columns, single_results, vectors_of_parts
from .loops.parallel import parts_for_threads


def reduction(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a kernel that reduces."""
    split = parts_for_threads(kernel, machine)
    if split is not None:
        partial, combined = split
        return in_parts(_reduced(partial, machine), partial, combined, kernel)
    return _reduced(kernel, machine)


def _reduced(kernel: Kernel, machine: Machine) -> Made | Declined:
    """The function of a kernel, and what combines the lanes of its vectors if they are parts."""
    lanes = _lanes(kernel, machine)
    if lanes is not None:
        partial, combined = lanes
        return in_parts([vectors_of_parts(partial, machine)], partial, combined, kernel)
    found = columns(kernel, machine)
    turned = turned_columns(kernel) if isinstance(found, Declined) else None
    if turned is not None:
        whole, reader = turned
        return in_parts([Rest(whole)], whole, reader, kernel)
    parts = _even(kernel, machine) if isinstance(found, Declined) else None
    if parts is not None:
        most, rest, whole = parts
        return [Rest(most), Rest(rest), *writes_to([Rest(whole)], kernel)]
    return [single_results(kernel, machine) if isinstance(found, Declined) else found]


def _lanes(kernel: Kernel, machine: Machine) -> tuple[Kernel, Kernel] | None:
    """``out[i] = ⊕_k x[i, k%n]  →  part[p, i] = ⊕_k x[i, (k*P + p)%n], out[i] = ⊕_p part[p, i]``
    where no axis has vectors of memory: one by one, each element waits for the one before.
    """
    root = kernel.root
    plain, lanes = _selected(kernel), machine.lanes(*kernel.dtypes)
    if not commutes(plain.combiner):
        return None
    axis = plain.axes[-1]
    low, extent = axis_range(axis)
    if low != 0 or exact_quotient(extent, lanes) is None or lanes < MIN_LANES:
        return None
    extents = [axis_range(axis)[1] for axis in root.axis]
    if not all(isinstance(n, int) for n in extents):
        return None
    if STORE * lanes * size_of(extents) > iterations(root, machine.symbolic_size):
        return None
    variables = [one.var for one in (*root.axis, *plain.axes)]
    wide = bool(extents) and size_of(extents[-1:]) >= MIN_LANES
    strides = strides_along(plain.sources, root.axis[-1].var, variables) if wide else None
    if (strides and max(strides) == 1) or has_branches(plain.sources, axis.var):
        return None
    return split_reduction(kernel, len(plain.axes) - 1, lanes, interleaved=True)


def _even(kernel: Kernel, machine: Machine) -> tuple[Kernel, Kernel, Kernel] | None:
    """A long reduction in a part with vectors of parts, and the elements that fill no vector."""
    calls = sum(map(is_expensive, postorder(bodies(kernel.root))))
    if iterations(kernel.root, machine.symbolic_size) * (1 + calls * CALL) < LAUNCH_CYCLES:
        return None  # two more launches would take as long
    parts = even_part(kernel, machine.lanes(*kernel.dtypes))
    return parts if parts is not None and _lanes(parts[0], machine) is not None else None


def _selected(kernel: Kernel) -> Reduction:
    """The reduction of a kernel, without branches where reads are safe."""
    found = reduction_of(kernel.root)
    assert found is not None
    axes = [*kernel.root.axis, *found.axes]
    return replace(found, sources=selected(found.sources, axes))
