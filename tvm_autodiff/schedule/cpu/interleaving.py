"""Schedules elementwise kernels whose short last axes choose between formulas, such as the
components of points.

The components of as many rows as a vector has lanes are computed, each as one vector, and
interleaved in registers into memory order.

``out[n, c] = if c == 0 then f(n) else g(n) → out[n .. n + L, :] = interleaved(f(n .. n + L), g(n ..
n + L))``
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...codegen.stages.primfunc import StageFunction
from ...expr.nodes import BRANCHES, Expr, Var, dtype_of, op_name, operands
from ...expr.rewrite import depends_on, expand_lets, postorder
from ...graph.stage import bodies
from ..declined import Declined, no_gain, other_kind
from ..kernel import Kernel, constant_extent, iterations
from ..machine import Machine
from ..nest.nest import nest_of, unrolled, vectorised
from .loops.nest_function import nest_function


def interleaving(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a kernel whose short last axes choose what is computed."""
    op = kernel.root
    extents = [constant_extent(axis) for axis in op.axis]
    # the components of all rows of a block are in registers at once
    short = _short_axes(extents, machine.vector_registers // 2)
    if not short or short == len(op.axis) or not all(extents):
        return other_kind("it has no short axes after a long one of constant extent")
    values = [expand_lets(body) for body in bodies(op)]
    if not _chooses(values, [axis.var for axis in op.axis[-short:]]):
        return other_kind("its last axes choose nothing")
    dtypes = sorted({dtype_of(value) for value in values})
    if len(dtypes) > 1 or dtypes[0] in ("bool", "bfloat16"):
        return Declined("TVM shuffles no vectors of its dtypes")
    lanes = machine.lanes(dtypes[0])
    if extents[-short - 1] < lanes:
        return no_gain("it has fewer rows than a vector has lanes")
    moduli = [*(1 for _ in extents[:-short]), *extents[-short:]]
    nest = unrolled(nest_of(op.axis, values, kernel.outputs), moduli)
    nest = vectorised(nest, len(nest.loops) - 1, lanes)
    threads = machine.threads_for(iterations(op))
    launch = nest_function([nest], kernel.outputs, threads, strict=True)
    return launch if isinstance(launch, Declined) else [launch]


def _short_axes(extents: Sequence[int], most: int) -> int:
    """The number of last axes that together have at most the given number of points."""
    count = 0
    while count < len(extents) and 0 < prod(extents[len(extents) - count - 1 :]) <= most:
        count += 1
    return count


def _chooses(values: Sequence[Expr], variables: Sequence[Var]) -> bool:
    return any(
        op_name(node) in BRANCHES and depends_on(operands(node)[0], variables)
        for node in postorder(list(values))
    )
