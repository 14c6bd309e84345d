"""Nested tuples, lists and dictionaries of tensors: their leaves in order, and the form around
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Form:
    """What is around some leaves.

    Attributes
    ----------
    kind : str
        ``leaf``, ``none``, or the name of the container's type.
    make : callable
        From the parts to the container.
    names : tuple
        The keys of a dictionary, the fields of a named tuple, places otherwise.
    parts : tuple of Form
        What each part is.
    """

    kind: str
    make: Callable[[list[Any]], Any]
    names: tuple[Any, ...] = ()
    parts: tuple[Form, ...] = ()

    def filled(self, leaves: Sequence[Any]) -> Any:
        """The container around other leaves."""
        return self._fill(iter(leaves))

    def _fill(self, leaves: Iterator[Any]) -> Any:
        if self.kind == "leaf":
            return next(leaves)
        return self.make([part._fill(leaves) for part in self.parts])

    def like(self, other: Form) -> bool:
        """Whether both are containers of the same kind with the same names, part by part."""
        return (self.kind, self.names) == (other.kind, other.names) and all(
            one.like(two) for one, two in zip(self.parts, other.parts, strict=True)
        )

    def __str__(self) -> str:
        inner = [str(part) for part in self.parts]
        named = [f"{name!r}: {part}" for name, part in zip(self.names, inner, strict=True)]
        written = {
            "leaf": "*",
            "none": "None",
            "list": f"[{', '.join(inner)}]",
            "tuple": f"({', '.join(inner)}{',' if len(inner) == 1 else ''})",
            "dict": f"{{{', '.join(named)}}}",
        }
        return written.get(self.kind, f"{self.kind}({', '.join(inner)})")


def flattened(value: Any) -> tuple[list[Any], Form]:
    """The leaves of nested containers, in order, and what is around them.

    None has no leaves. Dictionaries keep the order of their keys.

    Examples
    --------
    >>> leaves, form = flattened({"h": 1, "c": [2, None]})
    >>> leaves, str(form)
    ([1, 2], "{'h': *, 'c': [*, None]}")
    >>> form.filled([3, 4])
    {'h': 3, 'c': [4, None]}
    """
    if value is None:
        return [], Form("none", lambda parts: None)
    if isinstance(value, dict):
        names = tuple(value)
        return _around(
            "dict", lambda parts: dict(zip(names, parts, strict=True)), names, list(value.values())
        )
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        kind = type(value)
        return _around(kind.__name__, lambda parts: kind(*parts), tuple(value._fields), value)
    if isinstance(value, (tuple, list)):
        around = tuple if isinstance(value, tuple) else list
        return _around(around.__name__, around, tuple(range(len(value))), value)
    return [value], Form("leaf", lambda parts: parts[0])


def _around(
    kind: str, make: Callable[[list[Any]], Any], names: tuple[Any, ...], values: Sequence[Any]
) -> tuple[list[Any], Form]:
    found = [flattened(value) for value in values]
    leaves = [leaf for part, _ in found for leaf in part]
    return leaves, Form(kind, make, names, tuple(form for _, form in found))


def paths(form: Form, start: str) -> list[str]:
    """How each leaf is written: ``carry['h'][0]``."""
    if form.kind == "leaf":
        return [start]
    return [
        path
        for name, part in zip(form.names, form.parts, strict=True)
        for path in paths(part, f"{start}[{name!r}]")
    ]
