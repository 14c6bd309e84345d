"""Loops whose body is unrolled over the residue classes of the output's axes.

An axis of extent ``m*Q + r`` runs over the quotients, and one pass of its body writes ``m``
neighbours. The axes are split where conditions and clamps change, so that only borders have
conditions. Reads are bound before they are used, so choices between them need no branches, and LLVM
vectorises the innermost loop, including strided reads and interleaved writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ....codegen.loop_nest import (
    PARALLEL,
    SERIAL,
    Buffer,
    Places,
    Statement,
    allocated,
    bind,
    branch,
    counter,
    element,
    function,
    local,
    loop,
    sequence,
    store,
)
from ....codegen.stages.primfunc import StageFunction
from ....expr.build import add, compare, const, mul, sub, variable
from ....expr.nodes import Axis, Expr, Tensor, Var, binary, dtype_of, is_load, node_id
from ....expr.rewrite import postorder, replace_outermost, substituter, variables_of
from ....expr.sharing.lets import merge_equal
from ....expr.sharing.weights import MAX_WEIGHT, weight
from ....graph.stage import Extent, axis_range, shape_of
from ...cost import MAX_NODES, MAX_PIECES, MIN_LANES, enough_tasks
from ...declined import Declined
from ...kernel import ONCE, Repetition, size_of, unknown_size
from ...machine import Machine
from ...nest.access import Interval
from ...nest.in_range import Loops
from ...nest.index_set_splitting import decided, pieces
from .elements import Elements, without_branches, worth_binding
from .parallel import tasks, threads_over
from .strip_mining import strip_start
from .vector_strips import Run, Write


@dataclass(frozen=True)
class _Piece:
    """Quotients `low` .. `low + count - 1` of an axis, with these residues each."""

    low: int
    count: Extent
    residues: tuple[int, ...]

    @property
    def interval(self) -> Interval | None:
        return (self.low, self.low + self.count - 1) if isinstance(self.count, int) else None


def class_loops(
    elements: Elements,
    moduli: Sequence[int],
    results: Sequence[Tensor],
    machine: Machine,
    repetition: Repetition = ONCE,
) -> StageFunction | Declined:
    """The function that writes `results`, where it is not too large.

    Parameters
    ----------
    elements : Elements
        The elements that are written into each result.
    moduli : sequence of int
        For each axis, the number of neighbours that one pass of its loop writes; 1 for a symbolic
        extent.
    results : sequence of Tensor
    machine : Machine
    repetition : Repetition
        That of the kernel.
    """
    inputs = elements.reads()
    tensors = [*inputs, *results]
    if (unknown := unknown_size(_variables(elements, tensors), tensors)) is not None:
        return unknown
    if any(dtype_of(tensor) == "bfloat16" for tensor in [*inputs, *results]):
        # TVM makes integers of bfloat16, but not of variables that are bound to it
        return Declined("TVM cannot bind variables of bfloat16")
    plan = [_plan(elements, moduli, axis) for axis in range(len(elements.axes))]
    places, buffers = Places.of([*inputs, *results])
    writer = _Writer(elements, results, moduli, plan, places)
    writer.lanes = machine.lanes(dtype_of(results[0]))
    extents = [axis_range(axis)[1] for axis in elements.axes]
    work = size_of(extents, machine.symbolic_size)
    body = writer.nest(threads_over(extents, work, repetition, machine))
    if writer.nodes > MAX_PIECES * MAX_NODES:
        return Declined(f"its code would have more than {MAX_PIECES * MAX_NODES} expressions")
    if writer.weight > MAX_WEIGHT:
        return Declined(f"a statement of it would have more than {MAX_WEIGHT} nodes")
    return StageFunction(function(buffers, body), tuple(inputs), tuple(results))


def _variables(elements: Elements, parameters: Sequence[Tensor]) -> list[Var]:
    """What elements, extents and the shapes of parameters use beside the axes."""
    extents = [axis_range(axis)[1] for axis in elements.axes]
    dims = [*extents, *(dim for tensor in parameters for dim in shape_of(tensor))]
    used = variables_of([*elements.values, *(dim for dim in dims if not isinstance(dim, int))])
    axes = {node_id(axis.var) for axis in elements.axes}
    return [var for var in used if node_id(var) not in axes]


def _quotients(axis: Axis, modulus: int) -> Extent:
    extent = axis_range(axis)[1]
    return -(-extent // modulus) if isinstance(extent, int) else extent


def _table(
    axes: Sequence[Axis], moduli: Sequence[int], quotients: Sequence[Expr], residues: Sequence[int]
) -> dict[Var, Expr]:
    """``axis → m*q + r``."""
    table: dict[Var, Expr] = {}
    for axis, m, q, r in zip(axes, moduli, quotients, residues, strict=True):
        dtype = dtype_of(q)
        table[axis.var] = add(mul(q, const(m, dtype)), const(r, dtype))
    return table


def _plan(elements: Elements, moduli: Sequence[int], place: int) -> list[_Piece]:
    """The pieces of one axis, split where conditions change, with the incomplete last one separate.
    """
    modulus, axes = moduli[place], elements.axes
    extent = axis_range(axes[place])[1]
    if not isinstance(extent, int):
        return [_Piece(0, extent, (0,))]
    every = tuple(range(modulus))
    found: list[_Piece] = []
    if extent // modulus:
        quotients = [counter(axis.var.name, axis_range(axis)[1]) for axis in axes]
        ranges: dict[int, Interval] = {}
        for axis, m, q in zip(axes, moduli, quotients, strict=True):
            count = _quotients(axis, m)
            if isinstance(count, int):
                ranges[node_id(q)] = (0, count - 1)
        exprs = [
            substituter(_table(axes, moduli, quotients, residues))(value)
            for residues in itertools.product(*(range(m) for m in moduli))
            for value in elements.values
        ]
        whole = pieces(exprs, quotients[place], extent // modulus, quotients, ranges)
        found = [_Piece(low, high - low + 1, every) for low, high in whole]
    if extent % modulus:
        found.append(_Piece(extent // modulus, 1, every[: extent % modulus]))
    return found


class _Writer:
    """Writes the loops; `nodes` counts what was written."""

    def __init__(
        self,
        elements: Elements,
        results: Sequence[Tensor],
        moduli: Sequence[int],
        plan: Sequence[Sequence[_Piece]],
        places: Places,
    ) -> None:
        self._axes, self._values, self._results = elements.axes, elements.values, results
        self._moduli, self._plan, self._places = moduli, plan, places
        self.nodes = 0
        self.weight = 0  #: of the largest statement, as `expr.sharing.weights` weighs it
        self.lanes = 1  #: elements of a run of the innermost loop; 1 for no runs

    def nest(self, threads: int) -> Statement:
        """The loops over pieces; leading axes that are not cut are parallelised."""
        if threads == 1:
            return self._loops(0, [], [], SERIAL)
        shared = self._shared(threads)
        if len(shared) < 2:
            return self._loops(0, [], [], PARALLEL)
        loops: list[tuple[Var, Extent]] = []
        for axis, piece in zip(self._axes, shared, strict=False):
            loops.append((counter(axis.var.name, piece.count), piece.count))
        quotients = [quotient for quotient, _ in loops]
        return tasks(loops, self._loops(len(shared), quotients, shared, SERIAL))

    def _shared(self, threads: int) -> list[_Piece]:
        """The pieces of the leading axes that give every thread a fair share."""
        chosen: list[_Piece] = []
        count = 1
        for found in self._plan[:-1]:
            if len(found) != 1 or enough_tasks(count, threads):
                break
            chosen.append(found[0])
            extent = found[0].count
            count *= extent if isinstance(extent, int) else 1  # a symbolic extent may be 1
        return chosen

    def _loops(
        self, axis: int, quotients: Sequence[Var], chosen: Sequence[_Piece], kind: object
    ) -> Statement:
        if axis == len(self._plan):
            return self._body(quotients, chosen)
        statements = []
        for piece in self._plan[axis]:
            var = counter(self._axes[axis].var.name, axis_range(self._axes[axis])[1])
            run = None
            if axis + 1 == len(self._plan):
                count = piece.count
                make = self._runs if isinstance(count, int) else self._runs_of_any_length
                run = make([*quotients, var], [*chosen, piece], count, kind)
            if run is not None:
                statements.append(run)
                continue
            inner = self._loops(axis + 1, [*quotients, var], [*chosen, piece], SERIAL)
            statements.append(loop(var, piece.count, inner, kind, piece.low))
        return sequence(statements)

    def _runs(
        self, quotients: Sequence[Var], chosen: Sequence[_Piece], count: int, kind: object
    ) -> Statement | None:
        """The innermost loop in runs of whole vectors, or None if that is impossible.

        The last run overlaps the previous one, so no run is shorter; elements that are written
        twice get equal values.
        """
        piece, lanes = chosen[-1], self.lanes
        while lanes > count:
            lanes //= 2
        if lanes < max(2, min(MIN_LANES, self.lanes)) or len(piece.residues) != self._moduli[-1]:
            return None
        var = quotients[-1]
        base, run = counter("base", count), counter("run", count)
        last = piece.low + count - lanes
        values, writes = self._elements(quotients, chosen)
        bases = (piece.low, last)
        body = Run(var, base, bases, lanes, self._moduli[-1], self._places).statements(
            values, writes
        )
        if body is None:
            return None
        self.nodes += len(postorder(values))
        begin = strip_start(run, lanes, piece.low + count, piece.low)
        return loop(run, -(-count // lanes), sequence([bind(base, begin), body]), kind)

    def _runs_of_any_length(
        self, quotients: Sequence[Var], chosen: Sequence[_Piece], extent: Expr, kind: object
    ) -> Statement | None:
        """The same of a symbolic extent: in narrower vectors where it is shorter than one, and
        below these element by element.
        """
        var = quotients[-1]
        if self.lanes < MIN_LANES:
            return None
        values, writes = self._elements(quotients, chosen)
        made = loop(var, extent, self._body(quotients, chosen), kind)
        for lanes in dict.fromkeys((MIN_LANES, self.lanes)):
            base, run = counter("base", extent), counter("run", extent)
            vectors = Run(var, base, (0, 0), lanes, 1, self._places).statements(values, writes)
            if vectors is None:
                return None
            width = const(lanes, dtype_of(var))
            begin = strip_start(run, lanes, extent)
            count = binary("floordiv", add(extent, sub(width, const(1, dtype_of(var)))), width)
            inside = loop(run, count, sequence([bind(base, begin), vectors]), kind)
            made = branch(compare("ge", extent, width), inside, made)
        self.nodes += 2 * len(postorder(values))
        return made

    def _elements(
        self, quotients: Sequence[Var], chosen: Sequence[_Piece]
    ) -> tuple[list[Expr], list[Write]]:
        """What one pass of the loops writes, and where."""
        known = {
            node_id(q): piece.interval
            for q, piece in zip(quotients, chosen, strict=True)
            if piece.interval is not None
        }
        symbolic = {
            node_id(q): (piece.low, piece.count)
            for q, piece in zip(quotients, chosen, strict=True)
            if piece.interval is None
        }
        loops = Loops(tuple(quotients), known, symbolic)
        values: list[Expr] = []
        writes: list[Write] = []
        for residues in itertools.product(*(piece.residues for piece in chosen)):
            table = _table(self._axes, self._moduli, quotients, residues)
            rename = substituter(table)
            indices = tuple(table[axis.var] for axis in self._axes)
            for elem, tensor in zip(self._values, self._results, strict=True):
                value = decided(rename(elem), quotients, known)
                values.append(without_branches(value, loops))
                writes.append(Write(tensor, residues, indices))
        values = merge_equal(values)
        self.weight = max(self.weight, weight(values, worth_binding(values)))
        return values, writes

    def _body(self, quotients: Sequence[Var], chosen: Sequence[_Piece]) -> Statement:
        """The elements that one pass of the loops writes: reads first, then a store for each."""
        values, writes = self._elements(quotients, chosen)
        self.nodes += len(postorder(values))
        statements, values, buffers = self._bound(values)
        stores = [
            self._places.write(write.tensor, self._places.read(value), write.indices)
            for write, value in zip(writes, values, strict=True)
        ]
        return allocated(buffers, sequence([*statements, *stores]))

    def _bound(self, values: Sequence[Expr]) -> tuple[list[Statement], list[Expr], list[Buffer]]:
        """``f(x[i]) → v = x[i]; f(v)`` for reads that no branch guards, and for shared parts.

        TVM inlines the value of a variable into its uses unless it is a read. Other shared values
        go through a buffer of one element, which LLVM turns into a register.
        """
        statements: list[Statement] = []
        buffers: list[Buffer] = []
        names: dict[int, Expr] = {}
        for node in worth_binding(values):
            value = self._places.read(replace_outermost(node, names))
            if not is_load(node):
                buffers.append(local(f"t{len(names)}", [], dtype_of(node)))
                statements.append(store(buffers[-1], value, []))
                value = element(buffers[-1], [])
            var = variable(f"v{len(names)}", dtype_of(node))
            statements.append(bind(var, value))
            names[node_id(node)] = var
        return statements, [replace_outermost(value, names) for value in values], buffers
