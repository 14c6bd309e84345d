"""Makes a stage that marks the elements of another stage which read a NaN or an infinity.

The stage has ones where such a number enters the value, and zeros elsewhere. Branches that are not
taken, conditions and indices do not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from ..expr.build import call, cast, compare, const, if_then_else, variable
from ..expr.nodes import (
    Expr,
    Tensor,
    binary,
    call_node,
    const_value,
    dtype_of,
    is_const,
    is_float,
    is_load,
    node_id,
    op_name,
    operands,
)
from ..expr.rewrite import expand_lets, postorder
from ..graph.stage import (
    Combiner,
    Operation,
    bodies,
    make_stage,
    reduction_of,
    reduction_stage,
)

Test = Callable[[Expr], Expr]

FLAG = "int32"


def is_nan(value: Expr) -> Expr:
    """One where a number is NaN, else zero."""
    number = const_value(value)
    if number is not None:
        return const(int(math.isnan(number)), FLAG)
    return cast(FLAG, call_node("isnan", (_wide(value),), "bool"))


def is_not_finite(value: Expr) -> Expr:
    """One where a number is NaN or infinite, else zero."""
    number = const_value(value)
    if number is not None:
        return const(int(not math.isfinite(number)), FLAG)
    wide = _wide(value)
    infinite = compare("eq", call("abs", wide), const(math.inf, dtype_of(wide)))
    return if_then_else(infinite, const(1, FLAG), is_nan(value))


def _wide(value: Expr) -> Expr:
    return value if dtype_of(value) == "float64" else cast("float32", value)


def stage_of_reads(op: Operation, component: int, test: Test) -> Tensor:
    """Ones where an element of a compute stage read a number that passes a test.

    ``y[i] = Σ_k (if c then x[i, k]*w[k] else 0) → max_k (if c then test(x[i, k]) | test(w[k]))``
    """
    reduction = reduction_of(op)
    name = f"{op.name}_reads"
    if reduction is None:
        return make_stage(name, list(op.axis), [_flag(bodies(op)[component], test)])[0]
    flags = [_flag(source, test) for source in reduction.sources]
    start = [_flag(value, test) for value in (*reduction.combiner.identity, *reduction.init)]
    # an empty reduction has its initial value
    found = replace(reduction, combiner=most_of(_any(start)), sources=(_any(flags),), init=())
    return reduction_stage(name, list(op.axis), found)[0]


def most_of(start: Expr) -> Combiner:
    """The maximum of flags, of none the value at the start."""
    left, right = variable("a", FLAG), variable("b", FLAG)
    return Combiner((left,), (right,), (binary("max", left, right),), (start,))


def _any(flags: list[Expr]) -> Expr:
    known = [flag for flag in flags if not is_const(flag, 0)]
    total = const(0, FLAG)
    for flag in known:
        total = flag if is_const(total, 0) else binary("max", total, flag)
    return total


def _flag(root: Expr, test: Test) -> Expr:
    """Whether any number that an expression uses passes the test."""
    zero = const(0, FLAG)
    done: dict[int, Expr] = {}
    body = expand_lets(root)
    for node in postorder(body):
        if not is_float(node):
            done[node_id(node)] = zero
        elif is_load(node) or is_const(node):
            done[node_id(node)] = test(node)
        elif op_name(node) in ("if_then_else", "select"):
            condition, then, otherwise = operands(node)
            parts = done[node_id(then)], done[node_id(otherwise)]
            same = all(is_const(part, 0) for part in parts)
            done[node_id(node)] = zero if same else if_then_else(condition, *parts)
        else:
            done[node_id(node)] = _any([done[node_id(part)] for part in operands(node)])
    return done[node_id(body)]
