"""Equal sub-expressions made one node (`merge_equal`), and shared nodes bound by lets
(`bind_shared`).

In: expressions. Out: expressions with the same value. TVM walks expressions as trees, so a value
that occurs twice is walked and compiled twice at every level: 2^n for n doublings. A let keeps it
single; it is placed inside the innermost branch that holds all of its uses, so that no guarded read
leaves its guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.ir import prim

from .build import variable
from .nodes import (
    Expr,
    dtype_of,
    is_float,
    is_load,
    node_id,
    op_name,
    operands,
    own_fields,
    with_operands,
)
from .rewrite import postorder, tree_size

#: how many times larger than its graph an expression may be before lets are worth their noise
_TREE_TO_GRAPH = 4
_SMALLEST_TREE = 64
_BRANCHES = ("if_then_else", "select")
_Region = tuple[tuple[int, int], ...]  #: branches that a node stands in, outermost first


def merge_equal(roots: Sequence[Expr]) -> list[Expr]:
    """The same expressions with structurally equal parts made one node.

    Afterwards two reads of one element are one node: ``x[i]*x[i]`` has a single read site.
    """
    table: dict[Any, Expr] = {}
    merged: dict[int, Expr] = {}
    for node in postorder(list(roots)):
        parts = [merged[node_id(part)] for part in operands(node)]
        places = tuple(node_id(part) for part in parts)
        key = (op_name(node), dtype_of(node), own_fields(node), places)
        if key not in table:
            old = operands(node)
            same = all(node_id(a) == node_id(b) for a, b in zip(old, parts, strict=True))
            table[key] = node if same else with_operands(node, parts)
        merged[node_id(node)] = table[key]
    return [merged[node_id(root)] for root in roots]


def bind_shared(expr: Expr) -> Expr:
    """``f(e, e) → let t = e in f(t, t)`` where the tree is much larger than the graph.

    Expressions whose tree is small, or about as large as their graph, come back as they are. A
    reduction is treated source by source.
    """
    if op_name(expr) == "reduce":
        return with_operands(expr, [bind_shared(part) for part in operands(expr)])
    order = postorder(expr)
    if tree_size(expr) <= max(_SMALLEST_TREE, _TREE_TO_GRAPH * len(order)):
        return expr
    [expr] = merge_equal([expr])
    return _Binder(expr).bound


class _Binder:
    """Places one let for each shared node at the entry of the innermost branch with all its
    uses.
    """

    def __init__(self, root: Expr) -> None:
        self.order = postorder(root)
        self.uses: dict[int, int] = {node_id(root): 1}
        for node in self.order:
            for part in operands(node):
                self.uses[node_id(part)] = self.uses.get(node_id(part), 0) + 1
        indices = [part for node in self.order if is_load(node) for part in operands(node)]
        self.in_index = {node_id(node) for node in postorder(indices)}
        self.region = self._regions(root)
        self.bound = self._emit(root)

    def _regions(self, root: Expr) -> dict[int, _Region]:
        """For each node the innermost path of branches that all of its uses stand in."""
        region: dict[int, _Region] = {node_id(root): ()}
        for node in reversed(self.order):
            here = region[node_id(node)]
            for place, part in enumerate(operands(node)):
                path = here
                if op_name(node) in _BRANCHES and place > 0:
                    path = (*here, (node_id(node), place))
                key = node_id(part)
                known = region.get(key)
                region[key] = path if known is None else _common(known, path)
        return region

    def _worth_binding(self, node: Expr) -> bool:
        # floats only: TVM takes the regions that a block reads from indices and their conditions,
        # and a let's variable would leave its scope with them
        shared = self.uses[node_id(node)] > 1 and bool(operands(node))
        return shared and is_float(node) and node_id(node) not in self.in_index

    def _emit(self, root: Expr) -> Expr:
        done: dict[int, Expr] = {}
        lets: dict[_Region, list[tuple[Any, Expr]]] = {}
        for node in self.order:
            name = op_name(node)
            parts = []
            for place, part in enumerate(operands(node)):
                new = done[node_id(part)]
                if name in _BRANCHES and place > 0:
                    path = (*self.region[node_id(node)], (node_id(node), place))
                    new = _wrap(new, lets.pop(path, []))
                parts.append(new)
            new_node = with_operands(node, parts) if parts else node
            if self._worth_binding(node):
                var = variable(f"t{len(done)}", dtype_of(node))
                lets.setdefault(self.region[node_id(node)], []).append((var, new_node))
                new_node = var
            done[node_id(node)] = new_node
        return _wrap(done[node_id(root)], lets.pop((), []))


def _common(left: _Region, right: _Region) -> _Region:
    """The branches that two paths share."""
    length = 0
    while length < min(len(left), len(right)) and left[length] == right[length]:
        length += 1
    return left[:length]


def _wrap(body: Expr, bindings: list[tuple[Any, Expr]]) -> Expr:
    for var, value in reversed(bindings):
        body = prim.Let(var, value, body)
    return body
