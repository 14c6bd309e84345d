"""Combiners as lists of numpy's functions: one is applied at every point of a reduction in turn.

The values are those of `evaluate.Expression`, node by node, without a walk for each point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import ir
from tvm.ir import prim
from tvm_ffi import Object

from tests.evaluate_functions import BINARY, CALLS, Array

_address = Object.__hash__


class Steps:
    """Expressions over variables and literals, for as many values of the variables as are given.

    Parameters
    ----------
    results : sequence
        The expressions.
    variables : sequence
        What they are over, in the order in which values come.
    dtype_of : callable
        The dtype of numpy for the type of a node.
    """

    def __init__(
        self, results: Sequence[Any], variables: Sequence[Any], dtype_of: Callable[[Any], np.dtype]
    ) -> None:
        self._dtype_of = dtype_of
        self._constants: list[tuple[int, Array]] = []
        self._steps: list[tuple[int, Callable[..., Array], list[int], np.dtype]] = []
        self._places = {_address(var): number for number, var in enumerate(variables)}
        self._count = len(variables)
        self._results = [self._place(node) for node in results]

    def __call__(self, given: Sequence[Array]) -> list[Array]:
        """The values of the expressions."""
        values: list[Any] = [*given, *[None] * (self._count - len(given))]
        for place, constant in self._constants:
            values[place] = constant
        for place, function, parts, dtype in self._steps:
            found = function(*[values[part] for part in parts])
            values[place] = np.asarray(found).astype(dtype, copy=False)
        return [values[place] for place in self._results]

    def _place(self, node: Any) -> int:
        """Where the value of a node is among all; the first time, it becomes a step."""
        key = _address(node)
        if key in self._places:
            return self._places[key]
        dtype = self._dtype_of(node.ty)
        if type(node) in (prim.IntImm, prim.FloatImm):
            constant = np.asarray(node.value).astype(dtype)
            self._constants.append((self._count, constant))
        else:
            function, operands = _applied(node, dtype)
            parts = [self._place(part) for part in operands]
            self._steps.append((self._count, function, parts, dtype))
        self._places[key] = self._count
        self._count += 1
        return self._places[key]


def _applied(node: Any, dtype: np.dtype) -> tuple[Callable[..., Array], list[Any]]:
    """The function of a node and what it is applied to."""
    cls = type(node)
    if cls in BINARY:
        return BINARY[cls], [node.a, node.b]
    if cls is prim.Select:
        return np.where, [node.condition, node.true_value, node.false_value]
    if cls is prim.Not:
        return np.logical_not, [node.a]
    if cls is prim.Cast:
        return np.asarray, [node.value]
    if cls is ir.Call:
        name, args = node.op.name.rpartition(".")[2], list(node.args)
        if name in ("call_extern", "call_pure_extern"):
            name, args = args[0].value, args[1:]
        if name == "if_then_else":
            return np.where, args
        if name == "reinterpret":
            return (lambda value: value.view(dtype)), args
        if name in CALLS:
            return CALLS[name], args
    raise NotImplementedError(f"no value is known for {node}")
