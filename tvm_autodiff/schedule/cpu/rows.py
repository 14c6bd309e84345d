"""Schedules fusion groups row by row, and single reductions as groups of one: sums of rows,
channels or columns, arg-reductions.

Along rows in memory it uses whole vectors of partial results and one remainder. Across rows, each
thread adds whole rows to its own sums, so that memory is read in order. Rows shorter than a few
vectors are processed several at a time. The rule declines if the rows are not plain or too few.
"""

from __future__ import annotations

from dataclasses import replace

from ...expr.costly import is_expensive
from ...expr.dtypes import itemsize
from ...expr.nodes import Tensor, Var, dtype_of, node_id, same_node, tensor_key
from ...expr.rewrite import depends_on, expand_lets, postorder
from ...expr.structural import StructuralKeys
from ...graph.stage import (
    Operation,
    axis_range,
    axis_vars,
    bodies,
    loop_axes,
    reduction_of,
    shape_of,
    sources_of,
)
from ..cost import (
    CALL,
    KERNEL_CALL,
    LATENCY,
    LAUNCH_CYCLES,
    MAX_COPIES,
    NEAR_BYTE,
    SHARED_BYTE,
)
from ..declined import Declined, no_gain
from ..fusion.groups import FusionGroup
from ..fusion.row_kernels import (
    RowKernel,
    contiguous_run,
    gathered_rows,
    inner_axes,
    lone_rows,
    natural_rows,
)
from ..kernel import Kernel, iterations, size_of
from ..machine import Machine
from ..nest.reductions.commuting import commutes
from ..nest.reductions.point_cost import cycles_of_point
from ..rewrites.merged_axes import merged_axes
from ..rewrites.sums.split_reduction import split_reduction
from ..rule import Made, Rest, in_parts, with_each, writes_to
from .loops.components import with_components
from .loops.interleaved import interleaved
from .loops.parallel import parts_for_threads
from .loops.result_blocks import blocks_of
from .loops.row_function import blocks_function, row_function, too_few_rows
from .tiles.block_choice import best_block


def fused_rows(group: FusionGroup, machine: Machine) -> Made | Declined:
    """Schedule a fusion group as one function."""
    if too_few_rows(group, machine):
        return Declined("it has too few rows for the threads")
    apart = _moved_apart(group, machine) + _repeated(group, machine)
    if _waits_alone(group, machine) > apart:
        return no_gain("functions of one number for each row take longer than kernels apart")
    if _summed_far(group, machine) > apart:
        return no_gain("each row would add to more sums than the first cache holds")
    if _interleaved_apart(group, machine) > apart:
        return no_gain("vectors along its short axes take longer than those interleaved apart")
    return row_function(group, machine)


def _summed_far(group: FusionGroup, machine: Machine) -> float:
    """The cycles to read and write sums over the rows in each row, which leave the first cache."""
    sums = sum(
        size_of([axis_range(axis)[1] for axis in member.kernel.root.axis], machine.symbolic_size)
        * _bytes_of(member.kernel)
        for member in group.members
        if member.across
    )
    if sums <= machine.first_cache_bytes // 2:
        return 0.0
    rows = size_of(group.extents, machine.symbolic_size)
    return 2 * sums * rows * NEAR_BYTE / machine.threads


def _interleaved_apart(group: FusionGroup, machine: Machine) -> float:
    """The cycles of elements in vectors along a short axis, less those in whole vectors, of kernels
    whose short axes are interleaved apart.
    """
    cycles = 0.0
    for member in with_components(group, machine).members:
        op = member.kernel.root
        if member.across or reduction_of(op) is not None or not inner_axes(member):
            continue
        last, lanes = op.axis[-1], machine.lanes(dtype_of(op.output(0)))
        short = axis_range(last)[1]
        if not isinstance(short, int) or not 1 < short < lanes:
            continue
        if isinstance(interleaved(member.kernel, machine), Declined):
            continue
        variables, values = axis_vars(op), [expand_lets(body) for body in bodies(op)]
        narrow, wide = (
            cycles_of_point(values, last.var, count, last.var, variables, machine)
            for count in (short, lanes)
        )
        cycles += iterations(op, machine.symbolic_size) * (narrow - wide)
    return cycles / machine.threads


