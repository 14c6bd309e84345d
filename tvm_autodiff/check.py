"""Compares derivatives with finite differences, in one call for users and tests.

The tolerance of every entry is its own: a fraction of the entry, the difference between steps of
two lengths, and the rounding of the outputs that the entry changes. If this error is larger than
the fraction, longer steps are tried. Tensors are compiled as they are, so float64 graphs are
checked most accurately; where a stage computes in float32, the step is longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .compile import build
from .differences import ROUNDINGS, Precision, best_difference
from .errors import GradientCheckError, InvalidArgumentError
from .expr.dtypes import bits_of
from .expr.nodes import Tensor, dtype_of, is_const, is_float, is_load, tensor_key
from .expr.rewrite import postorder
from .graph.graph import Graph
from .graph.stage import bodies, is_compute, is_placeholder, placeholder_like, shape_of
from .keywords import checked_keywords
from .transforms import jvp, vjp
from .transforms.arguments import as_tensor, as_tensors, require_float

#: dtype → (step relative to 1, relative tolerance)
_PRECISION = {"float64": (1e-5, 1e-6), "float32": (1e-2, 2e-2)}
_MODES = ("reverse", "forward")
_MOST_ENTRIES = 400
_TRANSPOSED = 256  #: the same of two derivatives, which may round long sums differently


@dataclass(frozen=True)
class Worst:
    """The entry of a gradient that differs most from its finite difference."""

    tensor: str
    index: tuple[int, ...]
    derived: float
    measured: float


@dataclass(frozen=True)
class _Point:
    """The point at which an output is checked, and the tolerances."""

    output: Tensor
    placeholders: list[Tensor]
    head: Tensor
    arrays: Mapping[tuple[int, int], np.ndarray]
    step: float
    rtol: float
    atol: float
    eps: float  #: the rounding of one operation
    rng: np.random.Generator

    def function(self) -> Callable[[Mapping[tuple[int, int], np.ndarray]], np.ndarray]:
        """The output as a function of the values of the placeholders."""
        evaluate = build(self.placeholders, [self.output], cache=False)

        def at(values: Mapping[tuple[int, int], np.ndarray]) -> np.ndarray:
            [value] = evaluate(*(values[tensor_key(t)] for t in self.placeholders))
            return np.asarray(value, "float64")

        return at


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
        The tensor to differentiate: float64, or float32, also inside, with a wider tolerance.
        Shapes must be constant.
    inputs : Tensor or sequence of Tensor
        The placeholders to differentiate with respect to.
    modes : sequence of str
        ``"reverse"`` compares every entry of the gradient, ``"forward"`` the tangent of the output
        along a random direction. With both, ``⟨u, Jv⟩ = ⟨Jᵀu, v⟩`` is checked as well, up to
        rounding.
    order : int
        1 checks first derivatives, 2 also checks those of the gradient in the same modes, and so
        on.
    values : mapping from Tensor to array, optional
        Values of placeholders. By default, values are uniform in (0.25, 1.25), and integers are
        zero.
    rtol, atol : float, optional
        Relative and absolute tolerance for each entry of the gradient. The error of the finite
        difference is added.
    step : float, optional
        The step of the finite difference.
    seed : int
        The seed of the random values.

    Raises
    ------
    GradientCheckError
        If a derivative is wrong. The message names the tensor, the index and both values.
    InvalidArgumentError
        If an argument has the wrong type or value.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((3,), "float64", name="x")
    >>> check_grads(te.compute((3,), lambda i: te.exp(x[i]) * x[2 - i], name="y"), x, order=2)
    """
    output = require_float(as_tensor(output, "output"), "output")
    listed = as_tensors(inputs, "inputs")
    if isinstance(modes, str) or not modes:
        raise InvalidArgumentError(f"modes must be a sequence of {' and '.join(_MODES)}")
    for mode in modes:
        if mode not in _MODES:
            raise InvalidArgumentError(
                f"modes: {mode!r} is not known; use {' and '.join(map(repr, _MODES))}"
            )
    if not isinstance(order, int) or order < 1:
        raise InvalidArgumentError(f"order must be a positive int, got {order!r}")
    for name, number in {"step": step, "rtol": rtol, "atol": atol}.items():
        if number is not None and not (number > 0 or (number == 0 and name != "step")):
            least = "> 0" if name == "step" else ">= 0"
            raise InvalidArgumentError(f"{name} must be {least}, got {number!r}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InvalidArgumentError(f"seed must be an int >= 0, got {seed!r}")
    given = {tensor_key(t): np.asarray(v) for t, v in (values or {}).items()}
    for tensor, value in (values or {}).items():
        if not np.isfinite(given[tensor_key(tensor)]).all():
            raise InvalidArgumentError(f"values: {tensor.op.name} is not finite, got {value!r}")
    rng = np.random.default_rng(seed)
    head = placeholder_like(output, "head")
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
    digits, eps = _precision(output)
    step = digits[0] if step is None else step
    rtol = digits[1] if rtol is None else rtol
    atol = 0.0 if atol is None else atol
    point = _Point(output, placeholders, head, arrays, step, rtol, atol, eps, rng)
    if "reverse" in modes:
        _check_reverse(point, listed, used, adjoints)
    if "forward" in modes:
        pairs = zip(listed, adjoints, strict=True)
        pulled = [adjoint for tensor, adjoint in pairs if tensor_key(tensor) in known]
        _check_forward(point, used, pulled if "reverse" in modes else [])
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


def _precision(output: Tensor) -> tuple[tuple[float, float], float]:
    """Step and tolerance for the narrowest floats that a graph computes in, and their rounding."""
    computed = [
        (op.name, dtype_of(node))
        for op in filter(is_compute, Graph([output]).ops)
        for node in postorder(bodies(op))
        if is_float(node) and not is_load(node) and not is_const(node)
    ]
    stated = (output.op.name, dtype_of(output))
    name, dtype = min([stated, *computed], key=lambda one: bits_of(one[1]))
    if dtype not in _PRECISION:
        raise InvalidArgumentError(
            f"{name} is computed in {dtype}; finite differences need float64 (or float32)"
        )
    return _PRECISION[dtype], float(np.finfo(dtype).eps)


def _check_reverse(
    point: _Point, listed: list[Tensor], used: list[Tensor], adjoints: list[Tensor]
) -> None:
    """Compare every entry of the gradient with differences."""
    output, arrays, rng = point.output, point.arrays, point.rng
    function = point.function()
    needed = Graph(adjoints).placeholders()
    gradients = build(needed, adjoints, cache=False)(*(arrays[tensor_key(t)] for t in needed))
    weights = arrays[tensor_key(point.head)].astype("float64")
    worst: tuple[float, Worst] | None = None
    for tensor, gradient in zip(listed, gradients, strict=True):
        derived = np.asarray(gradient, "float64")
        largest = float(np.abs(derived).max(initial=0.0))
        if not any(tensor_key(tensor) == tensor_key(t) for t in used):
            if largest != 0:
                _fail(output, Worst(tensor.op.name, (), largest, 0.0))
            continue
        for index in _entries(derived.shape, rng):
            slope, uncertain = best_difference(
                lambda values: function({**arrays, **values}),
                weights,
                tensor_key(tensor),
                arrays[tensor_key(tensor)],
                index,
                Precision(point.eps, point.step, point.rtol, point.atol),
            )
            scale = point.rtol * abs(slope) + uncertain + point.atol
            off = abs(slope - derived[index])
            error = off / scale if scale else (0.0 if off == 0 else np.inf)
            if not error <= 1 and (worst is None or not error <= worst[0]):
                worst = (error, Worst(tensor.op.name, index, float(derived[index]), slope))
    if worst is not None:
        _fail(output, worst[1])


def _check_forward(point: _Point, inputs: list[Tensor], adjoints: list[Tensor]) -> None:
    """Compare the tangent along a random direction with differences and with the gradients."""
    if not inputs:
        return
    output, arrays = point.output, point.arrays
    moving = [placeholder_like(t, f"tangent_{t.op.name}") for t in inputs]
    along = {tensor_key(t): _array(t, None, point.rng) for t in inputs}
    results = [*jvp(output, inputs, moving), *adjoints]
    given = zip(map(tensor_key, moving), along.values(), strict=True)
    values, needed = {**arrays, **dict(given)}, Graph(results).placeholders()
    found = build(needed, results, cache=False)(*(values[tensor_key(t)] for t in needed))
    tangent, *gradients = (np.asarray(value, "float64") for value in found)
    slope, uncertain = _slope_along(point, along)
    wrong = ~(abs(slope - tangent) <= point.rtol * abs(slope) + uncertain + point.atol)
    if wrong.any():
        place = tuple(int(n) for n in np.argwhere(wrong)[0])
        raise GradientCheckError(
            f"the tangent of {output.op.name} is wrong: entry {list(place)} is "
            f"{tangent[place]:.9g}, finite differences give {slope[place]:.9g}"
        )
    if adjoints:
        pushed = arrays[tensor_key(point.head)] * tangent
        _check_transpose(point, pushed, gradients, list(along.values()))


def _slope_along(
    point: _Point, along: Mapping[tuple[int, int], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The slope of each entry of the output along a direction, and its possible error."""
    function = point.function()
    slopes, rounding = [], np.zeros(())
    for length in (point.step, 2 * point.step):
        high, low = (
            function(
                {
                    key: array + (move * along[key]).astype(array.dtype) if key in along else array
                    for key, array in point.arrays.items()
                }
            )
            for move in (length, -length)
        )
        slopes.append((high - low) / (2 * length))
        rounding = np.maximum(rounding, point.eps * (abs(high) + abs(low)) / (2 * length))
    slope = slopes[0] + (slopes[0] - slopes[1]) / 3
    return slope, abs(slopes[0] - slopes[1]) + ROUNDINGS * rounding


def _check_transpose(
    point: _Point, pushed: np.ndarray, gradients: list[np.ndarray], along: list[np.ndarray]
) -> None:
    """Check ``⟨u, Jv⟩ = ⟨Jᵀu, v⟩`` up to the rounding of the summed terms."""
    terms = [g * v.astype("float64") for g, v in zip(gradients, along, strict=True)]
    left, right = float(pushed.sum()), float(sum(term.sum() for term in terms))
    size = float(abs(pushed).sum()) + float(sum(abs(term).sum() for term in terms))
    if not abs(left - right) <= _TRANSPOSED * point.eps * size:
        raise GradientCheckError(
            f"forward and reverse mode of {point.output.op.name} are not transposes of each other: "
            f"<u, Jv> is {left:.17g}, <J^T u, v> is {right:.17g}"
        )


def _fail(output: Tensor, worst: Worst) -> None:
    place = "".join(f"[{n}]" for n in worst.index)
    raise GradientCheckError(
        f"the gradient of {output.op.name} with respect to {worst.tensor} is wrong: entry "
        f"{worst.tensor}{place} is {worst.derived:.9g}, finite differences give "
        f"{worst.measured:.9g}; if there is a kink near this point, pass other values="
    )


def _entries(shape: tuple[int, ...], rng: np.random.Generator) -> list[tuple[int, ...]]:
    """All entries of a small array, or a random sample of a large one."""
    count = int(np.prod(shape, dtype=int))
    if count <= _MOST_ENTRIES:
        return list(np.ndindex(*shape))
    chosen = np.sort(rng.choice(count, _MOST_ENTRIES, replace=False))
    return [tuple(int(n) for n in np.unravel_index(place, shape)) for place in chosen]


def _array(tensor: Tensor, given: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    shape = shape_of(tensor)
    if not all(isinstance(dim, int) for dim in shape):
        raise InvalidArgumentError(
            f"tensor {tensor.op.name} has a symbolic shape; check_grads needs constant extents"
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
