"""Reverse mode of a loop: a loop in the opposite direction over the cotangents of the carries.

The forward loop is extended: it also stacks what the derivative of a step reads. The reversed loop
carries cotangents only, and stacks those that arrive at each step. What `xs` and the constants get
is computed after it, from the step batched over time: the cotangent of a constant is one sum over
time and whatever else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...expr.nodes import Tensor, dtype_of, is_float, op_name, tensor_key
from ...expr.rewrite import postorder
from ...graph.counting import multiplications_in
from ...graph.graph import Graph, replace_tensors, tensors_read_by, topological
from ...graph.kinds.loop import Loop, Step, copy_of, loop_stage, slice_of, source_of, step_of
from ...graph.stage import (
    Extent,
    Operation,
    bodies,
    is_compute,
    is_placeholder,
    outputs_of,
    placeholder,
    placeholder_like,
    reduction_of,
    shape_of,
)
from ..apply_rule import zeros_like
from ..batch import batch_of_tensors
from ..local import local_vjp

Key = tuple[int, int]
Entry = Tensor | None

#: work on an element up to which a stage is computed again in place of being stored
_CHEAP = 3


@dataclass(frozen=True)
class _Needs:
    """What of a loop takes part.

    Attributes
    ----------
    carries : list of int
        The carries that a cotangent arrives at, and whose cotangent leads to something wanted.
    ys : list of int
        The stacked results that have a cotangent.
    xs, consts : list of int
        Those whose cotangent is wanted and not zero.
    """

    carries: list[int]
    ys: list[int]
    xs: list[int]
    consts: list[int]


def pull_loop(
    op: Operation, loop: Loop, cotangents: Mapping[int, Tensor], wanted: Sequence[bool]
) -> tuple[list[Entry], list[Tensor]]:
    """The cotangents of a loop's inputs.

    Parameters
    ----------
    op : Operation
        The stage.
    loop : Loop
        What it computes.
    cotangents : mapping from int to Tensor
        Of outputs, by number; the others are zero.
    wanted : sequence of bool
        Which of ``loop.inputs`` count.

    Returns
    -------
    list of Tensor or None
        One for each of ``loop.inputs``; None for zero and for those that do not count.
    list of Tensor
        Tensors of the forward pass that the cotangents read.
    """
    step, count = loop.step, len(loop.init)
    needs = _needs(loop, cotangents, wanted)
    found: list[Entry] = [None] * len(loop.inputs)
    if not needs.carries and not needs.ys:
        return found, []
    given = [cotangents[count + n] for n in needs.ys]
    backward = _Backward.of(step, needs)
    after = _After.of(loop, needs)
    stored = _stored(step, [*backward.read(step), *after.read()])
    made, stacks = _extended(op, loop, stored)
    kept = list(zip(stored, stacks, strict=True))
    arrived: list[Tensor] = []
    if needs.carries:
        last = [
            cotangents[n] if n in cotangents else zeros_like(loop.init[n], (), "bar")
            for n in needs.carries
        ]
        whole = backward.loop(loop, last, given, kept)
        results = loop_stage(f"d{op.name}", whole)
        for n, tensor in zip(needs.carries, results, strict=False):
            found[n] = tensor if wanted[n] else None
        arrived = results[len(last) :]
    for place, tensor in after.results(loop, [*arrived, *given], kept):
        found[place] = tensor
    return found, made


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


def _needs(loop: Loop, cotangents: Mapping[int, Tensor], wanted: Sequence[bool]) -> _Needs:
    step, count = loop.step, len(loop.init)
    graph = Graph(list(step.outputs))
    floats = [n for n, carry in enumerate(step.carries) if is_float(carry)]
    ys = [n for n in range(len(step.ys)) if count + n in cotangents]
    arrives = {n for n in floats if n in cotangents}
    while True:
        ends = [step.news[n] for n in sorted(arrives)] + [step.ys[n] for n in ys]
        below = {hash(op) for op in topological(ends)}
        more = arrives | {n for n in floats if hash(step.carries[n].op) in below}
        if more == arrives:
            break
        arrives = more
    asked = [x for x, want in zip(step.inputs[count:], wanted[count:], strict=True) if want]
    leads = {n for n in floats if wanted[n]}
    while True:
        above = graph.depends_on([*asked, *(step.carries[n] for n in sorted(leads))])
        more = leads | {n for n in floats if hash(step.news[n].op) in above}
        if more == leads:
            break
        leads = more
    carries = sorted(arrives & leads)
    ys = [n for n in ys if hash(step.ys[n].op) in above]
    ends = [step.news[n] for n in carries] + [step.ys[n] for n in ys]
    below = {hash(op) for op in topological(ends)}
    first = count + len(loop.xs)
    used = [
        n
        for n, (x, want) in enumerate(zip(step.inputs, wanted, strict=True))
        if n >= count and want and is_float(x) and hash(x.op) in below
    ]
    return _Needs(
        carries, ys, [n - count for n in used if n < first], [n - first for n in used if n >= first]
    )


def _stored(step: Step, read: Sequence[Tensor]) -> list[Tensor]:
    """What of the forward step is stacked, so that some of its tensors can be read: carries, and
    stages that would cost too much to compute again from those and from what is given.
    """
    given = {tensor_key(tensor) for tensor in (*step.xs, *step.consts)}
    found: dict[Key, Tensor] = {}
    pending = list(reversed(read))
    seen: set[Key] = set()
    while pending:
        tensor = pending.pop()
        key = tensor_key(tensor)
        if key in seen or key in given:
            continue
        seen.add(key)
        if is_placeholder(tensor.op) or not _cheap(tensor.op):
            found[key] = tensor
        else:
            pending += reversed(tensors_read_by(tensor.op))
    return list(found.values())


def _cheap(op: Operation) -> bool:
    """Whether a stage costs no more than to read what it computed: a little plain arithmetic."""
    if not is_compute(op) or reduction_of(op) is not None:
        return False
    names = {op_name(node) for node in postorder(bodies(op))}
    return names <= _PLAIN and sum(map(multiplications_in, bodies(op))) <= _CHEAP


_PLAIN = frozenset(
    ("add", "sub", "mul", "min", "max", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not")
    + ("select", "if_then_else", "likely", "cast", "const", "var", "load")
)


def _extended(
    op: Operation, loop: Loop, stored: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """The outputs of the loop that also stacks some tensors of its step, and these stacks."""
    step, count = loop.step, len(loop.init)
    known = {tensor_key(source_of(y)): count + n for n, y in enumerate(step.ys)}
    fresh = [tensor for tensor in stored if tensor_key(tensor) not in known]
    made = outputs_of(op)
    if fresh:
        copies = [copy_of(tensor, f"{tensor.op.name}_kept") for tensor in fresh]
        wider = step_of(step.carries, step.xs, step.consts, step.news, [*step.ys, *copies])
        made = loop_stage(str(op.name), replace(loop, step=wider))
    known |= {tensor_key(tensor): len(step.outputs) + n for n, tensor in enumerate(fresh)}
    return made, [made[known[tensor_key(tensor)]] for tensor in stored]


def _read_of(tensors: Sequence[Tensor], own: set[int]) -> list[Tensor]:
    """The tensors of some stages, by their hashes, that the others of a graph read."""
    found = [
        read
        for op in topological(tensors)
        if hash(op) not in own
        for read in tensors_read_by(op)
        if hash(read.op) in own
    ]
    return found + [tensor for tensor in tensors if hash(tensor.op) in own]


@dataclass(frozen=True)
class _Backward:
    """``λ_t = ∂step/∂carryᵀ · λ_{t+1} + ∂y/∂carryᵀ · ȳ_t``, over the tensors of the forward step.

    Attributes
    ----------
    arriving, given : list of Tensor
        Placeholders for the cotangents of the carries after the step, and of its results.
    leaving : list of Tensor
        The cotangents of the carries before the step.
    """

    arriving: list[Tensor]
    given: list[Tensor]
    leaving: list[Tensor]

    @staticmethod
    def of(step: Step, needs: _Needs) -> _Backward:
        arriving = [
            placeholder_like(step.news[n], f"d{step.carries[n].op.name}") for n in needs.carries
        ]
        given = [placeholder_like(step.ys[n], f"d{step.ys[n].op.name}") for n in needs.ys]
        outputs = [step.news[n] for n in needs.carries] + [step.ys[n] for n in needs.ys]
        carries = [step.carries[n] for n in needs.carries]
        leaving = local_vjp(outputs, carries, [*arriving, *given], []) if carries else []
        return _Backward(arriving, given, leaving)

    def read(self, step: Step) -> list[Tensor]:
        """What the cotangents read of the forward step."""
        return _read_of(self.leaving, {hash(op) for op in topological(step.outputs)})

    def loop(
        self,
        forward: Loop,
        last: Sequence[Tensor],
        given: Sequence[Tensor],
        kept: Sequence[tuple[Tensor, Tensor]],
    ) -> Loop:
        """The reversed loop, which stacks the λ that arrives at each step."""
        step = forward.step
        slices = [slice_of(stack, tensor.op.name) for tensor, stack in kept]
        table = [(tensor, x) for (tensor, _), x in zip(kept, slices, strict=True)]
        leaving = replace_tensors(self.leaving, table)
        read = {hash(op) for op in topological(leaving)}
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
                self.arriving,
                [inside for inside, _ in xs],
                [inside for inside, _ in consts],
                leaving,
                self.arriving,
            ),
            tuple(last),
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
        Tensors of the forward step, and what computes them for all times.
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
    def of(loop: Loop, needs: _Needs) -> _After:
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
        """What the cotangents read of the forward step."""
        own = {tensor_key(many): one for one, many in self.stand}
        computed = {hash(op) for op in topological([many for _, many in self.stand])}
        pending = _read_of([tensor for _, tensor in self.found], computed)
        found: dict[Key, Tensor] = {}
        while pending:  # batches of loops have stages of their own around them
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
        """The cotangents over what the loops have computed."""
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
