"""A loop as one host function that calls the kernels of a step by address.

The kernels read rows of the inputs and write rows of the results in place. Launches that read
nothing that varies run once, before the first step. Neither the code nor the number of kernels
grows with the length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...codegen.host.direct_calls import ALL_LAUNCHES, called, chosen, sizes_of
from ...codegen.host.pointers import Pointer, address_of, moved, pointer, with_pointers
from ...codegen.loop_nest import (
    PARALLEL,
    Statement,
    bind,
    function,
    loop,
    parameter,
    parameters,
    sequence,
    when,
)
from ...codegen.modules import function_var
from ...codegen.stages.primfunc import Callee, StageFunction, launch_of
from ...expr.build import any_of, cast, compare, const, variable
from ...expr.nodes import Expr, Tensor, binary, tensor_key
from ...graph.graph import tensors_read_by
from ...graph.kinds.loop import Loop
from ...graph.stage import Extent, Operation, outputs_of, placeholder
from ..kernel import Kernel
from ..rewrites.loops.row_blocks import RowBlocks
from .loop_carries import (
    AfterStep,
    BeforeStep,
    Clock,
    Exchanged,
    Memory,
    Rows,
    StepValues,
    after_all,
    before_all,
    read_from,
    written_to,
)
from .loop_workspace import Piece, piece_of, planned, size_in_bytes
from .places import Key, aliases_of, bound, runs_once, temporaries_of
from .updates import Step


def loop_step(
    kernel: Kernel,
    loop: Loop,
    values: StepValues,
    results: Sequence[Tensor],
    steps: Sequence[Step],
    blocks: RowBlocks | None = None,
    runs: int = 1,
) -> Step:
    """The launch of a loop.

    Parameters
    ----------
    kernel, loop
        The stage, and its kind.
    values
        The values that the step computes.
    results
        The tensors that the launches compute for ``values.tensors``.
    steps
        The launches of one step, in order.
    blocks
        All blocks, which run in parallel, if the step is that of a block of rows.
    runs
        The number of runs of steps that run in parallel, if there are no carries.
    """
    written = _Written(kernel.root, loop, values, results, steps, blocks, runs)
    inner = tuple(written.inner())
    return Step(written.launch(), kernel, "loop", (), inner)


@dataclass
class _Written:
    """The function of one loop while it is written."""

    op: Operation
    loop: Loop
    values: StepValues
    results: Sequence[Tensor]
    steps: Sequence[Step]
    blocks: RowBlocks | None = None
    runs: int = 1

    def __post_init__(self) -> None:
        step = self.loop.step
        varying = [tensor_key(tensor) for tensor in (*step.carries, *step.xs)]
        free = runs_once(self.steps, varying, set(map(tensor_key, self.results)))
        self.once = [one for one, alone in zip(self.steps, free, strict=True) if alone]
        self.each = [one for one, alone in zip(self.steps, free, strict=True) if not alone]
        self.only = variable("only", "int32")
        known = isinstance(self.loop.length, int)
        self.length = _wide(self.loop.length) if known else variable("length", "int64")
        self.clock = Clock(variable("done", "int64"), self.length, self.loop.reverse)
        self.block = variable("block", "int64")
        self.count = self.runs if self.blocks is None else self.blocks.count

    def inner(self) -> list[Step]:
        """The launches with the numbers that `only` selects by, and how often each runs."""
        length = self.loop.length if isinstance(self.loop.length, int) else None
        blocks = 1 if self.blocks is None else self.blocks.count
        found: list[Step] = []
        for repeats, steps in ((self.count, self.once), (_times(length, blocks), self.each)):
            leaves = [one for step in steps for one in step.inner or (step,)]
            found += [replace(one, calls=_times(repeats, one.calls)) for one in leaves]
        return found

    def launch(self) -> StageFunction:
        """The function and what it calls."""
        inputs, outputs = tensors_read_by(self.op), outputs_of(self.op)
        buffers = parameters(inputs, outputs)
        self.starts = {key: address_of(buffer) for key, buffer in buffers.items()}
        size, self.offsets = self._workspace()
        if self.offsets:
            name = f"{self.op.name}_workspace"
            workspace = placeholder((size * self.count,), "uint8", name)
            buffers[tensor_key(workspace)] = parameter(workspace, "workspace")
            self.base = self._of_block(address_of(buffers[tensor_key(workspace)]), size)
            outputs = [*outputs, workspace]
        callees: list[Callee] = []
        body = loop(self.block, self.count, self._body(callees), PARALLEL)
        func = with_pointers(function(list(buffers.values()), body))
        made = launch_of(func, self.op, inputs, outputs)
        return replace(made, callees=tuple(callees), only=self.only)

    def _workspace(self) -> tuple[Extent, dict[Any, Extent]]:
        """The number of bytes needed in addition to the arguments, and the offset of each piece."""
        ordered = [*self.once, *self.each]
        given = {tensor_key(tensor) for tensor in self.results}
        self.aliases = aliases_of(ordered, given, set(), len(self.once))
        pieces: dict[Any, Piece] = {}
        for number, (carried, tensor) in enumerate(
            zip(self.values.carried, self.loop.step.carries, strict=True)
        ):
            if isinstance(carried, Exchanged):
                pieces[number] = piece_of(tensor, 0, len(ordered))
        for key, (tensor, first, last) in temporaries_of(ordered, given, self.aliases).items():
            if first < len(self.once):  # every step reads it again
                first, last = 0, len(ordered)
            pieces[key] = piece_of(tensor, first, last)
        size, offsets = planned(list(pieces.values()))
        return size, dict(zip(pieces, offsets, strict=True))

    def _body(self, callees: list[Callee]) -> Statement:
        """``before; invariant launches; for each step: launches; after``."""
        known = isinstance(self.loop.length, int)
        begin = [] if known else [bind(self.length, _wide(self.loop.length))]
        memories = self._memories()
        carried = list(zip(self.values.carried, memories, strict=True))
        before = [s for one, memory in carried for s in before_all(one, memory, self.clock)]
        after = [s for one, memory in carried for s in after_all(one, memory, self.clock)]
        if self.loop.length == 0:
            return sequence([*before, *after])
        fixed = self._fixed_places()
        number = 0
        prepared: list[Statement] = []
        for step in self.once:
            prepared.append(self._call(step, number, fixed, callees))
            number += step.launches
        if prepared and not isinstance(self.loop.length, int):
            some = compare("gt", self.length, const(0, "int64"))
            prepared = [when(some, sequence(prepared))]
        bindings, places = self._step_places(memories)
        calls = []
        for step in self.each:
            calls.append(self._call(step, number, {**fixed, **places}, callees))
            number += step.launches
        low, count = self._steps_of_run()
        whole = loop(self.clock.done, count, sequence([*bindings, *calls]), low=low)
        return sequence([*begin, *before, *prepared, whole, *after])

    def _steps_of_run(self) -> tuple[Expr | int, Expr]:
        """The first step and the number of steps of a run; all steps if there is one run."""
        if self.runs == 1:
            return 0, self.length
        runs = const(self.runs, "int64")
        low, end = (
            binary("floordiv", (self.block + const(n, "int64")) * self.length, runs) for n in (0, 1)
        )
        return low, end - low

    def _of_block(self, start: Pointer, size: Extent) -> Pointer:
        """The offset of this block in an array with a part of equal size for each block."""
        return start if self.count == 1 else moved(start, self.block * size)

    def _start(self, outside: Tensor, inside: Tensor) -> Pointer:
        """The start of an array or, in a block of rows, of these rows."""
        start = self.starts[tensor_key(outside)]
        return self._of_block(start, size_in_bytes(inside)) if self._has_rows(inside) else start

    def _rows(self, outside: Tensor, inside: Tensor) -> Rows:
        """The elements of a sequence or, in a block of rows, of these rows."""
        size = size_in_bytes(inside) * (self.count if self._has_rows(inside) else 1)
        return Rows(self._start(outside, inside), size)

    def _has_rows(self, inside: Tensor) -> bool:
        return self.blocks is not None and tensor_key(inside) in self.blocks.apart

    def _memories(self) -> list[Memory]:
        step, outputs = self.loop.step, outputs_of(self.op)
        rows = outputs[len(step.carries) :]
        found = []
        for number, (carried, tensor) in enumerate(
            zip(self.values.carried, step.carries, strict=True)
        ):
            size = size_in_bytes(tensor)
            first = self._start(self.loop.init[number], tensor)
            last = self._start(outputs[number], tensor)
            match carried:
                case Exchanged():
                    spare = moved(self.base, self.offsets[number])
                    found.append(Memory(first, last, size, spare))
                case AfterStep() | BeforeStep():
                    held = self._rows(rows[carried.result], tensor)
                    found.append(Memory(first, last, size, rows=held))
                case _:
                    found.append(Memory(first, last, size))
        return found

    def _fixed_places(self) -> dict[Key, Pointer]:
        """The addresses of tensors that do not depend on the step: outer tensors, and temporaries.
        """
        places: dict[Key, Pointer] = {}
        for inside, outside in zip(self.loop.step.consts, self.loop.consts, strict=True):
            places[tensor_key(inside)] = self._start(outside, inside)
        for key, offset in self.offsets.items():
            if isinstance(key, tuple):
                places[key] = moved(self.base, offset)
        return places

    def _step_places(
        self, memories: Sequence[Memory]
    ) -> tuple[list[Statement], dict[Key, Pointer]]:
        """The addresses of the tensors of one step, each bound to a variable."""
        step, clock = self.loop.step, self.clock
        outputs = outputs_of(self.op)[len(step.carries) :]
        here = variable("position", "int64")
        statements = [bind(here, clock.position(clock.done))]
        places: dict[Key, Pointer] = {}

        def put(tensor: Tensor, place: Pointer) -> None:
            var = pointer(str(tensor.op.name))
            statements.append(bind(var, place))
            places[tensor_key(tensor)] = var

        for inside, outside in zip(step.xs, self.loop.xs, strict=True):
            put(inside, self._rows(outside, inside).at(here))
        for carried, memory, tensor in zip(
            self.values.carried, memories, step.carries, strict=True
        ):
            put(tensor, read_from(carried, memory, clock))
            if isinstance(carried, (Exchanged, BeforeStep)):
                put(self.results[carried.value], written_to(carried, memory, clock))
        for value, output, y in zip(self.values.ys, outputs, step.ys, strict=True):
            if value is not None:
                put(self.results[value], self._rows(output, y).at(here))
        return statements, places

    def _call(
        self, step: Step, number: int, places: Mapping[Key, Pointer], callees: list[Callee]
    ) -> Statement:
        launch = step.launch
        if tensor_key(launch.outputs[0]) in self.aliases:
            return sequence([])
        keys = {
            tensor_key(tensor): self.aliases.get(tensor_key(tensor), tensor_key(tensor))
            for tensor in (*launch.inputs, *launch.outputs)
        }
        func, arguments = bound(launch, keys)
        name = step.kernel.name
        callee = Callee(function_var(name), name, func, launch.only, launch.callees)
        callees.append(callee)
        given: list[Any] = [places[key] for key in arguments[: len(launch.inputs)]]
        given += [*launch.scalars, *(places[key] for key in arguments[len(launch.inputs) :])]
        given += sizes_of(func)
        if launch.only is not None:
            own = self.only - const(number, "int32")
            given.append(binary("max", own, const(ALL_LAUNCHES, "int32")))
        run = chosen(self.only, number, step.launches)
        for later in self._overwriting(step):
            run = any_of([run, compare("eq", self.only, const(later, "int32"))])
        return when(run, called(callee.var, given))

    def _overwriting(self, step: Step) -> list[int]:
        """The numbers of the launches that overwrite the result of a launch. If one of them runs
        alone, the result has to be rewritten for each step.
        """
        written = set(map(tensor_key, step.launch.outputs))
        number, found = 0, []
        for other in [*self.once, *self.each]:
            reuses = other.launch.reuses
            if any(
                self.aliases.get(tensor_key(new)) == tensor_key(old) and tensor_key(old) in written
                for new, old in reuses
            ):
                found.append(number)
            number += other.launches
        return found


def _times(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left * right


def _wide(extent: Extent) -> Expr:
    return const(extent, "int64") if isinstance(extent, int) else cast("int64", extent)
