"""`jit`: compiles a function of te tensors into a function of arrays, with options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import InvalidArgumentError
from ..keywords import checked_keywords
from .array_function import ArrayFunction
from .signature import Options
from .tracing import described

#: marks of symbolic sizes: arguments by name, and the axes of their arrays
Dynamic = Mapping[str, Sequence[int]]


@checked_keywords
def jit(
    f: Callable[..., Any],
    *,
    static_argnums: int | Sequence[int] = (),
    donate_argnums: int | Sequence[int] = (),
    dynamic: Dynamic | None = None,
    target: Any = None,
    num_threads: int | None = None,
    exact_math: bool = False,
    cache: Any = True,
) -> ArrayFunction:
    """Compile a Python function of te tensors, for arrays.

    Parameters
    ----------
    f : callable
        A function from te tensors to te tensors, in nested tuples, lists, dictionaries and
        dataclasses. It is called with placeholders, once for each signature of shapes and dtypes.
    static_argnums : int or sequence of int
        Positional arguments that are not arrays: hashable values that are passed to `f` unchanged,
        with one compilation for each value.
    donate_argnums : int or sequence of int
        Positional arguments whose arrays may be overwritten. Results of the same shape and dtype
        are written into them, the first result into the first such array, and these arrays are
        returned.
    dynamic : mapping from str to sequence of int, optional
        Axes with symbolic size, by argument name, so that one compilation serves all sizes. Axes
        that have equal sizes in the first call share one symbol; a call in which they differ
        compiles again.
    target, num_threads, exact_math, cache
        As in `build`.

    Returns
    -------
    ArrayFunction

    Raises
    ------
    InvalidArgumentError
        If an option has the wrong form. In the call: if an argument is not an array, or a result
        not a tensor.
    CallError
        In the call: if arrays are on different devices.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm import topi
    >>> from tvm_autodiff import jit
    >>> total = jit(lambda x, scale: topi.sum(x) * scale, dynamic={"x": (0,)})
    >>> float(total(np.ones(5, "float32"), 2.0)), float(total(np.ones(7, "float32"), 0.5))
    (10.0, 3.5)

    As a decorator of a training step:

    >>> @jit
    ... def step(w, x):
    ...     return w - 0.5 * x
    >>> step(np.float32([1, 2]), np.float32([1, 1]))
    array([0.5, 1.5], dtype=float32)
    """
    build_options = {
        "target": target,
        "num_threads": num_threads,
        "exact_math": exact_math,
        "cache": cache,
    }
    options = Options(
        _positions(f, static_argnums, "static_argnums"),
        _positions(f, donate_argnums, "donate_argnums"),
        _checked_dynamic(f, dynamic),
        tuple((name, value) for name, value in build_options.items() if value is not None),
    )
    both = set(options.static) & set(options.donated)
    if both:
        raise InvalidArgumentError(
            f"argument {min(both)} is static and donated, but a static argument is not an array"
        )
    return ArrayFunction(f, options)


def _positions(f: Any, value: Any, what: str) -> tuple[int, ...]:
    numbers = (value,) if isinstance(value, int) else value
    if isinstance(numbers, str) or not hasattr(numbers, "__iter__"):
        raise InvalidArgumentError(f"{what} must be a number or a sequence, got {value!r}")
    found = tuple(numbers)
    for number in found:
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InvalidArgumentError(
                f"{what} contains {number!r}: pass numbers of positional arguments, starting from 0"
            )
    parameters = _parameters(f)
    if parameters is not None and not any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        most = sum(p.kind is not p.KEYWORD_ONLY for p in parameters.values())
        most -= any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        for number in found:
            if number >= most:
                raise InvalidArgumentError(
                    f"{what} contains {number}, but {described(f)} takes {most} positional "
                    "arguments, numbered from 0"
                )
    return found


def _parameters(f: Any) -> Mapping[str, inspect.Parameter] | None:
    """The parameters of a function; None if they are unknown, as of a function in C."""
    try:
        return inspect.signature(f).parameters
    except (TypeError, ValueError):
        return None


def _checked_dynamic(f: Any, dynamic: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if dynamic is None:
        return ()
    form = 'such as {"x": (0,)}: the names of arguments, and axes of their arrays'
    if not isinstance(dynamic, Mapping):
        raise InvalidArgumentError(f"dynamic is {dynamic!r}: pass a dictionary {form}")
    found = []
    for name, axes in dynamic.items():
        numbers = (axes,) if isinstance(axes, int) else axes
        if not isinstance(name, str) or not isinstance(numbers, (tuple, list)):
            raise InvalidArgumentError(f"dynamic contains {name!r}: {axes!r}; pass one {form}")
        if not all(isinstance(axis, int) and not isinstance(axis, bool) for axis in numbers):
            raise InvalidArgumentError(f"dynamic contains {name!r}: {axes!r}; pass one {form}")
        found.append((name, tuple(numbers)))
    parameters = _parameters(f)
    if parameters is None:
        return tuple(found)
    open_ = any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters.values())
    for name, _ in found:
        if name not in parameters and not open_:
            raise InvalidArgumentError(
                f"dynamic names {name!r}, which is not an argument of {described(f)}: it has "
                f"{', '.join(parameters)}"
            )
    return tuple(found)
