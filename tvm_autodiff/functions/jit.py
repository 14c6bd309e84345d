"""`jit`: the options of a compiled function of arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import InvalidArgumentError
from ..keywords import checked_keywords
from .array_function import ArrayFunction
from .signature import Options
from .tracing import described

#: how a symbolic size is marked: the arguments by name, and which axes of their arrays
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
        From te tensors to te tensors, in nested tuples, lists, dictionaries and dataclasses. It is
        called once for each signature of shapes and dtypes, with placeholders.
    static_argnums : int or sequence of int
        Positional arguments that are no arrays: hashable values that `f` gets as they are, with one
        compilation for each.
    donate_argnums : int or sequence of int
        Positional arguments whose arrays the caller gives up: results of the same shape and dtype
        are written into them, the first result into the first such array, and the arrays are what
        is returned.
    dynamic : mapping from str to sequence of int, optional
        For arguments by name the axes of their arrays whose size is symbolic: one compilation for
        all sizes. Sizes of such axes that are equal in the first call are taken for one size; a
        call where they differ compiles once more.
    target, num_threads, exact_math, cache
        As of `build`.

    Returns
    -------
    ArrayFunction

    Raises
    ------
    InvalidArgumentError
        An option has the wrong form. In the call: an argument is no array, a result no tensor.
    CallError
        In the call: arrays lie on different devices.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm import topi
    >>> from tvm_autodiff import jit
    >>> total = jit(lambda x, scale: topi.sum(x) * scale, dynamic={"x": (0,)})
    >>> float(total(np.ones(5, "float32"), 2.0)), float(total(np.ones(7, "float32"), 0.5))
    (10.0, 3.5)

    A training step that writes over its parameters:

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
        _positions(static_argnums, "static_argnums"),
        _positions(donate_argnums, "donate_argnums"),
        _checked_dynamic(f, dynamic),
        tuple((name, value) for name, value in build_options.items() if value is not None),
    )
    both = set(options.static) & set(options.donated)
    if both:
        raise InvalidArgumentError(f"argument {min(both)} is static and donated: it is no array")
    return ArrayFunction(f, options)


def _positions(value: Any, what: str) -> tuple[int, ...]:
    numbers = (value,) if isinstance(value, int) else value
    if isinstance(numbers, str) or not hasattr(numbers, "__iter__"):
        raise InvalidArgumentError(f"{what} must be a number or a sequence, got {value!r}")
    found = tuple(numbers)
    for number in found:
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InvalidArgumentError(
                f"{what} holds {number!r}: give numbers of positional arguments, from 0 on"
            )
    return found


def _checked_dynamic(f: Any, dynamic: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if dynamic is None:
        return ()
    form = 'such as {"x": (0,)}: the names of arguments, and axes of their arrays'
    if not isinstance(dynamic, Mapping):
        raise InvalidArgumentError(f"dynamic is {dynamic!r}: give a dictionary {form}")
    found = []
    for name, axes in dynamic.items():
        numbers = (axes,) if isinstance(axes, int) else axes
        if not isinstance(name, str) or not isinstance(numbers, (tuple, list)):
            raise InvalidArgumentError(f"dynamic holds {name!r}: {axes!r}; give one {form}")
        if not all(isinstance(axis, int) and not isinstance(axis, bool) for axis in numbers):
            raise InvalidArgumentError(f"dynamic holds {name!r}: {axes!r}; give one {form}")
        found.append((name, tuple(numbers)))
    try:
        parameters = inspect.signature(f).parameters
    except (TypeError, ValueError):  # a function in C
        return tuple(found)
    open_ = any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters.values())
    for name, _ in found:
        if name not in parameters and not open_:
            raise InvalidArgumentError(
                f"dynamic names {name!r}, which is no argument of {described(f)}: it has "
                f"{', '.join(parameters)}"
            )
    return tuple(found)
