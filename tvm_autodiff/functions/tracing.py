"""Traces a Python function of tensors: calls it once on placeholders and records the program."""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ..containers import Form, flattened, paths, skeleton
from ..errors import AutodiffError, InvalidArgumentError
from ..expr.nodes import Tensor, is_tensor
from ..graph.numpy_calls import without_numpy_calls
from ..graph.stage import Extent, placeholder, placeholder_like

#: what Python and numpy raise for tensors as operands, and for loop variables as indices of arrays
_OF_OPERANDS = (TypeError, IndexError)
_TRACED = (
    "during tracing, tensors have shapes and dtypes but no values; te.compute computes elements, "
    "topi whole tensors, and arrays are arguments of the function"
)


@dataclass(frozen=True)
class Trace:
    """The program that a function computes.

    Attributes
    ----------
    inputs : list of Tensor
        The placeholders for the leaves of its arguments.
    outputs : list of Tensor
        The leaves of its result. One may be an input, or be repeated.
    form : Form
        The form of the outputs.
    """

    inputs: list[Tensor]
    outputs: list[Tensor]
    form: Form


def traced(function: Callable[..., Any], inputs: Sequence[Tensor], form: Form) -> Trace:
    """The program of a function, for placeholders as the leaves of its arguments.

    Parameters
    ----------
    function : callable
        A function from containers of tensors to containers of tensors.
    inputs : sequence of Tensor
        The leaves of the arguments.
    form : Form
        The form of the pair (positional arguments, keyword arguments).

    Raises
    ------
    InvalidArgumentError
        If a leaf of the result is not a tensor, there is none, or TVM rejects a call in the
        function.
    """
    args, kwargs = form.filled(inputs)
    outputs, around = results_of(function, called(function, *args, **kwargs))
    return Trace(list(inputs), outputs, around)


def fresh_inputs(tensors: Sequence[Tensor]) -> list[Tensor]:
    """New placeholders like some tensors; a derivative with respect to them ignores other reads."""
    return [placeholder_like(tensor) for tensor in tensors]


def inputs_of(specs: Sequence[tuple[Sequence[Extent], str]], names: Sequence[str]) -> list[Tensor]:
    """Placeholders of the given shapes and dtypes, named after the arguments that they replace.

    Examples
    --------
    >>> [x] = inputs_of([((3,), "float32")], ["params['w'][0]"])
    >>> x.op.name
    'params_w_0'
    """
    return [
        placeholder(shape, dtype, identifier(name))
        for (shape, dtype), name in zip(specs, names, strict=True)
    ]


def identifier(path: str) -> str:
    """A path as a name of a tensor."""
    words = "".join(letter if letter.isalnum() else " " for letter in path).split()
    return "_".join(words)


def results_of(function: Callable[..., Any], result: Any) -> tuple[list[Tensor], Form]:
    """The leaves of what a function returned.

    Raises
    ------
    InvalidArgumentError
        If one is not a tensor, or there is none.
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
    """The result of a function for tensors.

    Raises
    ------
    InvalidArgumentError
        If TVM rejects a call in the function, or it calls a function of numpy on a tensor. The
        message contains the line of the function's code.
    """
    try:
        with without_numpy_calls():
            return function(*args, **kwargs)
    except AutodiffError:
        raise
    except Exception as error:
        place = _refused_at(error.__traceback__)
        if place is None:
            if isinstance(error, _OF_OPERANDS) and sys.version_info >= (3, 11):
                error.add_note(f"{described(function)} is traced: {_TRACED}")
            raise  # the function's own
        raise InvalidArgumentError(
            f"{described(function)}: {place}TVM rejects it: {error} ({_TRACED})"
        ) from error


def _refused_at(traceback: TracebackType | None) -> str | None:
    """The position of the user's call of TVM for an error that arose in TVM, or None."""
    place, by_tvm = "", False
    while traceback is not None:
        code = traceback.tb_frame.f_code
        root = str(traceback.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        # TVM adds frames of its C++ files
        native = not code.co_filename.endswith(".py") and not code.co_filename.startswith("<")
        by_tvm = native or root in ("tvm", "tvm_ffi")
        if not by_tvm and root != "tvm_autodiff":
            line = linecache.getline(code.co_filename, traceback.tb_lineno).strip()
            place = f"{code.co_filename}:{traceback.tb_lineno}: {line}: "
        traceback = traceback.tb_next
    return place if by_tvm else None


def described(function: Any) -> str:
    """The name of a function, and where it is defined.

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
    """Whether a leaf of nested containers is a te tensor, so that a function is being traced."""
    leaves: list[Any] = []
    skeleton(value, leaves)
    return any(map(is_tensor, leaves))
