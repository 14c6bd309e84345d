"""The free variables of a stage: symbolic sizes and scalars."""

from __future__ import annotations

from typing import Any

from ..expr.nodes import Var, let_variable, node_id, op_name
from ..expr.rewrite import postorder
from .kinds.rules.table import rules_of
from .stage import Operation, is_placeholder, outputs_of, shape_of


def free_variables(op: Operation) -> list[Var]:
    """Each free variable once, those of shapes first."""
    roots: list[Any] = [dim for tensor in outputs_of(op) for dim in shape_of(tensor)]
    bound: set[int] = set()
    if not is_placeholder(op):
        kind, rules = rules_of(op)
        roots += rules.exprs(op, kind)
        bound = {node_id(var) for var in rules.bound(op, kind)}
    nodes = postorder([root for root in roots if not isinstance(root, int)])
    bound |= {node_id(let_variable(node)) for node in nodes if op_name(node) == "let"}
    return [node for node in nodes if op_name(node) == "var" and node_id(node) not in bound]
