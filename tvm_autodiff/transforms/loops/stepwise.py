"""Reverse mode of a loop of which the forward pass stacks nothing but carries.

The reversed loop computes each step again from the carry before it, and adds up the cotangents of
the constants on the way, so that no memory grows with the length beside the carries. This is what
the segments of a checkpointed loop need.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.build import add
from ...expr.nodes import Tensor, load
from ...graph.bounded_stage import elementwise_stage
from ...graph.graph import replace_tensors, topological
from ...graph.kinds.loop import Loop, loop_stage, slice_of, step_of
from ...graph.stage import Operation, placeholder_like, shape_of
from ..apply_rule import zeros_like
from ..local import local_vjp
from .needs import Needs
from .stored import extended_loop, stored_tensors, tensors_read_of

Entry = Tensor | None


def pull_step_by_step(
    op: Operation,
    loop: Loop,
    needs: Needs,
    last: Sequence[Tensor],
    given: Sequence[Tensor],
    wanted: Sequence[bool],
) -> tuple[list[Entry], list[Tensor]]:
    """``λ, w̄ ← ∂step/∂carryᵀ λ, w̄ + ∂step/∂wᵀ λ``, which stacks ``∂step/∂xᵀ λ``.

    Parameters
    ----------
    op : Operation
        The stage.
    loop : Loop
        What it computes.
    needs : Needs
        What takes part.
    last : sequence of Tensor
        The cotangents of the final carries in ``needs.carries``.
    given : sequence of Tensor
        Those of the stacked results in ``needs.ys``.
    wanted : sequence of bool
        Which of ``loop.inputs`` count.

    Returns
    -------
    list of Tensor or None, list of Tensor
        As `pull_loop`.
    """
    step, count = loop.step, len(loop.init)
    outputs = [step.news[n] for n in needs.carries] + [step.ys[n] for n in needs.ys]
    arriving = [
        placeholder_like(step.news[n], f"d{step.carries[n].op.name}") for n in needs.carries
    ]
    parts = [placeholder_like(step.ys[n], f"d{step.ys[n].op.name}") for n in needs.ys]
    carries = [step.carries[n] for n in needs.carries]
    xs, consts = [step.xs[n] for n in needs.xs], [step.consts[n] for n in needs.consts]
    pulled = local_vjp(outputs, [*carries, *xs, *consts], [*arriving, *parts], [])
    sums = [placeholder_like(tensor, f"d{tensor.op.name}") for tensor in consts]
    first, second = len(carries), len(carries) + len(xs)
    totals = [_added(one, other) for one, other in zip(sums, pulled[second:], strict=True)]
    results = [*pulled[:first], *totals, *pulled[first:second]]

    own = {hash(inner) for inner in topological(step.outputs)}
    stored = stored_tensors(step, tensors_read_of(results, own), carries_only=True)
    made, stacks = extended_loop(op, loop, stored)
    states = [slice_of(stack, tensor.op.name) for tensor, stack in zip(stored, stacks, strict=True)]
    moved = replace_tensors(results, list(zip(stored, states, strict=True)))
    read = {hash(inner) for inner in topological(moved)}
    sequences = [
        *zip(states, stacks, strict=True),
        *zip(step.xs, loop.xs, strict=True),
        *zip(parts, given, strict=True),
    ]
    moving = [pair for pair in sequences if hash(pair[0].op) in read]
    fixed = [
        pair for pair in zip(step.consts, loop.consts, strict=True) if hash(pair[0].op) in read
    ]
    whole = Loop(
        step_of(
            [*arriving, *sums],
            [inside for inside, _ in moving],
            [inside for inside, _ in fixed],
            moved[: len(arriving) + len(sums)],
            moved[len(arriving) + len(sums) :],
        ),
        (*last, *(zeros_like(loop.consts[n], (), "bar") for n in needs.consts)),
        tuple(tensor for _, tensor in moving),
        tuple(tensor for _, tensor in fixed),
        loop.length,
        not loop.reverse,
        carries_only=True,
    )
    ends = iter(loop_stage(f"d{op.name}", whole))
    found: list[Entry] = [None] * len(loop.inputs)
    for n in needs.carries:
        final = next(ends)
        found[n] = final if wanted[n] else None
    for n in needs.consts:
        found[count + len(loop.xs) + n] = next(ends)
    for n in needs.xs:
        found[count + n] = next(ends)
    return found, made


def _added(one: Tensor, other: Tensor) -> Tensor:
    return elementwise_stage(
        f"{other.op.name}_sum",
        shape_of(one),
        lambda place: add(load(one, place), load(other, place)),
    )
