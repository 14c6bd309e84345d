"""Data and reference results for random programs.

The reference is the interpreter's: float64 throughout. How far a result may be from it follows from
the program: `MEMBERS` more evaluations carry noise of the size of the rounding errors of each
stage's dtype, and `SAFETY` times their spread is allowed, beside what adding up contributions in
another order may change.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.random_programs.draw import Draw, Options
from tests.random_programs.features import chosen_features, options_of
from tests.random_programs.interpreter import (
    Adjoints,
    IllegalRead,
    Run,
    Unusable,
    eps,
    numpy_dtype,
    smallest,
)
from tests.random_programs.programs import Extent, Input, Node, Program, Stage, nodes

Array = np.ndarray
MEMBERS = 6
SAFETY = 8.0
STEP = 2e-4  #: of the differences of second derivatives; theirs is of fourth order
_STENCILS = np.array([[-0.25, 0], [0, -0.5], [0, 0.5], [0.25, 0]]) / STEP
#: programs with larger values are drawn again
LARGEST = {"float64": 1e3, "float32": 1e3, "float16": 200.0, "bfloat16": 1e3}
POINTS = 700  #: of the iterations of a stage
ATTEMPTS = 300  #: with the features of one choice


@dataclass(frozen=True)
class Wanted:
    """What a tensor must be, and how far from it is allowed, element by element."""

    value: Array
    tolerance: Array


@dataclass(frozen=True)
class Call:
    """One call: sizes, arrays of the inputs and of the cotangent, expected results by label."""

    sizes: Mapping[str, int]
    inputs: dict[str, Array]
    head: Array
    wanted: dict[str, Wanted]
    second_head: Array | None = None


@dataclass(frozen=True)
class Case:
    """A program with everything needed to judge what the library makes of it.

    Attributes
    ----------
    mode : str
        What is asked for: see `draw.Options`.
    second : str
        The input of the first derivative that is differentiated again.
    cheap : bool
        Whether a gradient of more iterations than reads and elements is an error.
    """

    seed: int
    program: Program
    mode: str
    calls: tuple[Call, ...]
    second: str = ""
    cheap: bool = False
    options: Any = None

    @property
    def inputs(self) -> dict[str, Array]:
        return self.calls[0].inputs

    @property
    def head(self) -> Array:
        return self.calls[0].head


def data_for(x: Input, shape: tuple[int, ...], options: Options, rng: Any, zeros: bool) -> Array:
    if not x.is_float:
        return rng.integers(x.low, x.high + 1, shape).astype(x.dtype)
    if options.ties:
        return rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], shape).astype(numpy_dtype(x.dtype))
    if options.extremes:
        signs = rng.choice([-1.0, 1.0], shape)
        return (signs * rng.choice([1e-30, 1e-30, 1.0, 1e30], shape)).astype(numpy_dtype(x.dtype))
    found = rng.uniform(-1, 1, shape) * rng.choice(options.scales)
    if zeros:  # exact zeros, for the product; a kink at zero makes the next attempt
        found = np.where(rng.random(shape) < 0.1, 0.0, found)
    return found.astype(numpy_dtype(x.dtype))


def shape_at(shape: Sequence[Extent], sizes: Mapping[str, int], draw: Draw) -> tuple[int, ...]:
    return tuple(draw.number(extent, sizes) for extent in shape)


def spread(
    values: Array, sizes: Array, dtype: str, held: str | None = None, added: Array | float = 0.0
) -> Array:
    """What is allowed between a result in `dtype` and the exact one, from noisy evaluations.

    The result may be `held` in another dtype, which rounds less and still holds no such small
    numbers: float16 beside bfloat16. Adding many terms may take more than a fixed number of
    roundings, `added`.
    """
    furthest = np.abs(values - values[:1]).max(axis=0, initial=0.0)
    lost = max(smallest(dtype), smallest(held or dtype))
    return SAFETY * furthest + np.maximum(64 * eps(dtype) * sizes[0], added) + 8 * lost


def agree(decisions: Iterable[Array]) -> bool:
    """Whether all members of a batch took the same decisions."""
    return not any(np.any(choice != choice[:1]) for choice in decisions)


def coarsest(program: Program) -> str:
    dtypes = {s.dtype for s in program.stages} | {x.dtype for x in program.inputs if x.is_float}
    return max(dtypes, key=eps)


def call_for(
    program: Program, options: Options, sizes: Mapping[str, int], rng: np.random.Generator
) -> tuple[Call | None, bool]:
    """A call with references, or None where values explode or a kink is always near; and whether
    any derivative is not zero.
    """
    draw = Draw(rng, options)
    largest = 1e36 if options.extremes else LARGEST[coarsest(program)]
    for attempt in range(8):
        inputs = {
            x.name: data_for(x, shape_at(x.shape, sizes, draw), options, rng, attempt < 2)
            for x in program.inputs
        }
        exact = options.ties
        if options.mode == "second":
            return _second(program, inputs, sizes, rng, options)
        run = run_of(program, inputs, sizes, None if exact else rng)
        values = [run.tensors[name] for stage in program.stages for name in stage.outputs]
        if not all(np.isfinite(v).all() and np.abs(v).max(initial=0.0) <= largest for v in values):
            return None, False
        if not agree(run.decisions):
            continue
        output = run.tensors[program.differentiable]
        shape, dtype = output.shape[1:], program.output.dtype
        head = rng.uniform(-1, 1, _prefix(options.mode, shape) + shape)
        head = np.where(np.abs(head) < 0.05, 0.5, head).astype(numpy_dtype(dtype))
        wanted: dict[str, Wanted] = {}
        if options.mode != "backward":
            for name in program.output.outputs:
                value = run.tensors[name]
                wanted[name] = Wanted(value[0], spread(value, np.abs(value), dtype))
        slopes = False
        run.noise = rng  # values that tie are exact, their cotangents are not
        if options.mode != "forward":
            gradients = gradients_of(program, run, head, options.mode, inputs)
            top = 1e37 if options.extremes else 20 * largest
            if run.largest > 20 * largest or not all(
                np.abs(w.value).max(initial=0.0) <= top for w in gradients.values()
            ):
                return None, False
            if not all(
                np.isfinite(w.value).all() and np.isfinite(w.tolerance).all()
                for w in gradients.values()
            ):
                return None, False
            slopes = any(w.value.any() for w in gradients.values())
            wanted.update(gradients)
        return Call(dict(sizes), inputs, head, wanted), slopes
    return None, False


def _prefix(mode: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    return {"prefix": (2,), "jacobian": shape}.get(mode, ())


def run_of(
    program: Program,
    inputs: Mapping[str, Array],
    sizes: Mapping[str, int],
    noise: Any,
    batch: int = 1 + MEMBERS,
) -> Run:
    """The program evaluated on a batch of equal inputs."""
    tensors = {}
    for x in program.inputs:
        array = np.asarray(inputs[x.name])
        array = array.astype(float) if x.is_float else array.astype(np.int64)
        tensors[x.name] = np.repeat(array[None], batch if x.is_float else 1, axis=0)
    run = Run(program, tensors, sizes, noise)
    with np.errstate(all="ignore"):  # what explodes is dropped
        run.evaluate()
    return run


def gradients_of(
    program: Program, run: Run, head: Array, mode: str, inputs: Mapping[str, Array]
) -> dict[str, Wanted]:
    """The expected gradient for each floating-point input."""
    name, dtype = program.differentiable, coarsest(program)
    shape = run.tensors[name].shape[1:]
    prefix = _prefix(mode, shape)
    heads = np.asarray(head, float)
    if mode == "jacobian":
        heads = np.eye(int(np.prod(shape, dtype=int))).reshape((*shape, *shape))
    found: dict[str, list[tuple[Array, Array, Array]]] = {}
    with np.errstate(all="ignore"):
        for place in np.ndindex(*prefix):
            adjoints = run.gradients(name, heads[place][None])
            for x in program.inputs:
                if x.is_float:
                    found.setdefault(x.name, []).append(_adjoint(adjoints, x, inputs))
    wanted = {}
    for x in program.inputs:
        if not x.is_float:
            continue
        full = (*prefix, *np.shape(inputs[x.name]))
        parts = found.get(x.name, [])
        values = np.array([sums[0] for sums, _, _ in parts]).reshape(full)
        allowed = np.array(
            [spread(sums, sizes, dtype, x.dtype, added[0]) for sums, sizes, added in parts]
        )
        wanted[f"d/d{x.name}"] = Wanted(values, allowed.reshape(full))
    return wanted


def _adjoint(
    adjoints: Adjoints, x: Input, inputs: Mapping[str, Array]
) -> tuple[Array, Array, Array]:
    """The sums of an input's cotangent, the sizes of what was added, and the error of adding it."""
    if x.name not in adjoints.sums:
        zeros = np.zeros((1, *np.shape(inputs[x.name])))
        return zeros, zeros, zeros
    return adjoints.sums[x.name], adjoints.sizes[x.name], adjoints.rounding(x.name, x.dtype)


