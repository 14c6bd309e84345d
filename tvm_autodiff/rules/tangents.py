"""The forward sweep through expressions: tangents of values from tangents of their parts.

At every node the tangent has the dtype of its value, so a float16 operand does not round the
tangent of a float32 one. A guard is never a factor: the tangent of a branch is a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import NotDifferentiableError
from ..expr.build import add, cast, compare, if_then_else, like, select, zero_like
from ..expr.float_functions import why_meaningless
from ..expr.nodes import Expr, dtype_of, is_float, node_id, op_name, operands
from ..expr.printing.text import text
from ..expr.rewrite import postorder
from .registry import called_name, scalar_rule
from .scalar_rules import NO_DERIVATIVE, Branch, ScalarRule

Tangent = Expr | None  #: None is zero
_Choice = Callable[[Sequence[Expr], Sequence[Tangent]], Expr]


def push_forward(
    roots: Sequence[tuple[Expr, Expr | None]],
    tangent_of: Callable[[Expr], Tangent],
    where: str,
) -> list[Tangent]:
    """One forward sweep over a graph of expressions.

    Parameters
    ----------
    roots : sequence of (expression, alias)
        The expression to differentiate, and an equal expression that rules may read instead (the
        forward output), or None. Lets must be expanded; equal parts should be one node
        (`expr.sharing.lets.merge_equal`).
    tangent_of : callable
        Returns the tangent of a read or a variable in its dtype, or None if it is zero.
    where : str
        The name of the stage, for error messages.

    Returns
    -------
    list of Expr or None
        The tangent of each root, in the root's dtype.

    Raises
    ------
    NotDifferentiableError
        If an intrinsic has no rule.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.expr.printing.text import text
    >>> x, dx = te.var("x", "float32"), te.var("dx", "float32")
    >>> [tangent] = push_forward([(x * x + te.exp(x), None)], lambda node: dx, "here")
    >>> text(tangent)
    '2.0*dx*x + dx*exp(x)'
    """
    alias = {node_id(root): other for root, other in roots if other is not None}
    tangents: dict[int, Tangent] = {}
    for node in postorder([root for root, _ in roots]):
        parts = operands(node)
        name = op_name(node)
        if name in ("load", "var"):
            tangents[node_id(node)] = tangent_of(node)
            continue
        moving = [tangents[node_id(part)] if is_float(part) else None for part in parts]
        meaningless = why_meaningless(node) if any(t is not None for t in moving) else None
        if meaningless is not None:
            raise NotDifferentiableError(f"{where}: {meaningless}")
        if name in NO_DERIVATIVE or not is_float(node) or all(t is None for t in moving):
            tangents[node_id(node)] = None
            continue
        if name == "cast":
            tangents[node_id(node)] = cast(dtype_of(node), moving[0])
            continue
        rule = _CHOICES.get(name)
        if rule is not None:
            tangents[node_id(node)] = rule(parts, moving)
            continue
        row = scalar_rule(node)
        if row is None:
            raise NotDifferentiableError(
                f"{where}: no derivative rule for {called_name(node)} in {text(node, limit=200)}; "
                "add one for the function with register_rule, or for the stage with override="
            )
        tangents[node_id(node)] = _by_partials(row, parts, moving, alias.get(node_id(node), node))
    return [tangents[node_id(root)] for root, _ in roots]


def _by_partials(
    row: ScalarRule, parts: Sequence[Expr], moving: Sequence[Tangent], out: Expr
) -> Tangent:
    """``Σ_p ∂f/∂p · tangent_p``.

    A scalar derivative is its own transpose, so the reverse-mode table is used with the tangent of
    an operand as the seed.
    """
    total: Tangent = None
    for place, tangent in enumerate(moving):
        if tangent is None:
            continue
        entry = row.pullback(tangent, tuple(parts), out)[place]
        if isinstance(entry, Branch):
            entry = select(entry.condition, entry.value, zero_like(entry.value))
        if entry is not None:
            entry = cast(dtype_of(out), entry)
            total = entry if total is None else add(total, entry)
    return total


def or_zero(tangent: Tangent, part: Expr) -> Expr:
    """A tangent as an expression; None becomes zeros in the dtype of `part`."""
    return like(part, 0) if tangent is None else tangent


def _branch(choose: Callable[[Expr, Expr, Expr], Expr]) -> _Choice:
    """``choose(c, a, b) → choose(c, da, db)``."""
    return lambda parts, moving: choose(
        parts[0], or_zero(moving[1], parts[1]), or_zero(moving[2], parts[2])
    )


def _extreme(keeps_first: str) -> _Choice:
    """``max(a, b) → select(a >= b, da, db)``: at a tie the first operand has all the weight."""
    return lambda parts, moving: select(
        compare(keeps_first, *parts),
        or_zero(moving[0], parts[0]),
        or_zero(moving[1], parts[1]),
    )


#: operators whose tangent is a choice between the tangents of their operands
_CHOICES: dict[str, _Choice] = {
    "if_then_else": _branch(if_then_else),
    "select": _branch(select),
    "max": _extreme("ge"),
    "min": _extreme("le"),
}
