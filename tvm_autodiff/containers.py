"""Flattens nested tuples, lists, dictionaries and dataclasses into leaves, and rebuilds them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from types import NoneType
from typing import Any

from .errors import InvalidArgumentError


@dataclass(frozen=True)
class Form:
    """The structure of nested containers without their leaves.

    Attributes
    ----------
    kind : str
        ``leaf``, ``none``, or the name of the container's type.
    make : callable
        Makes the container from its parts.
    names : tuple
        The keys of a dictionary, the fields of a named tuple or a dataclass, or positions.
    parts : tuple of Form
        The form of each part.
    fields : bool
        Whether the names are attributes.
    """

    kind: str
    make: Callable[[list[Any]], Any]
    names: tuple[Any, ...] = ()
    parts: tuple[Form, ...] = ()
    fields: bool = False

    @property
    def count(self) -> int:
        """The number of leaves."""
        return 1 if self.kind == "leaf" else sum(part.count for part in self.parts)

    def filled(self, leaves: Sequence[Any]) -> Any:
        """The containers with other leaves."""
        return self._fill(iter(leaves))

    def _fill(self, leaves: Iterator[Any]) -> Any:
        if self.kind == "leaf":
            return next(leaves)
        # leaves are handled inline, because a call for each would double the cost
        return self.make(
            [next(leaves) if part.kind == "leaf" else part._fill(leaves) for part in self.parts]
        )

    def like(self, other: Form) -> bool:
        """Whether both are containers of the same kinds with the same names."""
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
    """The leaves of nested containers, in order, and their form.

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
    opened = _opened(value)
    if opened is None:
        return [value], LEAF
    names, values, by_fields = opened
    found = [flattened(part) for part in values]
    leaves = [leaf for part, _ in found for leaf in part]
    kind = type(value)
    make: Callable[[list[Any]], Any] = partial(_made, kind, names)
    if kind is tuple or kind is list:
        make = kind
    return leaves, Form(kind.__name__, make, names, tuple(form for _, form in found), by_fields)


#: the form of a value that is not a container
LEAF = Form("leaf", lambda parts: parts[0])


@cache
def _is_container(kind: type) -> bool:
    return issubclass(kind, (tuple, list, dict, NoneType)) or is_dataclass(kind)


def _opened(value: Any) -> tuple[tuple[Any, ...], Sequence[Any], bool] | None:
    """The names and values of a container's parts, and whether the names are attributes."""
    if isinstance(value, dict):
        return tuple(value), list(value.values()), False
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(value._fields), value, True
    if isinstance(value, (tuple, list)):
        return tuple(range(len(value))), value, False
    if is_dataclass(value) and not isinstance(value, type):
        names = tuple(field.name for field in fields(value))
        return names, [getattr(value, name) for name in names], True
    return None


def _made(kind: type, names: tuple[Any, ...], parts: list[Any]) -> Any:
    if kind is dict:
        return dict(zip(names, parts, strict=True))
    if issubclass(kind, dict):
        around = OrderedDict if issubclass(kind, OrderedDict) else dict
        return around(zip(names, parts, strict=True))
    if issubclass(kind, (tuple, list)) and not hasattr(kind, "_fields"):
        return kind(parts)
    if is_dataclass(kind):
        settled = {field.name for field in fields(kind) if not field.init}
        made = kind(**{n: part for n, part in zip(names, parts, strict=True) if n not in settled})
        for name, part in zip(names, parts, strict=True):
            if name in settled:
                object.__setattr__(made, name, part)
        return made
    return kind(*parts)


def skeleton(value: Any, leaves: list[Any]) -> Hashable:
    """A value that identifies the form of containers and is faster to make than a `Form`.

    The leaves are appended to the list.

    Examples
    --------
    >>> leaves = []
    >>> one, two = skeleton({"a": 1, "b": (2, 3)}, leaves), skeleton({"a": (1, 2), "b": 3}, leaves)
    >>> one == two, leaves
    (False, [1, 2, 3, 1, 2, 3])
    """
    kind: Any = type(value)
    if not _is_container(kind):
        leaves.append(value)
        return 0
    if kind is tuple or kind is list:
        return (kind, *[skeleton(part, leaves) for part in value])
    if kind is dict:
        return (kind, *value, *[skeleton(part, leaves) for part in value.values()])
    if value is None:
        return None
    opened = _opened(value)
    assert opened is not None
    names, values, _ = opened
    return (kind, *names, *[skeleton(part, leaves) for part in values])


def spread(prefix: Any, form: Form, what: str) -> list[Any]:
    """A value for each leaf of a form, from containers that may stop above the leaves.

    A value at a higher level applies to all leaves below it.

    Raises
    ------
    InvalidArgumentError
        If the containers differ from those of the form.

    Examples
    --------
    >>> _, form = flattened((1, {"a": 2, "b": 3}))
    >>> spread((0, None), form, "in_axes"), spread((0, {"a": 1, "b": None}), form, "in_axes")
    ([0, None, None], [0, 1, None])
    """
    if not isinstance(prefix, (tuple, list, dict)) and not is_dataclass(prefix):
        return [prefix] * form.count
    opened = _opened(prefix)
    assert opened is not None
    names, values, _ = opened
    lists = isinstance(prefix, (tuple, list)) and form.kind in ("tuple", "list")
    if names != form.names or not (lists or form.kind == type(prefix).__name__):
        raise InvalidArgumentError(
            f"{what} is {prefix!r}, which does not fit {form}: give one value for all, or "
            "containers of the same kinds with the same names"
        )
    return [
        value
        for name, part, inner in zip(names, values, form.parts, strict=True)
        for value in spread(part, inner, f"{what}[{name!r}]")
    ]


def matched(value: Any, form: Form, what: str) -> list[Any]:
    """The values at the leaves of a form; None applies to all leaves at its position.

    Raises
    ------
    InvalidArgumentError
        If the containers differ from those of the form.

    Examples
    --------
    >>> _, form = flattened((1, {"a": 2, "b": 3}))
    >>> matched((None, {"a": 5, "b": 6}), form, "tangents"), matched((4, None), form, "tangents")
    ([None, 5, 6], [4, None, None])
    """
    if value is None:
        return [None] * form.count
    if form.kind == "leaf":
        return [value]
    opened = _opened(value)
    lists = isinstance(value, (tuple, list)) and form.kind in ("tuple", "list")
    alike = lists or form.kind == type(value).__name__
    if opened is None or opened[0] != form.names or not alike:
        raise InvalidArgumentError(
            f"{what} is {flattened(value)[1]}, and must have the form {form}"
        )
    return [
        leaf
        for name, part, inner in zip(form.names, opened[1], form.parts, strict=True)
        for leaf in matched(part, inner, f"{what}[{name!r}]")
    ]


def paths(form: Form, start: str) -> list[str]:
    """The path of each leaf as text: ``carry['h'][0].mean``."""
    if form.kind == "leaf":
        return [start]
    return [
        path
        for name, part in zip(form.names, form.parts, strict=True)
        for path in paths(part, f"{start}.{name}" if form.fields else f"{start}[{name!r}]")
    ]
