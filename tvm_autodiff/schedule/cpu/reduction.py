"""Schedules reductions along columns: sums, maxima, pairs of value and place, and any other
reducer, that no other rule takes.

There are two functions if the output is small and the reduction long: split-K parts in parallel,
then their combination. Along a contiguous output axis, whole vectors of outputs are reduced; where
elements lie apart, the vectors are those with the fewest reads of that kind.
"""

from __future__ import annotations

from dataclasses import replace

from ...expr.costly import is_expensive
from ...expr.integers.exact_quotient import exact_quotient
from ...expr.nodes import Expr, Var, is_load, operands
from ...expr.rewrite import contains, contains_load, postorder
from ...graph.stage import Reduction, axis_range, bodies, reduction_of
from ..cost import CALL, LATENCY, LAUNCH_CYCLES, MARGIN, MAX_STRIDE, MIN_LANES, STORE
from ..declined import Declined
from ..kernel import Kernel, iterations, size_of
from ..machine import Machine
from ..nest.access import has_branches, strides_along
from ..nest.reductions.commuting import commutes
from ..nest.reductions.point_cost import cycles_of_point
from ..rewrites.conditions.guards import selected
from ..rewrites.operands.far_operands import over_ordered_copies
from ..rewrites.results.turned_results import turned_columns
from ..rewrites.sums.axis_order import in_order_of_memory
from ..rewrites.sums.split_reduction import even_part, split_reduction
from ..rewrites.windows.unrolled_circles import over_unrolled_circles
from ..rule import Made, Rest, in_parts, writes_to
from .loops.column_axis import Columns, Reduced, vector_columns
from .loops.columns import columns, single_results, vectors_of_parts
from .loops.parallel import parts_for_threads


def reduction(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a kernel that reduces."""
    unrolled = over_unrolled_circles(kernel)
    if unrolled is not None:
        copies, whole = unrolled
        return [*map(Rest, copies), *writes_to([Rest(whole)], kernel)]
    ordered = None if machine.exact_math else in_order_of_memory(kernel)
    if ordered is not None:
        return writes_to([Rest(ordered)], kernel)
    copied = None if machine.exact_math else _over_copies(kernel, machine)
    if copied is not None:
        copies, whole = copied
        return [*map(Rest, copies), *writes_to([Rest(whole)], kernel)]
    split = parts_for_threads(kernel, machine)
    if split is not None:
        partial, combined = split
        return in_parts(_reduced(partial, machine), partial, combined, kernel)
    return _reduced(kernel, machine)


def _over_copies(kernel: Kernel, machine: Machine) -> tuple[list[Kernel], Kernel] | None:
    """Copies of what is read across lines of memory, where no vectors lie along an output axis."""
    columns_of = vector_columns(kernel, machine.lanes(*kernel.dtypes))
    if not isinstance(columns_of, Declined) or turned_columns(kernel) is not None:
        return None
    return over_ordered_copies(kernel, machine)


def _reduced(kernel: Kernel, machine: Machine) -> Made | Declined:
    """The function of a kernel, and what combines the lanes of its vectors if they are parts."""
    lanes, parts = _lanes(kernel, machine), None
    if lanes is None:
        found = vector_columns(kernel, machine.lanes(*kernel.dtypes))
        if not isinstance(found, Declined):
            return [columns(found, machine)]
    turned = turned_columns(kernel)
    if turned is not None:
        whole, reader = turned
        return in_parts([Rest(whole)], whole, reader, kernel)
    if lanes is None:
        parts = _even(kernel, machine)
    gathered = gathered_columns(kernel, machine, lanes is not None or parts is not None)
    if gathered is not None:
        return [columns(gathered, machine)]
    if lanes is not None:
        partial, combined = lanes
        return in_parts([vectors_of_parts(partial, machine)], partial, combined, kernel)
    if parts is not None:
        most, rest, whole = parts
        return [Rest(most), Rest(rest), *writes_to([Rest(whole)], kernel)]
    return [single_results(kernel, machine)]


def gathered_columns(kernel: Kernel, machine: Machine, in_parts: bool) -> Columns | None:
    """Vectors along the last output axis whose elements lie apart, if they take much fewer cycles
    than results one by one, and than vectors along what is reduced, if some are there `in_parts`.
    """
    width = machine.lanes(*kernel.dtypes)
    found = vector_columns(kernel, width, gathered=True)
    if isinstance(found, Declined):
        return None
    reduction, last = found.reduction, found.reduction.axes[-1]
    turns = size_of([axis_range(axis)[1] for axis in reduction.axes])
    values = list(reduction.sources)
    branches = found.body.guards or has_branches(found.body.values)
    if turns <= MAX_STRIDE and len(values) == 1 and not branches and not contains(values, _is_slow):
        return None  # LLVM writes them out, and makes vectors of neighbouring results itself
    variables = [axis.var for axis in (*kernel.root.axis, *reduction.axes)]

    def cycles(body: Reduced, along: Var, lanes: float) -> float:
        return cycles_of_point(body.values, along, lanes, last.var, variables, machine)

    alone = max(cycles(found.body, last.var, 1), LATENCY if found.body.guards else 1)
    extent = axis_range(kernel.root.axis[-1])[1]
    here, lanes = 1.0, float(width)
    if found.piece is not None and isinstance(extent, int):
        count = found.piece[1] + 1 - found.piece[0]
        while width > count:
            width //= 2
        here, lanes = count / extent, count / -(-count // width)
    var = kernel.root.axis[-1].var
    apart = here * cycles(found.inside, var, lanes) + (1 - here) * alone
    others = [alone]
    if in_parts:
        others.append(cycles(found.body, last.var, machine.lanes(*kernel.dtypes)))
    return found if MARGIN * apart < min(others) else None


def _is_slow(node: Expr) -> bool:
    """Whether LLVM makes no vectors of a node: of a function, or of a read at data."""
    return is_expensive(node) or (is_load(node) and contains_load(operands(node)))


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
