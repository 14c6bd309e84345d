"""Reductions by threads of a block that work together, for any reducer, sizes and indices.

Each thread reduces every so many elements, and the threads combine what they have.

    ``out[i] = ⊕_{k < n} f(i, k)  →  part = ⊕_s f(i, s*threads + x), out[i] = ⊕_x part``

Neighbouring threads read neighbouring elements:

- rows, contiguous along a reduced axis: threads along it, one warp or more for each output;
- columns, contiguous along an output axis: threads along that, and rows of them share the sum.

Few elements with long reductions use two functions: parts over the whole device, then their
combination.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....codegen.flat_axes import flat_dtype, flat_extent, indices_at
from ....codegen.loop_nest import (
    Local,
    Places,
    Statement,
    allocated,
    element,
    function,
    local,
    loop,
    sequence,
    store,
    when,
)
from ....codegen.stages.primfunc import StageFunction, external_reads
from ....codegen.thread_loops import REGISTERS, bound
from ....expr.build import add, all_of, cast, compare, const, mul, true, variable
from ....expr.nodes import Expr, Var, always, binary, const_value, dtype_of
from ....expr.rewrite import substituter
from ....graph.stage import Operation, Reduction, axis_range, axis_vars, reduction_of
from ...declined import Declined, no_gain
from ...kernel import Kernel, iterations, size_of
from ...machine import Machine
from ...rule import Made, in_parts
from ...statement_loops import accumulated, element_stored
from .parts import goes_down_columns, parts_for_device
from .thread_tree import combined_by_threads
from .threads import BLOCK, WARP


@dataclass(frozen=True)
class _Shape:
    """Threads of a block: along the outputs, and along the reduction."""

    outputs: int
    together: int
    rows: bool  #: whether neighbouring threads reduce one output


def joint_reduction(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a reduction with more threads than outputs."""
    found = reduction_of(kernel.root)
    assert found is not None
    if not always(found.condition) or found.init:
        return Declined("it has a condition or initial values of its own")
    outputs = size_of([axis_range(axis)[1] for axis in kernel.root.axis])
    length = iterations(kernel.root) // max(1, outputs)
    columns = goes_down_columns(kernel.root, found)
    # a thread reduces so few faster alone than with others
    if length <= (BLOCK // WARP if columns else WARP) or outputs == 0:
        return no_gain("a thread for each output has little to reduce")
    split = parts_for_device(kernel, found, outputs, machine)
    if split is not None:
        partial, combined = split
        return in_parts(joint_reduction(partial, machine), partial, combined, kernel)
    shape = _shape(kernel.root, found, outputs, length, machine)
    if shape is None:
        return no_gain("a thread for each output keeps the device busy")
    return [_launch(kernel, found, shape, machine)]


def _shape(
    op: Operation, found: Reduction, outputs: int, length: int, machine: Machine
) -> _Shape | None:
    enough = machine.multiprocessors * machine.block_threads
    if goes_down_columns(op, found):
        if outputs >= enough:
            return None  # a thread for each output keeps the device busy
        together = _power_of_two(min(length // 4, WARP, -(-enough // outputs)))
        return _Shape(WARP, together, rows=False) if together > 1 else None
    together = WARP
    while together < BLOCK and together * 4 <= length and outputs * together < enough:
        together *= 2
    # one output to a block where it needs more than a warp: all its threads then meet
    return _Shape(BLOCK // WARP if together == WARP else 1, together, rows=True)


def _power_of_two(number: int) -> int:
    return 1 << max(0, number.bit_length() - 1)


def _launch(kernel: Kernel, found: Reduction, shape: _Shape, machine: Machine) -> StageFunction:
    inputs, results = external_reads(kernel.ops), kernel.outputs
    places, buffers = Places.of([*inputs, *results])
    total, dtype = flat_extent(kernel.root.axis), flat_dtype(kernel.root.axis)
    block, output, part = (variable(name) for name in ("block", "output", "part"))
    count = const_value(total)
    grid = 4 * machine.multiprocessors if count is None else -(-int(count) // shape.outputs)
    again, first = variable("again", dtype), cast(dtype, block)
    if count is None:
        first = add(mul(again, const(grid, dtype)), first)
    place = add(mul(first, const(shape.outputs, dtype)), cast(dtype, output))
    mine = [local("part", [], dtype_of(source), REGISTERS) for source in found.sources]
    shared, combined = combined_by_threads(
        found.combiner,
        mine,
        (part, shape.together),
        (output, shape.outputs),
        in_warps=shape.rows,
        again=count is None,
    )
    body = allocated(mine, _output(kernel, found, (place, part), mine, combined, shape, places))
    if count is None:
        body = loop(again, _rounds(total, grid * shape.outputs), body)
    axes = [(part, shape.together), (output, shape.outputs)]
    tags = ("threadIdx.x", "threadIdx.y") if shape.rows else ("threadIdx.y", "threadIdx.x")
    for (var, extent), tag in zip(axes, tags, strict=True):
        body = bound(var, extent, tag, body)
    func = function(buffers, bound(block, grid, "blockIdx.x", allocated(shared, body)))
    return StageFunction(func, tuple(inputs), tuple(results))


def _output(
    kernel: Kernel,
    found: Reduction,
    at: tuple[Expr, Var],
    mine: Sequence[Local],
    combined: Statement,
    shape: _Shape,
    places: Places,
) -> Statement:
    """The output at a place, by one of the threads that share it."""
    place, part = at
    table = indices_at(kernel.root.axis, place)
    count, dtype = flat_extent(found.axes), flat_dtype(found.axes)
    step = variable("step", dtype)
    number = add(mul(step, const(shape.together, dtype)), cast(dtype, part))
    rename = substituter({**table, **indices_at(found.axes, number)})
    sources = [rename(source) for source in found.sources]
    body = accumulated(found.combiner, mine, sources, places, REGISTERS)
    body = when(_below(number, count, shape.together), body)
    inside = _below(place, flat_extent(kernel.root.axis), shape.outputs)
    values = [element(register, []) for register in mine]
    here = [table[var] for var in axis_vars(kernel.root)]
    written = element_stored(kernel, values, here, places, REGISTERS)
    begin = zip(mine, found.combiner.identity, strict=True)
    return sequence(
        [
            *(store(register, value, []) for register, value in begin),
            when(inside, loop(step, _rounds(count, shape.together), body)),
            combined,
            when(all_of([compare("eq", part, const(0, "int32")), inside]), written),
        ]
    )


def _rounds(count: Expr, together: int) -> Expr:
    """``ceil(count / together)``."""
    dtype, known = dtype_of(count), const_value(count)
    if known is not None:
        return const(-(-int(known) // together), dtype)
    return binary("floordiv", add(count, const(together - 1, dtype)), const(together, dtype))


def _below(place: Expr, extent: Expr, multiple: int) -> Expr:
    """``place < extent``, for places below the next multiple."""
    known = const_value(extent)
    whole = known is not None and int(known) % multiple == 0
    return true() if whole else compare("lt", place, extent)
