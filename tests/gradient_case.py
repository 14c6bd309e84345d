"""Cases of gradients as lines of a table: inputs, a function of te tensors, and what to check.

In: a shape or an array for each input, and a function that makes the output. `check` compares the
gradient with finite differences through the whole pipeline, `derivatives` gives its values. A case
that sums over zeros has to say so (`dense=True`): everywhere else `DenseSumWarning` is an error.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.ir.graph import Graph
from tvm_autodiff.ir.nodes import is_float
from tvm_autodiff.ir.stage import tensor_key

Inputs = Sequence[Any]


@dataclass(frozen=True)
class Case:
    """One line of a table.

    Attributes
    ----------
    name : str
        Id of the test.
    inputs : sequence of tuples or arrays
        A shape stands for numbers uniform in `domain`, an array for itself; arrays of
        integers are data that no derivative is asked for.
    make : callable
        From as many te tensors to the output.
    order : int
        2 also checks the gradient of the gradient.
    domain : (float, float)
        Where random inputs lie.
    dense : bool
        The pullback may leave a dense sum, with its warning.
    dtype : str
        Of the random inputs: some of topi's operators exist in float32 only.
    """

    name: str
    inputs: Inputs
    make: Callable[..., Any]
    order: int = 1
    domain: tuple[float, float] = (0.25, 1.25)
    dense: bool = False
    dtype: str = "float64"

    def arrays(self, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [
            given
            if isinstance(given, np.ndarray)
            else rng.uniform(*self.domain, given).astype(self.dtype)
            for given in self.inputs
        ]

    def names(self) -> list[str]:
        """Names of the inputs: those that the function gives to its parameters."""
        count = len(self.inputs)
        names = [
            parameter.name
            for parameter in inspect.signature(self.make).parameters.values()
            if parameter.default is parameter.empty
        ]
        return names if len(names) == count else [f"x{number}" for number in range(count)]

    def tensors(self) -> tuple[list[Any], Any]:
        """Placeholders and the output."""
        placeholders = [
            te.placeholder(array.shape, str(array.dtype), name=name)
            for name, array in zip(self.names(), self.arrays(), strict=True)
        ]
        return placeholders, self.make(*placeholders)

    @contextlib.contextmanager
    def expecting(self) -> Iterator[None]:
        with warnings.catch_warnings():
            if self.dense:
                warnings.simplefilter("ignore", ad.DenseSumWarning)
            yield

    def check(self, seed: int = 0) -> None:
        """Compare with finite differences; raises where they differ."""
        placeholders, output = self.tensors()
        values = dict(zip(map(tensor_key, placeholders), self.arrays(seed), strict=True))
        reached = Graph([output]).placeholders()
        with self.expecting():
            ad.check_grads(
                output,
                [tensor for tensor in placeholders if is_float(tensor)],
                order=self.order,
                values={t: values[tensor_key(t)] for t in reached if tensor_key(t) in values},
            )


def evaluate(tensors: Sequence[Any], values: Sequence[tuple[Any, np.ndarray]]) -> list[np.ndarray]:
    """Values of tensors, given pairs of placeholders and arrays, more than needed perhaps."""
    known = {tensor_key(tensor): array for tensor, array in values}
    needed = Graph(list(tensors)).placeholders()
    return ad.build(needed, list(tensors), cache=False)(*(known[tensor_key(t)] for t in needed))


def derivatives(
    output: Any, inputs: Sequence[Any], values: Sequence[Any], head: Any = None
) -> list[np.ndarray]:
    """The gradient of ``sum(output * head)`` by each input; ones for no head."""
    h = te.placeholder(output.shape, str(output.dtype), name="head")
    shape = tuple(int(extent) for extent in output.shape)
    weights = np.ones(shape) if head is None else np.asarray(head)
    adjoints = ad.gradient(output, inputs, h)
    pairs = [*zip(inputs, values, strict=False), (h, weights.astype(str(output.dtype)))]
    return evaluate(adjoints, pairs)
