"""Schedules loops over time whose rows are independent as one function, with rows in vector lanes.

Blocks of rows run in parallel. Inside a block runs the loop over time, and inside it the step of as
many rows as a vector has lanes, with the state in registers or, for more rows, in the nearest
cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from ....codegen.flat_axes import unflattened
from ....codegen.loop_nest import (
    PARALLEL,
    Local,
    Statement,
    allocated,
    bind,
    counter,
    element,
    function,
    local,
    loop,
    parameters,
    sequence,
    store,
)
from ....codegen.stages.primfunc import StageFunction, launch_of
from ....expr.build import add, cast, const, mul, sub, variable
from ....expr.dtypes import bits_of
from ....expr.nodes import Expr, binary, dtype_of, tensor_key
from ....graph.graph import tensors_read_by, topological
from ....graph.kinds.loop import Loop, Step
from ....graph.kinds.rewind import KeptLoop, Rewind
from ....graph.stage import (
    Extent,
    Operation,
    index_dtype,
    is_compute,
    outputs_of,
    reduction_of,
    shape_of,
)
from ...cost import KERNEL_CALL, LATENCY, MAX_NODES, SYMBOLIC_SIZE
from ...declined import Declined, no_gain, other_kind
from ...kernel import Kernel
from ...machine import Machine
from ...nest.recurrences.row_program import RowProgram, row_program
from ...rewrites.normal_form import normal_form
from ..lanes.row_lanes import Lanes, RowLanes, stacks_in
from ..loops.strip_mining import strip_start


def row_loop(
    kernel: Kernel, loop: Loop | KeptLoop | Rewind, machine: Machine, kernels: int
) -> list[StageFunction] | Declined:
    """The function of a loop with independent rows."""
    if not isinstance(loop, Loop):
        return other_kind("it keeps states")
    if not loop.step.carries:
        return no_gain("nothing is carried")
    whole = _in_normal_form(loop)
    program = _program(whole.step, machine)
    if isinstance(program, Declined):
        return program
    lanes = _width(whole.step, program.extents[-1], machine)
    if lanes < 2 or 2 * lanes < _full_width(whole.step, machine):
        return no_gain("its rows are fewer than half the lanes of a vector")
    elements = prod(program.extents) * program.components
    passes = kernels <= len(whole.step.carries) and not _reduces(whole.step)
    # calls of kernels that hand nothing to each other are as fast above a few elements: all wait
    # for memory, and have no copy of the state
    if passes and 2 * elements > kernels * KERNEL_CALL * machine.lanes("float32"):
        return no_gain(f"{elements} elements are worth the calls of {kernels} kernels")
    func, inputs, outputs = _Writer(kernel.root, whole, program, lanes, machine).function()
    return [launch_of(func, kernel.root, inputs, outputs)]


def _reduces(step: Step) -> bool:
    ops = topological(step.outputs)
    return any(is_compute(op) and reduction_of(op) is not None for op in ops)


def _in_normal_form(loop: Loop) -> Loop:
    return replace(loop, step=loop.step.with_outputs(normal_form(loop.step.outputs)))


def _program(step: Step, machine: Machine) -> RowProgram | Declined:
    """The program over the number of row axes that gives the widest vectors, and most axes among
    equals.
    """
    shapes = [shape_of(tensor) for tensor in (*step.carries, *step.outputs)]
    found: RowProgram | Declined = no_gain("its carries have no axes")
    widths = {}
    for axes in range(1, min(map(len, shapes)) + 1):
        extent = shapes[0][axes - 1]
        if isinstance(extent, int):
            widths[axes] = _width(step, extent, machine)
    for axes in sorted(widths, key=lambda axes: (widths[axes], axes), reverse=True):
        found = row_program(step, axes, MAX_NODES // 2)
        if not isinstance(found, Declined):
            return found
    return found


def _width(step: Step, extent: int, machine: Machine) -> int:
    """The lanes of a vector of neighbouring rows: a power of two, at most their number."""
    lanes = _full_width(step, machine)
    while lanes > extent:
        lanes //= 2
    return lanes


def _full_width(step: Step, machine: Machine) -> int:
    return min(machine.lanes(dtype_of(carry)) for carry in step.carries)


class _Writer:
    """The function of one loop while it is written."""

    def __init__(
        self, op: Operation, loop: Loop, program: RowProgram, lanes: int, machine: Machine
    ) -> None:
        self._op, self._loop, self._program, self._lanes = op, loop, program, lanes
        self._few = machine.vector_registers // 2  # values that fit so many vectors of rows
        self._groups = -(-program.extents[-1] // lanes)  # of the last axis of rows
        units = prod(program.extents[:-1]) * self._groups
        self._blocks, self._units = self._shares(units, machine)
        self._all = units

    def _shares(self, units: int, machine: Machine) -> tuple[int, int]:
        """The number of blocks, and the number of vectors of rows in each of them."""
        loop, values = self._loop, len(self._program.bindings)
        length = loop.length if isinstance(loop.length, int) else SYMBOLIC_SIZE
        work = length * units * self._lanes * max(1, values)
        threads = min(machine.threads_for(work), units)
        size = sum(
            len(vars) * self._lanes * bits_of(dtype_of(vars[0])) // 8
            for vars in self._program.states
            if vars
        )
        if loop.xs or loop.step.ys:  # a step reads or writes one piece of memory
            # the states of a block stay in the first cache
            most = max(1, machine.first_cache_bytes // 2 // size)
        else:
            most = LATENCY if values <= self._few else 1
        share = -(-units // threads)
        count = min(threads * -(-share // most), units)
        of_block = -(-units // count)
        return -(-units // of_block), of_block

    @property
    def _unrolled(self) -> bool:
        return self._units == 1 or (
            self._units <= LATENCY and len(self._program.bindings) <= self._few
        )

    def function(self) -> Any:
        """The function over what the stage reads, and its results."""
        loop_, program = self._loop, self._program
        inputs, outputs = tensors_read_by(self._op), outputs_of(self._op)
        buffers = parameters(inputs, outputs)
        step, count = loop_.step, len(loop_.init)
        stacks = partial(stacks_in, buffers)
        read = [*stacks(step.xs, loop_.xs, True), *stacks(step.consts, loop_.consts, False)]
        writer = RowLanes(program, {tensor_key(stack.tensor): stack for stack in read})
        first, last = (stacks(step.carries, t, False) for t in (loop_.init, outputs[:count]))
        ys = stacks(step.ys, outputs[count:], True)
        states = [
            [local(str(var.name), [self._units, self._lanes], dtype_of(var)) for var in vars]
            for vars in program.states
        ]
        done = counter("done", loop_.length)
        time = _time(done, loop_.length, loop_.reverse)

        def whole(unit: Expr, rows: Sequence[Expr]) -> tuple[Statement, Statement, Statement]:
            lanes = Lanes(self._lanes, lambda lane: _along(rows, lane), lambda lane: time)
            start = [
                writer.moved(lanes, s, p, [unit], False) for s, p in zip(first, states, strict=True)
            ]
            end = [
                writer.moved(lanes, s, p, [unit], True) for s, p in zip(last, states, strict=True)
            ]
            flat = [place for places in states for place in places]
            news = [value for values in program.news for value in values]
            body = writer.step(
                lanes,
                [partial(_kept, place, unit) for place in flat],
                [
                    (value, partial(_keep, place, unit))
                    for value, place in zip(news, flat, strict=True)
                ],
                list(zip(program.ys, ys, strict=True)),
            )
            return sequence(start), sequence(body), sequence(end)

        block = counter("block", self._blocks)
        if self._unrolled:
            places, parts = [], []
            for number in range(self._units):
                statements, rows = self._rows(self._unit(block, const(number, "int32")))
                places += statements
                parts.append(whole(const(number, "int32"), rows))
            start, body, end = (sequence([part[n] for part in parts]) for n in range(3))
            run = [*places, start, loop(done, loop_.length, body), end]
        else:
            unit = counter("unit", self._units)
            # computed and not read: what is read may be any number, and is no start of a vector
            statements, rows = self._rows(self._unit(block, unit))
            start, body, end = (sequence([*statements, part]) for part in whole(unit, rows))
            run = [
                loop(unit, self._units, start),
                loop(done, loop_.length, loop(unit, self._units, body)),
                loop(unit, self._units, end),
            ]
        flat = [place for places in states for place in places]
        inner = allocated([*flat, *writer.buffers], sequence(run))
        body = loop(block, self._blocks, inner, PARALLEL)
        return function(list(buffers.values()), body), inputs, outputs

    def _unit(self, block: Expr, number: Expr) -> Expr:
        """The global number of a vector of rows; numbers past the last one repeat it."""
        unit = add(mul(block, const(self._units, "int32")), number)
        if self._all % self._units == 0:
            return unit
        return binary("min", unit, const(self._all - 1, "int32"))

    def _rows(self, unit: Expr) -> tuple[list[Statement], list[Expr]]:
        """The indices of the first row of a vector, under names; the last vector of an axis
        overlaps the one before.
        """
        number = variable("number", "int32")
        statements = [bind(number, unit)]
        *outer, extent = self._program.extents
        *values, group = unflattened(number, [*outer, self._groups])
        start = strip_start(group, self._lanes, extent)
        rows = []
        for var, value in zip(self._program.rows, [*values, start], strict=True):
            rows.append(variable(str(var.name), dtype_of(var)))
            statements.append(bind(rows[-1], cast(dtype_of(var), value)))
        return statements, rows


def _kept(place: Local, unit: Expr, lane: Expr) -> Expr:
    return element(place, [unit, lane])


def _keep(place: Local, unit: Expr, lane: Expr, value: Expr) -> Statement:
    return store(place, value, [unit, lane])


def _along(rows: Sequence[Expr], lane: Expr) -> list[Expr]:
    *outer, last = rows
    return [*outer, add(last, cast(dtype_of(last), lane))]


def _time(done: Expr, length: Extent, reverse: bool) -> Expr:
    """The time of a step, of which `done` have run before."""
    dtype = index_dtype(length)
    done = cast(dtype, done)
    if not reverse:
        return done
    whole = const(length, dtype) if isinstance(length, int) else cast(dtype, length)
    return sub(sub(whole, const(1, dtype)), done)
