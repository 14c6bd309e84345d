"""Two kinds of stages: a loop that keeps some of its states, and the reverse loop over all of them.

The forward loop keeps the states chosen by `binomial`. The reverse loop runs from the last step to
the first. For each step it starts from the nearest kept state, recomputes the steps from there, and
keeps some of the states on the way in free slots. Both are made when a loop is differentiated and
belong to a custom rule, so transforms never see them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...expr.nodes import Tensor, dtype_of, tensor_key
from ..stage import (
    Extent,
    Operation,
    is_extern,
    outputs_of,
    placeholder,
    placeholder_like,
    shape_of,
)
from .embedding import extern_stage
from .loop import HeldStep, Loop, loop_stage
from .rewind_nest import kept_nest, rewind_nest

#: attributes: the loops without their tensors, the inputs that these are, and numbers
_KEPT, _REWIND, _PLACES, _LENGTH = (
    f"tvm_autodiff.rewind.{name}" for name in ("kept", "loops", "places", "length")
)


@dataclass(frozen=True, eq=False)
class KeptLoop:
    """A loop that also returns some of its states.

    Its outputs are those of the loop, followed by an array of `slots` rows for each kept carry. The
    first row holds the state after ``first_stop(length, slots)`` steps. The second row holds the
    state after the first stop of the remaining steps with one slot less, and so on; the last row
    holds the state before the last step. The initial state, which is an input, takes the missing
    slot.

    Attributes
    ----------
    loop : Loop
        The loop.
    slots : int
        The number of states.
    carries : tuple of int
        The carries that are kept.
    """

    loop: Loop
    slots: int
    carries: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Rewind:
    """The reverse loop over the states of a loop.

    Its outputs are those of `back`, followed by the final arrays of kept states and the steps that
    these states precede. They may share memory with `kept`.

    Attributes
    ----------
    ahead : Loop
        The step from one state to the next, for all carries. It stacks nothing.
    back : Loop
        The first of ``back.step.xs`` are the carries of `ahead` before the step; the others are
        elements of ``back.xs``.
    kept : tuple of Tensor
        The states that the forward loop kept.
    slots : int
        The number of states.
    """

    ahead: Loop
    back: Loop
    kept: tuple[Tensor, ...]
    slots: int

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that it reads."""
        return (*self.ahead.inputs, *self.back.inputs, *self.kept)

    @property
    def own(self) -> int:
        """The number of its results, without working arrays."""
        return len(self.back.step.outputs)


def kept_stage(name: str, kept: KeptLoop) -> list[Tensor]:
    """The outputs of a loop that keeps states.

    Parameters
    ----------
    name : str
        The name of the stage.
    kept : KeptLoop
        What the stage computes.
    """
    loop = kept.loop
    read = _distinct(loop.inputs)
    attrs = {
        _KEPT: HeldStep(replace(kept, loop=_alone(loop))),
        _PLACES: _places(read, (loop.init, loop.xs, loop.consts)),
        _LENGTH: loop.length,
    }
    return extern_stage(name, read, *kept_nest(name, kept, read), attrs)


def rewind_stage(name: str, rewind: Rewind) -> list[Tensor]:
    """The outputs of a reverse loop.

    Parameters
    ----------
    name : str
        The name of the stage.
    rewind : Rewind
        What the stage computes.
    """
    ahead, back = rewind.ahead, rewind.back
    read = _distinct(rewind.inputs)
    parts = (ahead.init, ahead.xs, ahead.consts, back.init, back.xs, back.consts, rewind.kept)
    attrs = {
        _REWIND: HeldStep(replace(rewind, ahead=_alone(ahead), back=_alone(back), kept=())),
        _PLACES: _places(read, parts),
        _LENGTH: ahead.length,
    }
    return extern_stage(name, read, *rewind_nest(name, rewind, read), attrs)


def kept_loop_of(op: Operation) -> KeptLoop | None:
    """What a stage made by `kept_stage` computes; None for other stages."""
    if not is_extern(op) or _KEPT not in op.attrs:
        return None
    held: KeptLoop = op.attrs[_KEPT].step
    return replace(held, loop=_over(held.loop, op, _parts(op)))