def _waits_alone(group: FusionGroup, machine: Machine) -> float:
    """The cycles of expensive functions of one number for each row, each of whose operations waits
    for the one before, less those that they take in vectors over the rows.
    """
    alone = [
        source
        for member in group.members
        for op in member.kernel.ops
        if not _axes_in_rows(member, op)
        for source in sources_of(op)
    ]
    count = sum(map(is_expensive, postorder(alone)))
    rows = size_of(group.extents, machine.symbolic_size)
    lanes = machine.lanes(*(dtype_of(body) for body in alone)) if alone else 1
    return rows * count * CALL * (1 - 1 / lanes) / machine.threads


def _axes_in_rows(member: RowKernel, op: Operation) -> list[Var]:
    """The variables of a stage that are not the rows."""
    of_row = member.row_vars(op)
    return [a.var for a in loop_axes(op) if not any(same_node(a.var, var) for var in of_row)]


def _moved_apart(group: FusionGroup, machine: Machine) -> float:
    """The cycles for what kernels apart would write and read again, and to start them."""
    reads: dict[tuple[int, int], int] = {}
    tensors: dict[tuple[int, int], Tensor] = {}
    for part in group.parts:
        found = {tensor_key(t): t for op in part.ops for t, _ in part.reads[hash(op)]}
        tensors |= found
        for key in found:
            reads[key] = reads.get(key, 0) + 1
    made = {tensor_key(t) for part in group.parts for t in part.outputs}
    kept = {tensor_key(t) for t in group.outputs}
    moved = 0
    for key, tensor in tensors.items():
        size = size_of(shape_of(tensor), machine.symbolic_size) * itemsize(dtype_of(tensor))
        again = reads[key] if key in made else reads[key] - 1
        moved += size * (again + (key in made and key not in kept))
    work = sum(iterations(part.root, machine.symbolic_size) for part in group.parts)
    start = LAUNCH_CYCLES if machine.worth_threads(work) else KERNEL_CALL
    return moved * SHARED_BYTE / machine.threads + (len(group.parts) - 1) * start


def _repeated(group: FusionGroup, machine: Machine) -> float:
    """The cycles of expensive functions of single elements that kernels apart compute again."""
    keys = StructuralKeys()
    known: set[int] = set()
    again = 0.0
    for member in group.members:
        for op in member.kernel.ops:
            inner, of_row = _axes_in_rows(member, op), enumerate(member.row_vars(op))
            places: dict[Var, object] = {var: ("row", n) for n, var in of_row}
            places |= {var: ("inner", n) for n, var in enumerate(inner)}
            found: set[int] = set()
            for source in map(expand_lets, sources_of(op)):
                numbers = keys.parts(source, places)
                slow = filter(is_expensive, postorder(source))
                found |= {numbers[node_id(node)] for node in slow if depends_on(node, inner)}
            lanes = machine.lanes(dtype_of(op.output(0)))
            again += len(found & known) * iterations(op, machine.symbolic_size) * CALL / lanes
            known |= found
    return again / machine.threads


