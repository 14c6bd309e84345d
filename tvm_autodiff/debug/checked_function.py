"""A compiled function that checks every stage before each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class CheckedFunction:
    """The slower function that ``build(..., debug_nan=True)`` or ``debug_indices=True`` returns.

    Attributes
    ----------
    function : CompiledFunction
        The function without checks. All other attributes are forwarded to it.
    """

    def __init__(self, function: Any, checks: Sequence[Callable[..., None]]) -> None:
        self.function = function
        self._checks = tuple(checks)

    def __call__(self, /, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run the program after its stages passed all checks.

        Parameters
        ----------
        *arrays, out, **named
            As for the unchecked function. Nothing is written before the checks.

        Raises
        ------
        NonFiniteError
            If a NaN or an infinity occurs, with `debug_nan`.
        OutOfBoundsError
            If a stage reads outside of a tensor, with `debug_indices`.
        CallError
            As for the unchecked function.
        """
        given = self.function.in_order(arrays, named) if named else arrays
        for check in self._checks:
            check(*given)
        return self.function(*given, out=out)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __repr__(self) -> str:
        return f"<CheckedFunction {self.function.signature}>"
