"""Schedules elementwise kernels with short axes that choose between formulas, such as the
components of points, or the directions of a lattice.

All components of a point are computed together, without choices. Where they are the last axes, as
many points as a vector has lanes are computed, each component as one vector, and interleaved in
registers into memory order.

``out[n, c] = if c == 0 then f(n) else g(n) → out[n .. n + L, :] = interleaved(f(n .. n + L), g(n ..
n + L))``, ``out[c, n] = if c == 0 then f(n) else g(n) → out[0, n] = f(n); out[1, n] = g(n)``
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...codegen.stages.primfunc import StageFunction
from ...expr.nodes import BRANCHES, Expr, Var, dtype_of, node_id, op_name, operands
from ...expr.rewrite import depends_on, expand_lets, postorder, variables_of
from ...graph.stage import bodies
from ..cost import MAX_COPIES
from ..declined import Declined, no_gain, other_kind
from ..kernel import Kernel, constant_extent, iterations, too_large
from ..machine import Machine
from ..nest.nest import nest_of, unrolled, vectorised
from .loops.elements import has_border
from .loops.nest_function import nest_function


def interleaving(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a kernel whose short axes choose what is computed."""
    op = kernel.root
    extents = [constant_extent(axis) for axis in op.axis]
    if not extents or not all(extents):
        return other_kind("it has no axes, or their extents are not constant")
    values = [expand_lets(body) for body in bodies(op)]
    lanes = machine.lanes(*map(dtype_of, values))
    if extents[-1] >= lanes and has_border(op.axis, values):
        return other_kind("vectors run along its last axis, between its borders")
    # the components of all rows of a block are in registers at once
    short = _short_axes(extents, machine.vector_registers // 2)
    if short == len(extents) or not _chooses(values, [axis.var for axis in op.axis[-short:]]):
        short = 0
    moduli = [*(1 for _ in extents[: len(extents) - short]), *extents[len(extents) - short :]]
    if not short:
        pairs = zip(extents, op.axis, strict=True)
        moduli = [extent if _decides(values, axis.var) else 1 for extent, axis in pairs]
        if not 1 < prod(moduli) <= MAX_COPIES or moduli[-1] > 1:
            return other_kind("it has no short axes that choose what is computed")
    dtypes = sorted({dtype_of(value) for value in values})
    if len(dtypes) > 1 or dtypes[0] in ("bool", "bfloat16"):
        return Declined("TVM shuffles no vectors of its dtypes")
    if extents[len(extents) - short - 1] < lanes:
        return no_gain("it has fewer rows than a vector has lanes")
    nest = unrolled(nest_of(op.axis, values, kernel.outputs), moduli)
    nest = vectorised(nest, len(nest.loops) - 1, lanes)
    threads = machine.threads_for(iterations(op))
    large = not short and too_large(kernel) is not None  # other rules do not take it
    launch = nest_function([nest], kernel.outputs, threads, strict=not large, costly=large)
    return launch if isinstance(launch, Declined) else [launch]


def _short_axes(extents: Sequence[int], most: int) -> int:
    """The number of last axes that together have at most the given number of points."""
    count = 0
    while count < len(extents) and 0 < prod(extents[len(extents) - count - 1 :]) <= most:
        count += 1
    return count


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
