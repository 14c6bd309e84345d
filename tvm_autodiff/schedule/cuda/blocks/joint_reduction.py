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
from ....codegen.thread_loops import REGISTERS
from ....expr.build import add, all_of, cast, compare, const, mul, variable
from ....expr.nodes import always, dtype_of
from ....expr.rewrite import substituter
from ....graph.stage import Operation, Reduction, axis_range, axis_vars, reduction_of
from ...declined import Declined, no_gain
from ...kernel import Kernel, iterations, size_of
from ...machine import Machine
from ...rule import Made, in_parts
from ...statement_loops import accumulated, element_stored
from .parts import goes_down_columns, parts_for_device
from .place_grid import BlockShape, Thread, below, place_grid, rounds
from .thread_tree import combined_by_threads
from .threads import BLOCK, WARP


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
) -> BlockShape | None:
    enough = machine.multiprocessors * machine.block_threads
    if goes_down_columns(op, found):
        if outputs >= enough:
            return None  # a thread for each output keeps the device busy
        together = _power_of_two(min(length // 4, WARP, -(-enough // outputs)))
        return BlockShape(WARP, together, rows=False) if together > 1 else None
    together = WARP
    while together < BLOCK and together * 4 <= length and outputs * together < enough:
        together *= 2
    # one output to a block where it needs more than a warp: all its threads then meet
    return BlockShape(BLOCK // WARP if together == WARP else 1, together, rows=True)


def _power_of_two(number: int) -> int:
    return 1 << max(0, number.bit_length() - 1)


def _launch(kernel: Kernel, found: Reduction, shape: BlockShape, machine: Machine) -> StageFunction:
    inputs, results = external_reads(kernel.ops), kernel.outputs
    places, buffers = Places.of([*inputs, *results])
    mine = [local("part", [], dtype_of(source), REGISTERS) for source in found.sources]

    def output(thread: Thread) -> tuple[Sequence[Local], Statement]:
        parts = (thread.part, shape.together), (thread.beside, shape.places)
        shared, combined = combined_by_threads(
            found.combiner, mine, *parts, in_warps=shape.rows, again=thread.again
        )
        body = _output(kernel, found, thread, mine, combined, shape, places)
        return shared, allocated(mine, body)

    body = place_grid(flat_extent(kernel.root.axis), shape, machine, output)
    func = function(buffers, body)
    return StageFunction(func, tuple(inputs), tuple(results))


def _output(
    kernel: Kernel,
    found: Reduction,
    thread: Thread,
    mine: Sequence[Local],
    combined: Statement,
    shape: BlockShape,
    places: Places,
) -> Statement:
    """The output at a place, by one of the threads that share it."""
    table = indices_at(kernel.root.axis, thread.place)
    count, dtype = flat_extent(found.axes), flat_dtype(found.axes)
    step = variable("step", dtype)
    number = add(mul(step, const(shape.together, dtype)), cast(dtype, thread.part))
    rename = substituter({**table, **indices_at(found.axes, number)})
    sources = [rename(source) for source in found.sources]
    body = accumulated(found.combiner, mine, sources, places, REGISTERS)
    body = when(below(number, count, shape.together), body)
    values = [element(register, []) for register in mine]
    here = [table[var] for var in axis_vars(kernel.root)]
    written = element_stored(kernel, values, here, places, REGISTERS)
    first = all_of([compare("eq", thread.part, const(0, "int32")), thread.inside])
    begin = zip(mine, found.combiner.identity, strict=True)
    return sequence(
        [
            *(store(register, value, []) for register, value in begin),
            when(thread.inside, loop(step, rounds(count, shape.together), body)),
            combined,
            when(first, written),
        ]
    )
