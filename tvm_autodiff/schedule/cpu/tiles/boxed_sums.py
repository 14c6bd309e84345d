"""Takes sums whose bounds vary along the output over boxes, where tiles of these are estimated
faster than loops that end at the bounds: triangular and banded products.
"""

from __future__ import annotations

from math import prod

from ....expr.dtypes import itemsize
from ....expr.nodes import dtype_of
from ....graph.counting import loop_iterations
from ....graph.stage import bodies, loop_axes, shape_of
from ...cost import LATENCY, LAUNCH_CYCLES
from ...declined import Declined, no_gain
from ...kernel import Kernel
from ...machine import Machine
from ...nest.reductions.elementwise_body import reduced_body
from ...rewrites.sums.boxed import boxed
from ...rule import Made, Rest, writes_to
from .nests import Nest, nest_of
from .tile_choice import best_tile, estimated_cycles


def boxed_sum(
    kernel: Kernel, machine: Machine, lanes: int, partial_sums: bool
) -> Made | Declined:
    """Leave a reduction over a box, with its bounds as conditions, to the rules.

    Copies of operands hold zeros where the bounds end, which a zero of one operand multiplies with
    any number of another: for exact math the loops end at the bounds.

    Parameters
    ----------
    kernel : Kernel
    machine : Machine
    lanes : int
        How many points the loops that end at the bounds take at a time.
    partial_sums : bool
        Whether these are of one result.
    """
    if machine.exact_math:
        return Declined("exact math multiplies nothing that lies outside of the bounds")
    whole = boxed(kernel)
    if whole is None:
        return Declined("the bounds of its sum are data, or have no constant bounds")
    found = reduced_body(whole.root)
    if isinstance(found, Declined):
        return found
    epilogue = () if kernel.epilogue is None else bodies(kernel.epilogue)
    nest = nest_of(found, dtype_of(whole.root.output(0)), machine, epilogue, kernel.repetition)
    if nest is None or len(found.operands) < 2 or nest.iterations < LAUNCH_CYCLES:
        return no_gain("it is no large product over a box of constant size")
    if not any(set(nest.spatial) - operand.variables() for operand in found.operands):
        return no_gain("no operand is read again along an output axis")
    tile = best_tile(nest, machine)
    if tile is None:
        return Declined("no tile fits the loops of its box")
    within = _within_bounds(kernel, nest, machine, lanes, partial_sums)
    if estimated_cycles(nest, tile, machine) > within:
        return no_gain("too much of its box lies outside of the bounds")
    return writes_to([Rest(whole)], kernel)


def _within_bounds(
    kernel: Kernel, nest: Nest, machine: Machine, lanes: int, partial_sums: bool
) -> float:
    """The cycles of loops that end at the bounds."""
    # a row of sums is read and written at each step; a write takes as long as two reads
    moved = len(nest.body.operands) + (3 if lanes > 1 and not partial_sums else 0)
    computed = sum(weight for _, weight in nest.steps)
    vector = machine.vector_cycles(min(machine.vector_bytes, lanes * itemsize(nest.dtype)))
    points = loop_iterations(loop_axes(kernel.root))
    cycles = points / lanes * max(moved, computed) * vector
    if partial_sums:  # they are added one after the other, and as many half the time are left over
        cycles += 1.5 * LATENCY * lanes * prod(map(int, shape_of(kernel.root.output(0))))
    return cycles / machine.threads
