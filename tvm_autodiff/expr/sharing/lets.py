"""Merges equal sub-expressions into one node (`merge_equal`) and binds shared nodes by lets
(`bind_shared`).

TVM walks expressions as trees, so a value that occurs twice is walked and compiled twice at every
level: 2^n for n doublings. A let keeps it single. The let is placed where the value is certainly
needed (`expr.sharing.homes`), so that no guarded read leaves its guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.ir import prim

from ..build import variable
from ..nodes import (
    Expr,
    address,
    dtype_of,
    is_float,
    is_load,
    node_id,
    op_name,
    operands,
    own_fields,
    with_operands,
)
from ..rewrite import expand_lets, postorder, tree_size
from .failing import Fails, can_fail
from .homes import GUARDS, Path, homes_of

#: how many times larger than its graph an expression's tree must be before lets pay off
_TREE_TO_GRAPH = 4
_SMALLEST_TREE = 64


def merge_equal(roots: Sequence[Expr]) -> list[Expr]:
    """Merge structurally equal parts of expressions into one node.

    Afterwards two reads of one element are one node: ``x[i]*x[i]`` has a single read site.
    """
    table: dict[Any, Expr] = {}
    merged: dict[int, Expr] = {}
    for node in postorder(list(roots)):
        old = tuple(map(address, operands(node)))
        parts = [merged[part] for part in old]
        places = tuple(map(address, parts))
        key = (op_name(node), dtype_of(node), own_fields(node), places)
        known = table.get(key)
        if known is None:
            known = table[key] = node if places == old else with_operands(node, parts)
        merged[address(node)] = known
    return [merged[address(root)] for root in roots]


def bind_shared(expr: Expr, fails: Fails = can_fail) -> Expr:
    """``f(e, e) → let t = e in f(t, t)`` where the tree is much larger than the graph.

    Expressions whose tree is small, or about as large as their graph, are returned unchanged. Each
    source of a reduction is treated separately. What `fails` stays behind its guards.
    """
    if op_name(expr) == "reduce":
        return with_operands(expr, [bind_shared(part, fails) for part in operands(expr)])
    whole = expand_lets(expr)  # what uses a variable must not leave its let
    if tree_size(whole) <= max(_SMALLEST_TREE, _TREE_TO_GRAPH * len(postorder(whole))):
        return expr
    [merged] = merge_equal([whole])
    return _Binder(merged, fails).bound


class _Binder:
    """Places a let for each shared node before each of its homes."""

    def __init__(self, root: Expr, fails: Fails) -> None:
        index_parts = _index_parts(postorder(root))

        def can_be_bound(node: Expr) -> bool:
            # floats only: TVM takes the regions that a block reads from indices and their
            # conditions, and a let's variable would leave its scope with them
            return bool(operands(node)) and is_float(node) and node_id(node) not in index_parts

        self._homes = homes_of([root], GUARDS, can_be_bound, fails)
        self._bound = self._found_bound()
        self.bound = self._emit()

    def _found_bound(self) -> set[tuple[int, Path]]:
        """The nodes to bind, and where each let goes."""
        homes, uses = self._homes, self._homes.uses()
        index_parts = _index_parts(homes.order)
        bound: set[tuple[int, Path]] = set()
        repeated: set[tuple[int, Path]] = set()
        for node in reversed(homes.order):
            bindable = is_float(node) and node_id(node) not in index_parts and operands(node)
            for home in homes.of(node):
                here = node_id(node), home
                shared = uses.get(here, 0) > 1
                around = ((key, home[:n]) for n, (key, _) in enumerate(home))
                if shared and bindable and not any(branch in repeated for branch in around):
                    bound.add(here)
                    repeated.discard(here)
                elif shared or here in repeated:
                    repeated.add(here)
                    for place, part in enumerate(operands(node)):
                        path = homes.inside(node, home, place)
                        repeated.add((node_id(part), homes.seen_from(part, path)))
        return bound

    def _emit(self) -> Expr:
        done: dict[tuple[int, Path], Expr] = {}
        lets: dict[Path, list[tuple[Any, Expr]]] = {}

        def seen(node: Expr, path: Path) -> Expr:
            return done[node_id(node), self._homes.seen_from(node, path)]

        for node in self._homes.order:
            for home in self._homes.of(node):
                parts = []
                for place, part in enumerate(operands(node)):
                    path = self._homes.inside(node, home, place)
                    new = seen(part, path)
                    parts.append(new if path == home else _wrap(new, lets.pop(path, [])))
                value = with_operands(node, parts) if parts else node
                if (node_id(node), home) in self._bound:
                    var = variable(f"t{len(done)}", dtype_of(node))
                    lets.setdefault(home, []).append((var, value))
                    value = var
                done[node_id(node), home] = value
        [root] = self._homes.roots
        return _wrap(seen(root, ()), lets.pop((), []))


def _index_parts(order: Sequence[Expr]) -> set[int]:
    """Ids of the nodes that occur in indices of reads."""
    indices = [part for node in order if is_load(node) for part in operands(node)]
    return {node_id(node) for node in postorder(indices)}


def _wrap(body: Expr, bindings: list[tuple[Any, Expr]]) -> Expr:
    for var, value in reversed(bindings):
        body = prim.Let(var, value, body)
    return body
