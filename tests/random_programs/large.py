"""Programs of large extents and coefficients, of which some elements are looked at.

The arrays are functions of their indices; the cotangent is zero but at some points, so that the
reference is a sum over these, and the gradient is compared where they reach, and elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te

from tests.evaluate import evaluate_at, stages_of
from tests.random_programs.draw import (
    Draw,
    Options,
    compare,
    integer,
    literal,
    read,
    variable,
)
from tests.random_programs.interpreter import (
    Adjoints,
    IllegalRead,
    Run,
    Unusable,
    Value,
    _Grid,
    pull,
)
from tests.random_programs.programs import Input, Node, Program, Stage
from tvm_autodiff import build, differentiate

Array = np.ndarray
POINTS = 24  #: of the output, where the cotangent is not zero


@dataclass(frozen=True)
class LargeCase:
    """A program of one stage that reads ``A``, and the points of its output that count."""

    seed: int
    program: Program
    points: tuple[Array, ...]
    mode: str = "plain"
    calls: tuple = ()


class Hashed:
    """An array that is computed from its indices: as large as one likes."""

    def __init__(self, shape: Sequence[int], salt: int) -> None:
        self.shape, self.salt = tuple(shape), salt
        self.size = math.prod(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def values(self, indices: Sequence[Array]) -> Array:
        mixed = np.asarray(self.salt, np.int64)
        for index in indices:
            mixed = mixed * 1_000_003 + np.asarray(index, np.int64) * 7919 + 12345
        return ((mixed ^ (mixed >> 13)) % 1999 - 999) / 1000.0

    def __getitem__(self, index: tuple[Array, ...]) -> Array:
        return self.values(index[1:])

    def whole(self) -> Array:
        return self.values(np.indices(self.shape[1:], sparse=True))


class _Sparse(Adjoints):
    """Cotangents by place: a large tensor is never held."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[tuple[int, ...], float] = {}

    def add(self, name: str, shape: tuple[int, ...], index: tuple, what: Array) -> None:
        if name != "A":  # of which nothing is asked
            return
        flat = [part.reshape(-1) for part in np.broadcast_arrays(*index[1:], what)]
        for *place, value in zip(*flat, strict=True):
            if value:
                key = tuple(int(i) for i in place)
                self.found[key] = self.found.get(key, 0.0) + float(value)


class _Points(_Grid):
    """One stage at some points of its output: an axis of points, then the reduce axes."""

    def __init__(self, run: Run, stage: Stage, points: Sequence[Array]) -> None:
        super().__init__(run, stage)
        self.points = points

    def axes(self, axes: list[tuple[str, Array]]) -> None:
        reduced = axes[len(self.stage.axes) :]
        self.rank = 1 + len(reduced)
        for (name, _), values in zip(self.stage.axes, self.points, strict=True):
            self.names[name] = values.reshape([1, -1] + [1] * len(reduced))
        for place, (name, values) in enumerate(reduced):
            shape = [1] * (self.rank + 1)
            shape[place + 2] = len(values)
            self.names[name] = values.reshape(shape)


def reference(case: LargeCase, head: Array) -> tuple[Array, dict[tuple[int, ...], float]]:
    """Values at the points, and the derivatives that are not zero."""
    program, stage = case.program, case.program.output
    tensors: dict[str, Any] = {
        x.name: Hashed((1, *x.shape), place) for place, x in enumerate(program.inputs)
    }
    run = Run(program, tensors, {})
    grid = _Points(run, stage, case.points)
    spatial = [(name, np.arange(0)) for name, _ in stage.axes]
    grid.axes(spatial)
    active = np.ones([1] * (grid.rank + 1), bool)
    count = len(case.points[0])
    if stage.reducer is None:
        made = grid.value(stage.bodies[0], active)
        value = Value(np.broadcast_to(made.array, (1, count)), [(made, np.ones(1))])
    else:
        reduced, active = grid.reduce_grid(spatial)
        body = grid.value(stage.bodies[0], active)
        box = tuple(len(values) for _, values in reduced)
        [value] = grid.reduce([body], active, (count,), box, spatial)
    adjoints = _Sparse()
    pull(value, head[None], adjoints)
    return value.array[0], adjoints.found


# -- drawing


def _linear(draw: Draw, terms: Sequence[tuple[int, str]], constant: int) -> Node:
    parts: list[Node] = []
    for factor, name in terms:
        axis = variable(name)
        parts.append(axis if factor == 1 else Node("mul", (axis, integer(factor))))
    form = parts[0]
    for part in parts[1:]:
        form = Node("add", (form, part))
    return Node("add", (form, integer(constant))) if constant else form


