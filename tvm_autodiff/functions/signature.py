"""The signature of one compilation: forms, shapes, dtypes and static arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..containers import Form, flattened, paths
from ..errors import InvalidArgumentError
from ..expr.build import variable
from ..expr.nodes import Tensor
from .leaves import Leaf, leaves_of
from .tracing import inputs_of


@dataclass(frozen=True)
class Options:
    """The compile options of a function; see `jit`."""

    static: tuple[int, ...] = ()
    donated: tuple[int, ...] = ()
    dynamic: tuple[tuple[str, tuple[int, ...]], ...] = ()
    build: tuple[tuple[str, Any], ...] = ()


#: no option is set
DEFAULT = Options()


@dataclass(frozen=True)
class Signature:
    """The properties for which a program is compiled.

    Attributes
    ----------
    form : Form
        The form of the pair (positional arguments, keyword arguments) without static ones.
    names : list of str
        The name of each leaf.
    leaves : list of Leaf
        Shapes, dtypes and devices.
    symbols : list of dict
        For each leaf, the axes with symbolic size and the number of the size. Axes of equal size
        share a number.
    static : dict
        Static arguments by position.
    donates : bool
        Whether arguments may be written.
    """

    form: Form
    names: list[str]
    leaves: list[Leaf]
    symbols: list[dict[int, int]]
    static: dict[int, Any]
    donates: bool

    @property
    def key(self) -> Hashable:
        """Equal for calls that take the same program, given equal containers."""
        shapes = tuple(
            (
                leaf.dtype,
                leaf.gpu is None,
                leaf.writable or not self.donates,
                *(-1 - symbols[n] if n in symbols else dim for n, dim in enumerate(leaf.shape)),
            )
            for leaf, symbols in zip(self.leaves, self.symbols, strict=True)
        )
        return shapes

    @property
    def sizes(self) -> int:
        """The number of symbolic sizes."""
        return len({number for symbols in self.symbols for number in symbols.values()})

    def placeholders(self) -> list[Tensor]:
        """A placeholder for each leaf."""
        numbers = sorted({number for symbols in self.symbols for number in symbols.values()})
        sizes = {number: variable(f"n{number}") for number in numbers}
        specs = [
            (
                [sizes[symbols[n]] if n in symbols else dim for n, dim in enumerate(leaf.shape)],
                leaf.dtype,
            )
            for leaf, symbols in zip(self.leaves, self.symbols, strict=True)
        ]
        return inputs_of(specs, self.names)

    def __str__(self) -> str:
        return ", ".join(f"{n}: {leaf}" for n, leaf in zip(self.names, self.leaves, strict=True))


def signature_of(
    function: Callable[..., Any],
    options: Options,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    look: Callable[[Sequence[Any], Sequence[str]], list[Leaf]] = leaves_of,
) -> Signature:
    """The signature of a call with these arguments; `look` returns the properties of leaves.

    Raises
    ------
    InvalidArgumentError
        If an argument is not an array, or lacks an axis that is marked as symbolic.
    CallError
        If arrays are on different devices.
    """
    static = {n: value for n, value in enumerate(args) if n in options.static}
    given = tuple(None if n in static else value for n, value in enumerate(args))
    values, form = flattened((given, dict(kwargs)))
    words = _argument_names(function, len(args), kwargs)
    parts = [*form.parts[0].parts, *form.parts[1].parts]
    named = list(zip(words, parts, strict=True))
    names = [path for word, part in named for path in paths(part, word)]
    owners = [word for word, part in named for _ in range(part.count)]
    leaves = look(values, names)
    symbols = _symbols(dict(options.dynamic), leaves, owners, names)
    return Signature(form, names, leaves, symbols, static, bool(options.donated))


def _argument_names(
    function: Callable[..., Any], count: int, kwargs: Mapping[str, Any]
) -> list[str]:
    """The names of positional and of named arguments."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # a function in C
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][
        :count
    ]
    names += [f"argument{n}" for n in range(len(names), count)]
    return [*names, *kwargs]


def _symbols(
    dynamic: Mapping[str, Sequence[int]],
    leaves: Sequence[Leaf],
    owners: Sequence[str],
    names: Sequence[str],
) -> list[dict[int, int]]:
    """The symbolic axes of each leaf, with the numbers of their sizes."""
    numbers: dict[int, int] = {}
    found: list[dict[int, int]] = []
    for leaf, owner, name in zip(leaves, owners, names, strict=True):
        symbols: dict[int, int] = {}
        rank = len(leaf.shape)
        for axis in dynamic.get(owner, ()):
            if not -rank <= axis < rank:
                raise InvalidArgumentError(
                    f"dynamic names axis {axis} of {owner}, and {name} is {leaf}: it has "
                    f"{rank} axes"
                )
            # sizes that are equal in the first call stay equal: other calls get another program
            size = leaf.shape[axis]
            symbols[axis % rank] = numbers.setdefault(size, len(numbers))
        found.append(symbols)
    return found
