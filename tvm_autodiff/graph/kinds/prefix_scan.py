"""A prefix scan as one opaque stage, with a loop nest that te cannot express.

The stage applies a recurrence ``state ← step(state, element)`` and returns the state before each
element. Rows are independent and run in parallel. The elements of a row are processed in iteration
order, or from the last to the first. The attributes hold the recurrence, so `scan_of` recovers the
computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import te
from tvm.script.ir_builder import IRBuilder, tirx as T

from ...expr.build import cast, const, like, select, variable
from ...expr.nodes import (
    Expr,
    Tensor,
    Var,
    binary,
    dtype_of,
    is_float,
    op_name,
    operands,
    tensor_key,
)
from ...expr.rewrite import contains, expand_lets, rewrite, substituter
from ...expr.sharing.lets import bind_shared
from ..stage import Extent, Operation, index_dtype, is_extern, outputs_of, shape_of

#: attributes of a scan: the recurrence, the input of each element, [number of scanned axes, whether
#: it runs from the last to the first]
_RECURRENCE, _READS, _ORDER = (f"tvm_autodiff.scan_{name}" for name in ("step", "reads", "order"))


@dataclass(frozen=True)
class Recurrence:
    """``state ← step(state, element)``, component by component, starting from `start`."""

    state: tuple[Var, ...]
    element: tuple[Var, ...]
    step: tuple[Expr, ...]
    start: tuple[Expr, ...]


@dataclass(frozen=True)
class Scan:
    """A recurrence over tensors.

    Attributes
    ----------
    recurrence : Recurrence
        The recurrence.
    elements : tuple of Tensor
        One for each variable of ``recurrence.element``, of shape ``rows + scanned``. An element
        that is the same in all rows may omit the first axes.
    rows, scanned : tuple of int or Expr
        The extents of the independent axes, and of the scanned axes.
    backward : bool
        Whether the scan starts with the last element.
    """

    recurrence: Recurrence
    elements: tuple[Tensor, ...]
    rows: tuple[Extent, ...]
    scanned: tuple[Extent, ...]
    backward: bool

    @property
    def inputs(self) -> list[Tensor]:
        """The tensors that it reads, each once: the first parameters of its function."""
        return list({tensor_key(tensor): tensor for tensor in self.elements}.values())


def scan_stage(name: str, scan: Scan) -> list[Tensor]:
    """``out[a, k] = the state of row a before element k``, one tensor for each component.

    Parameters
    ----------
    name : str
        The name of the stage.
    scan : Scan
        The scan to compute. Each element tensor has the dtype of its variable.

    Returns
    -------
    list of Tensor
        Tensors of shape ``rows + scanned``.
    """
    recurrence = scan.recurrence
    tensors, reads = _inputs(scan)
    attrs = {
        _RECURRENCE: [
            list(part)
            for part in (recurrence.state, recurrence.element, recurrence.step, recurrence.start)
        ],
        _READS: reads,
        _ORDER: [len(scan.scanned), int(scan.backward)],
    }
    func = scan_function(name, scan, s_tir=False)
    buffers, results = list(func.params)[: len(tensors)], list(func.params)[len(tensors) :]
    made = te.extern(
        [buffer.shape for buffer in results],
        tensors,
        lambda ins, outs: func.body,
        name=name,
        in_buffers=buffers,
        out_buffers=results,
        attrs=attrs,
    )
    return outputs_of((made if len(results) == 1 else made[0]).op)


def _inputs(scan: Scan) -> tuple[list[Tensor], list[int]]:
    """The tensors that a scan reads, each once, and the input for each element."""
    places = list(map(tensor_key, scan.inputs))
    return scan.inputs, [places.index(tensor_key(tensor)) for tensor in scan.elements]


def scan_of(op: Operation) -> Scan | None:
    """What a stage made by `scan_stage` computes; None for other stages."""
    if not is_extern(op) or _RECURRENCE not in op.attrs:
        return None
    state, element, step, start = (tuple(part) for part in op.attrs[_RECURRENCE])
    inputs = list(op.inputs)
    scanned, backward = (int(value) for value in op.attrs[_ORDER])
    shape = shape_of(op.output(0))
    return Scan(
        Recurrence(state, element, step, start),
        tuple(inputs[int(place)] for place in op.attrs[_READS]),
        shape[: len(shape) - scanned],
        shape[len(shape) - scanned :],
        bool(backward),
    )


def scan_function(
    name: str, scan: Scan, *, lanes: int = 1, threads: bool = True, s_tir: bool = True
) -> Any:
    """The function ``(*tensors read, *outputs)``, which processes the elements of a row in order.

    Parameters
    ----------
    name : str
        The name of the function.
    scan : Scan
        The scan to compute.
    lanes : int
        The number of rows that are processed together, as lanes of a vector.
    threads : bool
        Whether rows run in parallel.
    s_tir : bool
        Whether the function is launched directly, or becomes the body of a stage.
    """
    recurrence = scan.recurrence
    inputs, reads = _inputs(scan)
    shape = [*scan.rows, *scan.scanned]
    with IRBuilder() as builder, T.prim_func(s_tir=s_tir):
        T.func_name(name)
        sources = [
            T.arg(f"p{n}", T.buffer(tensor.shape, dtype_of(tensor)))
            for n, tensor in enumerate(inputs)
        ]
        results = [
            T.arg(f"out{n}", T.buffer(shape, dtype_of(var)))
            for n, var in enumerate(recurrence.state)
        ]
        with ExitStack() as loops:
            if s_tir:  # Relax requires a block around everything
                loops.enter_context(T.sblock("root"))
                T.reads()
                T.writes()
            row = _rows(scan.rows, lanes, threads, loops)
            states = [
                T.alloc_buffer((lanes,), dtype_of(var), scope="local") for var in recurrence.state
            ]
            with _each_lane(lanes) as lane:
                for state, start in zip(states, recurrence.start, strict=True):
                    T.buffer_store(state, start, [lane])
            scanned = _places(scan, loops)
            lane = loops.enter_context(_each_lane(lanes))
            place = [*row(lane), *scanned]
            known: dict[Var, Expr] = {}
            for var, state, result in zip(recurrence.state, states, results, strict=True):
                known[var] = _bound(var, state[lane])
                T.buffer_store(result, known[var], place)
            for var, source in zip(recurrence.element, reads, strict=True):
                index = place[len(place) - len(inputs[source].shape) :]
                known[var] = _bound(var, sources[source][tuple(index)])
            rename = substituter(known)
            here = rename if lanes == 1 else lambda step: _by_choices(rename(step))
            news = [
                _bound(var, bind_shared(here(expand_lets(step))))
                for var, step in zip(recurrence.state, recurrence.step, strict=True)
            ]
            for state, new in zip(states, news, strict=True):
                T.buffer_store(state, new, [lane])
    return builder.get()


_DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod", "div", "mod")


def _by_choices(step: Expr) -> Expr:
    """``if c then a else b → select(c, a, b)`` in a step that has no reads.

    TVM splits a vector that contains a branch, and loses the variables bound before it. A branch
    around an integer division stays, because a zero divisor would crash the process.
    """
    if contains([step], lambda node: op_name(node) in _DIVISIONS and not is_float(node)):
        return step
    return rewrite(
        step, lambda node: select(*operands(node)) if op_name(node) == "if_then_else" else None
    )


def _bound(var: Var, value: Expr) -> Var:
    """A value bound to a variable name, evaluated once."""
    return T.bind(value, var=variable(var.name, dtype_of(var)))


@contextmanager
def _each_lane(lanes: int) -> Iterator[Any]:
    if lanes == 1:
        yield 0
        return
    with T.vectorized(0, lanes) as lane:
        yield lane


def _rows(
    extents: Sequence[Extent], lanes: int, threads: bool, loops: ExitStack
) -> Callable[[Any], list[Expr]]:
    """One loop over groups of rows, because TVM does not run nested parallel loops.

    Returns the indices of the row in a lane. Lanes past the last row repeat that row.
    """
    if not extents:
        return lambda lane: []
    size = prod(extents)
    groups: Any = size
    if lanes > 1:
        groups = (size + (lanes - 1)) // lanes
    groups = const(groups, index_dtype(size)) if isinstance(groups, int) else groups
    group = loops.enter_context((T.parallel if threads else T.serial)(0, groups))

    def indices(lane: Any) -> list[Expr]:
        row = group
        if lanes > 1:
            row = group * lanes + cast(dtype_of(group), lane)
            if not isinstance(size, int) or size % lanes:
                last = size - 1
                row = binary("min", row, like(row, last) if isinstance(last, int) else last)
        found: list[Expr] = []
        for extent in reversed(extents[1:]):
            found.append(cast(index_dtype(extent), row % extent))
            row = row // extent
        found.append(cast(index_dtype(extents[0]), row))
        return found[::-1]

    return indices


def _places(scan: Scan, loops: ExitStack) -> list[Expr]:
    """Indices of an element within its row, in the order of the scan."""
    steps = [loops.enter_context(T.serial(0, extent)) for extent in scan.scanned]
    if not scan.backward:
        return steps
    return [extent - 1 - step for extent, step in zip(scan.scanned, steps, strict=True)]
