"""Rules that users register: for scalar functions by name, and for externs by tag.

The two tables live as long as the process and apply to all programs in it, like TVM's own operator
tables, because an intrinsic in an expression has only a name. Rules of tensors need no table; they
are stages (`graph.kinds.custom`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..expr.nodes import Expr, op_name, operands
from ..graph.graph import tensors_read_by
from ..graph.kinds.custom import Custom, Rule, custom_of
from ..graph.stage import Operation, is_extern, outputs_of
from .scalar_rules import RULES, ScalarRule

#: calls of functions by name, which is the first operand
_CALLS = ("call_pure_extern", "call_extern")

_SCALARS: dict[str, ScalarRule] = {}
_EXTERNS: dict[str, Rule] = {}


def scalar_rule(node: Expr) -> ScalarRule | None:
    """The rule for a node, from the table of operators or registered."""
    name = called_name(node)
    return RULES.get(name) or _SCALARS.get(name)


def called_name(node: Expr) -> str:
    """The name of an operator, or of the function that a node calls.

    Examples
    --------
    >>> from tvm import tirx
    >>> called_name(tirx.call_pure_extern("float32", "cbrtf", tirx.Var("x", "float32")))
    'cbrtf'
    """
    name = op_name(node)
    return str(operands(node)[0].value) if name in _CALLS else name


def ruled(op: Operation) -> Custom | None:
    """The custom rule of a stage, or the one registered for its tag; None without one."""
    found = custom_of(op)
    if found is not None or not is_extern(op):
        return found
    rule = _EXTERNS.get(str(op.tag)) if op.tag else None
    if rule is None:
        return None
    outputs = tuple(outputs_of(op))
    return Custom(str(op.name), rule, outputs, outputs, tuple(tensors_read_by(op)), False)


@contextmanager
def entered_scalar(rule: ScalarRule) -> Iterator[None]:
    """Register the rule of a scalar function; an error inside the block restores the earlier rule.
    """
    with _entered(_SCALARS, rule.name, rule):
        yield


@contextmanager
def entered_extern(tag: str, rule: Rule) -> Iterator[None]:
    """Register the rule of externs with a tag; an error inside the block restores the earlier rule.
    """
    with _entered(_EXTERNS, tag, rule):
        yield


@contextmanager
def _entered(table: dict[str, Any], name: str, rule: Any) -> Iterator[None]:
    earlier = table.get(name)
    table[name] = rule
    try:
        yield
    except BaseException:
        del table[name]
        if earlier is not None:
            table[name] = earlier
        raise
