"""A compiled function whose calls are looked at before they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class CheckedFunction:
    """The function of ``build(..., debug_nan=True)``: as the one that it checks, and slower.

    Attributes
    ----------
    function : CompiledFunction
        The function without checks, which every other attribute is that of.
    """

    def __init__(self, function: Any, inspect: Callable[..., None]) -> None:
        self.function = function
        self._inspect = inspect

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run the program, after its stages were computed one by one and found finite.

        Parameters
        ----------
        *arrays, out, **named
            As of the function. Nothing is written before the checks.

        Raises
        ------
        NonFiniteError
            A NaN or an infinity arises.
        CallError
            As of the function.
        """
        given = self.function.in_order(arrays, named) if named else arrays
        self._inspect(*given)
        return self.function(*given, out=out)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __repr__(self) -> str:
        return f"<CheckedFunction {self.function.signature}>"
