"""Finds elementwise kernels that read along another axis than they write, and tiles their loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....expr.nodes import BRANCHES, Axis, Expr, dtype_of, is_load, node_id, op_name, operands
from ....expr.rewrite import contains, expand_lets, postorder, variables_of
from ....graph.stage import axis_range, bodies
from ...cost import MIN_LANES, SYMBOLIC_SIZE
from ...declined import Declined, no_gain, other_kind
from ...kernel import Kernel
from ...machine import Machine
from ...nest.access import affine_forms
from ...nest.axis_bounds import decided_piece
from ...nest.in_range import loops_of
from ...nest.nest import (
    Nest,
    apart_inside,
    interchanged,
    nest_of,
    strip_mined,
    unrolled,
    vectorised,
)
from .vector_body import VECTOR_OPS


@dataclass(frozen=True)
class Crossed:
    """A kernel that transposes.

    Attributes
    ----------
    values : list of Expr
        What it computes.
    across : int
        The axis along which `reads` are contiguous.
    reads : list of Expr
        The reads that are not contiguous along the last axis.
    side : int
        The rows and columns of a square tile, a power of two.
    """

    values: list[Expr]
    across: int
    reads: list[Expr]
    side: int

    @property
    def has_border(self) -> bool:
        """Whether guards hold for a part of the results only."""
        return contains(self.values, lambda node: op_name(node) in BRANCHES)


def crossed(kernel: Kernel, machine: Machine) -> Crossed | Declined:
    """The reads of a kernel that run along another axis than its writes."""
    op = kernel.root
    values = [expand_lets(body) for body in bodies(op)]
    found = _crossed(op.axis, _inside(op.axis, values))
    if found is None:
        return other_kind("no read runs through memory along another axis than the write")
    across, reads = found
    side = machine.lanes(dtype_of(reads[0]))
    while side > min(extent_or(side, op.axis[across]), extent_or(side, op.axis[-1])):
        side //= 2
    if side < MIN_LANES:
        return no_gain(f"its tiles have fewer than {MIN_LANES} rows or columns")
    return Crossed(values, across, reads, side)


def _inside(axes: Sequence[Axis], values: Sequence[Expr]) -> list[Expr]:
    """The values where the guards of borders hold: ``if p*32 + r < 2000 then x[p*32 + r, k] else 0
    → x[p*32 + r, k]``, as for all but the last p.
    """
    current, loops = list(values), loops_of(axes)
    for axis in axes[:-1]:
        if not contains(current, lambda node: op_name(node) in BRANCHES):
            break
        if node_id(axis.var) in loops.ranges:
            piece = decided_piece(current, axis.var, loops.variables, loops.ranges)
            current = current if piece is None else piece[1]
    return current


def transposed_nest(kernel: Kernel, found: Crossed, side: int) -> Nest:
    """``for i: for j: T(i, j)  →
    for j by L: for i by L: T(i, j .. j + L - 1), .. T(i + L - 1, j ..)``
    """
    axes = kernel.root.axis
    count = len(axes)
    outer = [place for place in range(count - 1) if place != found.across]
    nest = nest_of(axes, found.values, kernel.outputs)
    nest = interchanged(nest, [*outer, count - 1, found.across])
    if found.has_border:
        for place in range(len(outer)):
            nest = apart_inside(nest, place)
    if side == 1:
        return nest
    strips = strip_mined(vectorised(nest, count - 2, side), count - 1, side)
    return unrolled(strips, [*(1 for _ in nest.loops), side])


def extent_or(default: int, axis: Axis) -> int:
    """The extent of an axis that begins at 0, `default` if it is symbolic; 0 for other axes."""
    low, extent = axis_range(axis)
    return 0 if low != 0 else extent if isinstance(extent, int) else default


def _crossed(axes: Sequence[Axis], values: Sequence[Expr]) -> tuple[int, list[Expr]] | None:
    """The axis along which reads are contiguous that are not along the last one, and those reads.

    None if there are none, or if another read is contiguous along neither.
    """
    if len(axes) < 2 or not all(extent_or(1, axis) for axis in axes):
        return None
    nodes = postorder(list(values))
    variables = [axis.var for axis in axes]
    known = {node_id(var) for var in variables}
    if any(op_name(node) not in VECTOR_OPS for node in nodes):
        return None
    if any(node_id(var) not in known for var in variables_of(values)):
        return None
    last = node_id(variables[-1])
    reads: list[Expr] = []
    candidates: list[int] | None = None
    for node in nodes:
        if not is_load(node) or not operands(node):
            continue
        indices = operands(node)
        forms = affine_forms(list(indices), variables)
        if any(node_id(index) not in forms for index in indices):
            return None
        outer = [forms[node_id(index)] for index in indices[:-1]]
        inner = forms[node_id(indices[-1])]
        if not any(form.coefficient(last) for form in outer):
            if inner.coefficient(last) in (0, 1):
                continue
            return None
        along = [
            place
            for place, var in enumerate(variables[:-1])
            if inner.coefficient(node_id(var)) == 1
            and not any(form.coefficient(node_id(var)) for form in outer)
        ]
        if inner.coefficient(last):
            return None
        candidates = along if candidates is None else [c for c in candidates if c in along]
        reads.append(node)
    if not candidates or len({dtype_of(read) for read in reads}) != 1:
        return None
    return max(candidates, key=lambda place: extent_or(SYMBOLIC_SIZE, axes[place])), reads