def rows(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a reduction row by row, over one axis in place of those that are one in memory."""
    merged = merged_axes(kernel, mixed=True) if _has_short_rows(kernel) else None
    if merged is not None:
        made = rows(merged.kernel, machine)
        return made if isinstance(made, Declined) else with_each(made, merged.whole)
    split = _several_at_a_time(kernel, machine)
    if split is not None:
        partial, combined = split
        first = rows(partial, machine)
        if not isinstance(first, Declined):
            return [*writes_to(first, partial), *writes_to([Rest(combined)], kernel)]
    member = (
        natural_rows(kernel, certain=False)
        or lone_rows(kernel)
        or gathered_rows(kernel, machine.lanes(*kernel.dtypes))
    )
    if member is None:
        return Declined("its reads do not run along rows of memory")
    if member.across and _in_registers(kernel, machine):
        return no_gain("its few sums stay in registers, several of each at a time")
    if member.across and not _few_sums(member, machine):
        return Declined("its sums over rows are too many for the first cache, or of too few rows")
    extents = tuple(axis_range(axis)[1] for axis in member.row_axes)
    group = FusionGroup((kernel,), (member,), extents, kernel.outputs)
    if kernel.epilogue is not None:
        reduced = replace(kernel, epilogue=None)
        finished = replace(kernel, root=kernel.epilogue, epilogue=None)
        apart = replace(group, parts=(reduced, finished))
        if _waits_alone(apart, machine) > _moved_apart(apart, machine):
            return [Rest(reduced), Rest(finished)]
    # with a single result for each thread, too
    even = size_of(extents, machine.symbolic_size) % machine.threads == 0
    if even or not too_few_rows(group, machine):
        found = best_block(member, machine)
        if found is not None and not found.are_single:
            return blocks_function(group, blocks_of(found.kernel, found.steps), machine)
        return row_function(group, machine)
    parts = parts_for_threads(kernel, machine)
    if parts is None:
        return row_function(group, replace(machine, threads=1))
    partial, combined = parts
    return in_parts(rows(partial, machine), partial, combined, kernel)


def _has_short_rows(kernel: Kernel) -> bool:
    """Whether a sum over a symbolic number of rows ends with each, though they are one in memory.
    """
    reduction = reduction_of(kernel.root)
    extents = [axis_range(axis)[1] for axis in reduction.axes] if reduction else []
    return bool(extents) and isinstance(extents[-1], int) and not all(
        isinstance(extent, int) for extent in extents
    )


def _in_registers(kernel: Kernel, machine: Machine) -> bool:
    """Whether the vectors of all results are fewer than additions that are under way at a time."""
    reduction = reduction_of(kernel.root)
    assert reduction is not None
    results = size_of([axis_range(axis)[1] for axis in kernel.root.axis], machine.symbolic_size)
    few = results < LATENCY * machine.lanes(*kernel.dtypes)
    return few and commutes(reduction.combiner)


def _few_sums(member: RowKernel, machine: Machine) -> bool:
    """Whether sums over rows stay in cache between rows, get enough additions, and rows are
    contiguous.
    """
    root = member.kernel.root
    outputs = size_of([axis_range(axis)[1] for axis in root.axis], machine.symbolic_size)
    added = iterations(root, machine.symbolic_size) // max(1, outputs)
    if contiguous_run(root, root.axis) != outputs:
        return False
    near = machine.first_cache_bytes // 2
    return outputs * _bytes_of(member.kernel) <= near and added >= MAX_COPIES


def _bytes_of(kernel: Kernel) -> int:
    """The size of a result, with all of its components."""
    return sum(map(itemsize, kernel.dtypes))


def _several_at_a_time(kernel: Kernel, machine: Machine) -> tuple[Kernel, Kernel] | None:
    """``out[c] = ⊕_k x[k, c]  →  part[p, c] = ⊕_o x[o*P + p, c], out[c] = ⊕_p part[p, c]``, where
    few c leave most of a vector empty, and each element would wait for the one before.
    """
    root = kernel.root
    found = reduction_of(root)
    assert found is not None
    if not len(root.axis) or not commutes(found.combiner):
        return None
    width = size_of([axis_range(axis)[1] for axis in root.axis], machine.symbolic_size)
    lanes = machine.lanes(*kernel.dtypes)
    extent = axis_range(found.axes[-1])[1]
    if not isinstance(extent, int) or width >= 2 * lanes:
        return None
    if contiguous_run(root, [found.axes[-1], *root.axis]) != extent * width:
        return None
    most = machine.first_cache_bytes // 2 // _bytes_of(kernel)
    parts = [
        count
        for count in range(2, most // width + 1)
        if extent % count == 0 and count * width >= LATENCY * lanes
    ]
    if not parts:
        return None
    best = min(parts, key=lambda count: (count * width % lanes != 0, count))
    points = iterations(root, machine.symbolic_size)
    if LATENCY * points / width < points / lanes + LATENCY * best + KERNEL_CALL:
        return None
    return split_reduction(kernel, len(found.axes) - 1, best, interleaved=True)
