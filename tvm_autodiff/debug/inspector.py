"""Finds the stage of a program in which a NaN or an infinity first occurs.

All stages are computed as results of one program, so that none is fused away. For the first
non-finite value, a second program finds out what kinds of numbers the element read. The error names
the stage, the element, the expression and these numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import NonFiniteError
from ..expr.build import const
from ..expr.nodes import (
    Expr,
    Tensor,
    const_value,
    dtype_of,
    is_float,
    is_load,
    load_tensor,
    operands,
    tensor_key,
)
from ..expr.printing.text import text
from ..expr.rewrite import expand_lets, postorder, substituter
from ..expr.simplify import simplify
from ..graph.graph import Graph, retarget, tensors_read_by
from ..graph.stage import (
    Operation,
    axis_vars,
    bodies,
    is_compute,
    is_placeholder,
    outputs_of,
    placeholder_like,
    reduction_of,
)
from .reads import Test, is_nan, is_not_finite, stage_of_reads

Build = Callable[[list[Tensor], list[Tensor]], Callable[..., list[Any]]]
Key = tuple[int, int]
Index = tuple[int, ...]

_MOST_SHOWN = 6  #: values that a message lists


@dataclass(frozen=True)
class _Values:
    """The numbers of a call: the arrays of the inputs and of every stage."""

    inputs: list[np.ndarray]
    by_tensor: dict[Key, np.ndarray]


class Inspector:
    """Searches a program for the first NaN or infinity.

    Parameters
    ----------
    inputs, outputs : list of Tensor
        The program.
    build : callable
        Compiles outputs over inputs to a function of arrays.
    """

    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], build: Build) -> None:
        self._inputs = list(inputs)
        self._build = build
        self._stages = [
            tensor
            for op in Graph(list(outputs)).ops
            if not is_placeholder(op)
            for tensor in outputs_of(op)
        ]
        self._function = build(self._inputs, self._stages)
        self._tests: dict[tuple[Key, Test], Callable[..., list[Any]]] = {}

    def __call__(self, *arrays: Any) -> None:
        """Raise `NonFiniteError` for the first stage with a NaN, or with an infinity that it did
        not read.
        """
        results = self._function(*arrays)
        given = [
            as_numpy(array) if hasattr(array, "shape") else np.asarray(array, dtype_of(tensor))
            for tensor, array in zip(self._inputs, arrays, strict=True)
        ]
        found = zip([*self._inputs, *self._stages], [*given, *map(as_numpy, results)], strict=True)
        values = _Values(given, {tensor_key(tensor): array for tensor, array in found})
        for tensor in self._stages:
            if is_float(tensor):
                self._look_at(tensor, values)

    def _look_at(self, tensor: Tensor, values: _Values) -> None:
        array = _as_float(values.by_tensor[tensor_key(tensor)])
        if np.isfinite(array).all():
            return
        nan = np.isnan(array)
        if nan.any():
            arises = nan & ~self._read(tensor, is_nan, values)
            # all earlier stages are finite, so the number comes from an input
            _raise(tensor, "NaN", arises if arises.any() else nan, arises.any(), values)
        arises = np.isinf(array)
        arises &= ~self._read(tensor, is_not_finite, values)
        if arises.any():
            _raise(tensor, "an infinity", arises, True, values)

    def _read(self, tensor: Tensor, test: Test, values: _Values) -> np.ndarray:
        """The element of an input that entered the value and passes the test."""
        reads = tensors_read_by(tensor.op)
        if not is_compute(tensor.op):  # which element of what it reads is not known
            passes = np.isnan if test is is_nan else _not_finite
            arrays = [values.by_tensor[tensor_key(read)] for read in reads if is_float(read)]
            return np.asarray(any(passes(_as_float(array)).any() for array in arrays))
        key = (tensor_key(tensor), test)
        if key not in self._tests:
            self._tests[key] = self._build(*self._test_program(tensor, reads, test))
        given = [values.by_tensor[tensor_key(read)] for read in (tensor, *reads)]
        [flags] = self._tests[key](*values.inputs, *given)
        return as_numpy(flags) != 0

    def _test_program(
        self, tensor: Tensor, reads: Sequence[Tensor], test: Test
    ) -> tuple[list[Tensor], list[Tensor]]:
        """A program over the inputs and the stage itself, because their shapes define the sizes."""
        fresh, op = over_placeholders(tensor.op, reads)
        own = placeholder_like(tensor)
        return [*self._inputs, own, *fresh], [stage_of_reads(op, tensor.value_index, test)]


def over_placeholders(op: Operation, reads: Sequence[Tensor]) -> tuple[list[Tensor], Operation]:
    """A stage over placeholders for what it reads, which come first."""
    fresh = [placeholder_like(read) for read in reads]
    table = {tensor_key(old): new for old, new in zip(reads, fresh, strict=True)}
    return fresh, retarget(op, lambda read: table.get(tensor_key(read)))[0].op


def as_numpy(array: Any) -> np.ndarray:
    """The numbers of an array of any framework, on the host."""
    for step in ("detach", "cpu", "numpy"):  # of PyTorch; the last one of TVM, too
        if hasattr(array, step) and not isinstance(array, np.ndarray):
            array = getattr(array, step)()
    return np.ascontiguousarray(array).reshape(np.shape(array))


def _as_float(array: np.ndarray) -> np.ndarray:
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def _not_finite(array: np.ndarray) -> np.ndarray:
    return ~np.isfinite(array)


def _raise(tensor: Tensor, what: str, where: np.ndarray, arises: bool, values: _Values) -> None:
    op = tensor.op
    place = tuple(int(n) for n in np.argwhere(where)[0])
    value = values.by_tensor[tensor_key(tensor)][place]
    count = int(where.sum())
    more = f" ({count} elements of {where.size} are)" if count > 1 else ""
    lines = [
        f"{what} first {'arises in' if arises else 'reaches'} stage {op.name}: "
        f"{_element(op.name, place)} is {value}{more}"
    ]
    if is_compute(op):
        names = ", ".join(var.name for var in axis_vars(op))
        body = text(bodies(op)[tensor.value_index], 200)
        lines.append(f"  {op.name}[{names}] = {body}")
        shown = _read_at(op, tensor.value_index, place, values)
        if shown:
            lines.append(f"  there it reads {', '.join(shown)}")
    inputs = [
        (read.op.name, _kinds(values.by_tensor[tensor_key(read)]))
        for read in Graph([tensor]).placeholders()
        if is_float(read)
    ]
    bad = [f"{name} has {kinds}" for name, kinds in inputs if kinds]
    lines.append(
        f"  of the inputs, {' and '.join(bad)}" if bad else "  all inputs that it needs are finite"
    )
    raise NonFiniteError("\n".join(lines))


def _element(name: str, place: Index) -> str:
    return f"{name}[{', '.join(map(str, place))}]" if place else name


def _kinds(array: np.ndarray) -> str:
    numbers = _as_float(array)
    kinds = {"NaN": np.isnan(numbers).any(), "infinities": np.isinf(numbers).any()}
    return " and ".join(kind for kind, occurs in kinds.items() if occurs)


def _read_at(op: Operation, component: int, place: Index, values: _Values) -> list[str]:
    """What an elementwise stage reads for one element, unless the index is data."""
    if reduction_of(op) is not None:
        return []
    at = substituter(
        {var: const(n, dtype_of(var)) for var, n in zip(axis_vars(op), place, strict=True)}
    )
    shown: dict[str, None] = {}
    for node in postorder(expand_lets(bodies(op)[component])):
        if not is_load(node):
            continue
        index = [_number(simplify(at(part))) for part in operands(node)]
        array = values.by_tensor[tensor_key(load_tensor(node))]
        known = tuple(n for n in index if n is not None)
        inside = len(known) == len(index) and all(
            0 <= n < size for n, size in zip(known, array.shape, strict=True)
        )
        if inside:
            shown[f"{_element(load_tensor(node).op.name, known)} = {array[known]}"] = None
    listed = list(shown)
    return [*listed[:_MOST_SHOWN], *(["..."] if len(listed) > _MOST_SHOWN else [])]


def _number(expr: Expr) -> int | None:
    value = const_value(expr)
    return None if value is None else int(value)
