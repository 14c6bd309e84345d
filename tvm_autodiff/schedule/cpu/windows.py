"""Schedules small windows and strides: pooling, arg-reductions over windows, residue classes,
borders.

The kernel reduces a few terms per element, or its elements depend on the remainder of an axis, as
in gradients of strided reads, or on a border. The terms are unrolled, and remainders and borders
are split off. Products with a reused operand are left to the rule for contractions.
"""

from __future__ import annotations

from math import prod

from ...codegen.stages.primfunc import StageFunction
from ...expr.nodes import dtype_of, is_load, node_id, tensor_key
from ...expr.rewrite import expand_lets, map_loads, substituter
from ...graph.stage import Operation, axis_range, axis_vars, bodies, is_compute, reduction_of
from ..cost import MAX_COPIES
from ..declined import NOT_COMPUTED, Declined, no_gain, other_kind
from ..kernel import Kernel
from ..machine import Machine
from ..nest.access import is_flat, stride_of
from ..nest.index_set_splitting import decided
from ..nest.residues import moduli_of
from ..rewrites.sums.unrolled import window_of
from .loops.class_loops import class_loops
from .loops.elements import Elements, has_border


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
            return no_gain("its reads run through memory as its result does")
        elements = _written_out(kernel)
    elif kernel.epilogue is None:
        elements = _elementwise(op)
    else:
        return other_kind("it has an epilogue")
    if elements is None:
        return other_kind("it does not reduce over a small window")
    moduli = moduli_of(elements.values, elements.axes)
    if moduli is None:
        return Declined("it depends on a remainder that is not that of an axis")
    if prod(moduli) > MAX_COPIES:
        return Declined(f"it has more than {MAX_COPIES} residue classes")
    plain = prod(moduli) == 1 or (moduli[-1] == 1 and _copies_rows(elements))
    if reduction_of(op) is None and plain and not has_border(elements):
        return other_kind("it has neither windows, nor residue classes, nor borders")
    launch = class_loops(elements, moduli, kernel.outputs, machine, kernel.repetition)
    return launch if isinstance(launch, Declined) else [launch]


def _elementwise(op: Operation) -> Elements:
    """The elements of a stage, without the quotients that the extents decide."""
    variables, ranges = axis_vars(op), [axis_range(axis) for axis in op.axis]
    known = {
        node_id(var): (low, low + extent - 1)
        for var, (low, extent) in zip(variables, ranges, strict=True)
        if isinstance(low, int) and isinstance(extent, int)
    }
    values = tuple(decided(expand_lets(body), variables, known) for body in bodies(op))
    return Elements(tuple(op.axis), values)


def _copies_rows(elements: Elements) -> bool:
    """Whether each value is a read along memory, which needs no loop of its own."""
    variables = [axis.var for axis in elements.axes]
    last = node_id(variables[-1])
    return all(is_load(v) and stride_of(v, last, variables) == 1 for v in elements.values)


def _written_out(kernel: Kernel) -> Elements | None:
    """The elements of a kernel with its window unrolled, or None without a gain."""
    op = kernel.root
    values = window_of(op)
    if values is None:
        return None
    if kernel.epilogue is None:
        return Elements(tuple(op.axis), tuple(values))
    root, reader = tensor_key(op.output(0)), kernel.epilogue
    rename = substituter(dict(zip(axis_vars(op), axis_vars(reader), strict=True)))
    value = rename(values[0])
    body = map_loads(
        expand_lets(bodies(reader)[0]),
        lambda tensor, _: value if tensor_key(tensor) == root else None,
    )
    return Elements(tuple(reader.axis), (body,))
