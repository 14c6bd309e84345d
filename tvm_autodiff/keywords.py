"""Errors for unknown keywords and names, with a suggestion, and for flags that are no booleans;
integers of numpy as integers.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .errors import InvalidArgumentError, UnknownKeywordError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

#: parameter names of other libraries → ours, of which a function has at most one
_MEANINGS: dict[str, tuple[str, ...]] = {
    "wrt": ("inputs", "input"),
    "argnums": ("inputs",),
    "args": ("inputs",),
    "xs": ("inputs",),
    "ys": ("outputs", "output"),
    "loss": ("output", "outputs"),
    "grad_outputs": ("head", "cotangents"),
    "output_gradients": ("head", "cotangents"),
    "cotangent": ("head",),
    "adjoint": ("head", "cotangents"),
    "head": ("cotangents",),
    "cotangents": ("head",),
    "device": ("target",),
    "threads": ("num_threads",),
    "donate": ("updates",),
    "donate_argnums": ("updates",),
    "fast_math": ("exact_math",),
}


def suggestion(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'head'?"`` for ``heads``, or an empty string if no known name is similar.

    Examples
    --------
    >>> suggestion("heads", ["inputs", "head"]), suggestion("wrt", ["inputs", "head"])
    ("; did you mean 'head'?", "; did you mean 'inputs'?")
    >>> suggestion("colour", ["inputs", "head"])
    ''
    """
    names = list(known)
    meant = [other for other in _MEANINGS.get(name.lower(), ()) if other in names]
    close = meant or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def checked_keywords(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Wrap a function so that unknown keywords and flags that are no booleans raise an error, and
    integers of numpy are integers.

    Flags are the parameters that are annotated as ``bool``: any text would count as true.

    Raises
    ------
    UnknownKeywordError
        If the function has no parameter with this name.
    InvalidArgumentError
        If a flag is neither true nor false.
    """
    parameters = inspect.signature(function).parameters
    known = list(parameters)
    flags = {name for name, one in parameters.items() if one.annotation in (bool, "bool")}

    @functools.wraps(function)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        for name in kwargs:
            if name not in known:
                raise UnknownKeywordError(
                    f"{function.__name__}() has no parameter {name!r}"
                    f"{suggestion(name, known) or '.'} It has {', '.join(known)}"
                )
        for name, value in (*zip(known, args, strict=False), *kwargs.items()):
            if name in flags and not isinstance(value, (bool, np.bool_)):
                raise InvalidArgumentError(f"{name} must be True or False, got {value!r}")
        plain = {name: _plain(value) for name, value in kwargs.items()}
        return function(*map(_plain, args), **plain)

    return checked


def _plain(value: Any) -> Any:
    """``np.int64(5) → 5``, by itself and in a list or a tuple: what ``shape[0]`` and reductions of
    numpy give.
    """
    if isinstance(value, np.integer):
        return int(value)
    if type(value) in (list, tuple) and any(isinstance(part, np.integer) for part in value):
        return type(value)(int(part) if isinstance(part, np.integer) else part for part in value)
    return value
