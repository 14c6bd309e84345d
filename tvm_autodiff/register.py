"""`register_rule`: registers derivatives of functions that TVM or the user adds, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .check import check_grads
from .errors import InvalidArgumentError
from .expr.build import cast, like, mul, variable
from .expr.intrinsics import is_operator, named_call
from .expr.nodes import Expr, dtype_of, is_expr, is_float, load, op_name
from .graph.bounded_stage import elementwise_stage
from .graph.kinds.custom import Rule
from .graph.stage import placeholder
from .keywords import checked_keywords
from .rules.registry import entered_extern, entered_scalar
from .rules.scalar_rules import RULES, Entry, ScalarRule

Derivative = Callable[..., Any]


@checked_keywords
def register_rule(name: str, rule: Derivative | Rule, *, check: Any = None) -> None:
    """Register the derivative of a scalar function, or of externs with a tag, for all programs.

    Registered rules live as long as the process, like TVM's own operator tables, because a call in
    an expression has only a name. For tensors prefer `with_rule` and `custom_vjp`, whose rules
    belong to the graph. A later rule replaces an earlier one; existing derivatives keep the earlier
    one.

    Parameters
    ----------
    name : str
        The name of a function in ``tirx.call_pure_extern(dtype, name, ...)``, the full name of a
        TVM operator, or the `tag` of a `te.extern`.
    rule : callable or Rule
        For a function, ``derivative(out, *operands)``: the partial derivative with respect to each
        operand, as an expression in the dtype of `out`, a number, or None for zero; a tuple for
        several operands. `out` is the value of the call. For externs, a `Rule` with respect to the
        tensors that the stage reads, in its order.
    check : optional
        Points at which derivatives are compared with finite differences before the rule is
        registered: an array of float64 (or float32), or one array for each operand. For a `Rule`, a
        pair (output, inputs) as for `check_grads`.

    Raises
    ------
    InvalidArgumentError
        If the rule is not a function, or does not return one expression for each operand; or if the
        function is one of the library's own.
    GradientCheckError
        If a derivative is wrong at one of the points.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm import te, tirx
    >>> from tvm_autodiff import differentiate, register_rule, show
    >>> register_rule("cbrt", lambda out, x: 1.0 / (3.0 * out * out), check=np.linspace(0.5, 2, 5))
    >>> x, h = te.placeholder((3,), "float64", name="x"), te.placeholder((3,), "float64", name="h")
    >>> y = te.compute((3,), lambda i: tirx.call_pure_extern("float64", "cbrt", x[i]), name="y")
    >>> print(show(differentiate(y, x, h)))
    inputs  h: float64[3], x: float64[3]
    y[i] = call_pure_extern("cbrt", x[i])   float64[3]
    dx[i0] = h[i0]*(1.0/(3.0*y[i0]*y[i0]))  float64[3]
    """
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(f"name must be the name of a function or a tag, got {name!r}")
    if isinstance(rule, Rule):
        if not rule.differentiates:
            raise InvalidArgumentError(
                f"the rule of {name} has no derivative: pass vjp, jvp, transpose or form"
            )
        with entered_extern(name, rule):
            if check is not None:
                output, inputs = check
                check_grads(output, inputs, modes=("reverse", "forward"))
        return
    if not callable(rule):
        raise InvalidArgumentError(
            f"the rule of {name} must be a function derivative(out, *operands) or a Rule, got "
            f"{type(rule).__name__}"
        )
    own = name.rpartition(".")[2] if is_operator(name) else name
    if own in RULES:
        raise InvalidArgumentError(
            f"{own} is an operator of the library, whose rule cannot be replaced: attach a rule to "
            "the stage with with_rule"
        )
    points = None if check is None else _points(check, name)
    count = _operand_count(rule) if points is None else len(points)
    if count is not None:
        dtype = "float64" if points is None else str(points[0].dtype)
        operands = [variable(f"x{n}", dtype) for n in range(count)]
        _partials(name, rule, named_call(name, operands, dtype), operands)
    with entered_scalar(ScalarRule(own, "registered", "", _pullback(name, rule))):
        if points is not None:
            _check(name, points)


def _operand_count(rule: Derivative) -> int | None:
    """The number of operands that a derivative takes, or None for any number."""
    kinds = [parameter.kind for parameter in inspect.signature(rule).parameters.values()]
    if any(kind is inspect.Parameter.VAR_POSITIONAL for kind in kinds):
        return None
    return len(kinds) - 1


def _pullback(name: str, rule: Derivative) -> Callable[..., tuple[Entry, ...]]:
    """The row of the table: the seed times each partial derivative."""

    def pullback(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
        given = [part for part in parts if op_name(part) != "string"]
        entries: list[Entry] = [None] * (len(parts) - len(given))  # the name of the function
        for part, partial in zip(given, _partials(name, rule, out, given), strict=True):
            entries.append(None if partial is None else cast(dtype_of(part), mul(seed, partial)))
        return tuple(entries)

    return pullback


def _partials(
    name: str, rule: Derivative, out: Expr, operands: Sequence[Expr]
) -> list[Expr | None]:
    """The checked result of a derivative; None for zero and for operands that are not floats."""
    found = rule(out, *operands)
    listed = list(found) if isinstance(found, (list, tuple)) else [found]
    if len(listed) != len(operands):
        raise InvalidArgumentError(
            f"the rule of {name} returned {len(listed)} partial derivatives for {len(operands)} "
            "operands: return a tuple with one for each, None for zero"
        )
    results: list[Expr | None] = []
    for number, (value, part) in enumerate(zip(listed, operands, strict=True)):
        if value is None or not is_float(part):
            results.append(None)
            continue
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = like(out, value)
        if not is_expr(value) or dtype_of(value) != dtype_of(out):
            given = f"one of {dtype_of(value)}" if is_expr(value) else type(value).__name__
            raise InvalidArgumentError(
                f"the rule of {name} must return an expression of dtype {dtype_of(out)} as the "
                f"derivative with respect to operand {number}, got {given}"
            )
        results.append(value)
    return results


def _points(check: Any, name: str) -> list[np.ndarray]:
    arrays = list(check) if isinstance(check, (list, tuple)) else [check]
    points = [np.atleast_1d(np.asarray(array)) for array in arrays]
    if not points or any(p.shape != points[0].shape or p.ndim != 1 for p in points):
        raise InvalidArgumentError(
            f"the points for the rule of {name} must be one array, or arrays of one length, one "
            "for each operand"
        )
    if any(str(p.dtype) not in ("float64", "float32") for p in points):
        raise InvalidArgumentError(f"the points for the rule of {name} must be floating point")
    return points


def _check(name: str, points: Sequence[np.ndarray]) -> None:
    """Compare the derivatives at some points with differences, in both modes."""
    inputs = [
        placeholder(array.shape, str(array.dtype), f"x{n}") for n, array in enumerate(points)
    ]
    dtype = str(points[0].dtype)
    output = elementwise_stage(
        name.replace(".", "_"),
        points[0].shape,
        lambda place: named_call(name, [load(x, place) for x in inputs], dtype),
    )
    values = dict(zip(inputs, points, strict=True))
    check_grads(output, inputs, modes=("reverse", "forward"), values=values)
