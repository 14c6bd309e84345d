"""Gradients checked against finite differences: one call for users and tests.

In: an output and inputs. Out: nothing where all is well, else an error that names the worst entry.
Tensors are compiled as they stand, so checks belong to float64 graphs; other dtypes get the step
and tolerance they can carry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te

from .compile import build
from .errors import GradientCheckError, InvalidArgumentError
from .ir.graph import Graph
from .ir.nodes import Tensor, dtype_of, is_float
from .ir.stage import is_placeholder, shape_of, tensor_key
from .keywords import checked_keywords
from .reverse import vjp
from .reverse.arguments import as_tensor, as_tensors, require_float

#: dtype → (step relative to 1, relative tolerance): central differences lose half of the digits
_PRECISION = {"float64": (1e-6, 1e-6), "float32": (1e-2, 2e-2)}
_MOST_ENTRIES = 400


@dataclass(frozen=True)
class Worst:
    """The entry of a gradient that is furthest from its finite difference."""

    tensor: str
    index: tuple[int, ...]
    derived: float
    measured: float


@checked_keywords
def check_grads(
    output: Tensor,
    inputs: Tensor | Sequence[Tensor],
    modes: Sequence[str] = ("reverse",),
    order: int = 1,
    *,
    values: Mapping[Tensor, Any] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    step: float | None = None,
    seed: int = 0,
) -> None:
    """Compare derivatives with central differences at random points.

    Parameters
    ----------
    output : Tensor
        What is differentiated; float64, or float32 with wider tolerance. Shapes must be constant.
    inputs : Tensor or sequence of Tensor
        Placeholders to differentiate by.
    modes : sequence of str
        ``"reverse"``.
    order : int
        1 checks the gradient; 2 also the gradient of the gradient, and so on.
    values : mapping from Tensor to array, optional
        Values of placeholders; others are uniform in (0.25, 1.25), integers zero.
    rtol, atol : float, optional
        Tolerances, relative to the largest entry of the gradient, and absolute.
    step : float, optional
        Step of the finite difference.
    seed : int
        Of the random values.

    Raises
    ------
    GradientCheckError
        A derivative is wrong; the message names tensor, index and both values.
    InvalidArgumentError
        An argument is not what is said above.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((3,), "float64", name="x")
    >>> check_grads(te.compute((3,), lambda i: te.exp(x[i]) * x[2 - i], name="y"), x, order=2)
    """
    output = require_float(as_tensor(output, "output"), "output")
    listed = as_tensors(inputs, "inputs")
    for mode in modes:
        if mode != "reverse":
            raise InvalidArgumentError(f"modes: {mode!r} is not known; there is 'reverse'")
    if not isinstance(order, int) or order < 1:
        raise InvalidArgumentError(f"order must be a positive int, got {order!r}")
    given = {tensor_key(t): np.asarray(v) for t, v in (values or {}).items()}
    rng = np.random.default_rng(seed)
    head = te.placeholder(output.shape, dtype_of(output), name="head")
    adjoints = list(vjp([output], listed, [head]))  # zeros of other inputs are checked, too
    placeholders = Graph([output]).placeholders()
    known = {tensor_key(t) for t in placeholders}
    for tensor in listed:
        if not is_placeholder(tensor.op):
            raise InvalidArgumentError(
                f"inputs: {tensor.op.name} is an intermediate tensor; finite differences need "
                "placeholders"
            )
    used = [t for t in listed if tensor_key(t) in known]
    arrays = {
        tensor_key(t): _array(t, given.get(tensor_key(t)), rng) for t in [*placeholders, head]
    }
    digits = _PRECISION.get(dtype_of(output))
    if digits is None:
        raise InvalidArgumentError(
            f"output {output.op.name} has dtype {dtype_of(output)}; finite differences need "
            "float64 (or float32)"
        )
    step = digits[0] if step is None else step
    rtol = digits[1] if rtol is None else rtol
    atol = rtol if atol is None else atol
    _check_first_order(
        output, placeholders, listed, used, head, adjoints, arrays, step, rtol, atol, rng
    )
    if order > 1:
        more = {t: arrays[tensor_key(t)] for t in [*placeholders, head]}
        for tensor, adjoint in zip(listed, adjoints, strict=True):
            if tensor_key(tensor) in known:
                check_grads(
                    adjoint,
                    [*used, head],
                    modes,
                    order - 1,
                    values=more,
                    rtol=rtol,
                    atol=atol,
                    step=step,
                    seed=seed + 1,
                )


def _check_first_order(
    output: Tensor,
    placeholders: list[Tensor],
    listed: list[Tensor],
    used: list[Tensor],
    head: Tensor,
    adjoints: list[Tensor],
    arrays: Mapping[tuple[int, int], np.ndarray],
    step: float,
    rtol: float,
    atol: float,
    rng: np.random.Generator,
) -> None:
    evaluate = build(placeholders, [output], cache=False)
    needed = Graph(adjoints).placeholders()
    gradients = build(needed, adjoints, cache=False)(*(arrays[tensor_key(t)] for t in needed))
    weights = arrays[tensor_key(head)].astype("float64")

    def weighted(at: Mapping[tuple[int, int], np.ndarray]) -> float:
        [value] = evaluate(*(at[tensor_key(t)] for t in placeholders))
        return float((np.asarray(value, "float64") * weights).sum())

    worst: tuple[float, Worst] | None = None
    for tensor, gradient in zip(listed, gradients, strict=True):
        derived = np.asarray(gradient, "float64")
        scale = rtol * max(1.0, float(np.abs(derived).max(initial=0.0))) + atol
        if not any(tensor_key(tensor) == tensor_key(t) for t in used):
            measured_zero = Worst(tensor.op.name, (), float(np.abs(derived).max(initial=0.0)), 0.0)
            if not measured_zero.derived <= scale:
                _fail(output, measured_zero)
            continue
        for index in _entries(derived.shape, rng):
            measured = _central_difference(weighted, arrays, tensor, index, step)
            error = abs(measured - derived[index]) / scale
            if not error <= 1 and (worst is None or not error <= worst[0]):
                worst = (error, Worst(tensor.op.name, index, float(derived[index]), measured))
    if worst is not None:
        _fail(output, worst[1])


def _fail(output: Tensor, worst: Worst) -> None:
    place = "".join(f"[{n}]" for n in worst.index)
    raise GradientCheckError(
        f"the gradient of {output.op.name} with respect to {worst.tensor} is wrong: entry "
        f"{worst.tensor}{place} is {worst.derived:.9g}, finite differences give "
        f"{worst.measured:.9g}"
    )


def _central_difference(
    function: Any,
    arrays: Mapping[tuple[int, int], np.ndarray],
    tensor: Tensor,
    index: tuple[int, ...],
    step: float,
) -> float:
    key = tensor_key(tensor)
    at = dict(arrays)
    ends = []
    for sign in (1, -1):
        moved = arrays[key].copy()
        moved[index] += sign * step
        at[key] = moved
        ends.append((function(at), float(moved[index])))
    (high, right), (low, left) = ends
    return (high - low) / (right - left)


def _entries(shape: tuple[int, ...], rng: np.random.Generator) -> list[tuple[int, ...]]:
    """All entries of a small array, a random sample of a large one."""
    count = int(np.prod(shape, dtype=int))
    if count <= _MOST_ENTRIES:
        return list(np.ndindex(*shape))
    chosen = np.sort(rng.choice(count, _MOST_ENTRIES, replace=False))
    return [tuple(int(n) for n in np.unravel_index(place, shape)) for place in chosen]


def _array(tensor: Tensor, given: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    shape = shape_of(tensor)
    if not all(isinstance(dim, int) for dim in shape):
        raise InvalidArgumentError(
            f"tensor {tensor.op.name} has a symbolic shape; check_grads needs numbers: make the "
            "tensors with constant extents"
        )
    dtype = dtype_of(tensor)
    if given is not None:
        if given.shape != tuple(shape):
            raise InvalidArgumentError(
                f"values[{tensor.op.name}] has shape {given.shape}, the tensor has {tuple(shape)}"
            )
        return np.array(given, dtype, order="C")  # ascontiguousarray gives scalars a rank
    if not is_float(tensor):
        return np.zeros(shape, dtype)
    return np.asarray(rng.uniform(0.25, 1.25, shape), dtype)
