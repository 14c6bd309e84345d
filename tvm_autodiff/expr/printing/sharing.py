"""Finds the shared parts of expressions that need a name for the text to stay short.

With these parts named, the text is about as large as the graph: n doublings give n bindings instead
of 2^n copies. The caller decides how to bind them; `text` prints ``let t1 = ...``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..nodes import Expr, let_variable, node_id, op_name, operands
from ..rewrite import postorder


def shared_parts(roots: Sequence[Expr], worth: int = 6) -> list[Expr]:
    """The parts to name, innermost first; none unless the tree is much larger than the graph.

    Parameters
    ----------
    roots : sequence of Expr
        Expressions that are printed together.
    worth : int
        The minimum size of a named part, in nodes, with nothing shared.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.var("x", "float32")
    >>> shared_parts([te.exp(x) + te.exp(x)])
    []
    >>> for _ in range(5):
    ...     x = te.exp(x + x) + 1.0
    >>> len(shared_parts([x]))
    4
    """
    order = postorder(list(roots))
    bound = {node_id(let_variable(node)) for node in order if op_name(node) == "let"}
    local: set[int] = set()  # parts that a let binds: a name would leave its scope
    sizes: dict[int, int] = {}
    uses: dict[int, int] = {}
    for node in order:
        key, parts = node_id(node), [node_id(part) for part in operands(node)]
        sizes[key] = 1 + sum(sizes[part] for part in parts)
        if key in bound or any(part in local for part in parts):
            local.add(key)
        for part in parts:
            uses[part] = uses.get(part, 0) + 1
    if sum(sizes[node_id(root)] for root in roots) <= 2 * len(order) + 40:
        return []
    return [
        node
        for node in order
        if uses.get(node_id(node), 0) > 1
        and sizes[node_id(node)] >= worth
        and node_id(node) not in local
    ]
