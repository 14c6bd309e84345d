"""Schedules kernels without reductions: maps, copies, transposes, stencils.

Loops over contiguous memory become one parallel, vectorised loop. If a read runs along another axis
than the write, both are tiled, so that cache lines are used completely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...codegen.passes.ended_loops import with_ended_loops
from ...codegen.passes.short_circuit import holds_mark
from ...codegen.stages.primfunc import StageFunction, stage_function
from ...expr.costly import is_expensive
from ...expr.dtypes import itemsize
from ...expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import contains, contains_load, depends_on, expand_lets, postorder
from ...expr.sharing.lets import merge_equal
from ...graph.sizes.equal_sizes import is_same
from ...graph.stage import (
    Operation,
    axis_range,
    axis_vars,
    bodies,
    shape_of,
)
from ..cost import MIN_LANES, SHORT_LOOP
from ..declined import Declined
from ..elementary.functions import BRANCHING
from ..fusion.groups import FusionGroup
from ..fusion.joined_maps import values_over
from ..kernel import Kernel, size_of
from ..machine import Machine
from ..nest.access import stride_of, strides_along
from ..nest.in_range import loops_of
from ..nest.nest import Nest, nest_of, vectorised
from ..primitives import extent_of, schedule_of, scheduled
from ..rewrites.conditions.guards import selected_within
from ..rule import Made, over_merged_axes
from .loops.elements import without_branches
from .loops.nest_function import nest_function
from .loops.parallel import share_out, threads_of, threads_over
from .loops.vector_body import VECTOR_OPS


def elementwise(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a kernel that is one elementwise stage."""
    op = kernel.root
    if _chooses_by_data(op) or _is_short_and_expensive(op, machine) or _calls_branches(op):
        made = over_merged_axes(_in_vectors, kernel, machine)
        if not isinstance(made, Declined):
            return made
    unscheduled = stage_function([op], kernel.outputs)
    schedule, blocks = schedule_of(unscheduled)
    threads = threads_of(kernel, machine) > 1
    # without elements there is nothing to schedule, and TVM divides by extents that are fused
    if len(op.axis) and len(blocks) == 1 and 0 not in shape_of(op.output(0)):
        _schedule(schedule, blocks[0], op, machine, threads)
    launch = scheduled(schedule, unscheduled)
    return [replace(launch, func=with_ended_loops(launch.func))]


def _chooses_by_data(op: Operation) -> bool:
    """Whether data choose between what reads an element that the last loop does not change, or
    calls an expensive function.

    LLVM has no vectors of ``if x[i, j] > 0 then x[i, j] else s[i]*x[i, j]``: it would read ``s[i]``
    for single lanes only. Of ``if m[j] > 0 then exp(x[j]) else 0`` it has none where it does not
    know that ``x[j]`` may be read for all lanes.
    """
    if not len(op.axis):
        return False
    last = [op.axis[-1].var]
    for node in postorder([expand_lets(body) for body in bodies(op)]):
        if op_name(node) not in ("if_then_else", "select"):
            continue
        condition, *sides = operands(node)
        parts = postorder(sides)
        fixed = any(is_load(part) and not depends_on(part, last) for part in parts)
        chosen = fixed or any(map(is_expensive, parts))
        if chosen and contains_load(condition) and depends_on(condition, last):
            return True
    return False


def _is_short_and_expensive(op: Operation, machine: Machine) -> bool:
    """Whether LLVM would unroll the last loop, and call expensive functions for single elements:
    ``w[p, l] = exp(n[p, 0]*a[l, 0] + n[p, 1]*a[l, 1])`` for 12 values of l. Loops of whole vectors
    it writes in vectors, and those of less than half of one along the loop around, if that is long.
    """
    if not len(op.axis) or _flat(op) or _short_rows(op, machine) or _contiguous_run(op) > 1:
        return False
    extent, values = axis_range(op.axis[-1])[1], bodies(op)
    lanes = min(machine.lanes(dtype_of(value)) for value in values)
    if not isinstance(extent, int) or not contains(values, is_expensive):
        return False
    around = axis_range(op.axis[-2])[1] if len(op.axis) > 1 else 1
    least = MIN_LANES if isinstance(around, int) and around < SHORT_LOOP else lanes // 2 + 1
    return least <= extent < SHORT_LOOP and extent % lanes > 0


def _calls_branches(op: Operation) -> bool:
    """Whether a function is called of which LLVM makes no vectors itself."""
    return bool(len(op.axis)) and contains(bodies(op), lambda node: op_name(node) in BRANCHING)


