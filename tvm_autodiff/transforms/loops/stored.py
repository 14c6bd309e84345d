"""Chooses what the forward pass of a loop stacks for its reverse mode, and extends the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ...expr.nodes import Tensor, op_name, tensor_key
from ...expr.rewrite import postorder
from ...graph.counting import multiplications_in
from ...graph.graph import tensors_read_by, topological
from ...graph.kinds.loop import Loop, Step, copy_of, loop_stage, source_of, step_of
from ...graph.stage import (
    Operation,
    bodies,
    is_compute,
    is_placeholder,
    outputs_of,
    reduction_of,
    shape_of,
)

Key = tuple[int, int]

#: the maximum work per element for a stage to be recomputed instead of stored
_CHEAP = 3
_LARGE = 64  #: what an extent that is not known counts as


def tensors_read_of(tensors: Sequence[Tensor], own: set[int]) -> list[Tensor]:
    """The tensors of some stages, by their hashes, that the others of a graph read."""
    found = [
        read
        for op in topological(tensors)
        if hash(op) not in own
        for read in tensors_read_by(op)
        if hash(read.op) in own
    ]
    return found + [tensor for tensor in tensors if hash(tensor.op) in own]


def stored_tensors(step: Step, read: Sequence[Tensor], *, carries_only: bool) -> list[Tensor]:
    """The tensors of the forward step that are stacked so that some of its tensors can be read.

    These are carries, and stages that are too expensive to recompute; with `carries_only`, only
    carries. A cheap stage is stacked if that takes less memory than its inputs: ``gates = a + b →
    gates`` instead of a and b.
    """
    given = {tensor_key(tensor) for tensor in (*step.xs, *step.consts)}
    found: dict[Key, Tensor] = {}

    def again(tensor: Tensor) -> bool:
        return not is_placeholder(tensor.op) and (carries_only or _cheap(tensor.op))

    def sources(tensor: Tensor) -> dict[Key, Tensor]:
        """What must be stacked in addition, so that a tensor can be recomputed."""
        needed: dict[Key, Tensor] = {}
        pending, seen = [tensor], set(given) | set(found)
        while pending:
            one = pending.pop()
            if tensor_key(one) in seen:
                continue
            seen.add(tensor_key(one))
            if again(one):
                pending += reversed(tensors_read_by(one.op))
            else:
                needed[tensor_key(one)] = one
        return needed

    for tensor in read:
        if not again(tensor) and tensor_key(tensor) not in given:
            found.setdefault(tensor_key(tensor), tensor)
    for tensor in read:
        needed = sources(tensor)
        if carries_only or sum(map(elements_of, needed.values())) <= elements_of(tensor):
            found |= needed
        elif needed:
            found[tensor_key(tensor)] = tensor
    return list(found.values())


def elements_of(tensor: Tensor) -> int:
    """The number of elements; an unknown extent counts as a large one."""
    return prod(n if isinstance(n, int) else _LARGE for n in shape_of(tensor))


def _cheap(op: Operation) -> bool:
    """Whether recomputing a stage costs no more than reading its result: a little plain arithmetic.
    """
    if not is_compute(op) or reduction_of(op) is not None:
        return False
    names = {op_name(node) for node in postorder(bodies(op))}
    return names <= _PLAIN and sum(map(multiplications_in, bodies(op))) <= _CHEAP


_PLAIN = frozenset(
    ("add", "sub", "mul", "min", "max", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not")
    + ("select", "if_then_else", "likely", "cast", "const", "var", "load")
)


def extended_loop(
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
