"""Rules of scatter-adds: ``y[p[n], i] += u[n, i]`` for all points n and trailing indices i."""

from __future__ import annotations

from collections.abc import Hashable

from ....expr.build import const, variable
from ....expr.nodes import Expr, Tensor, Var
from ....expr.printing.text import Printer
from ....expr.structural import StructuralKeys
from ...counting import Cost, Put, elements_of, product_of
from ...stage import Extent, Operation, index_dtype, shape_of
from ..scatter_add import ScatterAdd
from .questions import KindRules, left_side


def _key(op: Operation, scatter: ScatterAdd, keys: StructuralKeys) -> Hashable:
    """Equal for the same updates at the same positions, in a result of equal shape."""
    operands = tuple(map(keys.tensor_key_of, (*scatter.positions, scatter.updates)))
    return "scatter_add", keys.extents(shape_of(scatter.result)), scatter.layout, operands


def _cost(op: Operation, scatter: ScatterAdd, put: Put) -> Cost:
    """One step per element of the result, which is cleared, and one per added update."""
    memory = elements_of(scatter.result, put)
    added = product_of([put(extent) for extent in scatter.extents.values()])
    return Cost(memory + added, 0, memory)


def _text(op: Operation, scatter: ScatterAdd, printer: Printer) -> str:
    """``y[p[n0], i1] += u[n0, i1]  for n0<5, i1<3``."""
    left = left_side(op, printer)
    layout, extents = scatter.layout, scatter.extents
    order = [axis for axis in layout.order if axis >= 0]
    order += [axis for axis in layout.order if axis < 0]
    names: dict[int, Var] = {
        axis: variable(f"n{axis}" if axis >= 0 else f"i{-1 - axis}") for axis in order
    }
    index: dict[int, Expr] = dict(names)

    def read(tensor: Tensor, place: list[Expr]) -> str:
        indices = ", ".join(map(printer, place))
        return f"{printer.tensor(tensor)}[{indices}]" if indices else printer.tensor(tensor)

    loops = [f"{printer.variable(names[axis])}<{_extent(extents[axis], printer)}" for axis in order]
    places = [read(t, layout.place(n, index)) for n, t in enumerate(scatter.positions)]
    target = [
        places[number] if number >= 0 else printer.variable(names[-1 - dim])
        for dim, number in enumerate(layout.dims)
    ]
    added = read(scatter.updates, layout.update(index))
    over = f" for {', '.join(loops)}" if loops else ""
    return f"{left}[{', '.join(target)}] += {added}{over}"


def _extent(extent: Extent, printer: Printer) -> str:
    return printer(const(extent, index_dtype(extent)) if isinstance(extent, int) else extent)


def _exprs(op: Operation, scatter: ScatterAdd) -> list[Expr]:
    return []  # all extents are those of shapes


def _bound(op: Operation, scatter: ScatterAdd) -> list[Var]:
    return []


RULES = KindRules(_key, _cost, _text, _exprs, _bound)
