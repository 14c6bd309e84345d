"""Cases of gradients as lines of a table: inputs, a function of te tensors, and what to check.

`check` compares gradients with finite differences in numpy, `check_compiled` compares built
gradients with numpy, and `derivatives` returns their values. A case that sums over zeros must say
so (`dense=True`): in all others `DenseSumWarning` is an error.
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
from tests.evaluate import evaluate_batch, evaluate_graph
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
STEP = 1e-4  #: of the differences, which are of fourth order and in float64


def check_gradient(
    output: Any, placeholders: Sequence[Any], arrays: Sequence[np.ndarray], order: int, seed: int
) -> None:
    """Compare the gradients of `output`, up to `order`, with differences of fourth order."""
    rng = np.random.default_rng(seed)
    floats = [tensor for tensor in placeholders if is_float(tensor)]
    head = te.placeholder(output.shape, str(output.dtype), name="head")
    weights = rng.uniform(0.25, 1.25, shape_of(output)).astype(str(output.dtype))
    adjoints = list(ad.differentiate(output, floats, head))
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


def central_differences(
    output: Any,
    tensors: Sequence[Any],
    pairs: Sequence[tuple[Any, np.ndarray]],
    weights: np.ndarray,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Slopes of ``sum(output * weights)`` in each entry of `tensors`, and their possible errors."""
    moved = {tensor_key(tensor) for tensor in tensors}
    count = sum(array.size for t, array in pairs if tensor_key(t) in moved)
    batch, offset = [], 0
    for tensor, array in pairs:
        wide = np.asarray(array, "float64") if is_float(tensor) else np.asarray(array)
        rows = np.repeat(wide[None], 1 + 4 * count, axis=0)
        if tensor_key(tensor) in moved:
            flat = rows.reshape(len(rows), -1)
            for entry in range(array.size):
                for place, steps in enumerate((-2, -1, 1, 2)):
                    flat[1 + 4 * (offset + entry) + place, entry] += steps * STEP
            offset += array.size
        batch.append((tensor, rows))
    [values] = evaluate_batch([output], batch)
    ends = values[1:].reshape(count, 4, *values.shape[1:])
    # an output that an entry does not change adds nothing, not even rounding
    outer, inner = (ends[:, 3] - ends[:, 0]) / (4 * STEP), (ends[:, 2] - ends[:, 1]) / (2 * STEP)
    size = np.abs(ends).max(axis=1) * (outer != 0)
    sums = [
        (part * weights).reshape(len(part), -1).sum(axis=1) if part.size else np.zeros(count)
        for part in (outer, inner, size)
    ]
    slopes = (4 * sums[1] - sums[0]) / 3
    # the combination is of the next order: its error is far below the difference of the two
    uncertain = 0.01 * np.abs(sums[1] - sums[0]) + 64 * 2.3e-16 * sums[2] / STEP
    found, offset = [], 0
    arrays = {tensor_key(tensor): array for tensor, array in pairs}
    for tensor in tensors:
        array = arrays[tensor_key(tensor)]
        part = slice(offset, offset + array.size)
        found.append((slopes[part].reshape(array.shape), uncertain[part].reshape(array.shape)))
        offset += array.size
    return found


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
