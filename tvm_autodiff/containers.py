"""Flattens nested tuples, lists, dictionaries and dataclasses into leaves, and rebuilds them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, cached_property, partial
from itertools import count
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
        ``tuple``, ``list`` or ``dict``; for other containers what makes one from a list of its
        parts.
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
        return self._fill(leaves)

    @cached_property
    def _fill(self) -> Callable[[Sequence[Any]], Any]:
        """One expression that makes all containers, as `dataclasses` writes ``__init__``."""
        values: list[Any] = []
        written = self._written(count(), values)
        return eval(f"lambda leaves: {written}", {"values": values})

    def _written(self, leaves: Iterator[int], values: list[Any]) -> str:
        """The expression; what it takes besides leaves is appended to `values`."""

        def value(taken: Any) -> str:
            values.append(taken)
            return f"values[{len(values) - 1}]"

        if self.kind == "leaf":
            return f"leaves[{next(leaves)}]"
        parts = [part._written(leaves, values) for part in self.parts]
        inner = "".join(f"{part}, " for part in parts)
        if self.make is tuple:
            return f"({inner})"
        if self.make is list:
            return f"[{inner}]"
        if self.make is dict:
            pairs = zip(self.names, parts, strict=True)
            return f"{{{''.join(f'{value(name)}: {part}, ' for name, part in pairs)}}}"
        return f"{value(self.make)}([{inner}])"

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
    make = kind if kind in (tuple, list, dict) else partial(_made, kind, names)
    return leaves, Form(kind.__name__, make, names, tuple(form for _, form in found), by_fields)


#: the form of a value that is not a container
LEAF = Form("leaf", lambda parts: parts[0])


@cache
def _is_container(kind: Any) -> bool:
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
    if value is None:
        return None
    parts: list[Any] = [kind]
    values: Any = value
    if kind is dict:
        parts += value
        values = value.values()
    elif kind is not tuple and kind is not list:
        opened = _opened(value)
        assert opened is not None
        names, values, _ = opened
        parts += names
    # leaves are handled inline, because a call for each would double the cost
    for part in values:
        inner: Any = type(part)
        if _is_container(inner):
            parts.append(skeleton(part, leaves))
        else:
            leaves.append(part)
            parts.append(0)
    return tuple(parts)


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
