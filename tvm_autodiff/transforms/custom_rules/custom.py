"""`custom_vjp`, `custom_jvp` and `with_rule`: tensors with a user-defined derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, update_wrapper
from typing import Any

from ...errors import InvalidArgumentError
from ...expr.nodes import Tensor, is_tensor
from ...graph.kinds.custom import Rule, custom_stage
from ...keywords import checked_keywords
from ..arguments import as_tensor, listed


@checked_keywords
def with_rule(
    outputs: Tensor | Sequence[Tensor], inputs: Tensor | Sequence[Tensor], rule: Rule
) -> Any:
    """Attach a custom derivative to tensors.

    Every transform of everything computed from the result follows the rule, at any order, without
    passing it again. Compiled programs do not contain the rule.

    Parameters
    ----------
    outputs : Tensor or sequence of Tensor
        The values. They may come from any stages, `te.extern` included, or be inputs.
    inputs : Tensor or sequence of Tensor
        The tensors with respect to which the rule differentiates. Other tensors that the outputs or
        the functions of the rule read are treated as constants.
    rule : Rule
        The derivative. Its functions get the result as `outputs`.

    Returns
    -------
    Tensor or list of Tensor
        One tensor for each output.

    Raises
    ------
    InvalidArgumentError
        If an argument is not a tensor, or the rule has no derivative.

    Examples
    --------
    A straight-through estimator has rounded values and the derivative of the identity:

    >>> from tvm import te
    >>> from tvm_autodiff import Rule, differentiate, show, with_rule
    >>> x, h = te.placeholder((3,), name="x"), te.placeholder((3,), name="h")
    >>> rounded = te.compute((3,), lambda i: te.round(x[i]), name="rounded")
    >>> straight = Rule(vjp=lambda outputs, inputs, cotangents: cotangents)
    >>> y = with_rule(rounded, x, straight)
    >>> z = te.compute((3,), lambda i: y[i] * y[i], name="z")
    >>> print(show(differentiate(z, [x], h)))
    inputs  h: float32[3], x: float32[3]
    rounded[i] = round(x[i])                   float32[3]
    rounded_1 = rounded by custom rule of (x)  float32[3]
    drounded[i0] = 2.0*h[i0]*rounded_1[i0]     float32[3]
    """
    if not isinstance(rule, Rule):
        raise InvalidArgumentError(f"rule must be a Rule, got {type(rule).__name__}")
    if not rule.differentiates:
        raise InvalidArgumentError(
            "the rule has no derivative: pass vjp, jvp, transpose or form"
        )
    values = [as_tensor(value, f"outputs[{n}]") for n, value in enumerate(_given(outputs))]
    if not values:
        raise InvalidArgumentError("outputs is empty: pass at least one tensor")
    read = [as_tensor(value, f"inputs[{n}]") for n, value in enumerate(_given(inputs))]
    made = custom_stage(values[0].op.name, values, read, rule)
    return made[0] if is_tensor(outputs) else made


def _given(value: Any) -> list[Any]:
    return listed(value, "an argument of with_rule")


class CustomFunction:
    """A function from tensors to tensors with a user-defined derivative.

    A call returns tensors that carry the rule. Positional arguments are the inputs of the rule.
    Keyword arguments are constants, which the functions of the rule get as well. Make instances
    with `custom_vjp` and `custom_jvp`.

    Attributes
    ----------
    rule : Rule
        The rule as defined so far.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import custom_vjp, differentiate, show
    >>> double = custom_vjp(lambda x: te.compute(x.shape, lambda i: 2.0 * x[i], name="y"))
    >>> rule = double.defvjp(lambda outputs, inputs, cotangents: cotangents)
    >>> x, h = te.placeholder((3,), name="x"), te.placeholder((3,), name="h")
    >>> print(show(differentiate(double(x), [x], h)))
    inputs  h: float32[3]
    dx[i0] = h[i0]  float32[3]
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise InvalidArgumentError(
                f"a custom rule is for a function of tensors, got {type(function).__name__}"
            )
        self.function = function
        self.rule = Rule()
        update_wrapper(self, function)

    def defvjp(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Set ``vjp(outputs, inputs, cotangents)``; see `Rule`. Returns the function."""
        return self._define("vjp", function)

    def defjvp(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Set ``jvp(outputs, inputs, tangents)``; see `Rule`. Returns the function."""
        return self._define("jvp", function)

    def deftranspose(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Set ``transpose(cotangents)``; see `Rule`. Returns the function."""
        return self._define("transpose", function)

    def defform(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Set ``form(inputs)``; see `Rule`. Returns the function."""
        return self._define("form", function)

    def defbatch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Set ``batch(inputs, batched, size)``; see `Rule`. Returns the function."""
        return self._define("batch", function)

    def _define(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function):
            raise InvalidArgumentError(
                f"the {name} of {self._name} must be a function, got {type(function).__name__}"
            )
        given: dict[str, Any] = {name: function}
        self.rule = replace(self.rule, **given)
        return function

    @property
    def _name(self) -> str:
        return getattr(self.function, "__name__", "the function")

    def __call__(self, /, *inputs: Tensor, **constants: Any) -> Any:
        """Call the function and attach the rule to its results.

        Raises
        ------
        InvalidArgumentError
            If an argument or a result is not a tensor, or there is no rule yet.
        """
        if not self.rule.differentiates:
            raise InvalidArgumentError(
                f"{self._name} has no rule yet: define one with {self._name}.defvjp, .defjvp, "
                ".deftranspose or .defform"
            )
        for number, value in enumerate(inputs):
            if not is_tensor(value):
                raise InvalidArgumentError(
                    f"argument {number} of {self._name} must be a te.Tensor, got "
                    f"{type(value).__name__}; pass constants by keyword, which the functions of "
                    "the rule get as well: rule(outputs, inputs, cotangents, *, name)"
                )
        found = self.function(*inputs, **constants)
        several = isinstance(found, Sequence)
        values = list(found) if several else [found]
        for number, value in enumerate(values):
            as_tensor(value, f"result {number} of {self._name}")
        rule = self.rule
        if constants:
            bound: dict[str, Any] = {
                name: partial(getattr(rule, name), **constants) for name in rule.given
            }
            rule = replace(rule, **bound)
        made = with_rule(values, list(inputs), rule)
        if isinstance(found, tuple):
            return tuple(made)
        return made if several else made[0]


@checked_keywords
def custom_vjp(function: Callable[..., Any]) -> CustomFunction:
    r"""Define the derivative of a function of tensors by a reverse-mode rule.

    Parameters
    ----------
    function : callable
        A function from te tensors to a tensor, a list or a tuple of tensors.

    Returns
    -------
    CustomFunction
        The function. Define the rule with its `defvjp`. Without a `defjvp`, forward mode follows by
        transposition if the rule is linear in the cotangents.

    References
    ----------
    `jax.custom_vjp`. Here the rule gets outputs and inputs instead of residuals.

    Examples
    --------
    Implicit differentiation: Newton's iteration finds the root y of y·y = a. The derivative uses
    2·y·dy = da instead of the steps:

    >>> from tvm import te
    >>> from tvm_autodiff import custom_vjp, differentiate, show
    >>> @custom_vjp
    ... def root(a):
    ...     y = a
    ...     for step in range(6):
    ...         y = te.compute(a.shape, lambda i: 0.5 * (y[i] + a[i] / y[i]), name="y")
    ...     return y
    >>> @root.defvjp
    ... def by_equation(outputs, inputs, cotangents):
    ...     [y], [g] = outputs, cotangents
    ...     return [te.compute(y.shape, lambda i: g[i] / (2.0 * y[i]), name="da")]
    >>> a, h = te.placeholder((3,), name="a"), te.placeholder((3,), name="h")
    >>> [da] = differentiate(root(a), [a], h)
    >>> print(show(da).splitlines()[-1])
    da[i] = h[i]/(2.0*y_6[i])  float32[3]

    The second derivative follows the rule as well:

    >>> g = te.placeholder((3,), name="g")
    >>> print("\n".join(show(differentiate(da, [a], g)).splitlines()[-3:]))
    da[i] = h[i]/(2.0*y_6[i])                   float32[3]
    dy[i0] = (-g[i0]*da[i0]/(2.0*y_6[i0]))*2.0  float32[3]
    da_1[i] = dy[i]/(2.0*y_6[i])                float32[3]
    """
    return CustomFunction(function)


@checked_keywords
def custom_jvp(function: Callable[..., Any]) -> CustomFunction:
    """Define the derivative of a function of tensors by a forward-mode rule.

    Parameters
    ----------
    function : callable
        A function from te tensors to a tensor, a list or a tuple of tensors.

    Returns
    -------
    CustomFunction
        The function. Define the rule with its `defjvp`. Without a `defvjp`, reverse mode follows by
        transposition if the rule is linear in the tangents.

    References
    ----------
    `jax.custom_jvp`.

    Examples
    --------
    A logarithm of 1 + exp(x) whose derivative does not overflow:

    >>> from tvm import te
    >>> from tvm_autodiff import custom_jvp, jvp, show
    >>> @custom_jvp
    ... def softplus(x):
    ...     return te.compute(x.shape, lambda i: te.log(1.0 + te.exp(x[i])), name="softplus")
    >>> @softplus.defjvp
    ... def by_sigmoid(outputs, inputs, tangents):
    ...     [x], [dx] = inputs, tangents
    ...     return [te.compute(x.shape, lambda i: te.sigmoid(x[i]) * dx[i], name="dy")]
    >>> x, v = te.placeholder((3,), name="x"), te.placeholder((3,), name="v")
    >>> print(show(jvp(softplus(x), x, v)))
    inputs  x: float32[3], v: float32[3]
    dy[i] = sigmoid(x[i])*v[i]  float32[3]
    """
    return CustomFunction(function)
