"""Estimates how many nodes of an expression TVM's passes walk.

The passes treat expressions as trees, and TVM's simplifier revisits nested integer choices once for
each enclosing choice: an index with five nested choices takes it minutes. It simplifies the
condition of any choice again for each of its sides. Variables of lets are as large as their values,
except of reads: several passes put the value in for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..nodes import Expr, is_float, is_load, let_variable, node_id, op_name, operands
from ..rewrite import postorder

MAX_WEIGHT = 1_500  #: of an expression that TVM's passes take in less than about a second
MAX_PROVED = 10_000  #: of one that TVM's analyzer takes in less than about a tenth of a second

#: integer node → how often TVM's simplifier walks its operands
_WALKS = {"select": 3, "if_then_else": 3, "min": 2, "max": 2, "floordiv": 2, "floormod": 2}

_CHOICES = ("select", "if_then_else")


def weight(expr: Expr | Sequence[Expr], bound: Sequence[Expr] = (), limit: int = MAX_WEIGHT) -> int:
    """Approximately how many nodes TVM's passes walk; any number above `limit` means too many.

    Named nodes are leaves of the expressions that use them. For several expressions it is the
    largest weight.

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
    """The weight of each node by its id, with the arguments of `weight`."""
    names = {node_id(node) for node in bound}
    order = postorder(expr)
    lets = [node for node in order if op_name(node) == "let"]
    values = {node_id(let_variable(node)): node_id(operands(node)[0]) for node in lets}
    found: dict[int, int] = {}
    reading: set[int] = set()  # what holds a read, but not what uses its variable
    for node in order:
        key, parts = node_id(node), [node_id(part) for part in operands(node)]
        if is_load(node) or any(part in reading for part in parts):
            reading.add(key)
        if key in values and values[key] not in reading:
            found[key] = found.get(values[key], 1)  # absent where a value names itself anew
            continue
        inside = [1 if part in names else found[part] for part in parts]
        found[key] = min(weighed(node, inside), limit + 1)
    return found


def weighed(node: Expr, parts: Sequence[int]) -> int:
    """The weight of a node, computed from the weights of its operands."""
    name = op_name(node)
    if is_float(node):
        # six nested conditions of floats take 80 ms, seven 0.4 s, eight 1.8 s
        return 1 + sum(parts) + (parts[0] if name in _CHOICES else 0)
    return 1 + sum(parts) * _WALKS.get(name, 1)


def provable(expr: Expr) -> bool:
    """Whether an expression is small enough for TVM's analyzer."""
    return weight(expr, limit=MAX_PROVED) <= MAX_PROVED
