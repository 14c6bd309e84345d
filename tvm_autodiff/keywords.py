"""Errors for unknown keywords and names, with a suggestion."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from .errors import UnknownKeywordError

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
    """Wrap a function so that unknown keywords raise an error with a suggestion.

    Raises
    ------
    UnknownKeywordError
        If the function has no parameter with this name.
    """
    known = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        for name in kwargs:
            if name not in known:
                raise UnknownKeywordError(
                    f"{function.__name__}() has no parameter {name!r}"
                    f"{suggestion(name, known) or '.'} It has {', '.join(known)}"
                )
        return function(*args, **kwargs)

    return checked
