"""Signatures of compiled functions: names, shapes and dtypes of arguments and results.

Shapes may contain symbolic dimensions. A signature checks calls with errors that name the argument,
gives the shapes of results, and has a JSON form, which exported functions keep. A dimension is an
int, the name of a symbol, or a list ``[operator, left, right]`` over dimensions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ...errors import CallError
from ...expr.integers.intervals import MOST_SYMBOLIC

Dim = Any  #: int, str or [operator, left, right]

_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "truncdiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "truncmod": lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),
    "min": min,
    "max": max,
}
DIM_OPERATORS = tuple(_OPERATORS)


def dim_value(dim: Dim, sizes: dict[str, int]) -> int | None:
    """The value of a dimension for known symbols, or None while a symbol is unknown."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, str):
        return sizes.get(dim)
    left, right = dim_value(dim[1], sizes), dim_value(dim[2], sizes)
    return None if left is None or right is None else _OPERATORS[dim[0]](left, right)


def symbols_of(dim: Dim) -> list[str]:
    """The names of the symbols in a dimension."""
    if isinstance(dim, list):
        return [name for part in dim[1:] for name in symbols_of(part)]
    return [dim] if isinstance(dim, str) else []


def linear_in(symbol: str, dim: Dim, sizes: dict[str, int]) -> tuple[int, int] | None:
    """``(a, b)`` with ``dim = a*symbol + b`` for known other symbols, or None if it is not linear.

    Examples
    --------
    >>> linear_in("n", ["add", ["mul", 2, "n"], "m"], {"m": 5})
    (2, 5)
    """
    if symbol not in symbols_of(dim):
        value = dim_value(dim, sizes)
        return None if value is None else (0, value)
    if isinstance(dim, str):
        return 1, 0
    left, right = linear_in(symbol, dim[1], sizes), linear_in(symbol, dim[2], sizes)
    if left is None or right is None:
        return None
    if dim[0] in ("add", "sub"):
        join = _OPERATORS[dim[0]]
        return join(left[0], right[0]), join(left[1], right[1])
    if dim[0] == "mul" and 0 in (left[0], right[0]):
        return left[0] * right[1] + left[1] * right[0], left[1] * right[1]
    return None


def dim_text(dim: Dim) -> str:
    """A dimension in ordinary notation."""
    if not isinstance(dim, (list, tuple)):
        return str(dim)
    sign = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%"}.get(dim[0])
    left, right = dim_text(dim[1]), dim_text(dim[2])
    return f"({left} {sign} {right})" if sign else f"{dim[0]}({left}, {right})"


def shape_text(shape: Sequence[Dim]) -> str:
    """A shape as a tuple in text."""
    inner = ", ".join(dim_text(dim) for dim in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype of an argument or result."""

    name: str
    shape: tuple[Dim, ...]
    dtype: str

    @property
    def static(self) -> bool:
        """Whether every dimension is a literal."""
        return all(isinstance(dim, int) for dim in self.shape)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{shape_text(self.shape)}"


@dataclass(frozen=True)
class Signature:
    """Arguments and results of a compiled function.

    Attributes
    ----------
    single : bool
        Whether a call returns one array instead of a list.
    wide : tuple of str
        The int64 symbols. Arrays of other symbolic sizes are addressed in int32.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    single: bool = False
    wide: tuple[str, ...] = ()
    static: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "static", all(s.static for s in (*self.inputs, *self.outputs)))

    def check_count(self, count: int) -> None:
        """Raise `CallError` unless a call has as many arguments as the signature."""
        if count != len(self.inputs):
            names = ", ".join(spec.name for spec in self.inputs)
            several = len(self.inputs) < count <= len(self.inputs) + len(self.outputs)
            hint = ": pass arrays for results as out=" if several else ""
            raise CallError(f"expected {len(self.inputs)} arrays ({names}), got {count}{hint}")

    def check_array(
        self,
        place: str,
        spec: TensorSpec,
        shape: Sequence[int],
        dtype: str,
        sizes: dict[str, int],
    ) -> None:
        """Raise `CallError` unless shape and dtype match; unknown symbols get their value from the
        shape.
        """
        if dtype != spec.dtype:
            raise CallError(
                f"{place} {spec.name!r} must have dtype {spec.dtype}, got {dtype}: convert it first"
            )
        if len(shape) != len(spec.shape):
            raise CallError(
                f"{place} {spec.name!r} must have rank {len(spec.shape)}, shape "
                f"{shape_text(spec.shape)}, got shape {tuple(shape)}"
            )
        if not spec.static:
            self._check_size(place, spec, shape)
        for number, (dim, size) in enumerate(zip(spec.shape, shape, strict=True)):
            if isinstance(dim, str):
                known = sizes.setdefault(dim, size)
                if known != size:
                    raise CallError(
                        f"{place} {spec.name!r} has {dim} = {size} in dimension {number}, but "
                        f"{dim} = {known} in an argument before it (shape {shape_text(spec.shape)})"
                    )
                continue
            self._solve(dim, size, sizes)
            wanted = dim_value(dim, sizes)
            if wanted is not None and wanted != size:
                raise CallError(
                    f"{place} {spec.name!r} must have shape {shape_text(spec.shape)}, "
                    f"got {tuple(shape)}: dimension {number} is not {wanted}"
                )

    def _check_size(self, place: str, spec: TensorSpec, shape: Sequence[int]) -> None:
        """Raise `CallError` if a symbolic size exceeds the range of its kernels."""
        names = [name for dim in spec.shape for name in symbols_of(dim) if name not in self.wide]
        if names and (max(shape) > MOST_SYMBOLIC or prod(shape) >= 1 << 31):
            raise CallError(
                f"{place} {spec.name!r} has shape {tuple(shape)}: int32 sizes go up to 2**30, "
                f'and arrays to 2**31 elements; declare them int64: te.var("{names[0]}", "int64")'
            )

    @staticmethod
    def _solve(dim: Dim, size: int, sizes: dict[str, int]) -> None:
        """Determine the only unknown symbol of a dimension that is linear in it: ``2*n + 1 = 7``.
        """
        unknown = set(symbols_of(dim)) - set(sizes)
        if len(unknown) != 1:
            return
        [symbol] = unknown
        form = linear_in(symbol, dim, sizes)
        if form is not None and form[0] != 0:
            # a value with a remainder, or a negative one, is not a size: the following check
            # reports it
            sizes[symbol] = max(0, (size - form[1]) // form[0])

    def to_json(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        return {
            "inputs": [[s.name, list(s.shape), s.dtype] for s in self.inputs],
            "outputs": [[s.name, list(s.shape), s.dtype] for s in self.outputs],
            "single": self.single,
            "wide": list(self.wide),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Signature:
        """The inverse of `to_json`."""

        def specs(rows: list[list[Any]]) -> tuple[TensorSpec, ...]:
            return tuple(TensorSpec(name, tuple(shape), dtype) for name, shape, dtype in rows)

        wide = tuple(data.get("wide", ()))
        return Signature(specs(data["inputs"]), specs(data["outputs"]), data["single"], wide)

    def __str__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return f"({inputs}) -> " + (outputs if self.single else f"[{outputs}]")
