"""Reverse mode of a loop whose forward pass stacks only carries.

The reversed loop recomputes each step from the carry before it, and accumulates the cotangents of
the constants, so that only the stacked carries grow with the length. The segments of a checkpointed
loop need this.
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
    """The cotangents of a loop's inputs, by a reverse loop over the stacked carries.

    Parameters
    ----------
    op : Operation
        The stage.
    loop : Loop
        The loop that it computes.
    needs : Needs
        The parts that take part.
    last : sequence of Tensor
        The cotangents of the final carries in ``needs.carries``.
    given : sequence of Tensor
        The cotangents of the stacked results in ``needs.ys``.
    wanted : sequence of bool
        Which of ``loop.inputs`` need a cotangent.

    Returns
    -------
    list of Tensor or None, list of Tensor
        As in `pull_loop`.
    """
    back = StepBack.of(loop.step, needs)
    stored = back.carries_read()
    made, stacks = extended_loop(op, loop, stored)
    states = [slice_of(stack, tensor.op.name) for tensor, stack in zip(stored, stacks, strict=True)]
    whole = back.loop(loop, last, given, list(zip(stored, states, strict=True)), stacks)
    return back.by_input(loop, loop_stage(f"d{op.name}", whole), wanted), made
