"""Elementwise kernels with short axes that choose between formulas, such as the components of
points, or the directions of a lattice.

All components of a point are computed together, without choices. Where they are the last axes, as
many points as a vector has lanes are computed, each component as one vector, and interleaved in
registers into memory order.

``out[n, c] = if c == 0 then f(n) else g(n) → out[n .. n + L, :] = interleaved(f(n .. n + L), g(n ..
n + L))``, ``out[c, n] = if c == 0 then f(n) else g(n) → out[0, n] = f(n); out[1, n] = g(n)``
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ....codegen.stages.primfunc import StageFunction
from ....expr.costly import is_expensive
from ....expr.nodes import BRANCHES, Expr, Var, dtype_of, node_id, op_name, operands
from ....expr.rewrite import (
    contains,
    contains_load,
    depends_on,
    expand_lets,
    postorder,
    variables_of,
)
from ....graph.stage import Extent, axis_range, bodies
from ...cost import MAX_COPIES, MIN_LANES
from ...declined import Declined, no_gain, other_kind
from ...kernel import Kernel, iterations, too_large
from ...machine import Machine
from ...nest.nest import nest_of, unrolled
from ...rewrites.conditions.guards import selected
from .elements import has_border
from .nest_function import in_vectors, nest_function
from .parallel import threads_over


def interleaved(kernel: Kernel, machine: Machine) -> StageFunction | Declined:
    """A kernel whose short axes choose what is computed."""
    op = kernel.root
    bounds = [axis_range(axis) for axis in op.axis]
    extents = [extent for _, extent in bounds]
    if not bounds or any(low != 0 or not _may_reach(extent, 1) for low, extent in bounds):
        return other_kind("it has no axes, or no elements")
    values = selected([expand_lets(body) for body in bodies(op)], list(op.axis))
    lanes = machine.lanes(*map(dtype_of, values))
    if _may_reach(extents[-1], lanes) and has_border(op.axis, values):
        return other_kind("vectors run along its last axis, between its borders")
    # the components of all rows of a block are in registers at once
    short = _short_axes(extents, machine.vector_registers // 2)
    own = [axis.var for axis in op.axis[-short:]]
    if short == len(extents) or not (_chooses(values, own) or _branches_over(values, extents[-1])):
        short = 0
    rows = len(extents) - short
    moduli = [1] * rows + [extent for extent in extents[rows:] if isinstance(extent, int)]
    if not short:
        moduli = [
            extent if isinstance(extent, int) and _decides(values, axis.var) else 1
            for extent, axis in zip(extents, op.axis, strict=True)
        ]
        if not 1 < prod(moduli) <= MAX_COPIES or moduli[-1] > 1:
            return other_kind("it has no short axes that choose what is computed")
    dtypes = sorted({dtype_of(value) for value in values})
    if len(dtypes) > 1 or dtypes[0] in ("bool", "bfloat16"):
        return Declined("TVM shuffles no vectors of its dtypes")
    if not _may_reach(extents[rows - 1], lanes):
        return no_gain("it has fewer rows than a vector has lanes")
    nest = unrolled(nest_of(op.axis, values, kernel.outputs), moduli)
    literal = isinstance(extents[rows - 1], int)
    work = iterations(op, machine.symbolic_size)
    threads = threads_over(extents, work, kernel.repetition, machine)
    large = not short and too_large(kernel) is not None  # other rules do not take it
    costly = large or contains(values, is_expensive)
    nests = in_vectors(nest, lanes, lanes)
    return nest_function(
        nests, kernel.outputs, threads, strict=literal and not large, costly=costly
    )


def _may_reach(extent: Extent, least: int) -> bool:
    """Whether an extent is, or may be at a call, at least so long."""
    return not isinstance(extent, int) or extent >= least


def _short_axes(extents: Sequence[Extent], most: int) -> int:
    """The number of last axes that together have at most the given number of points."""
    points = 1
    for count, extent in enumerate(reversed(extents)):
        if not isinstance(extent, int) or points * extent > most:
            return count
        points *= extent
    return len(extents)


def _branches_over(values: Sequence[Expr], last: Extent) -> bool:
    """Whether data choose in loops that are too short for vectors: LLVM leaves them as branches."""
    if not isinstance(last, int) or not 1 < last < MIN_LANES:
        return False
    conditions = [operands(n)[0] for n in postorder(list(values)) if op_name(n) in BRANCHES]
    return any(map(contains_load, conditions))


def _decides(values: Sequence[Expr], variable: Var) -> bool:
    """Whether a variable alone decides a choice."""
    return any(
        op_name(node) in BRANCHES
        and [node_id(var) for var in variables_of(operands(node)[0])] == [node_id(variable)]
        for node in postorder(list(values))
    )


def _chooses(values: Sequence[Expr], variables: Sequence[Var]) -> bool:
    return any(
        op_name(node) in BRANCHES and depends_on(operands(node)[0], variables)
        for node in postorder(list(values))
    )
