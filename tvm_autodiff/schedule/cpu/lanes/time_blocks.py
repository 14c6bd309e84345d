"""Transposes blocks of time of several parts in registers, so that the parts become vector lanes.

As many steps of all parts as a vector has lanes are held in local memory, so that a step reads one
vector; results are transposed back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

from ....codegen.loop_nest import Local, Statement, counter, element, local, loop, sequence, store
from ....codegen.vectors import run_of, stored_run, widened_read, widened_store
from ....expr.build import add, const, mul
from ....expr.nodes import Expr, dtype_of
from ....graph.stage import shape_of
from ..loops.squares import turned
from .row_lanes import Stack


@dataclass
class TimeBlock:
    """One array's block.

    Attributes
    ----------
    stack : Stack
        The array by time.
    lanes : int
        The number of parts, and of steps in a block.
    held : Local
        ``(steps, *components, parts)``.
    buffers : list of Local
        Further buffers of the statements.
    """

    stack: Stack
    lanes: int
    held: Local = field(init=False)
    buffers: list[Local] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        dims = [int(dim) for dim in shape_of(self.stack.tensor)]
        shape = [self.lanes, *dims, self.lanes]
        self.held = local("block", shape, dtype_of(self.stack.tensor))

    @property
    def inside(self) -> Stack:
        """The block as what a step reads or writes."""
        return Stack(self.stack.tensor, self.held, timed=True, by_lane=True)

    def taken(self, times: Sequence[Expr]) -> Statement:
        """``held[t, c, part] = array[times[part] + t, c]``."""

        def piece(first: Expr, rows: Sequence[Expr]) -> list[Statement]:
            vectors = [
                widened_read(element(self.stack.buffer, place), self.lanes)
                for place in self._places(times, first)
            ]
            statements, columns = self._turned(vectors)
            return statements + [
                stored_run(self.held, row, vector, self.lanes)
                for row, vector in zip(rows, columns, strict=True)
            ]

        return self._pieces(piece)

    def given(self, times: Sequence[Expr]) -> Statement:
        """``array[times[part] + t, c] = held[t, c, part]``."""

        def piece(first: Expr, rows: Sequence[Expr]) -> list[Statement]:
            statements, columns = self._turned([run_of(self.held, row, self.lanes) for row in rows])
            zero = element(self.held, [const(0, "int32")] * len(self.held.shape))
            return statements + [
                widened_store(store(self.stack.buffer, zero, place), vector, self.lanes)
                for place, vector in zip(self._places(times, first), columns, strict=True)
            ]

        return self._pieces(piece)

    def _pieces(self, piece: Callable[[Expr, Sequence[Expr]], list[Statement]]) -> Statement:
        """The block in squares of as many elements of each part as there are parts."""
        lanes = const(self.lanes, "int32")
        count = prod(self.held.shape[1:-1])
        number = counter("square", count)
        first = mul(number, lanes)
        rows = [mul(add(first, const(n, "int32")), lanes) for n in range(self.lanes)]
        return loop(number, count, sequence(piece(first, rows)))

    def _turned(self, vectors: Sequence[Expr]) -> tuple[list[Statement], list[Expr]]:
        return turned(vectors, self.buffers, dtype_of(self.stack.tensor))

    def _places(self, times: Sequence[Expr], first: Expr) -> list[list[Expr]]:
        """Where the elements from `first` on of each part begin."""
        dims = len(self.held.shape) - 2
        if not dims:
            return [[time] for time in times]
        zeros = [const(0, "int32")] * (dims - 1)
        return [[time, *zeros, first] for time in times]
