"""Finds reads at indices outside of a tensor, where data tell the indices.

Stages are looked at in order. For each that reads at data, a program marks the elements of the
stage that read outside; it reads nothing there itself. What a stage reads is computed by programs
of the stages before, whose indices are known to be inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import OutOfBoundsError
from ..expr.build import all_of, any_of, cast, const, if_then_else, negate
from ..expr.nodes import (
    Expr,
    Tensor,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
)
from ..expr.printing.text import text
from ..expr.rewrite import contains_load, expand_lets, postorder
from ..graph.graph import Graph, tensors_read_by
from ..graph.kinds.scatter_add import as_index, inside
from ..graph.stage import (
    Operation,
    axis_vars,
    bodies,
    is_compute,
    is_placeholder,
    make_stage,
    reduction_of,
    reduction_stage,
    shape_of,
)
from .inspector import Build, as_numpy, over_placeholders
from .reads import FLAG, most_of

_Run = Callable[..., list[Any]]


class IndexInspector:
    """Searches a program for reads at data outside of a tensor.

    Parameters
    ----------
    inputs, outputs : list of Tensor
        The program. Steps of loops are not looked at.
    build : callable
        Compiles outputs over inputs to a function of arrays.
    """

    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], build: Build) -> None:
        self._inputs = list(inputs)
        self._stages: list[tuple[Operation, _Run | None, _Run]] = []
        for op in Graph(list(outputs)).ops:
            if not is_compute(op) or not _reads_at_data(op):
                continue
            reads = [read for read in tensors_read_by(op) if not is_placeholder(read.op)]
            fresh, alone = over_placeholders(op, reads)
            computed = build(self._inputs, reads) if reads else None
            marks = build([*self._inputs, *fresh], [_marks(alone)])
            self._stages.append((op, computed, marks))

    def __call__(self, *arrays: Any) -> None:
        """Raise `OutOfBoundsError` for the first stage that reads outside of a tensor."""
        for op, computed, marks in self._stages:
            values = map(as_numpy, computed(*arrays) if computed is not None else ())
            [found] = marks(*arrays, *values)
            places = np.argwhere(as_numpy(found))
            if len(places):
                raise OutOfBoundsError(_message(op, [int(n) for n in places[0]], len(places)))


def _message(op: Operation, place: Sequence[int], count: int) -> str:
    shown = f"{op.name}[{', '.join(map(str, place))}]" if place else op.name
    more = f" (the first of {count} elements)" if count > 1 else ""
    reads = dict.fromkeys(map(text, _reads_at_data(op)))
    names = ", ".join(var.name for var in axis_vars(op))
    return (
        f"stage {op.name} reads outside of a tensor: {shown} does{more}. For [{names}] it reads "
        f"{', '.join(reads)}: correct the data, or guard the read with te.if_then_else"
    )


def _sources(op: Operation) -> Sequence[Expr]:
    reduction = reduction_of(op)
    return bodies(op) if reduction is None else reduction.sources


def _reads_at_data(op: Operation) -> list[Expr]:
    nodes = postorder([expand_lets(source) for source in _sources(op)])
    return [n for n in nodes if is_load(n) and any(map(contains_load, operands(n)))]


def _marks(op: Operation) -> Tensor:
    """Ones where an element reads outside.

    ``y[i] = Σ_k x[at[i, k]] → max_k (not 0 <= at[i, k] < n)``
    """
    reduction, name = reduction_of(op), f"{op.name}_outside"
    flag = cast(FLAG, any_of([_outside(expand_lets(source)) for source in _sources(op)]))
    if reduction is None:
        return make_stage(name, list(op.axis), [flag])[0]
    combiner = most_of(const(0, FLAG))
    found = replace(reduction, combiner=combiner, sources=(flag,), init=())
    return reduction_stage(name, list(op.axis), found)[0]


def _outside(root: Expr) -> Expr:
    """Whether an expression reads outside of a tensor; branches that are not taken do not count."""
    done: dict[int, Expr] = {}
    for node in postorder(root):
        parts = [done[node_id(part)] for part in operands(node)]
        name = op_name(node)
        if is_load(node):
            pairs = zip(operands(node), shape_of(load_tensor(node)), strict=True)
            bounds = [c for index, extent in pairs for c in inside(as_index(index), extent)]
            done[node_id(node)] = _lazily(any_of(parts), negate(all_of(bounds)))
        elif name in ("if_then_else", "and", "or"):
            condition = operands(node)[0]
            then = parts[1] if name != "or" else const(False, "bool")
            otherwise = parts[-1] if name != "and" else const(False, "bool")
            chosen = if_then_else(condition, then, otherwise)
            done[node_id(node)] = _lazily(parts[0], chosen)
        else:
            done[node_id(node)] = any_of(parts)
    return done[node_id(root)]


def _lazily(first: Expr, then: Expr) -> Expr:
    """``first or then``, of which the second is evaluated only where the first does not hold."""
    return if_then_else(first, const(True, "bool"), then)
