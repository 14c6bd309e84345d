"""A Python function of tensors, called once on placeholders: the program that it writes."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ..containers import Form, flattened, paths, skeleton
from ..errors import InvalidArgumentError
from ..expr.nodes import Tensor, TvmInternalError, is_tensor
from ..graph.stage import Extent, placeholder, placeholder_like


@dataclass(frozen=True)
class Trace:
    """What a function computes.

    Attributes
    ----------
    inputs : list of Tensor
        The placeholders that stand for the leaves of its arguments.
    outputs : list of Tensor
        The leaves of its result. One may be an input, or occur twice.
    form : Form
        What is around the outputs.
    """

    inputs: list[Tensor]
    outputs: list[Tensor]
    form: Form


def traced(function: Callable[..., Any], inputs: Sequence[Tensor], form: Form) -> Trace:
    """The program of a function, for placeholders as the leaves of its arguments.

    Parameters
    ----------
    function : callable
        From containers of tensors to containers of tensors.
    inputs : sequence of Tensor
        The leaves of the arguments.
    form : Form
        Of the pair (positional arguments, named arguments).

    Raises
    ------
    InvalidArgumentError
        A leaf of the result is no tensor, there is none, or TVM refuses a call in the function.
    """
    args, kwargs = form.filled(inputs)
    outputs, around = results_of(function, called(function, *args, **kwargs))
    return Trace(list(inputs), outputs, around)


def fresh_inputs(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Placeholders like some tensors: a derivative by them does not see what else reads these."""
    return [placeholder_like(tensor) for tensor in tensors]


def inputs_of(specs: Sequence[tuple[Sequence[Extent], str]], names: Sequence[str]) -> list[Tensor]:
    """Placeholders of the given shapes and dtypes, named as the arguments that they stand for.

    Examples
    --------
    >>> [x] = inputs_of([((3,), "float32")], ["params['w'][0]"])
    >>> x.op.name
    'params_w_0'
    """
    return [
        placeholder(shape, dtype, _identifier(name))
        for (shape, dtype), name in zip(specs, names, strict=True)
    ]


def _identifier(path: str) -> str:
    words = "".join(letter if letter.isalnum() else " " for letter in path).split()
    return "_".join(words)


def results_of(function: Callable[..., Any], result: Any) -> tuple[list[Tensor], Form]:
    """The leaves of what a function returned.

    Raises
    ------
    InvalidArgumentError
        One is no tensor, or there is none.
    """
    leaves, form = flattened(result)
    for leaf, path in zip(leaves, paths(form, "result"), strict=True):
        if not is_tensor(leaf):
            raise InvalidArgumentError(
                f"{described(function)} returned {type(leaf).__name__} as {path}: it must return "
                "te.Tensors, alone or in tuples, lists, dictionaries and dataclasses"
            )
    if not leaves:
        raise InvalidArgumentError(
            f"{described(function)} returned {result!r}: it must return at least one te.Tensor"
        )
    return leaves, form


def called(function: Callable[..., Any], *args: Any, **kwargs: Mapping[str, Any]) -> Any:
    """What a function returns for tensors.

    Raises
    ------
    InvalidArgumentError
        TVM refuses a call in the function; the message has the line of the function's code.
    """
    try:
        return function(*args, **kwargs)
    except TvmInternalError as error:
        raise InvalidArgumentError(
            f"{described(function)}: {_users_line(error.__traceback__)}TVM refuses it: {error}"
        ) from error


def _users_line(traceback: TracebackType | None) -> str:
    """The last line in a traceback that is neither TVM's nor this library's."""
    found = ""
    while traceback is not None:
        frame = traceback.tb_frame
        root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if root not in ("tvm", "tvm_ffi", "tvm_autodiff"):
            name, number = frame.f_code.co_filename, traceback.tb_lineno
            line = linecache.getline(name, number).strip()
            found = f"{name}:{number}: {line}: "
        traceback = traceback.tb_next
    return found


def described(function: Any) -> str:
    """A function's name, and where it is written.

    Examples
    --------
    >>> described(len)
    'len'
    """
    inner = inspect.unwrap(function)
    name = getattr(inner, "__name__", type(inner).__name__)
    code = getattr(inner, "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def holds_tensors(value: Any) -> bool:
    """Whether a leaf of nested containers is a te tensor: a function is being traced."""
    leaves: list[Any] = []
    skeleton(value, leaves)
    return any(map(is_tensor, leaves))
