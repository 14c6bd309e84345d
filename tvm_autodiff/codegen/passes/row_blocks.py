"""Makes statements over whole arrays from a function of a block, in which some axes have a constant
number of places.

A block reads and writes its part of an array at an offset. The rows of a block may be unrolled
loops of constant length; a block of fewer rows is then the same code with shorter loops. A block
that is only partly inside of the result has vectors of which some lanes are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from ...expr.build import add, const, sub
from ...expr.nodes import Expr, Var, binary, const_value, dtype_of, node_id, op_name
from ...expr.rewrite import variables_of
from ..loop_nest import SERIAL, UNROLLED, VECTORIZED, Buffer, Statement, element, local, sequence
from ..stages.primfunc import PrimFunc
from .launches import lowered


@dataclass(frozen=True)
class RowBlock:
    """The code of a block.

    Attributes
    ----------
    loops : tuple of (Var, int)
        The loops around it, outermost first, which do not depend on the place of the block.
    body : Statement
    """

    loops: tuple[tuple[Var, int], ...]
    body: Statement


@dataclass(frozen=True)
class Position:
    """Where a block lies in the arrays.

    Attributes
    ----------
    starts : mapping from axis to Expr
        The first place along each axis of the block.
    pieces : mapping from parameter number to Expr
        The first index of arrays that hold a piece for each block: ``p[i] → p[piece, i]``.
    end : (int, Expr) or None
        The axis of the vectors, and its extent, where a block may reach beyond it.
    """

    starts: Mapping[int, Expr]
    pieces: Mapping[int, Expr] = field(default_factory=dict)
    end: tuple[int, Expr] | None = None


class RowBlocks:
    """Blocks of a scheduled function.

    Parameters
    ----------
    func : PrimFunc
        A function of serial loops around a tile. Its last parameter is the result.
    dims : mapping
        For the numbers of parameters, the axes of the block by dimension.
    rows : (int, int) or None
        The axis whose places are unrolled loops, and how many a block has.
    """

    def __init__(
        self,
        func: PrimFunc,
        dims: Mapping[int, Mapping[int, int]],
        rows: tuple[int, int] | None,
    ) -> None:
        # the loop around all rows of a block is a single iteration, which an index must not have
        module = tvm.IRModule({"main": lowered(func)})
        self._func = tirx.transform.StmtSimplify()(module)["main"]
        self._dims, self._rows = dims, rows
        #: the allocations of the accumulators, which all blocks share: for `with_buffers`
        self._allocations: list[Any] = []

    def with_buffers(self, body: Statement) -> Statement:
        """A statement of blocks, after the allocation of their accumulators.

        One that exceeds TVM's stack takes 40 ns, as long as a small block.
        """
        return sequence([*self._allocations, body])

    def block(
        self, count: int, position: Position, parameters: Sequence[Buffer]
    ) -> RowBlock | None:
        """The code of a block at a position.

        Parameters
        ----------
        count : int
            The number of rows, at most that of the function.
        position : Position
        parameters : sequence of Buffer
            The parameters with all places.

        Returns
        -------
        RowBlock or None
            None if its loops over rows are not unrolled loops of their own.
        """
        func = s_tir.renew_defs(self._func)
        sizes = zip(_sizes(func), _sizes(self._func), strict=True)
        renamed = {node_id(new): old for new, old in sizes}
        rows = None if self._rows is None else self._rows[0]
        allocations: list[Any] = []
        tvm_ffi.structural_walk(func.body, [(tirx.AllocBuffer, allocations.append)])
        self._allocations = self._allocations or allocations
        shared = zip(allocations, self._allocations, strict=True)
        local_buffers = [(own.buffer, first.buffer) for own, first in shared]
        moved = _Moved(func, self._dims, rows, position, parameters, renamed, local_buffers)
        body = moved.body()
        if body is None:
            return None
        if self._rows is not None:
            if any(extent != self._rows[1] for extent in moved.row_loops.values()):
                return None
            body = _shorter(body, moved.row_loops, count)
        if position.end is not None:
            dims = self._dims[len(parameters) - 1].items()
            dim = next(dim for dim, axis in dims if axis == position.end[0])
            body = _inside(body, parameters[-1], dim, position.end[1])
            if body is None:
                return None
        loops = []
        while isinstance(body, tirx.For) and body.kind == SERIAL:
            extent = const_value(body.extent)
            if not isinstance(extent, int):
                return None
            loops.append((body.loop_var, extent))
            body = body.body
        return RowBlock(tuple(loops), body)


def _shorter(body: Statement, row_loops: Mapping[int, int], count: int) -> Statement:
    """The statement with `count` iterations of the loops over rows."""

    def shorter(node: Any) -> Any:
        if node_id(node.loop_var) not in row_loops:
            return node
        extent = const(count, dtype_of(node.loop_var))
        rest = (node.thread_binding, node.annotations)
        return tirx.For(node.loop_var, node.min, extent, node.kind, node.body, *rest)

    return tvm_ffi.structural_map(body, (tirx.For, shorter))


def _inside(body: Statement, result: Buffer, dim: int, extent: Expr) -> Statement | None:
    """Stores of vectors that end with the result; None if others are stored.

    ``for l in vectorized(16): y[c + l] = f(acc[l], x[c + l])  →  for l in vectorized(16): t[l] =
    acc[l];  for l in range(min(16, n - c)): y[c + l] = f(t[l], x[c + l])``: the accumulators stay
    in registers, since no lane of them is read by number.
    """

    stores = 0

    def counted(node: Any) -> None:
        nonlocal stores
        stores += node.buffer.same_as(result)

    def stored(node: Any) -> Any:
        nonlocal stores
        store = node.body
        if node.kind != VECTORIZED or not isinstance(store, tirx.BufferStore):
            return node
        if not store.buffer.same_as(result):
            return node
        stores -= 1
        lanes = int(const_value(node.extent) or 0)
        lane, dtype = node.loop_var, dtype_of(node.loop_var)
        copies: list[Statement] = []

        def read(load: Any) -> Any:
            if load.source.scope() != "local":
                return load
            kept = local("lanes", [lanes], str(load.source.dtype))
            copies.append(tirx.AllocBuffer(kept.buffer))
            copy = tirx.BufferStore(kept.buffer, load, [lane])
            copies.append(tirx.For(lane, node.min, node.extent, VECTORIZED, copy))
            return element(kept, [lane])

        value = tvm_ffi.structural_map(store.value, (ir.TensorLoad, read))
        first = tvm_ffi.structural_map(
            store.indices[dim],
            (tirx.Var, lambda var: const(0, dtype) if node_id(var) == node_id(lane) else var),
        )
        place = dtype_of(first)
        left = binary("max", sub(extent, first), const(0, place))
        count = binary("min", const(lanes, place), left)
        kept = tirx.BufferStore(store.buffer, value, list(store.indices))
        inside = tirx.For(lane, node.min, tirx.Cast(dtype, count), SERIAL, kept)
        return sequence([*copies, inside])

    tvm_ffi.structural_walk(body, [(tirx.BufferStore, counted)])
    body = tvm_ffi.structural_map(body, (tirx.For, stored))
    return None if stores else body


def _sizes(func: PrimFunc) -> list[Var]:
    """The variables in the shapes of parameters, in order."""
    return variables_of([dim for p in func.params for dim in getattr(p.ty, "shape", ())])


class _Moved:
    """A function's body over arrays with all places."""

    def __init__(
        self,
        func: PrimFunc,
        dims: Mapping[int, Mapping[int, int]],
        rows: int | None,
        position: Position,
        parameters: Sequence[Buffer],
        renamed: Mapping[int, Var],
        local_buffers: Sequence[tuple[Buffer, Buffer]],
    ) -> None:
        self._func, self._rows, self._renamed = func, rows, renamed
        self._position = position
        self._table = [
            (old, new, dims.get(number, {}), position.pieces.get(number))
            for number, (old, new) in enumerate(zip(func.params, parameters, strict=True))
        ]
        self._table += [(own, first, {}, None) for own, first in local_buffers]
        self.row_loops: dict[int, int] = {}  #: extents of the loops over rows, by variable
        self._are_loops = True
        self._extents: dict[int, int] = {}

    def body(self) -> Statement | None:
        """The body; None if a row is not the variable of an unrolled loop."""

        def loop(node: Any) -> None:
            if node.kind == UNROLLED:
                extent = const_value(node.extent)
                self._extents[node_id(node.loop_var)] = int(extent or 0)

        tvm_ffi.structural_walk(self._func.body, [(tirx.For, loop)])
        changes = [(tirx.BufferStore, self._stored), (ir.TensorLoad, self._loaded)]
        variables = {**self._renamed, **{node_id(old): new for old, new, *_ in self._table}}

        def parameter(var: Any) -> Any:
            return variables.get(node_id(var), var)

        body = tvm_ffi.structural_map(self._func.body, changes)
        body = tvm_ffi.structural_map(body, (tirx.Var, parameter))
        nothing = tirx.Evaluate(const(0, "int32"))
        body = tvm_ffi.structural_map(body, (tirx.AllocBuffer, lambda _: nothing))
        return body if self._are_loops else None

    def _stored(self, node: Any) -> Any:
        found = self._indices(node.buffer, list(node.indices))
        return node if found is None else tirx.BufferStore(found[0], node.value, found[1])

    def _loaded(self, node: Any) -> Any:
        found = self._indices(node.source, list(node.indices))
        return node if found is None else tirx.BufferLoad(*found)

    def _indices(self, buffer: Any, indices: list[Expr]) -> tuple[Any, list[Expr]] | None:
        for old, new, dims, piece in self._table:
            if not buffer.same_as(old):
                continue
            for dim, axis in dims.items():
                place = indices[dim]
                if axis == self._rows:
                    self._note_row(place)
                indices[dim] = add(place, self._position.starts[axis])
            return new, indices if piece is None else [piece, *indices]
        return None

    def _note_row(self, place: Expr) -> None:
        """A row is the variable of an unrolled loop."""
        extent = self._extents.get(node_id(place)) if op_name(place) == "var" else None
        if extent is None:
            self._are_loops = False
        else:
            self.row_loops[node_id(place)] = extent