def _in_vectors(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Loops that read all operands of choices first, in vectors along the last axis."""
    axes = kernel.root.axis
    written, loops = [expand_lets(body) for body in bodies(kernel.root)], loops_of(axes)
    # a function takes longer than to gather its operands for all lanes
    costly = contains(written, is_expensive)
    values = selected_within(written, loops) if costly else without_branches(written, loops)
    if holds_mark(values) or contains(values, lambda node: op_name(node) == "if_then_else"):
        return Declined("its branches protect what they read")
    last = len(axes) - 1
    nest, threads = _nest_over(axes, values, kernel.outputs, kernel, machine)
    wide = vectorised(nest, last, min(map(machine.lanes, map(dtype_of, kernel.outputs))))
    literal = isinstance(axis_range(axes[last])[1], int)
    nests = [wide] if literal else [nest, wide]  # a call may have fewer elements than a vector
    launch = nest_function(nests, kernel.outputs, threads, strict=literal, costly=costly)
    return launch if isinstance(launch, Declined) else [launch]


def _nest_over(
    axes: Sequence[Axis],
    values: Sequence[Expr],
    results: Sequence[Tensor],
    kernel: Kernel,
    machine: Machine,
) -> tuple[Nest, int]:
    """The nest that computes values, and the threads that share it."""
    extents = [axis_range(axis)[1] for axis in axes]
    merged = merge_equal(values)
    nest = nest_of(axes, merged, results)
    work = size_of(extents, machine.symbolic_size) * len(postorder(merged))
    return nest, threads_over(extents, work, kernel.repetition, machine)


def joined_maps(group: FusionGroup, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule elementwise kernels over the same axes as one nest of several stores."""
    first = group.parts[0]
    axes = first.root.axis
    values = [one for part in group.parts for one in values_over(first, part)]
    results = [tensor for part in group.parts for tensor in part.outputs]
    nest, threads = _nest_over(axes, values, results, first, machine)
    if isinstance(axis_range(axes[-1])[1], int):
        nest = vectorised(nest, len(axes) - 1, min(map(machine.lanes, map(dtype_of, results))))
    launch = nest_function([nest], results, threads)
    return launch if isinstance(launch, Declined) else [launch]


def _schedule(schedule: Any, block: Any, op: Operation, machine: Machine, threads: bool) -> None:
    loops = schedule.get_loops(block)
    if _flat(op):
        # one loop over what is one run of memory: a quotient by a symbolic size would stay in it
        first = _rows_apart(op) if threads else _last_symbolic_axis(op)
        rows, run = loops[:first], loops[first:]
        loop = schedule.fuse(*run) if len(run) > 1 else run[0]
        if threads and rows:
            share_out(schedule, rows, machine)
        elif threads:
            _in_pieces(schedule, loop, op, machine)
        return
    strided = _strided_axis(op)
    if strided is not None:
        side = machine.line_bytes // itemsize(dtype_of(op.output(0)))
        run = max(side, _run_in_cache(op, machine) // side * side)
        outer, tile = [], []
        for number, loop in enumerate(loops):
            extent = extent_of(schedule, loop)
            if number not in (strided, len(loops) - 1):
                outer.append(loop)
            elif extent is not None and extent <= (run if number == len(loops) - 1 else side):
                tile.append(loop)  # a part of it would need a condition
            else:
                start, inner = schedule.split(loop, [None, side if number == strided else run])
                outer.append(start)
                tile.append(inner)
        schedule.reorder(*outer, *tile)
        if threads and outer:
            share_out(schedule, outer, machine)
        return
    run = _contiguous_run(op)
    if run > 1:
        loops = [*loops[: len(loops) - run], schedule.fuse(*loops[len(loops) - run :])]
    if _short_rows(op, machine) and len(loops) == len(op.axis):
        schedule.vectorize(loops[-1])
    if threads and len(loops) > 1:
        share_out(schedule, loops[:-1], machine)
    elif threads:
        _in_pieces(schedule, loops[0], op, machine)


def _in_pieces(schedule: Any, loop: Any, op: Operation, machine: Machine) -> None:
    """Parallelise a loop in pieces, each in one run of memory: one for each thread.

    Of a symbolic extent they are whole rows of literal extent, and about a page: LLVM takes reads
    for gathers where the length of a piece is computed at the call, or ends inside of a row.
    """
    page = machine.page_bytes // itemsize(dtype_of(op.output(0)))
    row = size_of([n for _, n in map(axis_range, op.axis) if isinstance(n, int)])
    piece = max(1, page // row) * row
    symbolic = extent_of(schedule, loop) is None
    outer, _ = schedule.split(loop, [None, piece] if symbolic else [machine.threads, None])
    schedule.parallel(outer)


def _short_rows(op: Operation, machine: Machine) -> bool:
    """Whether rows are read and written in whole vectors, and are too short for LLVM to do so.

    A row has at least half the length of a register; reads that do not depend on its axis may be
    anything.
    """
    if len(op.axis) < 2:
        return False
    last, extent = op.axis[-1].var, axis_range(op.axis[-1])[1]
    values = bodies(op)
    lanes = min(machine.lanes(dtype_of(value)) for value in values)
    if not isinstance(extent, int) or not lanes <= 2 * extent or extent >= SHORT_LOOP:
        return False
    for node in postorder(values):
        if not depends_on(node, [last]):
            continue
        if op_name(node) not in VECTOR_OPS and op_name(node) != "if_then_else":
            return False
        if op_name(node) == "if_then_else" and depends_on(operands(node)[0], [last]):
            return False
        if is_load(node) and stride_of(node, node_id(last), axis_vars(op)) not in (0, 1):
            return False
    return True


def _flat(op: Operation) -> bool:
    """Whether every read is at the axes themselves, of a tensor of that shape, or constant."""
    here = [node_id(var) for var in axis_vars(op)]
    shape = shape_of(op.output(0))
    for node in postorder(bodies(op)):
        if is_load(node):
            indices = [node_id(index) for index in operands(node)]
            if not indices or all(op_name(index) == "const" for index in operands(node)):
                continue
            dims = shape_of(load_tensor(node))
            same = len(dims) == len(shape) and all(map(is_same, dims, shape))
            if indices != here or not same:
                return False
    return not _uses_as_values(op, axis_vars(op))


def _last_symbolic_axis(op: Operation) -> int:
    """The number of the last axis of symbolic extent; 0 if all extents are literal."""
    extents = [axis_range(axis)[1] for axis in op.axis]
    return max((n for n, extent in enumerate(extents) if not isinstance(extent, int)), default=0)


def _rows_apart(op: Operation) -> int:
    """How many leading axes threads share one by one: those before the last axis of symbolic
    extent, and this one, too, if the literal ones behind it are a loop of vectors.
    """
    extents = [axis_range(axis)[1] for axis in op.axis]
    last = _last_symbolic_axis(op)
    literal = size_of(extents[last + 1 :])
    return last + 1 if not isinstance(extents[last], int) and literal >= SHORT_LOOP else last


def _contiguous_run(op: Operation) -> int:
    """The number of trailing axes that are contiguous in every read as in the output."""
    variables = axis_vars(op)
    loads = [node for node in postorder(bodies(op)) if is_load(node)]
    extents = [axis_range(axis)[1] for axis in op.axis]
    count = 1
    while count < len(variables):
        outer, inner = variables[-count - 1], variables[-count]
        extent = extents[-count]
        if _uses_as_values(op, [outer, inner]):
            return count
        for node in loads:
            near = strides_along([node], inner, variables)
            far = strides_along([node], outer, variables)
            if near is None or far is None or not isinstance(extent, int):
                return count
            if far[0] != near[0] * extent:
                return count
        count += 1
    return count


def _uses_as_values(op: Operation, variables: Sequence[Var]) -> bool:
    """Whether variables are used otherwise than as indices."""
    axes = set(map(node_id, variables))
    return any(
        node_id(part) in axes
        for node in postorder(bodies(op))
        if not is_load(node)
        for part in operands(node)
    )


def _run_in_cache(op: Operation, machine: Machine) -> int:
    """The elements along the last axis whose reads half of the first cache holds, where one line
    holds several of them: the pixels of an image whose channels are next to each other. 0 where
    each is in a line of its own.
    """
    variables = axis_vars(op)
    moved = 0
    for node in postorder(bodies(op)):
        if is_load(node) and depends_on(node, variables[-1:]):
            stride = stride_of(node, node_id(variables[-1]), variables)
            if not isinstance(stride, int) or abs(stride) * itemsize(dtype_of(node)) > (
                machine.line_bytes
            ):
                return 0
            moved += abs(stride) * itemsize(dtype_of(node))
    return machine.first_cache_bytes // 2 // moved if moved else 0


def _strided_axis(op: Operation) -> int | None:
    """The axis along which a read is contiguous, when none is along the last one. What the last one
    does not change is no matter of a tile.
    """
    variables = axis_vars(op)
    if len(variables) < 2:
        return None
    found: int | None = None
    for node in postorder(bodies(op)):
        if not is_load(node) or not depends_on(node, variables[-1:]):
            continue
        strides = [stride_of(node, node_id(var), variables) for var in variables]
        if strides[-1] in (1, -1):
            return None
        found = next((axis for axis, stride in enumerate(strides) if stride == 1), found)
    return found
