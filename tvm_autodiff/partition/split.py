"""Splits a program and what is derived from it into two programs: the first keeps what the second
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
        Placeholders that both programs read.
    outputs : sequence of Tensor
        The tensors that the first program computes.
    derived : sequence of Tensor
        The tensors that the second program computes from the inputs and `later`: adjoints,
        tangents.
    later : sequence of Tensor
        Placeholders of the second program only: cotangents, tangents of inputs.
    sizes : Sizes
        Values of symbolic sizes for the choice.
    budget : int, optional
        The maximum size of residuals in bytes, without inputs.
    """
    program = joint(outputs, derived, later, sizes)
    residuals = choose(program, sizes, budget)
    passes = passes_of(program, inputs, residuals)
    return passes, residuals.with_inputs([inputs[n] for n in passes.passed], sizes)