def _modular(draw: Draw) -> tuple[int, Node, list[tuple[str, int]], list[tuple[str, int, int]]]:
    n = draw.pick((100_003, 65_537, 1_000_003, 99_991, 4_000_037, 100_000))
    factor = draw.pick((-1, 1, 2, 7, -3, 5, 441, -10_007))
    form = _linear(draw, [(factor, "i")], draw.between(-20, 20))
    return n, Node("floormod", (form, integer(n))), [("i", n)], []


def _frames(draw: Draw) -> tuple[int, Node, list[tuple[str, int]], list[tuple[str, int, int]]]:
    hop, width = draw.pick(((441, 1024), (160, 400), (512, 1024), (147, 160), (1, 64), (256, 200)))
    samples = draw.pick((100_000, 1_000_000, 5_300_000, 11_000_000))
    frames = (samples - width) // hop + 1
    form = _linear(draw, [(hop, "i"), (1, "j")], 0)
    if draw.chance(0.4):
        return samples, form, [("i", frames)], [("j", 0, width)]
    return samples, form, [("i", frames), ("j", width)], []


def _coefficients(draw: Draw) -> tuple[int, Node, list[tuple[str, int]], list]:
    a, b = draw.pick(((2, 10_007), (512, 7), (3, 100_003), (441, 160), (1, 46_341), (9, -4)))
    rows, columns = draw.pick((100, 5000, 60_000)), draw.pick((3, 20, 100))
    low = min(0, b * (columns - 1))
    n = a * (rows - 1) + max(0, b * (columns - 1)) - low + 1
    form = _linear(draw, [(a, "i"), (b, "j")], -low)
    if draw.chance(0.3):
        return n, form, [("i", rows)], [("j", 0, columns)]
    return n, form, [("i", rows), ("j", columns)], []


