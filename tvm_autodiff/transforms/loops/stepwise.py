"""Reverse mode of a loop of which the forward pass stacks nothing but carries.

The reversed loop computes each step again from the carry before it, and adds up the cotangents of
the constants on the way, so that no memory grows with the length beside the carries. This is what
the segments of a checkpointed loop need.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.nodes import Tensor
from ...graph.kinds.loop import Loop, loop_stage, slice_of
from ...graph.stage import Operation
from .needs import Needs
from .step_back import Entry, StepBack
from .stored import extended_loop


def pull_step_by_step(
    op: Operation,
    loop: Loop,
    needs: Needs,
    last: Sequence[Tensor],
    given: Sequence[Tensor],
    wanted: Sequence[bool],
) -> tuple[list[Entry], list[Tensor]]:
    """The cotangents of a loop's inputs, by a loop back over the stacked carries.

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
    back = StepBack.of(loop.step, needs)
    stored = back.carries_read()
    made, stacks = extended_loop(op, loop, stored)
    states = [slice_of(stack, tensor.op.name) for tensor, stack in zip(stored, stacks, strict=True)]
    whole = back.loop(loop, last, given, list(zip(stored, states, strict=True)), stacks)
    return back.by_input(loop, loop_stage(f"d{op.name}", whole), wanted), made
