"""Expressions as statements: what is shared, or large, is stored in a buffer of one element.

TVM walks expressions as trees, and its simplifier walks what is nested in choices again for each
of them: an index of 400 nodes can take minutes, and n doublings take 2^n. Here each statement is
small, and their number is about that of the graph's nodes. A read stays under its guards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .build import if_then_else
from .lets import merge_equal
from .loop_nest import Local, Places, Statement, allocated, branch, element, local, sequence, store
from .nodes import (
    Expr,
    const_value,
    dtype_of,
    is_load,
    node_id,
    op_name,
    operands,
    with_operands,
)
from .rewrite import expand_lets, postorder, rewrite
from .weights import weighed

_STORED = 48  #: weight from which on a part is stored

_DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")

_Path = tuple[tuple[int, int], ...]  #: branches that a node stands in, outermost first


def written(
    values: Sequence[Expr], places: Places, scope: str = "global"
) -> tuple[list[Local], list[Statement], list[Expr]]:
    """Local buffers, statements that fill them, and the values in terms of the buffers.

    Parameters
    ----------
    values : sequence of Expr
        Over te tensors; lets are expanded.
    places : Places
        Where the tensors lie.
    scope : str
        Of the local buffers.
    """
    writer = _Writer([_guarding(expand_lets(value)) for value in values], places, scope)
    return writer.buffers, writer.statements, writer.values


def _guarding(expr: Expr) -> Expr:
    """``select(c, x[i], 0) → if c then x[i] else 0``: TVM does so where it sees both."""

    def visit(node: Expr) -> Expr | None:
        if op_name(node) != "select" or not any(map(is_load, postorder(operands(node)[1:]))):
            return None
        return if_then_else(*operands(node))

    return rewrite(expr, visit)


class _Writer:
    """Writes each node once in each of its homes, the outermost branches that surely need it."""

    def __init__(self, roots: Sequence[Expr], places: Places, scope: str) -> None:
        self._places, self._scope = places, scope
        roots = merge_equal(roots)
        self._order = postorder(list(roots))
        self._uses: dict[int, int] = {}
        for node in (*roots, *(part for user in self._order for part in operands(user))):
            self._uses[node_id(node)] = self._uses.get(node_id(node), 0) + 1
        self._homes = self._found_homes(roots)
        self._out: dict[_Path, list[Statement]] = {(): []}
        self._buffers: dict[_Path, list[Local]] = {(): []}
        self._done: dict[tuple[int, _Path], tuple[Expr, int]] = {}
        self._count = 0
        for node in self._order:
            for home in self._homes[node_id(node)]:
                self._done[node_id(node), home] = self._write(node, home)
        self.values = [self._at(root, ())[0] for root in roots]
        self.buffers, self.statements = self._buffers[()], self._out[()]

    def _found_homes(self, roots: Sequence[Expr]) -> dict[int, list[_Path]]:
        unsafe: set[int] = set()
        for node in self._order:
            divides = op_name(node) in _DIVISIONS and not const_value(operands(node)[1])
            inside = any(node_id(part) in unsafe for part in operands(node))
            if is_load(node) or divides or inside:
                unsafe.add(node_id(node))
        paths: dict[int, list[_Path]] = {node_id(root): [()] for root in roots}
        for node in reversed(self._order):
            key = node_id(node)
            paths[key] = _reduced(paths[key]) if key in unsafe else [_common(paths[key])]
            for place, part in enumerate(operands(node)):
                inner = ((key, place),) if op_name(node) == "if_then_else" and place else ()
                paths.setdefault(node_id(part), []).extend((*p, *inner) for p in paths[key])
        return paths

    def _at(self, node: Expr, path: _Path) -> tuple[Expr, int]:
        home = next(h for h in self._homes[node_id(node)] if path[: len(h)] == h)
        return self._done[node_id(node), home]

    def _write(self, node: Expr, home: _Path) -> tuple[Expr, int]:
        """The value of a node at a home, and its weight there."""
        key, name = node_id(node), op_name(node)
        if name == "if_then_else":
            paths = [home, (*home, (key, 1)), (*home, (key, 2))]
        else:
            paths = [home] * len(operands(node))
        parts = [self._at(part, path) for part, path in zip(operands(node), paths, strict=True)]
        values = [value for value, _ in parts]
        if name == "if_then_else" and any(path in self._out for path in paths[1:]):
            place = self._buffer(node, home)
            sides = [
                self._inside(path, store(place, value, []))
                for path, value in zip(paths[1:], values[1:], strict=True)
            ]
            self._out.setdefault(home, []).append(branch(values[0], *sides))
            return element(place, []), 1
        value = with_operands(node, values) if parts else node
        if is_load(node):
            value = self._places.read(value)
        size = weighed(node, sum(size for _, size in parts))
        if parts and (self._uses[key] > 1 or size > _STORED):
            place = self._buffer(node, home)
            self._out.setdefault(home, []).append(store(place, value, []))
            return element(place, []), 1
        return value, size

    def _buffer(self, node: Expr, home: _Path) -> Local:
        place = local(f"t{self._count}", [], dtype_of(node), self._scope)
        self._count += 1
        self._out.setdefault(home, [])
        self._buffers.setdefault(home, []).append(place)
        return place

    def _inside(self, path: _Path, last: Statement) -> Statement:
        body = sequence([*self._out.get(path, []), last])
        return allocated(self._buffers.get(path, []), body)


def _reduced(paths: Iterable[_Path]) -> list[_Path]:
    """Paths that no other one holds; both sides of a branch are the branch."""
    found = dict.fromkeys(paths)
    changed = True
    while changed:
        changed = False
        for path in list(found):
            if path and path in found:
                *outer, (key, side) = path
                if (*outer, (key, 3 - side)) in found:
                    found.pop(path), found.pop((*outer, (key, 3 - side)))
                    found[tuple(outer)] = None
                    changed = True
    return [p for p in found if not any(p[:n] in found for n in range(len(p)))]


def _common(paths: Sequence[_Path]) -> _Path:
    first, *others = paths
    length = len(first)
    for path in others:
        while path[:length] != first[:length]:
            length -= 1
    return first[:length]
