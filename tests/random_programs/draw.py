"""Random programs: extents, stages, values, conditions and legal reads.

`Options` tells which features a program has; `features` gives them names. A draw may fail
(`Unusable`, `IllegalRead`): then the next attempt is made.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.random_programs.interpreter import Points, Unusable
from tests.random_programs.programs import (
    ARG_REDUCERS,
    Axis,
    Extent,
    Input,
    Node,
    Program,
    Stage,
    as_node,
)

TWO_FLOATS = ("hypot", "atan2", "fmod", "copysign")
TOTAL = ("tanh", "sigmoid", "sin", "cos", "atan", "asinh", "erf")
SMOOTH = ("exp", "log", "sqrt", "rsqrt", *TOTAL, "div", "square")
#: reducer → how often it is drawn
REDUCERS = {"sum": 0.57, "max": 0.13, "min": 0.12, "prod": 0.18}
USER_REDUCERS = {"argmax": 3, "argmin": 2, "moments": 2, "either": 2, "positive": 2, "sum": 1}
#: reducers whose elements become no tensor: their windows need no constant bound
FREE_WINDOWS = ("sum", "max", "min", "moments")
NARROW = ("uint8", "int8", "uint16", "int16", "uint32", "int64")


@dataclass
class Options:
    """What a program is made of, beside affine reads, guards and smooth functions.

    Attributes
    ----------
    features : tuple of str
        The names of what was changed.
    dtype : str
        Of floats; with `mixed` some tensors have another one, with `pairs` so do operands of
        functions of two floats.
    index : str
        ``"int32"`` or ``"int64"``, of constant extents and of sizes.
    assignments : list of mapping
        Values of the symbolic sizes, call by call; one without sizes where there are none.
    data, narrow, wraps, ragged, jagged, branches, reducers : bool
        Reads at places that are data; these of narrow or unsigned dtypes; casts that wrap; ranges
        that depend on other axes; ranges that are data; many nested conditions; user's reducers.
    mode : str
        ``"plain"``, ``"prefix"``, ``"jacobian"``, ``"second"``, ``"forward"``, ``"backward"``.
    special : callable, optional
        Draws the whole program.
    scales : tuple of float
        Magnitudes of the data.
    """

    features: tuple[str, ...] = ()
    dtype: str = "float64"
    mixed: bool = False
    pairs: bool = False
    index: str = "int32"
    assignments: list[Mapping[str, int]] | None = None
    size_dtype: str = "int32"
    data: bool = False
    narrow: bool = False
    wraps: bool = False
    ragged: bool = False
    jagged: bool = False
    branches: bool = False
    reducers: bool = False
    mode: str = "plain"
    special: Callable[[Draw], Program] | None = None
    scales: tuple[float, ...] = (2.0,)
    ties: bool = False
    extremes: bool = False
    cheap: bool = False


def integer(value: int, dtype: str = "index") -> Node:
    return Node("int", value=int(value), dtype=dtype)


def literal(value: float) -> Node:
    return Node("const", value=round(float(value), 2), dtype="float")


def variable(name: str) -> Node:
    return Node("var", value=name)


def read(tensor: str, *indices: Node) -> Node:
    return Node("load", indices, tensor, "float")


def cast(node: Node, dtype: str) -> Node:
    return Node("cast", (node,), dtype=dtype)


def both(conditions: Sequence[Node]) -> Node:
    found = conditions[0]
    for condition in conditions[1:]:
        found = Node("and", (found, condition), dtype="bool")
    return found


def compare(op: str, left: Node, right: Node) -> Node:
    return Node(op, (left, right), dtype="bool")


class Draw:
    """One attempt at a program: draws by a generator of random numbers."""

    def __init__(self, rng: np.random.Generator, options: Options) -> None:
        self.rng, self.options = rng, options
        self.assignments = options.assignments or [{}]
        self.sizes = tuple(self.assignments[0])
        self.tensors: dict[str, tuple[Extent, ...]] = {}  #: of floats
        self.data: dict[str, Input] = {}  #: of integers
        self.produced: dict[str, tuple[tuple[Extent, ...], int]] = {}  #: indices of arg-reductions
        self.unread: set[str] = set()  #: preferred by the next reads
        self.spatial: list[tuple[str, Extent]] = []
        self.reduced: list[Axis] = []
        self.dtype = options.dtype
        self.points: dict[Any, list[Points]] = {}  #: by axes, for each assignment of sizes
        self.numbers: dict[Any, int] = {}  #: by extent and sizes

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, options: Sequence, weights: Sequence[float] | None = None) -> Any:
        if weights is None:
            return options[self.rng.integers(len(options))]
        # as numpy's `choice` draws, without its arrays
        sums = list(itertools.accumulate(weights))
        return options[bisect.bisect_right(sums, self.rng.random() * sums[-1])]

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    # -- shapes and stages

    def extent(self) -> Extent:
        """A small extent: a number, or one of sizes."""
        if not self.sizes or self.chance(0.35):
            return self.between(1, 5)
        n = variable(self.pick(self.sizes))
        kind = self.pick(
            ("n", "minus", "plus", "half", "up", "times", "sum"), (9, 2, 2, 1, 1, 1, 1)
        )
        if kind == "n":
            return n
        if kind == "minus":
            return Node("sub", (n, integer(1)))
        if kind == "plus":
            return Node("add", (n, integer(self.between(1, 2))))
        if kind == "half":
            return Node("floordiv", (n, integer(2)))
        if kind == "up":
            return Node("floordiv", (Node("add", (n, integer(1))), integer(2)))
        if kind == "times":
            return Node("mul", (n, integer(2)))
        return Node("add", (n, variable(self.pick(self.sizes))))

    def shape(self, largest: int) -> tuple[Extent, ...]:
        while True:
            rank = self.pick((0, 1, 2, 3), (0.05, 0.35, 0.4, 0.2))
            shape = tuple(self.extent() for _ in range(rank))
            count = [np.prod([self.number(e, a) for e in shape]) for a in self.assignments]
            if all(0 <= c <= largest * (2 if self.sizes else 1) for c in count):
                return shape

    def number(self, extent: Extent, sizes: Mapping[str, int]) -> int:
        """The value of an extent; negative ones have no meaning."""
        if not isinstance(extent, Node):
            return extent
        key = (extent, *sizes.values())
        if key not in self.numbers:
            found = Points(Program((), ()), Stage("", (), ()), sizes).bounds(extent)
            assert found is not None
            self.numbers[key] = found[0]
        if self.numbers[key] < 0:
            raise Unusable("a negative extent")
        return self.numbers[key]

    def inputs(self) -> list[Input]:
        found = []
        for place, name in enumerate("ABC"[: self.between(1, 3)]):
            shape = self.shape(25)
            if place == 0 and self.sizes:  # where the values of sizes come from
                shape = tuple(variable(size) for size in self.sizes)
            elif self.options.narrow and self.chance(0.5):
                shape = (self.pick((130, 200, 259, 300)), *shape[:1])
            dtype = self.dtype
            if self.options.mixed and self.chance(0.5):
                dtype = self.pick([d for d in ("float16", "bfloat16", "float32") if d != dtype])
            found.append(Input(name, shape, dtype))
            self.tensors[name] = shape
            self.unread.add(name)
        if self.options.data:
            for name in "IJ"[: self.between(1, 2)]:
                dtype, low, high = "int32", self.pick((0, 0, -2)), self.pick((1, 3, 4, 6))
                if self.options.index == "int64" and self.chance(0.5):
                    dtype = "int64"
                if self.options.narrow:
                    dtype = self.pick(NARROW)
                    limits = np.iinfo(dtype)
                    low = max(low, limits.min)
                    high = min(self.pick((4, 120, 250, 290)), limits.max)
                self.data[name] = Input(name, self.shape(8), dtype, low, high)
                found.append(self.data[name])
        if self.options.jagged:
            shape = tuple(self.extent() for _ in range(self.between(1, 2)))
            self.data["L"] = Input("L", shape, self.pick(("int32", "int32", "int64")), 0, 4)
            found.append(self.data["L"])
        return found

    def program(self) -> Program:
        if self.options.special is not None:
            return self.options.special(self)
        inputs = self.inputs()
        stages: list[Stage] = []
        for place in range(self.pick((1, 2, 3), (0.4, 0.4, 0.2))):
            must_read = stages[-1] if stages and self.chance(0.85) else None
            stage = self.stage(f"S{place}", must_read)
            stages.append(stage)
            self.declare(stage)
        return self.finished(inputs, stages)

    def finished(self, inputs: Sequence[Input], stages: Sequence[Stage]) -> Program:
        sizes = tuple((name, self.options.size_dtype) for name in self.sizes)
        return Program(tuple(inputs), tuple(stages), self.options.index, sizes)

    def declare(self, stage: Stage) -> None:
        outputs = list(stage.outputs)
        if stage.reducer in ARG_REDUCERS:
            axis = stage.reduce_axes[-1][2]
            self.produced[outputs.pop(0)] = (stage.shape, axis - 1 if isinstance(axis, int) else -1)
        for name in outputs:
            self.tensors[name] = stage.shape
            self.unread.add(name)

    def reducer(self) -> str | None:
        if self.options.reducers and self.chance(0.7):
            names = [n for n in USER_REDUCERS if not self.options.ties or n in ARG_REDUCERS]
            return self.pick(names, [USER_REDUCERS[name] for name in names])
        if self.options.ties:
            return None if self.chance(0.5) else "sum"
        if self.options.ragged or self.options.jagged or self.chance(0.7):
            return self.pick(list(REDUCERS), list(REDUCERS.values()))
        return None

    def stage(self, name: str, must_read: Stage | None) -> Stage:
        shape = self.shape(25)
        if self.options.jagged and self.chance(0.7):
            shape = (*self.data["L"].shape, *shape[:1])
        axes = tuple(zip("ijl", shape, strict=False))
        self.spatial, self.reduced = list(axes), []
        reducer = self.reducer()
        written: list[Axis] = []
        if reducer is not None:
            for axis in "km"[: 1 if self.chance(0.6) else 2]:
                bounding, axis_written = self.reduce_axis(axis, reducer)
                self.reduced.append(bounding)
                written.append(axis_written)
        if self.options.branches and self.chance(0.7):
            body = self.nested(self.between(4, 9))
        else:
            body = self.value(self.between(0, 3))
        if self.options.wraps and self.axes and self.chance(0.4):
            body = self.node("if_then_else", self.wrapped_condition(), body, self.leaf())
        if must_read is not None:
            made = self.load(must_read.outputs[-1])
            operator = self.pick(("add", "mul", "sub", "add" if self.options.ties else "max"))
            body = Node(operator, (made, body), dtype="float")
        if self.options.ties and reducer in ARG_REDUCERS:
            body = self.load(self.tensor())
        where = self.condition() if reducer is not None and self.chance(0.25) else None
        bodies = (body,)
        init = None
        if reducer in ARG_REDUCERS:
            where = None
            bodies = (variable(written[-1][0]), body)
            if len(written) > 1:  # the index is unique: that of all axes
                width = as_node(written[1][2])
                place = Node("mul", (variable("k"), width))
                bodies = (Node("add", (place, variable("m"))), body)
        elif reducer == "moments":
            bodies = (body, Node("mul", (body, body), dtype="float"))
        elif reducer in REDUCERS and self.chance(0.15):
            init = self.init(axes)
        return Stage(name, axes, bodies, self.dtype, reducer, tuple(written), where, init)

    def init(self, axes: Sequence[tuple[str, Extent]]) -> Node:
        """te takes a literal or a plain read."""
        shape = tuple(extent for _, extent in axes)
        same = [t for t, of in self.tensors.items() if of == shape and not self.options.mixed]
        if same and self.chance(0.6):
            return read(self.pick(same), *(variable(axis) for axis, _ in axes))
        return literal(self.rng.uniform(-1, 1))

    def reduce_axis(self, name: str, reducer: str) -> tuple[Axis, Axis]:
        """An axis as reads may take it, and as it is written: of a range that may be data."""
        if self.options.jagged and len(self.spatial) >= len(self.data["L"].shape):
            names = self.spatial[: len(self.data["L"].shape)]
            if tuple(e for _, e in names) == self.data["L"].shape and self.chance(0.8):
                indices = tuple(variable(axis) for axis, _ in names)
                length = Node("load", indices, "L", self.data["L"].dtype)
                if reducer not in FREE_WINDOWS:
                    length = Node("min", (length, integer(self.data["L"].high)))
                return (name, 0, self.data["L"].high), (name, 0, length)
        if self.options.ragged and self.spatial and reducer not in ARG_REDUCERS:
            # of the last axis, or of a reduce axis before it
            axes = [(n, e) for n, *_, e in (*self.spatial, *self.reduced)]
            first, length = self.window(*self.pick(axes))
            if reducer not in FREE_WINDOWS and self.sizes:
                length = Node("min", (length, integer(self.between(3, 5))))
            return (name, first, length), (name, first, length)
        first = 0 if self.chance(0.85) else self.between(-1, 2)
        extent = self.between(1, 5)
        if self.options.reducers and self.chance(0.4):
            extent = self.pick((7, 8, 11, 16, 17))
        if reducer in ARG_REDUCERS:
            first = 0
        elif self.sizes and self.chance(0.5):
            first, extent = 0, self.extent()
        return (name, first, extent), (name, first, extent)

    def window(self, axis: str, extent: Extent) -> tuple[Extent, Node]:
        """The first element and the number of elements of a range that follows an axis."""
        i, one = variable(axis), integer(1)
        kind = self.pick(("below", "above", "half", "limited", "behind", "longer"))
        if kind == "below":
            return 0, Node("add", (i, one))
        if kind == "above":
            return i, Node("sub", (as_node(extent), i))
        if kind == "half":
            return 0, Node("floordiv", (i, integer(2)))
        if kind == "limited":
            return 0, Node("min", (Node("add", (i, one)), integer(3)))
        if kind == "behind":
            first = Node("max", (Node("sub", (i, integer(2))), integer(0)))
            return first, Node("sub", (Node("add", (i, one)), first))
        rest = Node("sub", (as_node(extent), i))
        return 0, Node("max", (i, rest))

    # -- values

    def value(self, depth: int) -> Node:
        if depth == 0:
            return self.leaf()
        if self.options.pairs and self.chance(0.4):
            return self.pair(depth)
        kinds = ("arith", "smooth", "extremum", "abs", "branch", "leaf", "floor")
        weights = [0.45, 0.2, 0.1, 0.05, 0.12, 0.06, 0.02]
        if self.options.ties:
            weights = [0.45, 0, 0, 0, 0.12, 0.06, 0]
        kind = self.pick(kinds, weights)
        if kind == "arith":
            operator = self.pick(("add", "sub", "mul"), (1, 1, 2))
            return self.node(operator, self.value(depth - 1), self.value(depth - 1))
        if kind == "smooth":
            return self.smooth(self.value(depth - 1), depth)
        if kind == "extremum":
            operator = self.pick(("max", "min"))
            other = literal(self.rng.uniform(-1, 1)) if self.chance(0.4) else self.value(depth - 1)
            return self.node(operator, self.value(depth - 1), other)
        if kind == "abs":
            return self.node("abs", self.value(depth - 1))
        if kind == "branch":
            operator = self.pick(("if_then_else", "select"))
            return self.node(
                operator, self.condition(), self.value(depth - 1), self.value(depth - 1)
            )
        if kind == "floor":  # its derivative is zero
            return self.node("mul", self.node("floor", self.leaf()), self.value(depth - 1))
        return self.leaf()

    @staticmethod
    def node(op: str, *args: Node) -> Node:
        return Node(op, args, dtype="float")

    def nested(self, count: int) -> Node:
        """Many conditions, one in the other's branch."""
        found = self.load(self.tensor())
        for _ in range(count):
            condition = self.index_condition() if self.axes else self.data_condition()
            operator = self.pick(("if_then_else", "select"), (4, 1))
            found = self.node(operator, condition, self.load(self.tensor()), found)
        if self.chance(0.5):
            return found
        return self.node(self.pick(("mul", "add")), found, self.load(self.tensor()))

    def smooth(self, x: Node, depth: int) -> Node:
        operator = self.pick(SMOOTH)
        square = self.node("mul", x, x)
        if operator in ("sqrt", "rsqrt", "log"):
            return self.node(operator, self.node("add", square, literal(0.7)))
        if operator == "exp":
            return self.node("exp", self.node("tanh", x))
        if operator == "div":
            positive = self.node("add", square, literal(1.3))
            return self.node("div", self.value(depth - 1), positive)
        return square if operator == "square" else self.node(operator, x)

    def pair(self, depth: int) -> Node:
        """A function of two floats, with a second operand of another dtype, or an integer."""
        operator = self.pick(TWO_FLOATS)
        kind = self.pick(("own", "wider", "integer"))
        if kind == "own":
            second = self.load(self.tensor())
            if second.op == "load":
                second = replace(second, dtype="own")
        elif kind == "integer" and self.axes:
            # no zero: hypot and atan2 have no derivative at the origin, fmod has no value
            positive = Node("max", (self.affine(), integer(1)))
            second = cast(positive, self.pick(("int32", "int64", "uint8")))
        else:
            second = self.node("wider", self.value(depth - 1))
        return self.node(operator, self.value(depth - 1), second)

    def leaf(self) -> Node:
        kind = self.pick(("load", "literal", "cast"), (0.85, 0.09, 0.06))
        if kind == "load":
            return self.load(self.tensor())
        if kind == "cast" and self.axes:
            form = self.wrapped() if self.options.wraps and self.chance(0.5) else self.affine()
            if max(map(abs, self.range_of(form))) <= 256:
                return cast(form, "float")
        if self.options.ties:
            return literal(self.pick((-1, 0.5, 2)))
        return literal(self.rng.uniform(-2, 2))

    def condition(self) -> Node:
        kind = self.pick(("index", "data", "both"), (0.65, 0.25, 0.1)) if self.axes else "data"
        if kind == "both":
            operator = self.pick(("and", "or"))
            return compare(operator, self.index_condition(), self.data_condition())
        condition = self.index_condition() if kind == "index" else self.data_condition()
        return Node("not", (condition,), dtype="bool") if self.chance(0.1) else condition

    def index_condition(self) -> Node:
        if self.options.wraps and self.chance(0.5):
            return self.wrapped_condition()
        left = self.affine()
        if self.chance(0.3):
            remainder = Node("floormod", (left, integer(self.between(2, 3))))
            return compare(self.pick(("eq", "ne")), remainder, integer(self.between(0, 1)))
        low, high = self.range_of(left)
        right = self.axis() if self.chance(0.3) else integer(self.between(low, high))
        if self.sizes and self.chance(0.3):
            right = variable(self.pick(self.sizes))
        condition = compare(self.pick(("lt", "le", "gt", "ge", "ne")), left, right)
        return both([condition, self.index_condition()]) if self.chance(0.15) else condition

    def data_condition(self) -> Node:
        if self.data and self.chance(0.5):
            name = self.pick(list(self.data))
            number = self.data_read(name)
            right = integer(self.between(max(self.data[name].low, 0), min(self.data[name].high, 9)))
            return compare(self.pick(("lt", "gt", "eq", "ne")), number, right)
        if self.options.ties:
            if not self.axes:
                raise Unusable("a condition needs an axis")
            return self.index_condition()
        return compare(
            self.pick(("lt", "gt", "le", "ge")),
            self.load(self.tensor()),
            literal(self.rng.normal()),
        )

    def wrapped(self) -> Node:
        """Index arithmetic in a dtype that cannot hold all of it, as an index again."""
        form = self.affine()
        kind = self.pick(("unsigned", "signed", "float"), (3, 2, 1))
        if kind == "float":
            scaled = Node(
                "mul",
                (
                    cast(form, "float16"),
                    Node("const", value=self.pick((0.5, 2.5, 129.0)), dtype="float16"),
                ),
                dtype="float16",
            )
            return cast(Node("floor", (scaled,), dtype="float16"), "index")
        dtype = (
            self.pick(("uint8", "uint16")) if kind == "unsigned" else self.pick(("int8", "int16"))
        )
        factor = self.pick((1, 1, 37, 100, 9001))
        if factor > 1:
            form = Node("mul", (form, integer(factor)))
        return cast(cast(form, dtype), "index")

    def wrapped_condition(self) -> Node:
        dtype = self.pick(("uint32", "uint8", "uint16", "int8"))
        form = self.affine()
        if dtype == "int8":
            form = Node("mul", (form, integer(self.pick((1, 50)))))
        number = cast(form, dtype)
        if dtype != "int8" and self.chance(0.7):
            number = Node("sub", (number, integer(self.between(0, 4), dtype)), dtype=dtype)
        return compare(self.pick(("lt", "ge", "le")), number, integer(self.between(0, 10), dtype))

    # -- reads

    @property
    def axes(self) -> list[tuple[str, Extent]]:
        return [*self.spatial, *((name, extent) for name, _, extent in self.reduced)]

    def axis(self) -> Node:
        return variable(self.pick(self.axes)[0])

    def tensor(self) -> str:
        names = list(self.tensors)
        return self.pick(names, [4 if name in self.unread else 1 for name in names])

    def load(self, tensor: str) -> Node:
        """A read with an index for each dimension, under the conditions that make it legal."""
        self.unread.discard(tensor)
        indices, guards = [], []
        for extent in self.tensors[tensor]:
            index, conditions = self.place(extent)
            indices.append(index)
            guards += conditions
        made = read(tensor, *indices)
        if not guards:
            return made
        padding = literal(self.pick((0.0, 0.0, 1.0, -0.5)))
        operator = self.pick(("if_then_else", "select"), (0.8, 0.2))
        return self.node(operator, both(guards), made, padding)

    def place(self, extent: Extent) -> tuple[Node, list[Node]]:
        """An index into a dimension, and conditions under which it lies inside."""
        extents = [self.number(extent, sizes) for sizes in self.assignments]
        if (self.data or self.produced) and self.chance(0.45):
            form, low, high = self.data_form()
            if low >= 0 and high < min(extents):
                return form, []
            return self.legal(form, [(low, high)], extent, self.pick(("mod", "clamp", "guard")))
        if min(extents) > 0 and (not self.axes or self.chance(0.05)):
            return integer(self.between(0, min(extents) - 1)), []
        form = self.form()
        ranges = self.ranges_of(form)
        shifts = [
            (-low, n - 1 - high)
            for found, n in zip(ranges, extents, strict=True)
            if found is not None
            for low, high in [found]
        ]
        first = max((low for low, _ in shifts), default=0)
        last = min((high for _, high in shifts), default=0)
        if first <= last and last - first < 50:  # it fits: shift it to where it does
            shift = self.between(first, last)
            if self.chance(0.15) and ranges[0] is not None:
                back = self.reversed(form, extent, ranges, extents)
                if back is not None:
                    return back, []
            return (Node("add", (form, integer(shift))) if shift else form), []
        ways = ("mod", "clamp", "guard", "div", "truncmod", "truncdiv", "mirror")
        weights = (4, 2, 4, 3, 1, 1, 1) if not self.sizes else (2, 2, 4, 0, 1, 0, 0)
        known = [found for found in ranges if found is not None]
        return self.legal(form, known, extent, self.pick(ways, weights))

    def form(self) -> Node:
        if not self.axes:
            return integer(self.between(0, 3))
        if self.options.wraps and self.chance(0.4):
            return self.wrapped()
        form = self.axis() if self.chance(0.45) else self.affine()
        if self.chance(0.12):
            form = Node("add", (self.divided(form), self.axis()))
        return form

    def reversed(
        self, form: Node, extent: Extent, ranges: Sequence[Any], extents: Sequence[int]
    ) -> Node | None:
        """``extent - 1 - form`` where that fits."""
        for found, n in zip(ranges, extents, strict=True):
            if found is not None and not (n - 1 - found[1] >= 0 and n - 1 - found[0] < n):
                return None
        return Node("sub", (self.minus_one(extent), form))

    @staticmethod
    def minus_one(extent: Extent) -> Node:
        if isinstance(extent, Node):
            return Node("sub", (extent, integer(1)))
        return integer(extent - 1)

    def data_read(self, name: str) -> Node:
        """A plain read of an integer tensor, as an index."""
        tensor = self.data[name]
        saved, self.data, produced, self.produced = self.data, {}, self.produced, {}
        try:
            found = [self.place(extent) for extent in tensor.shape]
        finally:
            self.data, self.produced = saved, produced
        if any(guards for _, guards in found):  # such a read is for the next attempt
            raise Unusable("an index that needs a guard of its own")
        made = Node("load", tuple(index for index, _ in found), name, tensor.dtype)
        return made

    def data_form(self) -> tuple[Node, int, int]:
        """An index that is data, perhaps beside an axis, with its bounds."""
        usable = [name for name, (_, last) in self.produced.items() if last >= 0]
        if usable and (not self.data or self.chance(0.5)):
            name = self.pick(usable)
            shape, high = self.produced[name]
            saved, self.data, produced, self.produced = self.data, {}, self.produced, {}
            try:
                found = [self.place(extent) for extent in shape]
            finally:
                self.data, self.produced = saved, produced
            if any(guards for _, guards in found):
                raise Unusable("an index that needs a guard of its own")
            return Node("load", tuple(index for index, _ in found), name, "index"), 0, high
        if not self.data:
            raise Unusable("no data")
        name = self.pick(list(self.data))
        tensor = self.data[name]
        form = self.data_read(name)
        if self.axes and self.chance(0.2):
            other = self.axis()
            low, high = self.range_of(other)
            summed = Node("add", (cast(form, "index"), other))
            return summed, tensor.low + low, tensor.high + high
        wide = cast(form, "index") if tensor.dtype != "int32" or self.chance(0.3) else form
        if self.chance(0.3) and tensor.dtype != "uint32":
            wide = form
        return wide, tensor.low, tensor.high

    def legal(
        self, form: Node, ranges: Sequence[tuple[int, int]], extent: Extent, way: str
    ) -> tuple[Node, list[Node]]:
        last, whole = self.minus_one(extent), as_node(extent)
        low = min((low for low, _ in ranges), default=0)
        high = max((high for _, high in ranges), default=0)
        narrow = form.dtype not in ("index", "int32")
        if narrow and (isinstance(extent, Node) or extent > 100 or way != "guard"):
            form = cast(form, "index")
        if way == "mod":
            return Node("floormod", (form, whole)), []
        if way == "clamp":
            return Node("max", (Node("min", (form, last)), integer(0))), []
        if way == "guard" or isinstance(extent, Node):
            guards = []
            if low < 0 or self.chance(0.2):
                guards.append(compare("ge", form, integer(0)))
            if isinstance(extent, Node) or high >= extent or not guards:
                guards.append(
                    compare("lt", form, whole) if self.chance(0.5) else compare("le", form, last)
                )
            return form, guards
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
            inside = compare("lt", form, integer(extent))
            return Node(self.pick(("select", "if_then_else")), (inside, form, back)), []
        positive = Node("add", (form, integer(-low))) if low < 0 else form
        if way == "truncdiv":
            largest = high - min(low, 0)
            return Node("truncdiv", (positive, integer(max(largest // extent + 1, 2)))), []
        return Node("truncmod", (positive, integer(extent))), []

    def affine(self) -> Node:
        """A few axes with small coefficients of either sign, and a constant."""
        terms = []
        axes = self.axes
        count = min(len(axes), self.pick((1, 2, 3), (0.4, 0.45, 0.15)))
        for place in self.rng.choice(len(axes), size=count, replace=False):
            axis = variable(axes[place][0])
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

    def ranges_of(self, form: Node) -> list[tuple[int, int] | None]:
        key = (*self.spatial, *self.reduced)
        if key not in self.points:
            stage = Stage("", tuple(self.spatial), (), reduce_axes=tuple(self.reduced))
            program = Program((), (), self.options.index)
            self.points[key] = [Points(program, stage, sizes) for sizes in self.assignments]
        return [points.bounds(form) for points in self.points[key]]

    def range_of(self, form: Node) -> tuple[int, int]:
        known = [found for found in self.ranges_of(form) if found is not None]
        if not known:
            return 0, 0
        return min(low for low, _ in known), max(high for _, high in known)
