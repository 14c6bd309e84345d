"""How much of an expression TVM's passes walk.

They take expressions for trees, and their simplifier takes what is nested in choices of integers
again for each of them: an index of five nested choices is minutes of work to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from .nodes import Expr, is_float, node_id, op_name, operands
from .rewrite import postorder

MAX_WEIGHT = 1_500  #: of an expression that TVM's passes take in less than about a second
MAX_PROVED = 10_000  #: of one that TVM's analyzer takes in less than about a tenth of a second

#: node of integers → how often TVM's simplifier walks its operands
_WALKS = {"select": 3, "if_then_else": 3, "min": 2, "max": 2, "floordiv": 2, "floormod": 2}


def weight(expr: Expr | Sequence[Expr], bound: Sequence[Expr] = (), limit: int = MAX_WEIGHT) -> int:
    """About how many nodes TVM's passes walk; a number above `limit` stands for any.

    Nodes that are bound to a name are leaves to what uses them. Of several expressions it is the
    largest.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> weight(i + 1), weight(te.max(i, 1))
    (3, 5)
    """
    return max(weights(expr, bound, limit).values(), default=0)


def weights(
    expr: Expr | Sequence[Expr], bound: Sequence[Expr] = (), limit: int = MAX_WEIGHT
) -> dict[int, int]:
    """The weight of each node by its id; arguments as of `weight`."""
    names = {node_id(node) for node in bound}
    found: dict[int, int] = {}
    for node in postorder(expr):
        parts = (node_id(part) for part in operands(node))
        inside = sum(1 if part in names else found[part] for part in parts)
        found[node_id(node)] = min(weighed(node, inside), limit + 1)
    return found


def weighed(node: Expr, parts: int) -> int:
    """The weight of a node over that of its operands."""
    return 1 + parts * (1 if is_float(node) else _WALKS.get(op_name(node), 1))


def provable(expr: Expr) -> bool:
    """Whether TVM's analyzer may be asked about an expression."""
    return weight(expr, limit=MAX_PROVED) <= MAX_PROVED
