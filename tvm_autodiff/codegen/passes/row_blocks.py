"""Makes statements for any number of rows from a function that computes a constant number of them.

The rows of a block are unrolled loops of constant length, so a block of fewer rows is the same code
with shorter loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from ...expr.build import add, const
from ...expr.nodes import Expr, Var, const_value, dtype_of, node_id, op_name
from ...expr.rewrite import variables_of
from ..loop_nest import SERIAL, UNROLLED, Buffer, Statement
from ..primfunc import PrimFunc
from .launches import lowered


@dataclass(frozen=True)
class RowBlock:
    """The code of a block of rows.

    Attributes
    ----------
    loops : tuple of (Var, int)
        The loops around it, outermost first, which do not depend on the rows.
    body : Statement
    """

    loops: tuple[tuple[Var, int], ...]
    body: Statement


class RowBlocks:
    """Blocks of rows of a scheduled function.

    Parameters
    ----------
    func : PrimFunc
        A function of serial loops around a tile.
    dims : mapping
        The numbers of the parameters that have `size` rows, and the dimension of the rows.
    size : int
        The rows that it computes.
    """

    def __init__(self, func: PrimFunc, dims: Mapping[int, int], size: int) -> None:
        # the loop around all rows of a block is a single iteration, which an index must not have
        module = tvm.IRModule({"main": lowered(func)})
        self._func = tirx.transform.StmtSimplify()(module)["main"]
        self._dims, self._size = dims, size

    def block(self, count: int, row: Expr, parameters: Sequence[Buffer]) -> RowBlock | None:
        """The code of `count` rows from `row` on.

        Parameters
        ----------
        count : int
            At most `size`.
        row : Expr
        parameters : sequence of Buffer
            The parameters with all rows.

        Returns
        -------
        RowBlock or None
            None if its loops over rows are not unrolled loops of their own.
        """
        func = s_tir.renew_defs(self._func)
        sizes = zip(_sizes(func), _sizes(self._func), strict=True)
        renamed = {node_id(new): old for new, old in sizes}
        moved = _Moved(func, self._dims, row, parameters, renamed)
        body = moved.body()
        if body is None or any(extent != self._size for extent in moved.row_loops.values()):
            return None

        def shorter(node: Any) -> Any:
            if node_id(node.loop_var) not in moved.row_loops:
                return node
            extent = const(count, dtype_of(node.loop_var))
            rest = (node.thread_binding, node.annotations)
            return tirx.For(node.loop_var, node.min, extent, node.kind, node.body, *rest)

        body = tvm_ffi.structural_map(body, (tirx.For, shorter))
        loops = []
        while isinstance(body, tirx.For) and body.kind == SERIAL:
            extent = const_value(body.extent)
            if not isinstance(extent, int):
                return None
            loops.append((body.loop_var, extent))
            body = body.body
        return RowBlock(tuple(loops), body)


def _sizes(func: PrimFunc) -> list[Var]:
    """The variables in the shapes of parameters, in order."""
    return variables_of([dim for p in func.params for dim in getattr(p.ty, "shape", ())])


class _Moved:
    """A function's body over arrays with all rows."""

    def __init__(
        self,
        func: PrimFunc,
        dims: Mapping[int, int],
        row: Expr,
        parameters: Sequence[Buffer],
        renamed: Mapping[int, Var],
    ) -> None:
        self._func, self._row, self._renamed = func, row, renamed
        self._table = [
            (old, new, dims.get(number))
            for number, (old, new) in enumerate(zip(func.params, parameters, strict=True))
        ]
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
        variables = {**self._renamed, **{node_id(old): new for old, new, _ in self._table}}

        def parameter(var: Any) -> Any:
            return variables.get(node_id(var), var)

        body = tvm_ffi.structural_map(self._func.body, changes)
        body = tvm_ffi.structural_map(body, (tirx.Var, parameter))
        return body if self._are_loops else None

    def _stored(self, node: Any) -> Any:
        found = self._indices(node.buffer, list(node.indices))
        return node if found is None else tirx.BufferStore(found[0], node.value, found[1])

    def _loaded(self, node: Any) -> Any:
        found = self._indices(node.source, list(node.indices))
        return node if found is None else tirx.BufferLoad(*found)

    def _indices(self, buffer: Any, indices: list[Expr]) -> tuple[Any, list[Expr]] | None:
        for old, new, dim in self._table:
            if not buffer.same_as(old):
                continue
            if dim is not None:
                place = indices[dim]
                extent = self._extents.get(node_id(place)) if op_name(place) == "var" else None
                if extent is None:
                    self._are_loops = False
                else:
                    self.row_loops[node_id(place)] = extent
                indices[dim] = add(place, self._row)
            return new, indices
        return None
