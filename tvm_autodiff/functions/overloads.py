"""Public names for two transforms each: of te tensors, and of Python functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from .. import transforms
from ..expr.nodes import is_tensor
from . import batching, forward, jacobians, reverse


def _either(of_tensors: Callable[..., Any], of_functions: Callable[..., Any]) -> Callable[..., Any]:
    """A function that dispatches to the transform of functions if its first argument is a function.
    """

    def transform(*args: Any, **kwargs: Any) -> Any:
        chosen = of_functions if args and _is_function(args[0]) else of_tensors
        return chosen(*args, **kwargs)

    return update_wrapper(transform, of_tensors)


def _is_function(value: Any) -> bool:
    return callable(value) and not is_tensor(value)  # a te tensor can be called with indices


hessian = _either(transforms.hessian, jacobians.hessian)
hvp = _either(transforms.hvp, forward.hvp)
jvp = _either(transforms.jvp, forward.jvp)
linearize = _either(transforms.linearize, forward.linearize)
vjp = _either(transforms.vjp, reverse.vjp)
vmap = _either(transforms.vmap, batching.vmap)
