"""Calls a function with new placeholders instead of some arguments.

A derivative with respect to these placeholders treats other reads of the same tensors, by closures
or other arguments, as constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..containers import Form, flattened, matched, paths
from ..errors import InvalidArgumentError, NotDifferentiableError
from ..expr.nodes import Tensor, dtype_of, is_float, is_tensor
from ..graph.graph import replace_tensors
from ..graph.stage import placeholder_like, shape_of
from ..transforms.arguments import same_extents, shape_text
from .tracing import called, described, results_of

#: the number of an argument, or of several
Argnums = int | tuple[int, ...]


@dataclass(frozen=True)
class LocalCall:
    """A call with placeholders.

    Attributes
    ----------
    function : callable
        The function, for messages.
    actual, formal : list of Tensor
        The leaves of the replaced arguments, and the placeholders that replace them.
    form : Form
        The form of these leaves: a tuple of the arguments.
    names : list of str
        The name of each leaf in messages.
    result : Any
        The result of the function.
    """

    function: Callable[..., Any]
    actual: list[Tensor]
    formal: list[Tensor]
    form: Form
    names: list[str]
    result: Any

    def outputs(self) -> tuple[list[Tensor], Form]:
        """The leaves of the result, and their form.

        Raises
        ------
        InvalidArgumentError
            If a leaf is not a tensor, or there is none.
        """
        return results_of(self.function, self.result)

    def require_floats(self) -> None:
        """Raise `NotDifferentiableError` if a leaf is not floating point."""
        for leaf, name in zip(self.actual, self.names, strict=True):
            if not is_float(leaf):
                raise NotDifferentiableError(
                    f"{name} of {described(self.function)} has dtype {dtype_of(leaf)}: only "
                    "floating point arguments have derivatives; leave it out of argnums, or pass "
                    "floating point numbers"
                )

    def moved(self, value: Any) -> Any:
        """Containers of tensors, rewritten from the placeholders to the actual arguments."""
        leaves, form = flattened(value)
        numbers = [number for number, leaf in enumerate(leaves) if is_tensor(leaf)]
        pairs = list(zip(self.formal, self.actual, strict=True))
        moved = replace_tensors([leaves[number] for number in numbers], pairs)
        for number, tensor in zip(numbers, moved, strict=True):
            leaves[number] = tensor
        return form.filled(leaves)


def local_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    argnums: Argnums,
) -> LocalCall:
    """Call a function with placeholders instead of the arguments with the given numbers.

    Raises
    ------
    InvalidArgumentError
        If there is no such argument, it holds no tensor, or one of its leaves is not a tensor.
    """
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    for number in numbers:
        if not -len(args) <= number < len(args):
            raise InvalidArgumentError(
                f"argnums names argument {number} of {described(function)}, which was called with "
                f"{len(args)} positional arguments"
            )
        if not flattened(args[number])[0]:
            raise InvalidArgumentError(
                f"argument {number % len(args)} of {described(function)} holds no tensor, and has "
                "no derivative: pass an array, or leave it out of argnums"
            )
    if len({number % len(args) for number in numbers}) < len(numbers):
        raise InvalidArgumentError(
            f"argnums {numbers} names an argument of {described(function)} twice: each has one "
            "derivative"
        )
    leaves, form = flattened(tuple(args[number] for number in numbers))
    names = [
        path
        for number, part in zip(numbers, form.parts, strict=True)
        for path in paths(part, f"argument {number % len(args)}")
    ]
    for leaf, name in zip(leaves, names, strict=True):
        if not is_tensor(leaf):
            raise InvalidArgumentError(
                f"{name} of {described(function)} is {type(leaf).__name__}: only tensors have "
                "derivatives"
            )
    formal = [placeholder_like(leaf) for leaf in leaves]
    given = list(args)
    for number, value in zip(numbers, form.filled(formal), strict=True):
        given[number] = value
    return LocalCall(function, leaves, formal, form, names, called(function, *given, **kwargs))


def checked_argnums(argnums: Any) -> Argnums:
    """The number of an argument, or a tuple of numbers.

    Raises
    ------
    InvalidArgumentError
        For any other value.
    """
    numbers = [argnums] if not isinstance(argnums, (tuple, list)) else argnums
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int):
            raise InvalidArgumentError(
                f"argnums is {argnums!r}: pass the number of a positional argument, or a tuple of "
                "numbers"
            )
    return argnums if isinstance(argnums, int) else tuple(numbers)


def picked(parts: Sequence[Any], argnums: Argnums) -> Any:
    """The parts for the arguments: one part for a number, a tuple for a tuple."""
    return parts[0] if isinstance(argnums, int) else parts


def fitted(value: Any, like: Sequence[Tensor], form: Form, what: str) -> list[Tensor | None]:
    """A tangent or cotangent for each of the tensors, from containers of their form.

    None means zeros, and is required for tensors that are not floating point.

    Raises
    ------
    InvalidArgumentError
        If the containers differ, or a tensor has another shape or dtype.
    """
    found = matched(value, form, what)
    for part, tensor, path in zip(found, like, paths(form, what), strict=True):
        if part is None:
            continue
        if not is_float(tensor):
            raise InvalidArgumentError(
                f"{path} belongs to {tensor.op.name}, of dtype {dtype_of(tensor)}, which has no "
                "derivative: pass None"
            )
        if (
            not is_tensor(part)
            or dtype_of(part) != dtype_of(tensor)
            or not same_extents(shape_of(part), shape_of(tensor))
        ):
            raise InvalidArgumentError(
                f"{path} is {_described(part)}, and {tensor.op.name} is {_described(tensor)}: pass "
                "a tensor of that shape and dtype"
            )
    return found


def _described(value: Any) -> str:
    if not is_tensor(value):
        return type(value).__name__
    return f"{dtype_of(value)} of shape {shape_text(shape_of(value))}"
