"""A program and what is derived from it, as two programs: the first one keeps what the second one
reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..expr.nodes import Tensor
from .choice import Residuals, choose
from .joint import Sizes, joint
from .programs import Passes, passes_of


def split(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    derived: Sequence[Tensor],
    later: Sequence[Tensor],
    sizes: Sizes,
    budget: int | None = None,
) -> tuple[Passes, Residuals]:
    """The programs, and the residuals between them.

    Parameters
    ----------
    inputs : sequence of Tensor
        Placeholders that both read.
    outputs : sequence of Tensor
        What the first program computes.
    derived : sequence of Tensor
        What the second one computes, from the inputs and from `later`: adjoints, tangents.
    later : sequence of Tensor
        Placeholders that only the second program gets: cotangents, tangents of inputs.
    sizes : Sizes
        Values of symbolic sizes that the choice is made for.
    budget : int, optional
        The most bytes that residuals take, without inputs.
    """
    program = joint(outputs, derived, later, sizes)
    residuals = choose(program, sizes, budget)
    passes = passes_of(program, inputs, residuals)
    return passes, residuals.with_inputs([inputs[n] for n in passes.passed], sizes)
