"""Random tensor programs with data and reference derivatives, from a seed.

In: a seed. Out: a `Case`: a program of one to three stages, inputs, a head, the output, and the
derivative of <head, output> for every element of every input, by central differences of the
interpreter in `tensor_programs`. Data are drawn again where a kink lies within the steps, so no
entry is left out of a comparison. Nothing here knows TVM.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.tensor_programs import Array, Evaluation, Node, Program, Stage, volume

STEP = 2e-4  #: of the differences; theirs is of fourth order, so the error is near 1e-11
_STENCILS = np.array([[-0.25, 0], [0, -0.5], [0, 0.5], [0.25, 0]]) / STEP
LARGEST = 1e3  #: programs with larger values are drawn again
SMOOTH = ("exp", "log", "sqrt", "tanh", "sigmoid", "sin", "cos", "div", "square")


@dataclass(frozen=True)
class Case:
    """A program with everything needed to judge its compiled value and gradient."""

    seed: int
    program: Program
    inputs: dict[str, Array]
    head: Array
    output: Array
    gradients: dict[str, Array]


def integer(value: int) -> Node:
    return Node("int", value=int(value))


def literal(value: float) -> Node:
    return Node("const", value=round(float(value), 2))


class Draw:
    """One attempt at a program: draws by a generator of random numbers."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.tensors: dict[str, tuple[int, ...]] = {}
        self.unread: set[str] = set()  #: preferred by the next reads
        self.axes: list[tuple[str, int, int]] = []  #: the stage's: name, first value, extent

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, options: Sequence, weights: Sequence[float] | None = None) -> Any:
        p = None if weights is None else np.asarray(weights) / np.sum(weights)
        return options[self.rng.choice(len(options), p=p)]

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    # -- shapes and stages

    def shape(self, largest: int) -> tuple[int, ...]:
        while True:
            rank = self.pick((0, 1, 2, 3), (0.05, 0.35, 0.4, 0.2))
            shape = tuple(self.between(1, 5) for _ in range(rank))
            if np.prod(shape) <= largest:
                return shape

    def program(self) -> Program:
        for name in "ABC"[: self.between(1, 3)]:
            self.tensors[name] = self.shape(25)
            self.unread.add(name)
        inputs = tuple(self.tensors.items())
        stages: list[Stage] = []
        for place in range(self.pick((1, 2, 3), (0.4, 0.4, 0.2))):
            must_read = stages[-1].name if stages and self.chance(0.85) else None
            stages.append(self.stage(f"S{place}", must_read))
            self.tensors[stages[-1].name] = stages[-1].shape
            self.unread.add(stages[-1].name)
        return Program(inputs, tuple(stages))

    def stage(self, name: str, must_read: str | None) -> Stage:
        axes = tuple(zip("ijl", self.shape(25), strict=False))
        reducer = self.pick((None, "sum", "max", "min", "prod"), (0.3, 0.4, 0.1, 0.08, 0.12))
        reduce_axes: tuple[tuple[str, int, int], ...] = ()
        if reducer is not None:
            first = 0 if self.chance(0.85) else self.between(-1, 2)
            extents = [self.between(1, 5)] if self.chance(0.6) else [self.between(1, 3)] * 2
            reduce_axes = tuple(("km"[n], first, extent) for n, extent in enumerate(extents))
        spatial = [(axis, 0, extent) for axis, extent in axes]
        self.axes = [*spatial, *reduce_axes]
        body = self.value(self.between(0, 3))
        if must_read is not None:
            body = Node(self.pick(("add", "mul", "sub", "max")), (self.load(must_read), body))
        where = self.condition() if reducer is not None and self.chance(0.25) else None
        self.axes = spatial
        init = None
        if reducer is not None and self.chance(0.15):
            fitting = [t for t, shape in self.tensors.items() if shape == tuple(e for _, e in axes)]
            init = literal(self.rng.uniform(-1, 1))
            if fitting and self.chance(0.6):  # te takes a literal or a plain read
                indices = tuple(Node("var", value=axis) for axis, _ in axes)
                init = Node("load", indices, self.pick(fitting))
        return Stage(name, axes, body, reducer, reduce_axes, where, init)

    # -- values

    def value(self, depth: int) -> Node:
        if depth == 0:
            return self.leaf()
        kinds = ("arith", "smooth", "extremum", "abs", "branch", "leaf", "floor")
        kind = self.pick(kinds, (0.45, 0.2, 0.1, 0.05, 0.12, 0.06, 0.02))
        if kind == "arith":
            operator = self.pick(("add", "sub", "mul"), (1, 1, 2))
            return Node(operator, (self.value(depth - 1), self.value(depth - 1)))
        if kind == "smooth":
            return self.smooth(self.value(depth - 1), depth)
        if kind == "extremum":
            operator = self.pick(("max", "min"))
            other = literal(self.rng.uniform(-1, 1)) if self.chance(0.4) else self.value(depth - 1)
            return Node(operator, (self.value(depth - 1), other))
        if kind == "abs":
            return Node("abs", (self.value(depth - 1),))
        if kind == "branch":
            operator = self.pick(("if_then_else", "select"))
            return Node(operator, (self.condition(), self.value(depth - 1), self.value(depth - 1)))
        if kind == "floor":  # its derivative is zero
            return Node("mul", (Node("floor", (self.leaf(),)), self.value(depth - 1)))
        return self.leaf()

    def smooth(self, x: Node, depth: int) -> Node:
        operator = self.pick(SMOOTH)
        square = Node("mul", (x, x))
        if operator in ("sqrt", "log"):
            return Node(operator, (Node("add", (square, literal(0.7))),))
        if operator == "exp":
            return Node("exp", (Node("tanh", (x,)),))
        if operator == "div":
            positive = Node("add", (square, literal(1.3)))
            return Node("div", (self.value(depth - 1), positive))
        return square if operator == "square" else Node(operator, (x,))

    def leaf(self) -> Node:
        kind = self.pick(("load", "literal", "cast"), (0.85, 0.09, 0.06))
        if kind == "load":
            return self.load(self.tensor())
        if kind == "cast" and self.axes:
            return Node("cast", (self.affine(),))
        return literal(self.rng.uniform(-2, 2))

    def condition(self) -> Node:
        kind = self.pick(("index", "data", "both"), (0.65, 0.25, 0.1)) if self.axes else "data"
        if kind == "both":
            return Node(self.pick(("and", "or")), (self.index_condition(), self.data_condition()))
        condition = self.index_condition() if kind == "index" else self.data_condition()
        return Node("not", (condition,)) if self.chance(0.1) else condition

    def index_condition(self) -> Node:
        left = self.affine()
        if self.chance(0.3):
            remainder = Node("floormod", (left, integer(self.between(2, 3))))
            return Node(self.pick(("eq", "ne")), (remainder, integer(self.between(0, 1))))
        low, high = self.bounds(left)
        right = self.variable() if self.chance(0.3) else integer(self.between(low, high))
        condition = Node(self.pick(("lt", "le", "gt", "ge", "ne")), (left, right))
        return Node("and", (condition, self.index_condition())) if self.chance(0.15) else condition

    def data_condition(self) -> Node:
        read = self.load(self.tensor())
        return Node(self.pick(("lt", "gt", "le", "ge")), (read, literal(self.rng.normal())))

    # -- reads

    def tensor(self) -> str:
        names = list(self.tensors)
        return self.pick(names, [4 if name in self.unread else 1 for name in names])

    def load(self, tensor: str) -> Node:
        """A read with an index for each dimension, under the conditions that make it legal."""
        self.unread.discard(tensor)
        indices, guards = [], []
        for extent in self.tensors[tensor]:
            index, conditions = self.index(extent)
            indices.append(index)
            guards += conditions
        read = Node("load", tuple(indices), tensor)
        if not guards:
            return read
        condition = guards[0]
        for guard in guards[1:]:
            condition = Node("and", (condition, guard))
        padding = literal(self.pick((0.0, 0.0, 1.0, -0.5)))
        return Node(self.pick(("if_then_else", "select"), (0.8, 0.2)), (condition, read, padding))

    def index(self, extent: int) -> tuple[Node, list[Node]]:
        """An index into a dimension, and conditions under which it lies inside."""
        if not self.axes or self.chance(0.05):
            return integer(self.between(0, extent - 1)), []
        form = self.variable() if self.chance(0.45) else self.affine()
        if self.chance(0.12):
            form = Node("add", (self.divided(form), self.variable()))
        low, high = self.bounds(form)
        if high - low < extent:  # it fits: shift it to where it does
            shift = self.between(-low, extent - 1 - high)
            if self.chance(0.15):  # run backwards
                return Node("sub", (integer(high + low + shift), form)), []
            return (Node("add", (form, integer(shift))) if shift else form), []
        ways = ("mod", "clamp", "guard", "div", "truncmod", "truncdiv", "mirror")
        return self.legal(form, low, high, extent, self.pick(ways, (4, 2, 4, 3, 1, 1, 1)))

    def legal(
        self, form: Node, low: int, high: int, extent: int, way: str
    ) -> tuple[Node, list[Node]]:
        last = integer(extent - 1)
        if way == "mod":
            return Node("floormod", (form, integer(extent))), []
        if way == "clamp":
            return Node("max", (Node("min", (form, last)), integer(0))), []
        if way == "guard":
            guards = [Node("ge", (form, integer(0)))] if low < 0 else []
            return form, guards + ([Node("le", (form, last))] if high >= extent else [])
        if way == "div":  # low // d may be negative: shifted outside of the division
            fitting = (d for d in range(2, 40) if high // d - low // d < extent)
            divisor = next(fitting, None)  # none where the signs differ and the extent is 1
            if divisor is None:
                return integer(0), []
            quotient = Node("floordiv", (form, integer(divisor)))
            shift = self.between(-(low // divisor), extent - 1 - high // divisor)
            return (Node("add", (quotient, integer(shift))) if shift else quotient), []
        if way == "mirror" and low >= 0 and high <= 2 * extent - 1:
            back = Node("sub", (integer(2 * extent - 1), form))
            inside = Node("lt", (form, integer(extent)))
            return Node(self.pick(("select", "if_then_else")), (inside, form, back)), []
        positive = Node("add", (form, integer(-low))) if low < 0 else form
        if way == "truncdiv":
            largest = high - min(low, 0)
            return Node("truncdiv", (positive, integer(max(largest // extent + 1, 2)))), []
        return Node("truncmod", (positive, integer(extent))), []

    def variable(self) -> Node:
        return Node("var", value=self.pick(self.axes)[0])

    def affine(self) -> Node:
        """A few axes with small coefficients of either sign, and a constant."""
        terms = []
        count = min(len(self.axes), self.pick((1, 2, 3), (0.4, 0.45, 0.15)))
        for place in self.rng.choice(len(self.axes), size=count, replace=False):
            axis = Node("var", value=self.axes[place][0])
            factor = self.pick((1, -1, 2, -2, 3, -3), (5, 2, 3, 1, 1, 1))
            terms.append(axis if factor == 1 else Node("mul", (axis, integer(factor))))
        form = terms[0]
        for term in terms[1:]:
            form = Node("add", (form, term))
        constant = self.between(-3, 4) if self.chance(0.5) else 0
        if constant and self.chance(0.3):
            return Node("sub", (integer(constant), form))
        return Node("add", (form, integer(constant))) if constant else form

    def divided(self, form: Node) -> Node:
        return Node(self.pick(("floordiv", "floormod")), (form, integer(self.between(2, 4))))

    def bounds(self, form: Node) -> tuple[int, int]:
        run = Evaluation({}, [])
        run.set_grid(self.axes)
        values = run.value(form, np.ones([1] * (run.rank + 1), bool))
        return int(values.min()), int(values.max())


def steps(inputs: dict[str, Array]) -> dict[str, Array]:
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


def case_of(program: Program, rng: np.random.Generator, seed: int) -> Case | None:
    """Data and reference derivatives, or None where values explode or a kink is always near."""
    if any(volume(stage) > 500 for stage in program.stages):
        return None
    for attempt in range(8):
        inputs = {name: rng.uniform(-2, 2, shape) for name, shape in program.inputs}
        if attempt < 2:  # exact zeros, for the product; a kink at zero makes the next attempt
            inputs = {n: np.where(rng.random(a.shape) < 0.1, 0.0, a) for n, a in inputs.items()}
        decisions: list[Array] = []
        with np.errstate(all="ignore"):  # what explodes is dropped below
            tensors = program.evaluate(steps(inputs), decisions)
        values = [tensors[stage.name] for stage in program.stages]
        if not all(np.isfinite(v).all() and np.abs(v).max() <= LARGEST for v in values):
            return None
        if any(np.any(choice != choice[:1]) for choice in decisions):
            continue
        output = tensors[program.output.name]
        head = rng.uniform(-1, 1, program.output.shape)
        weighted = (output * head).reshape(len(output), -1).sum(axis=1)
        # two differences of second order; their combination is of fourth
        outer, inner = (weighted[1:].reshape(-1, 4) @ _STENCILS).T
        slopes = (4 * inner - outer) / 3
        if np.abs(inner - outer).max() > 1e-4 * (1 + np.abs(slopes).max()):
            return None  # too curved for the steps
        gradients, offset = {}, 0
        for name, array in inputs.items():
            gradients[name] = slopes[offset : offset + array.size].reshape(array.shape)
            offset += array.size
        return Case(seed, program, inputs, head, output[0], gradients)
    return None


def random_case(seed: int) -> Case:
    """The case of a seed: the first attempt with usable data, and mostly with a gradient."""
    for attempt in itertools.count():
        rng = np.random.default_rng([seed, attempt])
        program = Draw(rng).program()
        read = program.tensors_read()
        if not any(name in read for name, _ in program.inputs):
            continue
        case = case_of(program, rng, seed)
        if case is not None and (
            any(gradient.any() for gradient in case.gradients.values()) or rng.random() < 0.1
        ):
            return case
    raise AssertionError("unreachable")