def rewind_of(op: Operation) -> Rewind | None:
    """What a stage made by `rewind_stage` computes; None for other stages."""
    if not is_extern(op) or _REWIND not in op.attrs:
        return None
    held: Rewind = op.attrs[_REWIND].step
    parts = _parts(op)
    ahead, back = _over(held.ahead, op, parts[:3]), _over(held.back, op, parts[3:6])
    return replace(held, ahead=ahead, back=back, kept=parts[6])


def loops_in(kind: object) -> tuple[Loop, ...]:
    """The loops that a stage of this kind consists of; empty for other kinds."""
    match kind:
        case Loop():
            return (kind,)
        case KeptLoop():
            return (kind.loop,)
        case Rewind():
            return kind.ahead, kind.back
    return ()


def with_loops(
    kind: Loop | KeptLoop | Rewind, loops: Sequence[Loop]
) -> Loop | KeptLoop | Rewind:
    """The kind with the loops of `loops_in` replaced."""
    match kind:
        case Loop():
            return loops[0]
        case KeptLoop():
            return replace(kind, loop=loops[0])
        case Rewind():
            return replace(kind, ahead=loops[0], back=loops[1])


def stage_of_loops(name: str, kind: Loop | KeptLoop | Rewind) -> list[Tensor]:
    """The outputs of a stage of any kind with loops."""
    match kind:
        case Loop():
            return loop_stage(name, kind)
        case KeptLoop():
            return kept_stage(name, kind)
        case Rewind():
            return rewind_stage(name, kind)


def part_of(loop: Loop, length: Extent) -> Loop:
    """Some steps of a loop, over placeholders for what they read."""
    step = loop.step

    def stacked(x: Tensor) -> Tensor:
        return placeholder([length, *shape_of(x)], dtype_of(x), x.op.name)

    return Loop(
        step,
        tuple(map(placeholder_like, step.carries)),
        tuple(map(stacked, step.xs)),
        tuple(map(placeholder_like, step.consts)),
        length,
        loop.reverse,
        carries_only=True,
    )


def reused_by(kind: object) -> list[tuple[int, Tensor]]:
    """The output numbers of a stage that may share memory with an input, and these inputs."""
    return list(enumerate(kind.kept, kind.own)) if isinstance(kind, Rewind) else []


def _distinct(tensors: Sequence[Tensor]) -> list[Tensor]:
    return list({tensor_key(tensor): tensor for tensor in tensors}.values())


def _places(read: Sequence[Tensor], parts: Sequence[Sequence[Tensor]]) -> list[list[int]]:
    places = {tensor_key(tensor): place for place, tensor in enumerate(read)}
    return [[places[tensor_key(tensor)] for tensor in part] for part in parts]


def _parts(op: Operation) -> list[tuple[Tensor, ...]]:
    read = list(op.inputs)
    return [tuple(read[int(place)] for place in part) for part in op.attrs[_PLACES]]


def _alone(loop: Loop) -> Loop:
    """A loop without its tensors, because attributes cannot hold tensors."""
    return replace(loop, init=(), xs=(), consts=())


def _over(loop: Loop, op: Operation, parts: Sequence[tuple[Tensor, ...]]) -> Loop:
    """A loop over the present inputs of its stage."""
    init, xs, consts = parts
    return replace(loop, init=init, xs=xs, consts=consts, length=_length(op))


def _length(op: Operation) -> Any:
    """The number of steps, read from a sequence because a rewrite may have changed its size."""
    parts = _parts(op)
    sequences = [tensor for part in parts[1::3] for tensor in part]
    if sequences:
        return shape_of(sequences[0])[0]
    stacks = _stacks(op)
    return shape_of(stacks[0])[0] if stacks else op.attrs[_LENGTH]


def _stacks(op: Operation) -> list[Tensor]:
    """The stacked results of a stage."""
    held = op.attrs[_KEPT if _KEPT in op.attrs else _REWIND].step
    step = held.loop.step if isinstance(held, KeptLoop) else held.back.step
    first = len(step.carries)
    return outputs_of(op)[first : first + len(step.ys)]
