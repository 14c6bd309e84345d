"""Reverse mode of a loop: a loop in the opposite direction over the cotangents of the carries.

The forward loop is extended to stack what the derivative of a step reads. The reversed loop carries
cotangents, and stacks those that arrive at each step. The cotangents of `xs` and of the constants
are computed after it, from the step batched over time, so that the cotangent of a constant is a
single sum over time and other axes. If no constant needs another sum, the loop itself accumulates
them (`totals.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...expr.nodes import Tensor, dtype_of, tensor_key
from ...graph.graph import replace_tensors, tensors_read_by, topological
from ...graph.kinds.checkpoints import Budget
from ...graph.kinds.kind import kind_of
from ...graph.kinds.loop import Loop, Step, loop_stage, slice_of, step_of
from ...graph.kinds.rewind import loops_in
from ...graph.stage import (
    Extent,
    Operation,
    is_placeholder,
    outputs_of,
    placeholder,
    placeholder_like,
    shape_of,
)
from ..batch import batch_of_tensors
from ..custom_rules.apply_rule import zeros_like
from ..local import local_vjp
from .needs import Needs, needs_of
from .rewound import pull_rewound
from .slots import bytes_between
from .stepwise import pull_step_by_step
from .stored import extended_loop, stored_tensors, tensors_read_of
from .totals import Totals, cheap_to_add_up

Key = tuple[int, int]
Entry = Tensor | None


def pull_loop(
    op: Operation, loop: Loop, cotangents: Mapping[int, Tensor], wanted: Sequence[bool]
) -> tuple[list[Entry], list[Tensor]]:
    """The cotangents of a loop's inputs.

    Parameters
    ----------
    op : Operation
        The stage.
    loop : Loop
        The loop that it computes.
    cotangents : mapping from int to Tensor
        The cotangents of outputs, by number; missing ones are zero.
    wanted : sequence of bool
        Which of ``loop.inputs`` need a cotangent.

    Returns
    -------
    list of Tensor or None
        One for each of ``loop.inputs``; None for zero and for inputs that are not wanted.
    list of Tensor
        Tensors of the forward pass that the cotangents read.
    """
    step, count = loop.step, len(loop.init)
    needs = needs_of(loop, cotangents, wanted)
    found: list[Entry] = [None] * len(loop.inputs)
    if not needs.carries and not needs.ys:
        return found, []
    given = [cotangents[count + n] for n in needs.ys]
    last = [
        cotangents[n] if n in cotangents else zeros_like(loop.init[n], (), "bar")
        for n in needs.carries
    ]
    one_by_one = loop.carries_only or _keeps_states(step)
    if isinstance(loop.plan, Budget) and not one_by_one:
        stored = _pull_stored(op, loop, needs, last, given, wanted)
        results = [tensor for tensor in stored[0] if tensor is not None]
        size = bytes_between(results, [*loop.inputs, *last, *given])
        if size is not None and size <= loop.plan.size:
            return stored
    if loop.plan is not None:
        return pull_rewound(op, loop, needs, last, given, wanted)
    if one_by_one:
        return pull_step_by_step(op, loop, needs, last, given, wanted)
    return _pull_stored(op, loop, needs, last, given, wanted)


def _pull_stored(
    op: Operation,
    loop: Loop,
    needs: Needs,
    last: Sequence[Tensor],
    given: Sequence[Tensor],
    wanted: Sequence[bool],
) -> tuple[list[Entry], list[Tensor]]:
    """The cotangents, computed from what the forward loop stacked for each step."""
    step = loop.step
    found: list[Entry] = [None] * len(loop.inputs)
    backward = _Backward.of(step, needs)
    later = replace(needs, consts=[]) if backward.totals.numbers else needs
    after = _After.of(loop, later)
    stored = stored_tensors(step, [*backward.read(step), *after.read()], carries_only=False)
    made, stacks = extended_loop(op, loop, stored)
    kept = list(zip(stored, stacks, strict=True))
    arrived: list[Tensor] = []
    if needs.carries:
        whole = backward.loop(loop, last, given, kept, stacks_arriving=bool(after.found))
        results = loop_stage(f"d{op.name}", whole)
        for n, tensor in zip(needs.carries, results, strict=False):
            found[n] = tensor if wanted[n] else None
        for n, tensor in zip(backward.totals.numbers, results[len(last) :], strict=False):
            found[len(loop.init) + len(loop.xs) + n] = tensor
        arrived = results[len(whole.init) :]
    for place, tensor in after.results(loop, [*arrived, *given], kept):
        found[place] = tensor
    return found, made


def _keeps_states(step: Step) -> bool:
    """Whether a loop inside a step has a checkpoint plan, which batching it over time would undo.
    """
    inner = [loop for op in topological(step.outputs) for loop in loops_in(kind_of(op))]
    return any(loop.plan is not None or _keeps_states(loop.step) for loop in inner)


def pull_loop_over_prefix(
    op: Operation,
    loop: Loop,
    cotangents: Mapping[int, Tensor],
    prefix: Sequence[Extent],
    wanted: Sequence[bool],
) -> list[Entry]:
    """`pull_loop` for cotangents ``prefix + shape``, which are members of a batch."""
    outputs, rank = outputs_of(op), len(prefix)
    members = {n: placeholder_like(outputs[n]) if rank else c for n, c in cotangents.items()}
    found, constants = pull_loop(op, loop, members, wanted)
    given = [tensor for tensor in found if tensor is not None]
    for axis in reversed(range(rank)):
        wider = {
            n: c if axis == 0 else placeholder(shape_of(c)[axis:], dtype_of(c), c.op.name)
            for n, c in cotangents.items()
        }
        pairs = [(members[n], wider[n]) for n in cotangents]
        given = batch_of_tensors(given, pairs, prefix[axis], [*constants, *loop.inputs])
        members = wider
    moved = iter(given)
    return [None if tensor is None else next(moved) for tensor in found]


@dataclass(frozen=True)
class _Backward:
    """``λ_t = ∂step/∂carryᵀ · λ_{t+1} + ∂y/∂carryᵀ · ȳ_t``, over the tensors of the forward step.

    Attributes
    ----------
    arriving, given : list of Tensor
        Placeholders for the cotangents of the carries after the step, and of its results.
    leaving : list of Tensor
        The cotangents of the carries before the step.
    totals : Totals
        The cotangents of the constants if they are cheap to accumulate, else empty.
    """

    arriving: list[Tensor]
    given: list[Tensor]
    leaving: list[Tensor]
    totals: Totals

    @staticmethod
    def of(step: Step, needs: Needs) -> _Backward:
        arriving = [
            placeholder_like(step.news[n], f"d{step.carries[n].op.name}") for n in needs.carries
        ]
        given = [placeholder_like(step.ys[n], f"d{step.ys[n].op.name}") for n in needs.ys]
        outputs = [step.news[n] for n in needs.carries] + [step.ys[n] for n in needs.ys]
        carries = [step.carries[n] for n in needs.carries]
        if not carries:
            return _Backward(arriving, given, [], Totals([], [], []))
        consts = [step.consts[n] for n in needs.consts]
        pulled = local_vjp(outputs, [*carries, *consts], [*arriving, *given], [])
        leaving, parts = pulled[: len(carries)], pulled[len(carries) :]
        numbers = needs.consts if cheap_to_add_up(step, leaving, parts) else []
        totals = Totals.of(step, numbers, parts[: len(numbers)])
        return _Backward(arriving, given, leaving, totals)

    @property
    def results(self) -> list[Tensor]:
        """The results of a step."""
        return [*self.leaving, *self.totals.after]

    def read(self, step: Step) -> list[Tensor]:
        """The tensors of the forward step that the cotangents read."""
        return tensors_read_of(self.results, {hash(op) for op in topological(step.outputs)})

    def loop(
        self,
        forward: Loop,
        last: Sequence[Tensor],
        given: Sequence[Tensor],
        kept: Sequence[tuple[Tensor, Tensor]],
        *,
        stacks_arriving: bool,
    ) -> Loop:
        """The reversed loop, which may stack the λ that arrives at each step."""
        step = forward.step
        slices = [slice_of(stack, tensor.op.name) for tensor, stack in kept]
        table = [(tensor, x) for (tensor, _), x in zip(kept, slices, strict=True)]
        results = replace_tensors(self.results, table)
        read = {hash(op) for op in topological(results)}
        sequences = [
            *zip(slices, (stack for _, stack in kept), strict=True),
            *zip(step.xs, forward.xs, strict=True),
            *zip(self.given, given, strict=True),
        ]
        xs = [pair for pair in sequences if hash(pair[0].op) in read]
        consts = [
            pair
            for pair in zip(step.consts, forward.consts, strict=True)
            if hash(pair[0].op) in read
        ]
        return Loop(
            step_of(
                [*self.arriving, *self.totals.before],
                [inside for inside, _ in xs],
                [inside for inside, _ in consts],
                results,
                self.arriving if stacks_arriving else [],
            ),
            (*last, *(zeros_like(forward.consts[n], (), "bar") for n in self.totals.numbers)),
            tuple(tensor for _, tensor in xs),
            tuple(tensor for _, tensor in consts),
            forward.length,
            not forward.reverse,
        )


@dataclass(frozen=True)
class _After:
    """The cotangents of sequences and constants: the step for all times at once, pulled back.

    Attributes
    ----------
    stand : list of (Tensor, Tensor)
        Tensors of the forward step, and the tensors that compute them for all times.
    sequences, cotangents : list of Tensor
        Placeholders for ``loop.xs``, and for the stacked cotangents of the step's results.
    found : list of (int, Tensor)
        The number of an input of the loop, and its cotangent.
    """

    stand: list[tuple[Tensor, Tensor]]
    sequences: list[Tensor]
    cotangents: list[Tensor]
    found: list[tuple[int, Tensor]]

    @staticmethod
    def of(loop: Loop, needs: Needs) -> _After:
        step, length = loop.step, loop.length
        sequences = [placeholder_like(tensor) for tensor in loop.xs]
        states = [_stack_of(carry, length) for carry in step.carries]
        outputs = [step.news[n] for n in needs.carries] + [step.ys[n] for n in needs.ys]
        inner = [
            tensor
            for op in topological(outputs)
            if not is_placeholder(op)
            for tensor in outputs_of(op)
        ]
        batches = list(zip((*step.carries, *step.xs), (*states, *sequences), strict=True))
        many = batch_of_tensors([*inner, *outputs], batches, length)
        stand = [*zip(step.carries, states, strict=True), *zip(inner, many, strict=False)]
        asked = [sequences[n] for n in needs.xs] + [step.consts[n] for n in needs.consts]
        cotangents = [_stack_of(tensor, length) for tensor in outputs]
        whole = many[len(inner) :]
        found = local_vjp(whole, asked, cotangents, []) if asked else []
        first = len(loop.init)
        places = [first + n for n in needs.xs]
        places += [first + len(loop.xs) + n for n in needs.consts]
        return _After(stand, sequences, cotangents, list(zip(places, found, strict=True)))

    def read(self) -> list[Tensor]:
        """The tensors of the forward step that the cotangents read."""
        own = {tensor_key(many): one for one, many in self.stand}
        computed = {hash(op) for op in topological([many for _, many in self.stand])}
        pending = tensors_read_of([tensor for _, tensor in self.found], computed)
        found: dict[Key, Tensor] = {}
        while pending:  # batches of loops have additional stages around them
            tensor = pending.pop()
            if tensor_key(tensor) in found:
                continue
            found[tensor_key(tensor)] = tensor
            if tensor_key(tensor) not in own:
                pending += tensors_read_by(tensor.op)
        return [own[key] for key in found if key in own]

    def results(
        self, loop: Loop, cotangents: Sequence[Tensor], kept: Sequence[tuple[Tensor, Tensor]]
    ) -> list[tuple[int, Tensor]]:
        """The cotangents over the results of the loops."""
        stacks = {tensor_key(tensor): stack for tensor, stack in kept}
        table = [
            (many, stacks[tensor_key(one)]) for one, many in self.stand if tensor_key(one) in stacks
        ]
        table += zip(self.sequences, loop.xs, strict=True)
        table += zip(loop.step.consts, loop.consts, strict=True)
        if self.found:
            table += zip(self.cotangents, cotangents, strict=True)
        moved = replace_tensors([tensor for _, tensor in self.found], table)
        return [(place, tensor) for (place, _), tensor in zip(self.found, moved, strict=True)]


def _stack_of(tensor: Tensor, length: Extent) -> Tensor:
    """A placeholder for a tensor of the step at all times."""
    return placeholder([length, *shape_of(tensor)], dtype_of(tensor), tensor.op.name)
