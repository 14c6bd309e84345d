"""A loop that keeps some of its states, and the loop back over all of them: two kinds of stages.

The forward loop keeps the states that `binomial` places. The loop back takes the steps from the
last to the first; it begins each time at the nearest state that is kept, computes the steps from
there on again, and keeps some of the states on the way in slots that are free by then. Both are
made when a loop is differentiated, and stand behind a custom rule: no transform meets them.
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
    """A loop that also gives some of its states.

    Its outputs are those of the loop, and then an array of `slots` rows for each kept carry. The
    state after ``first_stop(length, slots)`` steps is in the first row, that after as many more as
    are the first stop of the rest with one slot less in the second, and so on; the one before the
    last step is in the last row. The initial state, which is an input, takes the missing slot.

    Attributes
    ----------
    loop : Loop
        What is repeated.
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
    """The loop back over the states of a loop.

    Its outputs are those of `back`, then the arrays of kept states and the steps that they are
    before, as they are at the end: arrays for `kept` may lie in the same memory.

    Attributes
    ----------
    ahead : Loop
        From a state to the next, for all carries; nothing is stacked.
    back : Loop
        The first of ``back.step.xs`` are the carries of `ahead` before the step, and the others
        those of ``back.xs``.
    kept : tuple of Tensor
        The states that the forward loop has kept.
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
        """The number of its results beside what it works in."""
        return len(self.back.step.outputs)


def kept_stage(name: str, kept: KeptLoop) -> list[Tensor]:
    """The outputs of a loop that keeps states.

    Parameters
    ----------
    name : str
        Of the stage.
    kept : KeptLoop
        What it computes.
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
    """The outputs of a loop back.

    Parameters
    ----------
    name : str
        Of the stage.
    rewind : Rewind
        What it computes.
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
    """The loops that a stage of a kind consists of; none for other kinds."""
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
    """The kind with other loops in the place of `loops_in` it."""
    match kind:
        case Loop():
            return loops[0]
        case KeptLoop():
            return replace(kind, loop=loops[0])
        case Rewind():
            return replace(kind, ahead=loops[0], back=loops[1])


def stage_of_loops(name: str, kind: Loop | KeptLoop | Rewind) -> list[Tensor]:
    """The outputs of a stage of any of these kinds."""
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
    """The outputs of a stage, by number, that may lie where an input does, and these inputs."""
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
    """A loop without its tensors: attributes hold none."""
    return replace(loop, init=(), xs=(), consts=())


def _over(loop: Loop, op: Operation, parts: Sequence[tuple[Tensor, ...]]) -> Loop:
    """A loop over the present inputs of its stage."""
    init, xs, consts = parts
    return replace(loop, init=init, xs=xs, consts=consts, length=_length(op))


def _length(op: Operation) -> Any:
    """The number of steps: that of a sequence, to which a rewriting may have given another size."""
    parts = _parts(op)
    sequences = [tensor for part in parts[1::3] for tensor in part]
    if sequences:
        return shape_of(sequences[0])[0]
    stacks = _stacks(op)
    return shape_of(stacks[0])[0] if stacks else op.attrs[_LENGTH]


def _stacks(op: Operation) -> list[Tensor]:
    """The results that the steps of a stage put out."""
    held = op.attrs[_KEPT if _KEPT in op.attrs else _REWIND].step
    step = held.loop.step if isinstance(held, KeptLoop) else held.back.step
    first = len(step.carries)
    return outputs_of(op)[first : first + len(step.ys)]
