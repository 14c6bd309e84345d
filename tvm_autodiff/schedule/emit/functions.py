"""The functions of a module that are called by address, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...codegen.host.direct_calls import by_address
from ...codegen.modules import FunctionVar, function_hash, function_var, with_functions
from ...codegen.passes.indices.function_widths import with_safe_indices
from ...codegen.stages.primfunc import Callee, relax_alignment, same_function
from ...expr.nodes import Var
from .names import identifier


class Functions:
    """The kernels of a module, each once, and those that they call.

    Parameters
    ----------
    put : callable
        ``put(func, name)`` adds a function to the module under a similar name.
    """

    def __init__(self, put: Callable[[Any, str], FunctionVar]) -> None:
        self._put = put
        self._known: dict[int, list[tuple[Any, FunctionVar]]] = {}

    def add(
        self, func: Any, name: str, only: Var | None = None, callees: Sequence[Callee] = ()
    ) -> FunctionVar:
        """The variable of a scheduled function; those that it calls are added as well."""
        func = self.calling(func, callees)
        same = self._known.setdefault(function_hash(func), [])
        for known, var in same:
            # a free variable, `only`, is another one in each function
            if only is None and same_function(known, func):
                return var
        # safe to compile, and to call with what is aligned to its elements only
        finished = relax_alignment(with_safe_indices(func))
        var = self._put(by_address(finished, identifier(name), only), identifier(name))
        same.append((func, var))
        return var

    def calling(self, func: Any, callees: Sequence[Callee]) -> Any:
        """A function that calls the functions of this module instead of `callees`."""
        table = [(one.var, self.add(one.func, one.name, one.only, one.callees)) for one in callees]
        return with_functions(func, table) if table else func


class Module:
    """Functions under unique names."""

    def __init__(self, taken: Sequence[str] = ("main",)) -> None:
        self.functions: dict[FunctionVar, Any] = {}
        self._names: set[str] = set(taken)

    def put(self, func: Any, name: str) -> FunctionVar:
        """The variable of a function that becomes a part of the module."""
        unique, number = name, 1
        while unique in self._names:
            unique, number = f"{name}_{number}", number + 1
        self._names.add(unique)
        var = function_var(unique)
        self.functions[var] = func
        return var
