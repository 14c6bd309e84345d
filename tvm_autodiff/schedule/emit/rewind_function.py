"""Host functions for a loop that keeps states, and for its reverse loop.

They call runs of steps and single reverse steps by address, in the order of
`graph.kinds.rewind_control`. A run starts at the location of a state and ends at the location of
the next kept one, so nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...codegen.builders import collected, put
from ...codegen.host.pointers import (
    Pointer,
    address_of,
    copied,
    either,
    moved,
    pointer,
    with_pointers,
)
from ...codegen.loop_nest import bind, function, parameters, sequence, when
from ...codegen.stages.primfunc import StageFunction, launch_of
from ...expr.build import compare
from ...expr.nodes import Expr, Tensor, tensor_key
from ...graph.graph import tensors_read_by
from ...graph.kinds.rewind import KeptLoop, Rewind
from ...graph.kinds.rewind_control import (
    Backward,
    Forward,
    Register,
    Where,
    number,
    wide,
    written_backward,
    written_forward,
)
from ...graph.stage import Operation, outputs_of, placeholder
from ..kernel import Kernel
from .called_parts import CalledParts, Part
from .loop_carries import Clock, Exchanged, Memory, after_all, read_from, written_to
from .loop_workspace import row_in_bytes, size_in_bytes
from .places import Key
from .updates import Step


def kept_step(kernel: Kernel, kept: KeptLoop, run: Part) -> Step:
    """The launch of a loop that keeps states.

    Parameters
    ----------
    kernel, kept
        The stage, and its kind.
    run
        Some steps: over the carries, the sequences of these steps, and the constants.
    """
    written = _Written.of(kernel.root, [run], kept.loop.step.carries)
    loop, outputs = kept.loop, outputs_of(kernel.root)
    count, first = len(loop.init), len(loop.step.outputs)
    rows = dict(zip(kept.carries, outputs[first:], strict=True))
    length = wide(loop.length)

    def write() -> None:
        before = Register(-1)

        def steps(at: Expr, stop: Expr, row: Expr) -> None:
            begins, ends = compare("eq", at, number(0)), compare("lt", row, number(0))
            places: dict[Key, Pointer] = {}
            after = []
            for n, (new, carry) in enumerate(zip(run.results, loop.step.carries, strict=False)):
                start, end = written.start(loop.init[n]), written.start(outputs[n])
                source, target = end, written.spare[n]
                if n in rows:
                    array, size = written.start(rows[n]), size_in_bytes(carry)
                    source = moved(array, before.now * size)
                    target = either(ends, end, moved(array, row * size))
                else:  # the end is where the next run begins
                    after.append(copied(end, target, size_in_bytes(carry)))
                places[tensor_key(run.inputs[n])] = written.named(either(begins, start, source))
                places[tensor_key(new)] = written.named(target)
            here = length - stop if loop.reverse else at
            second = count + len(loop.xs)
            places |= written.rows(run.inputs[count:second], loop.xs, here)
            places |= written.whole(run.inputs[second:], loop.consts)
            places |= written.rows(run.results[count:], outputs[count:first], here)
            written.call(run, places, stop - at)
            put(sequence(after))
            before.set(row)

        written_forward(loop.length, Forward(steps, kept.slots))
        empty = compare("eq", length, number(0))
        for n, carry in enumerate(loop.step.carries):
            start, end = written.start(loop.init[n]), written.start(outputs[n])
            put(when(empty, copied(end, start, size_in_bytes(carry))))

    return Step(written.launch(write), kernel, "loop")


def rewind_step(kernel: Kernel, rewind: Rewind, run: Part, pull: Part) -> Step:
    """The launch of a reverse loop.

    Parameters
    ----------
    kernel, rewind
        The stage, and its kind.
    run
        Some steps ahead.
    pull
        One reverse step: over the cotangents that it carries, states and sequences of one element,
        and constants.
    """
    ahead, back, slots = rewind.ahead, rewind.back, rewind.slots
    carries, outputs = ahead.step.carries, outputs_of(kernel.root)
    states, carried = len(carries), len(back.init)
    written = _Written.of(kernel.root, [run, pull], [*carries, *back.step.carries])
    rows = outputs[rewind.own : rewind.own + states]
    positions = outputs[rewind.own + states]
    length = wide(ahead.length)

    def kept(n: int, where: Where) -> Pointer:
        """The location of a state in a slot."""
        offset = (where.slot - number(1)) * size_in_bytes(carries[n])
        given = moved(written.start(rewind.kept[n]), offset)
        own = moved(written.start(rows[n]), offset)
        row = either(where.given, given, own)
        return either(compare("eq", where.slot, number(0)), written.start(ahead.init[n]), row)

    def steps(at: Expr, stop: Expr, where: Where, row: Expr) -> None:
        keeps = compare("ge", row, number(0))
        places: dict[Key, Pointer] = {}
        for n, carry in enumerate(carries):
            slot = moved(written.start(rows[n]), row * size_in_bytes(carry))
            places[tensor_key(run.inputs[n])] = written.named(kept(n, where))
            target = either(keeps, slot, written.spare[n])
            places[tensor_key(run.results[n])] = written.named(target)
        here = length - stop if ahead.reverse else at
        second = states + len(ahead.xs)
        places |= written.rows(run.inputs[states:second], ahead.xs, here)
        places |= written.whole(run.inputs[second:], ahead.consts)
        written.call(run, places, stop - at)

    def memories() -> list[Memory]:
        return [
            Memory(
                written.start(back.init[n]),
                written.start(outputs[n]),
                size_in_bytes(carry),
                written.spare[states + n],
            )
            for n, carry in enumerate(back.step.carries)
        ]

    def step_back(done: Expr, time: Expr, where: Where) -> None:
        clock = Clock(done, length, False)
        places: dict[Key, Pointer] = {}
        for n, memory in enumerate(memories()):
            before = read_from(_EXCHANGED, memory, clock)
            after = written_to(_EXCHANGED, memory, clock)
            places[tensor_key(pull.inputs[n])] = written.named(before)
            places[tensor_key(pull.results[n])] = written.named(after)
        is_first = compare("eq", done, number(0))
        for n, carry in enumerate(carries):
            last = moved(written.start(rewind.kept[n]), number(slots - 1) * size_in_bytes(carry))
            other = either(is_first, last, written.spare[n])
            state = either(where.held, kept(n, where), other)
            places[tensor_key(pull.inputs[carried + n])] = written.named(state)
        here = length - number(1) - time if ahead.reverse else time
        first, second = carried + states, carried + states + len(back.xs)
        places |= written.rows(pull.inputs[first:second], back.xs, here)
        places |= written.whole(pull.inputs[second:], back.consts)
        places |= written.rows(pull.results[carried:], outputs[carried : rewind.own], here)
        written.call(pull, places, None)

    def write() -> None:
        plan = Backward(steps, step_back, written.buffers[tensor_key(positions)], slots)
        written_backward(ahead.length, plan)
        clock = Clock(number(0), length, False)
        for memory in memories():
            for statement in after_all(_EXCHANGED, memory, clock):
                put(statement)

    made = written.launch(write)
    reuses = tuple(zip(rows, rewind.kept, strict=True))
    return Step(replace(made, reuses=reuses), kernel, "loop")


_EXCHANGED = Exchanged(0)


@dataclass
class _Written:
    """A function of the host while it is written.

    Attributes
    ----------
    op : Operation
        The stage that it computes.
    buffers : dict
        Its parameters, by the keys of tensors.
    parts : CalledParts
        The programs that it calls.
    base : Pointer or None
        The start of its own memory.
    spare : list of Pointer
        Memory for one tensor each.
    """

    op: Operation
    inputs: list[Tensor]
    outputs: list[Tensor]
    buffers: dict[Key, object]
    parts: CalledParts
    base: Pointer | None
    spare: list[Pointer]

    @staticmethod
    def of(op: Operation, parts: Sequence[Part], spare: Sequence[Tensor]) -> _Written:
        inputs, outputs = tensors_read_by(op), list(outputs_of(op))
        calls = CalledParts(parts, spare)
        workspace = placeholder((calls.size,), "uint8", f"{op.name}_workspace")
        outputs.append(workspace)
        buffers = parameters(inputs, outputs)
        base = address_of(buffers[tensor_key(workspace)])
        places = [moved(base, offset) for offset in calls.spare_offsets]
        return _Written(op, inputs, outputs, buffers, calls, base, places)

    def start(self, tensor: Tensor) -> Pointer:
        """The address of an input or an output."""
        return address_of(self.buffers[tensor_key(tensor)])

    def named(self, place: Pointer) -> Pointer:
        """An address bound to a variable."""
        var = pointer("place")
        put(bind(var, place))
        return var

    def whole(self, inside: Sequence[Tensor], outside: Sequence[Tensor]) -> dict[Key, Pointer]:
        """The address from which a part reads what is the same for all steps."""
        return {
            tensor_key(one): self.named(self.start(tensor))
            for one, tensor in zip(inside, outside, strict=True)
        }

    def rows(
        self, inside: Sequence[Tensor], outside: Sequence[Tensor], here: Expr
    ) -> dict[Key, Pointer]:
        """The address from which a part reads or writes a sequence, starting at a step."""
        places: dict[Key, Pointer] = {}
        for one, tensor in zip(inside, outside, strict=True):
            offset = here * row_in_bytes(one)
            places[tensor_key(one)] = self.named(moved(self.start(tensor), offset))
        return places

    def call(self, part: Part, places: dict[Key, Pointer], count: Expr | None) -> None:
        """Call a part."""
        for statement in self.parts.call(part, places, self.base, count):
            put(statement)

    def launch(self, write: Callable[[], None]) -> StageFunction:
        """The function with a body that `write` writes."""
        body = collected(write)
        func = with_pointers(function(list(self.buffers.values()), body))
        made = launch_of(func, self.op, self.inputs, self.outputs)
        return replace(made, callees=tuple(self.parts.callees))
