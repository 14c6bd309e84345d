"""Values and derivatives of programs in numpy, by an interpreter that knows nothing of TVM.

Every tensor has a leading batch axis. The first member of a batch is exact (float64 throughout);
the others may carry noise of the size of the rounding errors of a stage's dtype, after every
operation. So their spread is a measure of how well the program is conditioned, and where two
members decide differently at a comparison, a maximum and the like, a kink is too near.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from scipy.special import erf

from tests.random_programs.programs import ARG_REDUCERS, Extent, Node, Program, Stage

Array = np.ndarray


class IllegalRead(Exception):
    """A read outside of its tensor that no condition guards."""


class Unusable(Exception):
    """A program without a meaning: too wide integers, a division by zero in an index."""


def finfo(dtype: str) -> Any:
    return ml_dtypes.finfo(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.finfo(dtype)


@functools.cache
def eps(dtype: str) -> float:
    return float(finfo(dtype).eps)


@functools.cache
def smallest(dtype: str) -> float:
    """What an operation may lose at zero: kernels take subnormal numbers for zero, and compute
    float16 in float32, where its own are normal.
    """
    info = finfo(dtype)
    return float(info.smallest_subnormal if dtype == "float16" else info.smallest_normal)


@dataclass
class Value:
    """Floats on a grid, with what they depend on.

    Attributes
    ----------
    parents : list of (Value, partial derivative)
    send : callable or None
        Takes a cotangent in place of `parents`.
    """

    array: Array
    parents: list[tuple[Value, Array]] = field(default_factory=list)
    send: Callable[[Array, Adjoints], None] | None = None
    constant: bool = False


def pull(value: Value, cotangent: Array, adjoints: Adjoints) -> None:
    """Send a cotangent down to the reads below a value."""
    if value.send is not None:
        value.send(cotangent, adjoints)
    for parent, partial in value.parents:
        if not parent.constant:
            product = cotangent * partial
            pull(parent, np.where(cotangent == 0, 0.0, product), adjoints)


class Adjoints:
    """Cotangents of tensors by name, the sum of the sizes of what was added to each, and how much
    was. Members of a batch without noise are asked for values only: sizes are those of the first.
    """

    def __init__(self, noise: bool = True) -> None:
        self.sized = None if noise else 1
        self.sums: dict[str, Array] = {}
        self.sizes: dict[str, Array] = {}
        self.counts: dict[str, Array] = {}

    def rounding(self, name: str, dtype: str) -> Array:
        """What the sums may be wrong by, in any order, added in float32 or wider: Higham, Accuracy
        and Stability of Numerical Algorithms, section 4.2.
        """
        unit = eps("float64" if dtype == "float64" else "float32") / 2
        return unit * self.counts[name] * self.sizes[name]

    def add(self, name: str, shape: tuple[int, ...], index: tuple, what: Array) -> None:
        *index, what = np.broadcast_arrays(*index, what)
        places = np.ravel_multi_index(index, shape)
        _add(self.sums, name, shape, places, what)
        shape = (self.sized or shape[0], *shape[1:])
        places, what = places[: self.sized], what[: self.sized]
        _add(self.sizes, name, shape, places, np.abs(what))
        _add(self.counts, name, shape, places, (what != 0) * 1.0)


def _add(
    sums: dict[str, Array], name: str, shape: tuple[int, ...], places: Array, what: Array
) -> None:
    """Add at places, in order both ways: one takes long arrays, one few places."""
    if name not in sums:
        sums[name] = np.zeros(shape)
    total = sums[name]
    if 16 * places.size < total.size:
        np.add.at(total.reshape(-1), places.ravel(), what.ravel())
    else:
        total += np.bincount(places.ravel(), what.ravel(), total.size).reshape(shape)


def _derivatives(op: str, result: Array, args: list[Array]) -> list[Array]:
    """The partial derivatives by each operand."""
    a = args[0]
    b = args[1] if len(args) > 1 else a
    one = np.ones(1)
    table: dict[str, Callable[[], list[Array]]] = {
        "add": lambda: [one, one],
        "sub": lambda: [one, -one],
        "mul": lambda: [b, a],
        "div": lambda: [1 / b, -result / b],
        "max": lambda: [(a >= b) * 1.0, (a < b) * 1.0],
        "min": lambda: [(a <= b) * 1.0, (a > b) * 1.0],
        "abs": lambda: [np.sign(a)],
        "floor": lambda: [np.zeros_like(a)],
        "exp": lambda: [result],
        "log": lambda: [1 / a],
        "sqrt": lambda: [0.5 / result],
        "rsqrt": lambda: [-0.5 * result / a],
        "atan": lambda: [1 / (1 + a * a)],
        "asinh": lambda: [1 / np.sqrt(1 + a * a)],
        "erf": lambda: [2 / np.sqrt(np.pi) * np.exp(-a * a)],
        "tanh": lambda: [1 - result * result],
        "sigmoid": lambda: [result * (1 - result)],
        "sin": lambda: [np.cos(a)],
        "cos": lambda: [-np.sin(a)],
        "sinf": lambda: [np.cos(a)],
        "cosf": lambda: [-np.sin(a)],
        "hypot": lambda: [a / result, b / result],
        "atan2": lambda: [b / (a * a + b * b), -a / (a * a + b * b)],
        "fmod": lambda: [one, -np.trunc(a / b)],
        "copysign": lambda: [np.sign(a) * np.copysign(1.0, b), np.zeros(1)],
        "wider": lambda: [one],
    }
    return table[op]()


def _order(a: Array, b: Array) -> Array:
    return np.sign(a - b)


def _signs(a: Array, b: Array) -> Array:
    return np.sign(a) + 3 * np.sign(b)


FLOATS: dict[str, tuple[Callable[..., Array], Callable[..., Array] | None]] = {
    "add": (np.add, None),
    "sub": (np.subtract, None),
    "mul": (np.multiply, None),
    "div": (np.divide, None),
    "max": (np.maximum, _order),  # at a tie, too, one operand has the derivative
    "min": (np.minimum, _order),
    "abs": (np.abs, np.sign),
    "floor": (np.floor, np.floor),
    "exp": (np.exp, None),
    "log": (np.log, None),
    "sqrt": (np.sqrt, None),
    "rsqrt": (lambda a: 1 / np.sqrt(a), None),
    "atan": (np.arctan, None),
    "asinh": (np.arcsinh, None),
    "erf": (erf, None),
    "tanh": (np.tanh, None),
    "sigmoid": (lambda a: 1 / (1 + np.exp(-a)), None),
    "sin": (np.sin, None),
    "cos": (np.cos, None),
    "sinf": (np.sin, None),
    "cosf": (np.cos, None),
    "hypot": (np.hypot, None),
    "atan2": (np.arctan2, _signs),
    "fmod": (np.fmod, lambda a, b: np.trunc(a / b)),
    "copysign": (np.copysign, _signs),
    "wider": (lambda a: a, None),
}
_EXACT = ("max", "min", "abs", "floor", "wider")  #: what is not rounded
INTEGERS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floor": np.floor,
    "floordiv": np.floor_divide,
    "floormod": np.mod,
    "mod_if_any": lambda a, b: np.mod(a, np.where(b == 0, 1, b)),
    "shift_left": np.left_shift,
    "bitwise_xor": np.bitwise_xor,
    "truncdiv": lambda a, b: np.trunc(a / b).astype(np.int64),
    "truncmod": np.fmod,
    "max": np.maximum,
    "min": np.minimum,
    "abs": np.abs,
}
BOOLEANS: dict[str, Callable[..., Array]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
}


@dataclass
class Run:
    """One evaluation of a program.

    Attributes
    ----------
    tensors : dict
        Name → array with a leading batch axis.
    sizes : mapping
        Values of symbolic extents.
    noise : generator or None
        Where the rounding noise of all members but the first comes from.
    decisions : list
        Which way every comparison of floats went.
    """

    program: Program
    tensors: dict[str, Array]
    sizes: Mapping[str, int]
    noise: np.random.Generator | None = None
    decisions: list[Array] = field(default_factory=list)
    tape: list[tuple[Stage, list[Value]]] = field(default_factory=list)
    largest: float = 0.0

    def evaluate(self) -> None:
        """Every stage, in order."""
        for stage in self.program.stages:
            results = _Grid(self, stage).results()
            self.tape.append((stage, results))
            for name, value in zip(stage.outputs, results, strict=True):
                self.tensors[name] = value.array

    def gradients(self, name: str, head: Array) -> Adjoints:
        """The cotangents of all tensors that `name` depends on; `head` has a batch axis."""
        adjoints = Adjoints(self.noise is not None)
        shape = np.broadcast_shapes(self.tensors[name].shape, head.shape)
        adjoints.sums[name] = np.broadcast_to(head, shape).astype(float)
        adjoints.sizes[name] = np.abs(adjoints.sums[name])
        adjoints.counts[name] = np.zeros(shape)
        for stage, values in reversed(self.tape):
            for output, value in zip(stage.outputs, values, strict=True):
                if output in adjoints.sums and not value.constant:
                    # a sum is rounded beside its terms: what is left of them may be much smaller
                    sums, sizes = adjoints.sums[output], adjoints.sizes[output]
                    cotangent = self.noisy(sums, stage.dtype, sizes)
                    self.largest = max(self.largest, np.abs(cotangent).max(initial=0.0))
                    pull(value, cotangent, adjoints)
        return adjoints

    def noisy(self, array: Array, dtype: str, scale: Any = None) -> Array:
        """`array` with errors of rounding in all members but the first."""
        if self.noise is None:
            return array
        size = np.abs(array) if scale is None else scale
        errors = self.noise.uniform(-1, 1, (self.batch, *array.shape[1:]))
        errors[0] = 0
        return array + errors * (eps(dtype) * size + smallest(dtype))

    @property
    def batch(self) -> int:
        return max(len(array) for array in self.tensors.values())


class _Grid:
    """The evaluation of one stage."""

    def __init__(self, run: Run, stage: Stage) -> None:
        self.run, self.stage = run, stage
        self.index = run.program.index
        self.names: dict[str, Array] = {n: np.asarray(v) for n, v in run.sizes.items()}
        self.rank = 0
        self.integers = {x.name: not x.is_float for x in run.program.inputs}
        self.integers.update(
            (s.name, True) for s in run.program.stages if s.reducer in ARG_REDUCERS
        )

    # -- the grid

    def extent(self, extent: Extent) -> int:
        return int(self.integer(extent, np.asarray(True))) if isinstance(extent, Node) else extent

    def axes(self, axes: list[tuple[str, Array]]) -> None:
        """Bind names to their values, an axis each after the batch."""
        self.rank = len(axes)
        for place, (name, values) in enumerate(axes):
            shape = [1] * (self.rank + 1)
            shape[place + 1] = len(values)
            self.names[name] = values.reshape(shape)

    def results(self) -> list[Value]:
        stage = self.stage
        shape = tuple(self.extent(extent) for extent in stage.shape)
        spatial = [(name, np.arange(n)) for (name, _), n in zip(stage.axes, shape, strict=True)]
        self.axes(spatial)
        if stage.reducer is None:
            active = np.ones([1] * (self.rank + 1), bool)
            values = [self.value(body, active) for body in stage.bodies]
            return [self.whole(value, shape) for value in values]
        reduced, inside = self.reduce_grid(spatial)
        active = inside
        if stage.where is not None:
            active = active & self.condition(stage.where, active)
        bodies = [self.value(b, active) if b.dtype == "float" else b for b in stage.bodies]
        box = tuple(len(values) for _, values in reduced)
        return self.reduce(bodies, active, shape, box, spatial)

    def whole(self, value: Value, shape: tuple[int, ...]) -> Value:
        array = np.broadcast_to(value.array, (len(value.array), *shape))
        return Value(array, [(value, np.ones(1))], constant=value.constant)

    def reduce_grid(self, spatial: list) -> tuple[list[tuple[str, Array]], Array]:
        """Axes of the smallest box around the reduce ranges, and which of its points count."""
        reduced: list[tuple[str, Array]] = []
        ranges = []
        for name, first, extent in self.stage.reduce_axes:
            active = np.ones([1] * (self.rank + 1), bool)
            low = self.integer(first, active) if isinstance(first, Node) else np.asarray(first)
            count = self.integer(extent, active) if isinstance(extent, Node) else extent
            high = low + count
            empty = not np.size(low) or not np.size(high)
            values = (
                np.arange(0) if empty else np.arange(np.min(low), max(np.max(high), np.min(low)))
            )
            reduced.append((name, values))
            self.axes([*spatial, *reduced])
            ranges.append((name, first, extent))
        inside = np.ones([1] * (self.rank + 1), bool)
        for name, first, extent in ranges:
            low = self.integer(first, inside) if isinstance(first, Node) else np.asarray(first)
            count = self.integer(extent, inside) if isinstance(extent, Node) else extent
            inside = inside & (self.names[name] >= low) & (self.names[name] < low + count)
        return reduced, inside

    # -- reductions

    def reduce(
        self,
        bodies: list[Any],
        active: Array,
        shape: tuple[int, ...],
        box: tuple[int, ...],
        spatial: list,
    ) -> list[Value]:
        reducer = self.stage.reducer or ""
        batch = self.run.batch
        full, flat = (batch, *shape, *box), (batch, *shape, math.prod(box))
        counts = np.broadcast_to(active, full).reshape(flat)
        terms = [
            np.broadcast_to(body.array, full).reshape(flat) if isinstance(body, Value) else None
            for body in bodies
        ]
        if reducer in ARG_REDUCERS:
            return self.arg_reduce(bodies, terms[1], counts, full)
        if reducer == "moments":
            return [
                self.fold("sum", body, term, counts, full, spatial)
                for body, term in zip(bodies, terms, strict=True)
            ]
        return [self.fold(reducer, bodies[0], terms[0], counts, full, spatial)]

    def fold(
        self, reducer: str, body: Value, terms: Array, counts: Array, full: tuple, spatial: list
    ) -> Value:
        dtype = self.stage.dtype
        identity = {
            "sum": 0.0,
            "prod": 1.0,
            "either": 0.0,
            "positive": 0.0,
            "max": float(finfo(dtype).min),
            "min": float(finfo(dtype).max),
        }[reducer]
        terms = np.where(counts, terms, identity)
        init = None
        if self.stage.init is not None:
            self.axes(spatial)
            init = self.value(self.stage.init, np.ones([1] * (self.rank + 1), bool))
        elif reducer == "positive":
            init = Value(np.zeros([1] * (terms.ndim - 1)), constant=True)
        if init is not None:
            started = np.broadcast_to(init.array, (len(terms), *terms.shape[1:-1]))
            terms = np.concatenate([started[..., None], terms], axis=-1)
        result, partial = self.combine(reducer, terms, dtype)

        def send(cotangent: Array, adjoints: Adjoints) -> None:
            parts = cotangent[..., None] * partial
            parts = np.where(cotangent[..., None] == 0, 0.0, parts)
            if init is not None:
                pull(init, parts[..., 0], adjoints)
                parts = parts[..., 1:]
            if not body.constant:
                pull(body, np.where(counts, parts, 0.0).reshape(full), adjoints)

        return Value(result, send=send)

    def combine(self, reducer: str, terms: Array, dtype: str) -> tuple[Array, Array]:
        """The reduction along the last axis, and its derivative with respect to each term."""
        run = self.run
        count = terms.shape[-1]
        if reducer == "sum":
            size = np.abs(terms).sum(axis=-1) * max(1.0, math.sqrt(count))
            return run.noisy(terms.sum(axis=-1), dtype, size), np.ones(terms.shape)
        if reducer in ("max", "positive", "min"):
            chooser = np.argmin if reducer == "min" else np.argmax
            if not count:
                extreme = float(finfo(dtype).max if reducer == "min" else finfo(dtype).min)
                return np.full(terms.shape[:-1], extreme), np.ones(terms.shape)
            best = chooser(terms, axis=-1)
            run.decisions.append(best)
            partial = (np.arange(count) == best[..., None]) * 1.0
            return np.take_along_axis(terms, best[..., None], axis=-1)[..., 0], partial
        if reducer == "either":
            return self.either(terms, dtype)
        factors = run.noisy(terms, dtype, np.abs(terms) * max(1.0, math.sqrt(count)))
        ones = np.ones((*factors.shape[:-1], 1))
        before = np.concatenate([ones, np.cumprod(factors, axis=-1)[..., :-1]], axis=-1)
        backward = np.cumprod(factors[..., ::-1], axis=-1)[..., ::-1]
        after = np.concatenate([backward[..., 1:], ones], axis=-1)
        others = run.noisy(before[..., :count] * after[..., :count], dtype)
        return run.noisy(np.prod(factors, axis=-1), dtype), others

    def either(self, terms: Array, dtype: str) -> tuple[Array, Array]:
        """``s → s + t - s*t`` step by step: a state is rounded beside 1 and its terms, and what
        follows may enlarge that.
        """
        states = self.either_states(terms, dtype)
        backward = self.either_states(terms[..., ::-1], dtype)[..., ::-1]
        before, after = 1 - states[..., :-1], 1 - backward[..., 1:]
        size = np.abs(before) + np.abs(after) + 2 * np.abs(before * after) + 1
        return states[..., -1], self.run.noisy(before * after, dtype, size)

    def either_states(self, terms: Array, dtype: str) -> Array:
        """The states in front of each term, and the last one."""
        states = [np.zeros(terms.shape[:-1])]
        for place in range(terms.shape[-1]):
            state, term = states[-1], terms[..., place]
            both = state * term
            size = np.abs(state) + np.abs(term) + 2 * np.abs(both)
            states.append(self.run.noisy(state + term - both, dtype, size))
        return np.stack(states, axis=-1)

    def arg_reduce(
        self, bodies: list[Any], terms: Array, counts: Array, full: tuple
    ) -> list[Value]:
        chooser = np.argmax if self.stage.reducer == "argmax" else np.argmin
        worst = -np.inf if self.stage.reducer == "argmax" else np.inf
        if not terms.shape[-1] or not counts.any(axis=-1).all():
            raise Unusable("an arg-reduction over nothing")
        best = chooser(np.where(counts, terms, worst), axis=-1)[..., None]
        self.run.decisions.append(best)
        places = np.broadcast_to(self.integer(bodies[0], np.asarray(False)), full)
        index = np.take_along_axis(places.reshape(terms.shape), best, axis=-1)[..., 0]
        value = np.take_along_axis(terms, best, axis=-1)[..., 0]
        body = bodies[1]

        def send(cotangent: Array, adjoints: Adjoints) -> None:
            chosen = np.arange(terms.shape[-1]) == best
            pull(body, (chosen * cotangent[..., None]).reshape(full), adjoints)

        return [Value(index, constant=True), Value(value, send=send)]

    # -- expressions

    def value(self, node: Node, active: Array) -> Value:
        """A float expression wherever `active` holds; elsewhere anything."""
        run, dtype = self.run, self.stage.dtype
        if node.op == "const":
            number = float(np.asarray(node.value).astype(numpy_dtype(dtype)))
            return Value(np.full([1] * (self.rank + 1), number), constant=True)
        if node.op in ("if_then_else", "select"):
            holds = self.condition(node.args[0], active)
            then = self.value(node.args[1], active & holds)
            other = self.value(node.args[2], active & ~holds)
            array = np.where(holds, then.array, other.array)
            parents = [(then, holds * 1.0), (other, ~holds * 1.0)]
            return Value(array, parents, constant=then.constant and other.constant)
        if node.op == "cast":
            return Value(self.integer(node.args[0], active).astype(float), constant=True)
        if node.op == "load":
            return self.load(node, active)
        args = [self.value(arg, active) for arg in node.args]
        arrays = [arg.array for arg in args]
        function, decide = FLOATS[node.op]
        constant = all(arg.constant for arg in args)
        if decide is not None and not constant:
            run.decisions.append(np.where(active, decide(*arrays), 0))
        exact = function(*arrays)
        if node.op in _EXACT or (constant and _representable(exact, dtype)):
            result = exact
        else:
            result = run.noisy(exact, dtype)
        kept = np.where(active, result, 0.0)
        run.largest = max(run.largest, np.abs(kept).max(initial=0.0))
        parents = (
            [] if constant else list(zip(args, _derivatives(node.op, result, arrays), strict=True))
        )
        return Value(result, parents, constant=constant or node.op == "floor")

    def load(self, node: Node, active: Array) -> Value:
        name = node.value
        tensor, legal = self.place(node, active)
        array = tensor[legal] if tensor.size else np.zeros([1] * (self.rank + 1))

        def send(cotangent: Array, adjoints: Adjoints) -> None:
            shape = (len(cotangent), *tensor.shape[1:])
            batch = np.arange(len(cotangent)).reshape([-1] + [1] * (cotangent.ndim - 1))
            what = np.where(active, cotangent, 0.0)
            if tensor.size and what.size:
                adjoints.add(name, shape, (batch, *legal[1:]), what)

        return Value(array, send=send)

    def place(self, node: Node, active: Array) -> tuple[Array, tuple[Array, ...]]:
        """A tensor, and the indices at which it is read, clipped where nothing counts."""
        tensor = self.run.tensors[node.value]
        batch = np.arange(len(tensor)).reshape([-1] + [1] * self.rank)
        legal = [batch]
        for arg, extent in zip(node.args, tensor.shape[1:], strict=True):
            index = self.integer(arg, active)
            if np.any(active & ((index < 0) | (index >= extent))):
                raise IllegalRead(f"{node.value}, extent {extent}")
            legal.append(np.clip(index, 0, max(extent - 1, 0)).astype(np.int64))
        return tensor, tuple(legal)

    def condition(self, node: Node, active: Array) -> Array:
        if node.op in ("and", "or", "not"):
            return BOOLEANS[node.op](*(self.condition(arg, active) for arg in node.args))
        if node.args[0].dtype == "float":
            args = [self.value(arg, active).array for arg in node.args]
            result = BOOLEANS[node.op](*args)
            self.run.decisions.append(np.where(active, result, False))
            return result
        return BOOLEANS[node.op](*(self.integer(arg, active) for arg in node.args))

    def integer(self, node: Node, active: Array) -> Array:
        """An integer expression, or one of floats that an index is computed from."""
        if node.op in ("int", "const"):
            return np.asarray(node.value)
        if node.op == "var":
            return self.names[node.value]
        if node.op == "load":
            tensor, legal = self.place(node, active)
            return tensor[legal] if tensor.size else np.zeros([1] * (self.rank + 1), np.int64)
        if node.op in ("if_then_else", "select"):
            holds = self.condition(node.args[0], active)
            then = self.integer(node.args[1], active & holds)
            return np.where(holds, then, self.integer(node.args[2], active & ~holds))
        args = [self.integer(arg, active) for arg in node.args]
        if node.op == "cast":
            return self.rounded(args[0], node.dtype, True)
        if node.op in ("floordiv", "floormod", "truncdiv", "truncmod") and np.any(args[1] == 0):
            raise Unusable("a division by zero")
        if "float" in node.dtype:
            args = [np.asarray(arg).astype(numpy_dtype(node.dtype)) for arg in args]
        return self.rounded(INTEGERS[node.op](*args), node.dtype, False)

    def rounded(self, array: Array, dtype: str, cast: bool) -> Array:
        """Integers wrap, floats are rounded; what indices cannot hold has no meaning."""
        dtype = self.index if dtype == "index" else dtype
        if "float" in dtype:
            return np.asarray(array).astype(numpy_dtype(dtype))
        if np.asarray(array).dtype.kind not in "iu":
            array = np.trunc(np.asarray(array).astype(float)).astype(np.int64)
        if dtype in ("int32", "int64") and not cast:
            limit = 2**31 if dtype == "int32" else 2**62
            if (np.abs(array) >= limit).any():
                raise Unusable("an index beyond its dtype")
            return array
        return np.asarray(array).astype(numpy_dtype(dtype)).astype(np.int64)


def _representable(array: Array, dtype: str) -> bool:
    return bool(np.all(array.astype(numpy_dtype(dtype)).astype(float) == array))


@functools.cache
def numpy_dtype(dtype: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


class Points:
    """The points of a stage, at which indices without reads are evaluated."""

    def __init__(self, program: Program, stage: Stage, sizes: Mapping[str, int]) -> None:
        self.grid = _Grid(Run(program, {}, sizes), stage)
        spatial = [(name, np.arange(max(self.grid.extent(n), 0))) for name, n in stage.axes]
        self.grid.axes(spatial)
        inside = np.asarray(True)
        if stage.reduce_axes:
            _, inside = self.grid.reduce_grid(spatial)
        self.shape = np.broadcast_shapes(*(v.shape for v in self.grid.names.values()), inside.shape)
        self.inside = np.broadcast_to(inside, self.shape)
        self.none, self.all = not self.inside.any(), self.inside.all()

    def bounds(self, node: Node) -> tuple[int, int] | None:
        """The smallest and the largest value of an index; None where there are no points."""
        values = self.grid.integer(node, np.asarray(False))
        if self.none:
            return None
        if not self.all:
            values = np.broadcast_to(values, self.shape)[self.inside]
        return int(values.min()), int(values.max())
