"""Schedules small windows and strides: pooling, arg-reductions over windows, residue classes,
borders.

The kernel reduces a few terms per element, or its elements depend on the remainder of an axis, as
in gradients of strided reads, or on a border. The terms are unrolled, and remainders and borders
are split off. Products with a reused operand are left to the rule for contractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...codegen.stages.primfunc import StageFunction
from ...expr.nodes import Axis, Expr, dtype_of, is_load, node_id, tensor_key
from ...expr.rewrite import expand_lets, map_loads, substituter
from ...graph.stage import Operation, axis_range, axis_vars, bodies, is_compute, reduction_of
from ..cost import MAX_COPIES, MIN_LANES
from ..declined import NOT_COMPUTED, Declined, other_kind
from ..kernel import Kernel, size_of, too_large
from ..machine import Machine
from ..nest.access import is_flat, stride_of
from ..nest.decided import decided
from ..nest.nest import nest_of, unrolled
from ..nest.residues import moduli_of
from ..rewrites.windows.unrolled import window_of
from .loops.elements import has_border, has_outer_border
from .loops.nest_function import in_vectors, nest_function
from .loops.parallel import threads_over


def windows(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a kernel of small windows or residue classes."""
    op = kernel.root
    if not is_compute(op):
        return NOT_COMPUTED
    if not len(op.axis):
        return other_kind("its output has no axis")
    if any(axis_range(axis)[0] != 0 for axis in op.axis):
        return Declined("an axis does not begin at 0")
    if reduction_of(op) is not None:
        if kernel.epilogue is None and is_flat(op, machine.lanes(dtype_of(op.output(0)))):
            return other_kind("its reads run through memory as its result does")
        elements = _written_out(kernel)
    elif kernel.epilogue is None:
        elements = op.axis, _without_quotients(op)
    else:
        return other_kind("it has an epilogue")
    if elements is None:
        return other_kind("it does not reduce over a small window")
    axes, values = elements
    moduli = moduli_of(values, axes)
    if moduli is None:
        return Declined("it depends on a remainder that is not that of an axis")
    if prod(moduli) > MAX_COPIES:
        return Declined(f"it has more than {MAX_COPIES} residue classes")
    plain = prod(moduli) == 1 or (moduli[-1] == 1 and _copies_rows(axes, values))
    plain = plain and reduction_of(op) is None
    plain = plain and not has_border(axes, values) and not has_outer_border(axes, values)
    large = too_large(kernel) is not None
    if plain and not large:
        return other_kind("it has neither windows, nor residue classes, nor borders")
    nest = unrolled(nest_of(axes, values, kernel.outputs), moduli)
    lanes = machine.lanes(dtype_of(kernel.outputs[0]))
    nests = in_vectors(nest, lanes, MIN_LANES)
    extents = [axis_range(axis)[1] for axis in axes]
    work = size_of(extents, machine.symbolic_size)
    threads = threads_over(extents, work, kernel.repetition, machine)
    launch = nest_function(nests, kernel.outputs, threads, costly=large)
    return launch if isinstance(launch, Declined) else [launch]


def _without_quotients(op: Operation) -> list[Expr]:
    """The values of a stage, without the quotients that the extents decide."""
    variables, ranges = axis_vars(op), [axis_range(axis) for axis in op.axis]
    known = {
        node_id(var): (low, low + extent - 1)
        for var, (low, extent) in zip(variables, ranges, strict=True)
        if isinstance(low, int) and isinstance(extent, int)
    }
    return decided(list(map(expand_lets, bodies(op))), variables, known)


def _copies_rows(axes: Sequence[Axis], values: Sequence[Expr]) -> bool:
    """Whether each value is a read along memory, which needs no loop of its own."""
    variables = [axis.var for axis in axes]
    last = node_id(variables[-1])
    return all(is_load(v) and stride_of(v, last, variables) == 1 for v in values)


def _written_out(kernel: Kernel) -> tuple[Sequence[Axis], list[Expr]] | None:
    """The axes and values of a kernel with its window unrolled, or None without a gain."""
    op = kernel.root
    values = window_of(op)
    if values is None or kernel.epilogue is None:
        return None if values is None else (op.axis, values)
    root, reader = tensor_key(op.output(0)), kernel.epilogue
    rename = substituter(dict(zip(axis_vars(op), axis_vars(reader), strict=True)))
    value = rename(values[0])
    body = map_loads(
        expand_lets(bodies(reader)[0]),
        lambda tensor, _: value if tensor_key(tensor) == root else None,
    )
    return reader.axis, [body]
