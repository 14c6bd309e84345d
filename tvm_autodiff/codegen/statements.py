"""Writes expressions as statements: shared or large parts are stored in buffers of one element.

TVM walks expressions as trees, and its simplifier revisits nested choices for each enclosing
choice: an index of 400 nodes can take minutes, and n doublings take 2^n steps. Here each statement
is small, and their number is about that of the graph's nodes. A read stays under its guards.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..expr.build import cast, if_then_else
from ..expr.nodes import (
    Expr,
    dtype_of,
    is_load,
    node_id,
    op_name,
    operands,
    with_operands,
)
from ..expr.rewrite import contains, expand_lets, postorder, rewrite
from ..expr.sharing.failing import Path, can_fail
from ..expr.sharing.homes import BRANCHES, homes_of
from ..expr.sharing.lets import merge_equal
from ..expr.sharing.weights import weighed
from .loop_nest import Local, Places, Statement, allocated, branch, element, local, sequence, store
from .passes.short_circuit import condition_of, cut_short, marked

STORED = 48  #: weight from which on a part is stored


def written(
    values: Sequence[Expr], places: Places, scope: str = "global"
) -> tuple[list[Local], list[Statement], list[Expr]]:
    """Local buffers, statements that fill them, and the values in terms of the buffers.

    Parameters
    ----------
    values : sequence of Expr
        Expressions over te tensors; lets are expanded.
    places : Places
        The buffers of the tensors.
    scope : str
        The scope of the local buffers.
    """
    writer = _Writer([_guarding(expand_lets(value)) for value in values], places, scope)
    return writer.buffers, writer.statements, writer.values


def _guarding(expr: Expr) -> Expr:
    """``select(c, x[i], 0) → if c then x[i] else 0``, as TVM does if it sees both.

    Conjunctions with marks become branches as well. TVM joins the conditions of nested branches, so
    one that reads is marked.
    """

    def visit(node: Expr) -> Expr | None:
        name = op_name(node)
        if name in ("and", "or"):
            new = cut_short(node)
            return None if new is node else new
        if name != "select" or not any(map(is_load, postorder(operands(node)[1:]))):
            return None
        condition, *sides = operands(node)
        if condition_of(condition) is None and contains(condition, can_fail):
            condition = marked(condition)
        return if_then_else(condition, *sides)

    return rewrite(expr, visit)


class _Writer:
    """Writes each node once in each of its homes."""

    def __init__(self, roots: Sequence[Expr], places: Places, scope: str) -> None:
        self._places, self._scope = places, scope
        self._homes = homes_of(merge_equal(roots), BRANCHES)
        self._uses = self._homes.uses()
        self._out: dict[Path, list[Statement]] = {(): []}
        self._buffers: dict[Path, list[Local]] = {(): []}
        self._done: dict[tuple[int, Path], tuple[Expr, int]] = {}
        self._count = 0
        for node in self._homes.order:
            for home in self._homes.of(node):
                self._done[node_id(node), home] = self._write(node, home)
        self.values = [self._at(root, ())[0] for root in self._homes.roots]
        self.buffers, self.statements = self._buffers[()], self._out[()]

    def _at(self, node: Expr, path: Path) -> tuple[Expr, int]:
        return self._done[node_id(node), self._homes.seen_from(node, path)]

    def _write(self, node: Expr, home: Path) -> tuple[Expr, int]:
        """The value of a node at a home, and its weight there."""
        name = op_name(node)
        paths = [self._homes.inside(node, home, place) for place in range(len(operands(node)))]
        parts = [self._at(part, path) for part, path in zip(operands(node), paths, strict=True)]
        values = [value for value, _ in parts]
        if name == "if_then_else" and any(path in self._out for path in paths[1:]):
            place = self._buffer(node, home)
            sides = [
                self._inside(path, _stored(place, value))
                for path, value in zip(paths[1:], values[1:], strict=True)
            ]
            self._out.setdefault(home, []).append(branch(values[0], *sides))
            return cast(dtype_of(node), element(place, [])), 1
        value = with_operands(node, values) if parts else node
        if is_load(node):
            value = self._places.read(value)
        size = weighed(node, [size for _, size in parts])
        if parts and (self._uses.get((node_id(node), home), 0) > 1 or size > STORED):
            place = self._buffer(node, home)
            self._out.setdefault(home, []).append(_stored(place, value))
            return cast(dtype_of(node), element(place, [])), 1
        return value, size

    def _buffer(self, node: Expr, home: Path) -> Local:
        dtype = dtype_of(node)
        # TVM makes integers of bfloat16, but not of buffers that hold it
        held = "float32" if dtype == "bfloat16" else dtype
        place = local(f"t{self._count}", [], held, self._scope)
        self._count += 1
        self._out.setdefault(home, [])
        self._buffers.setdefault(home, []).append(place)
        return place

    def _inside(self, path: Path, last: Statement) -> Statement:
        body = sequence([*self._out.get(path, []), last])
        return allocated(self._buffers.get(path, []), body)


def _stored(place: Local, value: Expr) -> Statement:
    return store(place, cast(place.buffer.dtype, value), [])
