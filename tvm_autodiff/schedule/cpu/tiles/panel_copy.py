"""Writes the copy of a panel of an operand, as a statement before the tiles that read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....codegen.loop_nest import Local, Places, Statement, allocated, bind, local, sequence
from ....expr.build import cast
from ....expr.nodes import Expr, dtype_of
from ....graph.stage import bodies, shape_of
from ...declined import Declined
from ...kernel import Kernel
from ...machine import Machine
from ...nest.nest import nest_of, unrolled, vectorised
from ..loops.crossed import crossed, transposed_nest
from ..loops.nest_function import inner_loops
from .packing import Packed


@dataclass(frozen=True)
class PanelCopy:
    """The buffer of a panel, and the statement that fills it."""

    buffer: Local
    statement: Statement

    def before(self, body: Statement) -> Statement:
        """A statement that reads the panel, after the copy."""
        return allocated([self.buffer], sequence([self.statement, body]))


def panel_copy(
    packed: Packed, at: Sequence[Expr], places: Places, machine: Machine
) -> PanelCopy | Declined:
    """The copy of the panel at a place along the leading dimensions; `places` gets its buffer.
    """
    kernel = Kernel(packed.tensor.op)
    axes = list(kernel.root.axis)
    found = crossed(kernel, machine)
    if isinstance(found, Declined):
        lanes = machine.lanes(dtype_of(packed.tensor))
        nest = nest_of(axes, bodies(kernel.root), kernel.outputs)
        nest = unrolled(vectorised(nest, len(axes) - 1, lanes), [1] * len(axes))
    elif found.across < packed.leading:
        return Declined("the panels of an operand lie across memory")
    else:
        nest = transposed_nest(kernel, found, found.side)
    shape = shape_of(packed.tensor)
    buffer = local("panel", shape[packed.leading :], dtype_of(packed.tensor))
    places.put(packed.tensor, buffer, range(packed.leading, len(shape)))
    several = [one for one, extent in zip(at, shape, strict=False) if extent != 1]
    made = inner_loops(nest, len(several), places)
    if isinstance(made, Declined):
        return made
    variables, statement = made
    given = [
        bind(var, cast(dtype_of(var), one)) for var, one in zip(variables, several, strict=True)
    ]
    return PanelCopy(buffer, sequence([*given, statement]))