def _second(
    program: Program,
    inputs: dict[str, Array],
    sizes: Mapping[str, int],
    rng: np.random.Generator,
    options: Options,
) -> tuple[Call | None, bool]:
    """Differences of the gradient of the first input, weighted, by every input and the head."""
    floats = [x.name for x in program.inputs if x.is_float]
    target = floats[0]
    plain = run_of(program, inputs, sizes, None, 1)
    shape = plain.tensors[program.differentiable].shape[1:]
    head = rng.uniform(-1, 1, shape)
    weights = rng.uniform(-1, 1, np.shape(inputs[target]))
    arrays = {**{name: np.asarray(inputs[name], float) for name in floats}, "head": head}
    batch = steps(arrays)
    tensors = {name: batch[name] for name in floats}
    for x in program.inputs:
        if not x.is_float:
            tensors[x.name] = np.asarray(inputs[x.name]).astype(np.int64)[None]
    run = Run(program, tensors, sizes)
    with np.errstate(all="ignore"):
        run.evaluate()
        values = [run.tensors[name] for stage in program.stages for name in stage.outputs]
        limit = LARGEST["float64"]
        if not all(np.isfinite(v).all() and np.abs(v).max(initial=0) <= limit for v in values):
            return None, False
        if not agree(run.decisions):
            return None, False
        adjoints = run.gradients(program.differentiable, batch["head"])
    gradient = adjoints.sums.get(target)
    if gradient is None or len(gradient) != len(batch["head"]):
        return None, False
    weighted = (gradient * weights).reshape(len(gradient), -1).sum(axis=1)
    outer, inner = (weighted[1:].reshape(-1, 4) @ _STENCILS).T
    slopes = (4 * inner - outer) / 3
    # the error of the combination is of the next order: far below the difference of the two
    noise = 1e3 * eps("float64") * (1 + np.abs(gradient).max(initial=0)) * gradient[0].size / STEP
    allowed = np.abs(inner - outer) + noise
    if not np.isfinite(slopes).all() or np.any(allowed > 1e-3 * (1 + np.abs(slopes))):
        return None, False
    wanted, offset = (
        {f"d/d{target}": Wanted(gradient[0], 1e-12 * (1 + adjoints.sizes[target][0]))},
        0,
    )
    for name, array in arrays.items():
        part = slice(offset, offset + array.size)
        wanted[f"d/d{name} of d/d{target}"] = Wanted(
            slopes[part].reshape(array.shape), allowed[part].reshape(array.shape)
        )
        offset += array.size
    call = Call(dict(sizes), inputs, head, wanted, weights)
    return call, bool(np.abs(slopes).max(initial=0) > 1e-9)


