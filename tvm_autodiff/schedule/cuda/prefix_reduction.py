"""Schedules prefix reductions, such as cumulative sums: a few steps for each element of a row.

The threads of a block take as many elements of a row at a time, combine each with those before it
in shared memory, and carry the combination of all to the next ones.

    ``out[i] = ⊕_{k <= i} f(k)  →  s[x] = f(t*threads + x),
    s[x] = s[x - d] ⊕ s[x] for d = 1, 2, 4..,  out[t*threads + x] = carry ⊕ s[x],
    carry = carry ⊕ s[threads - 1]``
"""

from __future__ import annotations

from collections.abc import Sequence

from ...codegen.flat_axes import flat_extent, indices_at
from ...codegen.loop_nest import (
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
from ...codegen.stages.primfunc import StageFunction, external_reads
from ...codegen.thread_loops import REGISTERS, SHARED, WARP, barrier, buffer_in
from ...expr.build import add, all_of, cast, compare, const, mul, sub, variable
from ...expr.nodes import Expr, Var, const_value, dtype_of
from ...expr.rewrite import substituter
from ...graph.stage import Extent, Reduction, axis_range, axis_vars, reduction_of
from ..declined import Declined, other_kind
from ..kernel import Kernel
from ..machine import Machine
from ..nest.reductions.prefix_reductions import PrefixReduction, is_number, prefix_reduction_of
from ..statement_loops import accumulated, element_stored
from .blocks.place_grid import BlockShape, Thread, below, place_grid, rounds
from .blocks.threads import BLOCK


def prefix_reduction(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a prefix reduction."""
    op = kernel.root
    found = prefix_reduction_of(op)
    if found is None:
        return other_kind("it is not a prefix reduction")
    if found.other is not None:
        return Declined("elements that do not count are no identities")
    low, length = axis_range(op.axis[found.axis])
    if not is_number(low, 0):
        return Declined("the axis that it accumulates along does not begin at 0")
    together = WARP
    last = found.axis == len(op.axis) - 1
    steps = length if isinstance(length, int) else machine.symbolic_size
    while last and together < BLOCK and 2 * together <= steps:
        together *= 2
    shape = BlockShape(max(1, WARP * 4 // together) if last else WARP, together, rows=last)
    return [_Writer(kernel, found, length, shape).launch(machine)]


class _Writer:
    """Writes the launch of one stage."""

    def __init__(
        self, kernel: Kernel, found: PrefixReduction, length: Extent, shape: BlockShape
    ) -> None:
        reduction = reduction_of(kernel.root)
        assert reduction is not None
        self.kernel, self.found, self.reduction = kernel, found, reduction
        self.shape = shape
        self.length = const(length, "int32") if isinstance(length, int) else length
        self.dtype = dtype_of(self.length)
        self.inputs = external_reads(kernel.ops)
        self.places, self.buffers = Places.of([*self.inputs, *kernel.outputs])
        self.around = [axis for n, axis in enumerate(kernel.root.axis) if n != found.axis]
        self.own, self.left, self.carry = (
            _registers(n, reduction) for n in ("own", "left", "carry")
        )
        size = [shape.together, shape.places]
        # two buffers in turns: threads that read one do not write it
        self.shared = [
            [buffer_in(SHARED, name, size, dtype_of(source)) for source in reduction.sources]
            for name in ("even", "odd")
        ]

    def launch(self, machine: Machine) -> StageFunction:
        """The function."""
        body = place_grid(flat_extent(self.around), self.shape, machine, self._row)
        func = function(self.buffers, body)
        return StageFunction(func, tuple(self.inputs), tuple(self.kernel.outputs))

    def _row(self, thread: Thread) -> tuple[Sequence[Local], Statement]:
        """Shared buffers, and the elements of a row, as many at a time as there are threads."""
        table = indices_at(self.around, thread.place)
        step = variable("step", self.dtype)
        together = const(self.shape.together, self.dtype)
        number = add(mul(step, together), cast(self.dtype, thread.part))
        count = self.length
        inside = all_of([thread.inside, below(number, count, self.shape.together)])
        position: Expr = number
        if self.found.backward:
            position = sub(self._last(), number)
        body = self._elements(thread, table, number, position, inside)
        begin = _stored(self.carry, self.reduction.combiner.identity)
        steps = loop(step, rounds(count, self.shape.together), body)
        registers = [*self.own, *self.left, *self.carry]
        return [*self.shared[0], *self.shared[1]], allocated(registers, sequence([*begin, steps]))

    def _elements(
        self, thread: Thread, table: dict[Var, Expr], number: Expr, position: Expr, inside: Expr
    ) -> Statement:
        [summed], axis = self.reduction.axes, self.kernel.root.axis[self.found.axis]
        at = {summed.var: cast(dtype_of(summed.var), position)}
        rename = substituter({**table, **at})
        identity = self.reduction.combiner.identity
        loaded = accumulated(
            self.reduction.combiner,
            self.own,
            [rename(value) for value in self.found.values],
            self.places,
            REGISTERS,
        )
        counts = inside
        if not self.found.inclusive:  # the last element counts for none, and may not exist
            counts = all_of([thread.inside, compare("lt", number, self._last())])
        steps = [barrier(), *_stored(self.own, identity), when(counts, loaded)]
        distance, turn = 1, 0
        while distance < self.shape.together:
            before = compare("ge", thread.part, const(distance, "int32"))
            steps += self._exchanged(thread, turn)
            steps.append(when(before, self._with_left(thread, turn, distance)))
            distance, turn = 2 * distance, 1 - turn
        steps += [*self._exchanged(thread, turn), *_stored(self.left, _values(self.carry))]
        if self.found.inclusive:
            steps.append(self._combined(self.left, _values(self.own)))
        else:
            first = compare("gt", thread.part, const(0, "int32"))
            near = self._of(turn, sub(thread.part, const(1, "int32")), thread)
            steps.append(when(first, self._combined(self.left, near)))
        here = {**table, axis.var: cast(dtype_of(axis.var), position)}
        indices = [here[var] for var in axis_vars(self.kernel.root)]
        written = element_stored(self.kernel, _values(self.left), indices, self.places, REGISTERS)
        last = self._of(turn, const(self.shape.together - 1, "int32"), thread)
        return sequence([*steps, when(inside, written), self._combined(self.carry, last)])

    def _last(self) -> Expr:
        """The last place of the axis that results accumulate along."""
        known = const_value(self.length)
        one = const(1, self.dtype)
        return sub(self.length, one) if known is None else const(int(known) - 1, self.dtype)

    def _exchanged(self, thread: Thread, turn: int) -> list[Statement]:
        """What each thread has, where the others see it."""
        at = [thread.part, thread.beside]
        values = zip(self.shared[turn], _values(self.own), strict=True)
        return [*(store(buffer, value, at) for buffer, value in values), barrier()]

    def _with_left(self, thread: Thread, turn: int, distance: int) -> Statement:
        """``own = own of a thread before ⊕ own``."""
        theirs = self._of(turn, sub(thread.part, const(distance, "int32")), thread)
        return sequence(
            [
                *_stored(self.left, theirs),
                self._combined(self.left, _values(self.own)),
                *_stored(self.own, _values(self.left)),
            ]
        )

    def _of(self, turn: int, part: Expr, thread: Thread) -> list[Expr]:
        return [element(buffer, [part, thread.beside]) for buffer in self.shared[turn]]

    def _combined(self, registers: Sequence[Local], values: Sequence[Expr]) -> Statement:
        return accumulated(self.reduction.combiner, registers, values, self.places, REGISTERS)


def _registers(name: str, reduction: Reduction) -> list[Local]:
    return [local(name, [], dtype_of(source), REGISTERS) for source in reduction.sources]


def _values(registers: Sequence[Local]) -> list[Expr]:
    return [element(register, []) for register in registers]


def _stored(registers: Sequence[Local], values: Sequence[Expr]) -> list[Statement]:
    return [store(register, value, []) for register, value in zip(registers, values, strict=True)]
