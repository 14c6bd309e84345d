"""Cases of gradients as lines of a table: inputs, a function of te tensors, and what to check.

`check` compares gradients with finite differences in numpy, as `check_numbers` does for any tensor,
`check_compiled` compares built gradients with numpy, and `derivatives` returns their values. A case
that sums over zeros must say so (`dense=True`): in all others `DenseSumWarning` is an error.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from tvm import te

import tvm_autodiff as ad
from tests.differences import central_differences
from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import is_float, tensor_key
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import shape_of

Inputs = Sequence[Any]


@dataclass(frozen=True)
class Case:
    """One line of a table.

    Attributes
    ----------
    name : str
        Id of the test.
    inputs : sequence of tuples or arrays
        A shape stands for random numbers, uniform in `domain`, and an array for itself. Arrays
        of integers are data, for which no derivative is computed.
    make : callable
        Makes the output from one te tensor per input.
    order : int
        2 also checks the gradient of the gradient.
    domain : (float, float)
        Range of the random inputs.
    dense : bool
        The pullback may leave a dense sum, with its warning.
    dtype : str
        Dtype of the random inputs; some of topi's operators exist in float32 only.
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
        """Names of the inputs: the parameters of `make`, if there are as many."""
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
        """Compare gradients with finite differences, both evaluated in numpy."""
        placeholders, output = self.tensors()
        arrays = self.arrays(seed)
        with self.expecting():
            check_gradient(output, placeholders, arrays, self.order, seed)

    def check_compiled(self, seed: int = 0) -> None:
        """Compare the compiled output and gradients with their evaluation in numpy."""
        placeholders, output = self.tensors()
        head = te.placeholder(output.shape, str(output.dtype), name="head")
        floats = [tensor for tensor in placeholders if is_float(tensor)]
        with self.expecting():
            outputs = [output, *ad.differentiate(output, floats, head)]
        rng = np.random.default_rng(seed)
        weights = rng.uniform(0.25, 1.25, shape_of(output)).astype(str(output.dtype))
        pairs = [*zip(placeholders, self.arrays(seed), strict=True), (head, weights)]
        expected = evaluate_graph(outputs, pairs)
        rtol, atol = (1e-9, 1e-11) if self.dtype == "float64" else (2e-4, 2e-5)
        for found, want in zip(evaluate(outputs, pairs), expected, strict=True):
            scale = 1 + np.abs(want).max(initial=0)
            np.testing.assert_allclose(found, want, rtol=rtol, atol=atol * scale)


#: dtype of a gradient → part of an entry, and of the largest one, that it may be wrong by
_TOLERANCES = {"float64": (1e-7, 1e-10), "float32": (2e-4, 2e-5)}


def check_gradient(
    output: Any, placeholders: Sequence[Any], arrays: Sequence[np.ndarray], order: int, seed: int
) -> None:
    """Compare the gradients of `output`, up to `order`, with differences of fourth order."""
    rng = np.random.default_rng(seed)
    floats = [tensor for tensor in placeholders if is_float(tensor)]
    head = te.placeholder(output.shape, str(output.dtype), name="head")
    weights = rng.uniform(0.25, 1.25, shape_of(output)).astype(str(output.dtype))
    # unlike `differentiate` without a warning: of what is not read, or only once, the zeros count
    adjoints = list(ad.vjp([output], floats, [head]))
    pairs = [*zip(placeholders, arrays, strict=True), (head, weights)]
    gradients = evaluate_graph(adjoints, pairs)
    wanted = central_differences(output, floats, pairs, np.asarray(weights, "float64"))
    # what terms of the size of the output leave where they cancel, of inputs near one
    [value] = evaluate_graph([output], pairs)
    rounded = 8 * np.finfo(str(output.dtype)).eps * float(np.abs(value * weights).max(initial=0))
    for tensor, found, (slopes, uncertain) in zip(floats, gradients, wanted, strict=True):
        rtol, atol = _TOLERANCES[str(tensor.dtype)]
        allowed = rtol * np.abs(slopes) + atol * np.abs(slopes).max(initial=0) + uncertain + rounded
        off = np.abs(np.asarray(found, "float64") - slopes)
        assert off.shape == allowed.shape
        place = np.unravel_index(np.argmax(off / (allowed + 1e-300)), off.shape) if off.size else ()
        assert np.all(off <= allowed), (
            f"d{output.op.name}/d{tensor.op.name} at {place}: {found[place]}, "
            f"differences give {slopes[place]} within {allowed[place]}"
        )
    if order > 1:
        for adjoint in adjoints:
            values = [array for _, array in pairs]
            check_gradient(adjoint, [tensor for tensor, _ in pairs], values, order - 1, seed + 1)


def check_numbers(
    output: Any,
    inputs: Sequence[Any],
    order: int = 1,
    values: Mapping[Any, np.ndarray] = MappingProxyType({}),
) -> None:
    """`check_gradient` by the inputs and all else that is read, at the values of some of them.

    Others are uniform in (0.25, 1.25), and integers are zero.
    """
    read = {tensor_key(t): t for t in (*inputs, *Graph([output]).placeholders())}
    given = {tensor_key(tensor): np.asarray(array) for tensor, array in values.items()}
    rng = np.random.default_rng(0)
    arrays = [
        given[key] if key in given else _drawn(tensor, rng) for key, tensor in read.items()
    ]
    check_gradient(output, list(read.values()), arrays, order, 0)


def _drawn(tensor: Any, rng: np.random.Generator) -> np.ndarray:
    if not is_float(tensor):
        return np.zeros(shape_of(tensor), str(tensor.dtype))
    return rng.uniform(0.25, 1.25, shape_of(tensor)).astype(str(tensor.dtype))


def evaluate(tensors: Sequence[Any], values: Sequence[tuple[Any, np.ndarray]]) -> list[np.ndarray]:
    """Compiled values of tensors for pairs of placeholders and arrays; unused pairs are ignored."""
    known = {tensor_key(tensor): array for tensor, array in values}
    needed = Graph(list(tensors)).placeholders()
    return ad.build(needed, list(tensors), cache=False)(*(known[tensor_key(t)] for t in needed))


def derivatives(
    output: Any, inputs: Sequence[Any], values: Sequence[Any], head: Any = None
) -> list[np.ndarray]:
    """The gradient of ``sum(output * head)`` with respect to each input; no head means ones."""
    h = te.placeholder(output.shape, str(output.dtype), name="head")
    shape = tuple(int(extent) for extent in output.shape)
    weights = np.ones(shape) if head is None else np.asarray(head)
    adjoints = ad.gradient(output, inputs, h)
    pairs = [*zip(inputs, values, strict=False), (h, weights.astype(str(output.dtype)))]
    return evaluate(adjoints, pairs)