def steps(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """A batch: the inputs themselves, then each element moved by -2, -1, 1, 2 steps."""
    count = sum(array.size for array in inputs.values())
    batch, offset = {}, 1
    for name, array in inputs.items():
        rows = np.repeat(array[None], 1 + 4 * count, axis=0)
        flat = rows.reshape(len(rows), -1)
        for element in range(array.size):
            for place, factor in enumerate((-2, -1, 1, 2)):
                flat[offset + 4 * element + place, element] += factor * STEP
        offset += 4 * array.size
        batch[name] = rows
    return batch


def case_of(
    program: Program, options: Options, rng: np.random.Generator, seed: int
) -> tuple[Case | None, bool]:
    """A case for a program, or None; and whether any derivative is not zero."""
    assignments = options.assignments or [{}]
    draw = Draw(rng, options)
    if options.special is None:
        volumes = [volume(stage, a, draw) for stage in program.stages for a in assignments]
        if max(volumes) > POINTS:
            return None, False
    found = [call_for(program, options, sizes, rng) for sizes in assignments]
    if found[0][0] is None:
        return None, False
    calls = tuple(call for call, _ in found if call is not None)
    second = next((x.name for x in program.inputs if x.is_float), "")
    case = Case(seed, program, options.mode, calls, second, options.cheap, options)
    return case, found[0][1]


def volume(stage: Stage, sizes: Mapping[str, int], draw: Draw) -> int:
    """A bound of the iterations of a stage; ranges that depend on others count as four."""
    count = 1
    for extent in (*stage.shape, *(extent for _, _, extent in stage.reduce_axes)):
        names = (
            {n.value for n in nodes(extent) if n.op in ("var", "load")}
            if isinstance(extent, Node)
            else set()
        )
        count *= draw.number(extent, sizes) if names <= set(sizes) else 4
    return count


def random_case(seed: int, features: Sequence[str] = ("basic",), always: str = "") -> Case:
    """The case of a seed: the first attempt with usable data, and mostly with a gradient.

    It has some of the features, and the one that is `always` there.
    """
    for attempt in itertools.count():
        # features that seldom make a program are not drawn less for it
        drawn = np.random.default_rng([seed, attempt // ATTEMPTS])
        chosen = chosen_features(drawn, features, always)
        rng = np.random.default_rng([seed, attempt, 1])
        options = options_of(rng, chosen)
        draw = Draw(rng, options)
        try:
            program = draw.program()
            usable = program.tensors_read() & {x.name for x in program.inputs if x.is_float}
            if not usable:
                continue
            case, slopes = case_of(program, options, rng, seed)
        except (IllegalRead, Unusable):
            continue
        if case is not None and (slopes or options.mode == "forward" or rng.random() < 0.1):
            return case
    raise AssertionError("unreachable")


def with_program(case: Case, program: Program) -> Case | None:
    """The case of another program of the same kind; None where that makes no sense."""
    try:
        return case_of(program, case.options, np.random.default_rng(case.seed), case.seed)[0]
    except (IllegalRead, Unusable, KeyError, IndexError):
        return None