def _resampled(draw: Draw) -> tuple[int, Node, list[tuple[str, int]], list[tuple[str, int, int]]]:
    up, down = draw.pick(((441, 160), (160, 441), (147, 160), (3, 2), (1, 3)))
    n = draw.pick((100_000, 1_000_000, 4_000_000))
    count = min(n * down // up, (2**31 - 1) // up)  # the program's own products fit int32
    form = Node("floordiv", (_linear(draw, [(up, "i")], draw.between(0, 3)), integer(down)))
    return n + up, form, [("i", count)], []


_FORMS = (_modular, _frames, _coefficients, _resampled)


def large_case(seed: int, index: str = "int32") -> LargeCase:
    """The case of a seed."""
    for attempt in range(100):
        rng = np.random.default_rng([seed, attempt, 1])
        draw = Draw(rng, Options(dtype="float64", index=index))
        try:
            return _case(draw, seed, rng)
        except (IllegalRead, Unusable):
            continue
    raise AssertionError("no large program was legal")


def _case(draw: Draw, seed: int, rng: np.random.Generator) -> LargeCase:
    n, form, axes, reduced = draw.pick(_FORMS, (2, 2, 2, 1))(draw)
    trailing = draw.pick((0, 0, 2, 3))
    shape: tuple[int, ...] = (n, trailing) if trailing else (n,)
    if trailing:
        axes = [*axes, ("l", trailing)]
    A = Input("A", shape, draw.dtype)
    body = read("A", form, *([variable("l")] if trailing else []))
    inputs = [A]
    if reduced and draw.chance(0.5):
        inputs.append(Input("W", (reduced[0][2],), draw.dtype))
        body = Draw.node("mul", body, read("W", variable("j")))
    elif draw.chance(0.4):
        body = Draw.node(draw.pick(("sin", "tanh")), body)
    if draw.chance(0.2):
        name, extent = axes[0]
        guard = compare("lt", variable(name), integer(extent - draw.between(1, 5)))
        body = Draw.node("if_then_else", guard, body, literal(0))
    reducer = "sum" if reduced else None
    stage = Stage("S0", tuple(axes), (body,), draw.dtype, reducer, tuple(reduced))
    program = Program(tuple(inputs), (stage,), draw.options.index)
    points = tuple(
        np.concatenate([[0, extent - 1], rng.integers(0, extent, POINTS - 2)]) for _, extent in axes
    )
    unique = np.unique(np.stack(points), axis=1)
    case = LargeCase(seed, program, tuple(unique))
    reference(case, np.ones(unique.shape[1]))  # a read outside shows here
    return case


# -- comparing


def large_complaints(case: LargeCase, compiled: bool) -> list[str]:
    """What is wrong with a case, evaluated at points or compiled."""
    try:
        return _complaints(case, compiled)
    except Exception as error:  # any exception is a finding, to be shown with its program
        return [f"seed {case.seed}: {type(error).__name__}: {error}"]


def _complaints(case: LargeCase, compiled: bool) -> list[str]:
    program = case.program
    weights = np.random.default_rng(case.seed).uniform(0.5, 1, len(case.points[0]))
    values, slopes = reference(case, weights)
    tensors = program.tensors()
    output, inputs = tensors[program.output.name], [tensors[x.name] for x in program.inputs]
    head = te.placeholder(output.shape, str(output.dtype), name="head")
    dx = next(iter(differentiate(output, inputs[:1], head)))
    extents = program.inputs[0].shape
    rng = np.random.default_rng(case.seed)
    places = sorted(slopes)
    if len(places) > 400:
        places = [places[n] for n in np.sort(rng.choice(len(places), 400, replace=False))]
    places += [tuple(int(i) for i in rng.integers(0, extents)) for _ in range(100)]
    at = list(np.array(places).T)
    wanted = np.array([slopes.get(place, 0.0) for place in places])
    if compiled:
        found, forward = _called(case, [*inputs, head], [output, dx], weights, at)
    else:
        if any(isinstance(op, te.ExternOp) for op in stages_of([dx])):
            return []  # its elements are not independent: left to the compiled run
        known = _functions(case, inputs, head, weights)
        forward = evaluate_at(output, list(case.points), known)
        found = evaluate_at(dx, at, known)
    size = 1e-10 * (1 + np.abs(wanted).max(initial=0) + np.abs(values).max(initial=0))
    wrong = []
    for label, got, want, where in (
        (program.output.name, forward, values, case.points),
        (f"d/d{program.inputs[0].name}", found, wanted, at),
    ):
        excess = np.abs(np.asarray(got) - want)
        bad = ~(excess <= size)
        if bad.any():
            worst = int(np.argmax(np.where(np.isnan(excess), np.inf, excess)))
            wrong.append(
                f"seed {case.seed}, {label}: {np.asarray(got)[worst]} at "
                f"{[int(index[worst]) for index in where]}, expected {want[worst]} "
                f"({int(bad.sum())} of {bad.size} that were looked at)"
            )
    return wrong


def _functions(case: LargeCase, inputs: Sequence[Any], head: Any, weights: Array) -> list:
    """Placeholders with functions of their indices."""
    table = {
        tuple(int(i) for i in place): weight
        for place, weight in zip(np.stack(case.points).T, weights, strict=True)
    }
    # places as single numbers, which int64 holds
    extents = [extent for _, extent in case.program.output.axes]
    keys = np.array([_flat(place, extents) for place in table], np.int64)
    order = np.argsort(keys)
    keys, known = keys[order], np.array(list(table.values()))[order]

    def cotangent(indices: list[Array], active: Any) -> Array:
        _inside(indices, extents, active, "head")
        flat = _flat([np.asarray(index, np.int64) for index in indices], extents)
        found = np.clip(np.searchsorted(keys, flat), 0, len(keys) - 1)
        return np.where(keys[found] == flat, known[found], 0.0)

    def hashed(place: int, shape: Sequence[int]) -> Any:
        array = Hashed((1, *shape), place)

        def values(indices: list[Array], active: Any) -> Array:
            _inside(indices, shape, active, f"input {place}")
            return array.values(indices)

        return values

    pairs = [
        (tensor, hashed(place, x.shape))
        for place, (tensor, x) in enumerate(zip(inputs, case.program.inputs, strict=True))
    ]
    return [*pairs, (head, cotangent)]


def _flat(place: Sequence[Any], extents: Sequence[int]) -> Any:
    found = 0
    for index, extent in zip(place, extents, strict=True):
        found = found * extent + index
    return found


def _inside(indices: Sequence[Array], shape: Sequence[int], active: Any, name: str) -> None:
    for index, extent in zip(indices, shape, strict=True):
        if np.any(active & ((index < 0) | (index >= extent))):
            raise IllegalRead(f"{name} is read outside")


def _called(
    case: LargeCase, inputs: Sequence[Any], outputs: Sequence[Any], weights: Array, at: list[Array]
) -> tuple[Array, Array]:
    arrays = [Hashed((1, *x.shape), place).whole() for place, x in enumerate(case.program.inputs)]
    head = np.zeros([extent for _, extent in case.program.output.axes])
    head[tuple(case.points)] = weights
    read_by = {hash(op) for op in stages_of(outputs)}
    pairs = zip(inputs, [*arrays, head], strict=True)
    used = [(tensor, array) for tensor, array in pairs if hash(tensor.op) in read_by]
    function = build([tensor for tensor, _ in used], list(outputs), cache=False)
    forward, slopes = (np.asarray(result) for result in function(*(array for _, array in used)))
    return slopes[tuple(at)], forward[tuple(case.points)]
