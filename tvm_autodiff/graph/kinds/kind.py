"""The kind of a stage, on which every walk over stages dispatches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ..stage import Operation, is_compute, is_placeholder
from .custom import Custom, custom_of
from .loop import Loop, loop_of
from .prefix_scan import Scan, scan_of
from .rewind import KeptLoop, Rewind, kept_loop_of, rewind_of
from .scatter_add import ScatterAdd, scatter_of
from .update_loops import UpdateLoops, update_loops_of


@dataclass(frozen=True, eq=False)
class Input:
    """A placeholder."""

    op: Operation


@dataclass(frozen=True, eq=False)
class Compute:
    """A `te.compute` stage: elementwise, or a reduction with any combiner."""

    op: Operation


@dataclass(frozen=True, eq=False)
class Opaque:
    """A user's `te.extern` or `te.scan` stage, about which nothing is known."""

    op: Operation


Kind: TypeAlias = (
    Input
    | Compute
    | Scan
    | ScatterAdd
    | UpdateLoops
    | Loop
    | KeptLoop
    | Rewind
    | Custom
    | Opaque
)

#: the kinds of stages that are not compute stages: functions that return None for other stages
_EMBEDDED = (
    scan_of,
    scatter_of,
    update_loops_of,
    loop_of,
    kept_loop_of,
    rewind_of,
    custom_of,
)


def kind_of(op: Operation) -> Kind:
    """The kind of a stage, which holds what the stage computes over its present inputs.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((3,), name="x")
    >>> type(kind_of(te.compute((3,), lambda i: 2 * x[i]).op)).__name__
    'Compute'
    """
    if is_placeholder(op):
        return Input(op)
    if is_compute(op):
        return Compute(op)
    for decode in _EMBEDDED:
        found = decode(op)
        if found is not None:
            return found
    return Opaque(op)
