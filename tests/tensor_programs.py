"""Small tensor programs as plain data, told in two independent ways.

In: stages with expressions of this file's own nodes. Out: the program as te code (`Program.source`,
which can be pasted into a file, and is what the tests execute), and its value by an interpreter in
numpy that knows nothing of TVM (`Program.evaluate`), over a batch of inputs at once. Also programs
one step smaller, to shrink a failing one. Drawing programs is in `random_programs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray


class IllegalRead(Exception):
    """A read outside of its tensor that no condition guards."""


@dataclass(frozen=True)
class Node:
    """An expression. `value` is a literal, or the name of a variable, tensor or comparison."""

    op: str
    args: tuple[Node, ...] = ()
    value: Any = None


@dataclass(frozen=True)
class Stage:
    """One tensor: ``name[axes] = reducer over reduce_axes of body``, or just ``body``."""

    name: str
    axes: tuple[tuple[str, int], ...]
    body: Node
    reducer: str | None = None
    reduce_axes: tuple[tuple[str, int, int], ...] = ()  #: name, first value, extent
    where: Node | None = None
    init: Node | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(extent for _, extent in self.axes)


#: operator → (te code, numpy function, what decides its branch or None)
OPERATORS: dict[str, tuple[str, Callable[..., Array], Callable[..., Array] | None]] = {
    "add": ("({} + {})", np.add, None),
    "sub": ("({} - {})", np.subtract, None),
    "mul": ("({} * {})", np.multiply, None),
    "div": ("({} / {})", np.divide, None),
    "floordiv": ("({} // {})", np.floor_divide, None),
    "floormod": ("({} % {})", np.mod, None),
    "truncdiv": ("te.truncdiv({}, {})", lambda a, b: np.trunc(a / b).astype(int), None),
    "truncmod": ("te.truncmod({}, {})", lambda a, b: np.fmod(a, b), None),
    "max": ("tirx.Max({}, {})", np.maximum, np.greater),
    "min": ("tirx.Min({}, {})", np.minimum, np.less),
    "abs": ("te.abs({})", np.abs, lambda a: a > 0),
    "floor": ("te.floor({})", np.floor, np.floor),
    "exp": ("te.exp({})", np.exp, None),
    "log": ("te.log({})", np.log, None),
    "sqrt": ("te.sqrt({})", np.sqrt, None),
    "tanh": ("te.tanh({})", np.tanh, None),
    "sigmoid": ("te.sigmoid({})", lambda a: 1 / (1 + np.exp(-a)), None),
    "sin": ("te.sin({})", np.sin, None),
    "cos": ("te.cos({})", np.cos, None),
    "cast": ("tirx.Cast('float64', {})", lambda a: np.asarray(a, float), None),
    "lt": ("tirx.LT({}, {})", np.less, np.less),
    "le": ("tirx.LE({}, {})", np.less_equal, np.less_equal),
    "gt": ("tirx.GT({}, {})", np.greater, np.greater),
    "ge": ("tirx.GE({}, {})", np.greater_equal, np.greater_equal),
    "eq": ("tirx.EQ({}, {})", np.equal, np.equal),
    "ne": ("tirx.NE({}, {})", np.not_equal, np.not_equal),
    "and": ("te.all({}, {})", np.logical_and, None),
    "or": ("te.any({}, {})", np.logical_or, None),
    "not": ("tirx.Not({})", np.logical_not, None),
    "if_then_else": ("te.if_then_else({}, {}, {})", np.where, None),
    "select": ("tirx.Select({}, {}, {})", np.where, None),
}
#: reducer → (identity, numpy reduction, numpy combination, which element wins or None)
REDUCERS: dict[str, tuple[float, Any, Any, Any]] = {
    "sum": (0.0, np.sum, np.add, None),
    "prod": (1.0, np.prod, np.multiply, None),
    "max": (np.finfo("float64").min, np.max, np.maximum, np.argmax),
    "min": (np.finfo("float64").max, np.min, np.minimum, np.argmin),
}
HEADER = """\
from tvm import te, tirx
c = lambda value: tirx.const(value, "float64")
prod = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype))
"""


def text(node: Node) -> str:
    """The expression as te code."""
    args = [text(arg) for arg in node.args]
    if node.op == "const":
        return f"c({node.value})"
    if node.op in ("int", "var"):
        return str(node.value)
    if node.op == "load":
        return f"{node.value}({', '.join(args)})"
    return OPERATORS[node.op][0].format(*args)


def nodes(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    yield node
    for arg in node.args:
        yield from nodes(arg)


class Evaluation:
    """Values of expressions on the grid of one stage, a leading axis for the batch.

    `decisions` collects which way every comparison, maximum and the like went: where two members of
    a batch decide differently, there is a kink between them.
    """

    def __init__(self, tensors: Mapping[str, Array], decisions: list[Array]) -> None:
        self.tensors, self.decisions = tensors, decisions
        self.grid: dict[str, Array] = {}

    def set_grid(self, axes: list[tuple[str, int, int]]) -> None:
        for place, (name, first, extent) in enumerate(axes):
            shape = [1] * (len(axes) + 1)
            shape[place + 1] = extent
            self.grid[name] = np.arange(first, first + extent).reshape(shape)
        self.rank = len(axes)

    def value(self, node: Node, active: Array) -> Array:
        """The value wherever `active` holds; elsewhere anything finite."""
        if node.op in ("const", "int"):
            return np.asarray(node.value).reshape([1] * (self.rank + 1))
        if node.op == "var":
            return self.grid[node.value]
        if node.op in ("if_then_else", "select"):
            condition = self.value(node.args[0], active)
            then = self.value(node.args[1], active & condition)
            return np.where(condition, then, self.value(node.args[2], active & ~condition))
        args = [self.value(arg, active) for arg in node.args]
        if node.op == "load":
            return self.load(node, args, active)
        _, function, decide = OPERATORS[node.op]
        if decide is not None and any(arg.dtype.kind == "f" for arg in args):
            self.decisions.append(decide(*args))
        return function(*args)

    def load(self, node: Node, indices: list[Array], active: Array) -> Array:
        tensor = self.tensors[node.value]
        batch = np.arange(len(tensor)).reshape([-1] + [1] * self.rank)
        for index, extent in zip(indices, tensor.shape[1:], strict=True):
            if np.any(active & ((index < 0) | (index >= extent))):
                raise IllegalRead(text(node))
        legal = [np.clip(i, 0, n - 1) for i, n in zip(indices, tensor.shape[1:], strict=True)]
        return tensor[(batch, *legal)]


def evaluate_stage(stage: Stage, tensors: Mapping[str, Array], decisions: list[Array]) -> Array:
    """The stage's tensor for each member of the batch: shape ``(batch, *stage.shape)``."""
    count = len(next(iter(tensors.values())))
    spatial = [(name, 0, extent) for name, extent in stage.axes]
    run = Evaluation(tensors, decisions)
    run.set_grid([*spatial, *stage.reduce_axes])
    active = np.ones([1] * (run.rank + 1), bool)
    condition = active if stage.where is None else run.value(stage.where, active)
    body = run.value(stage.body, condition)
    if stage.reducer is None:
        return np.broadcast_to(body, (count, *stage.shape))
    identity, reduce, combine, winner = REDUCERS[stage.reducer]
    full = (count, *stage.shape, *(extent for _, _, extent in stage.reduce_axes))
    terms = np.broadcast_to(np.where(condition, body, identity), full)
    terms = terms.reshape((count, *stage.shape, -1))
    result = reduce(terms, axis=-1)
    if winner is not None:
        decisions.append(winner(terms, axis=-1))
    if stage.init is not None:
        run.set_grid(spatial)
        everywhere = np.ones([1] * (run.rank + 1), bool)
        init = np.broadcast_to(run.value(stage.init, everywhere), result.shape)
        if winner is not None:
            decisions.append(init > result)
        result = combine(init, result)
    return result


@dataclass(frozen=True)
class Program:
    """Inputs by name and shape, and stages in order; the last one is the output."""

    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    stages: tuple[Stage, ...]

    def tensors_read(self) -> set[str]:
        """Names of the tensors that some stage reads."""
        roots = [root for s in self.stages for root in (s.body, s.where, s.init) if root]
        return {node.value for root in roots for node in nodes(root) if node.op == "load"}

    @property
    def output(self) -> Stage:
        return self.stages[-1]

    def evaluate(
        self, arrays: Mapping[str, Array], decisions: list[Array] | None = None
    ) -> dict[str, Array]:
        """Every stage's tensor; `arrays` and the results have a leading batch axis."""
        tensors = dict(arrays)
        for stage in self.stages:
            found = [] if decisions is None else decisions
            tensors[stage.name] = evaluate_stage(stage, tensors, found)
        return tensors

    def source(self) -> str:
        """The program as te code."""
        lines = [HEADER.rstrip()]
        for name, shape in self.inputs:
            lines.append(f'{name} = te.placeholder({shape}, "float64", name="{name}")')
        for stage in self.stages:
            for name, first, extent in stage.reduce_axes:
                lines.append(f'{name} = te.reduce_axis(({first}, {first + extent}), "{name}")')
            body = text(stage.body)
            if stage.reducer is not None:
                keywords = "".join(
                    f", {key}={text(node)}"
                    for key, node in (("where", stage.where), ("init", stage.init))
                    if node is not None
                )
                function = "prod" if stage.reducer == "prod" else f"te.{stage.reducer}"
                axes = ", ".join(name for name, _, _ in stage.reduce_axes)
                body = f"{function}({body}, axis=[{axes}]{keywords})"
            variables = ", ".join(name for name, _ in stage.axes)
            function = f"lambda {variables}: {body}" if variables else f"lambda: {body}"
            arguments = f'{stage.shape}, {function}, name="{stage.name}"'
            lines.append(f"{stage.name} = te.compute({arguments})")
        return "\n".join(lines) + "\n"

    def tensors(self) -> dict[str, Any]:
        """The te tensors by name: what executing the printed program defines."""
        namespace: dict[str, Any] = {}
        exec(compile(self.source(), "<random program>", "exec"), namespace)
        names = [name for name, _ in self.inputs] + [stage.name for stage in self.stages]
        return {name: namespace[name] for name in names}


def replacements(node: Node) -> Iterator[Node]:
    """Simpler expressions in place of this one: an operand, or the same deeper down."""
    if node.op in ("const", "int", "var"):
        return
    if node.op != "load":
        yield from (arg for arg in node.args if arg.op not in ("const", "int"))
    for place, arg in enumerate(node.args):
        first_index = (Node("int", value=0),) if node.op == "load" else ()
        for simpler in (*first_index, *replacements(arg)):
            if simpler != arg:
                yield replace(node, args=(*node.args[:place], simpler, *node.args[place + 1 :]))


def simplifications(program: Program) -> Iterator[Program]:
    """Programs that are one step smaller; not all of them make sense."""
    if len(program.stages) > 1:
        yield replace(program, stages=program.stages[:-1])
    for place, stage in enumerate(program.stages):
        smaller = [replace(stage, body=body) for body in replacements(stage.body)]
        if stage.init is not None:
            smaller.append(replace(stage, init=None))
        if stage.where is not None:
            smaller.append(replace(stage, where=None))
            smaller += [replace(stage, where=where) for where in replacements(stage.where)]
        for candidate in smaller:
            yield replace(
                program, stages=(*program.stages[:place], candidate, *program.stages[place + 1 :])
            )


def shrink(program: Program, fails: Callable[[Program], bool], attempts: int = 300) -> Program:
    """A smaller program that still fails. `fails` says no to programs that make no sense."""
    left = attempts
    progress = True
    while progress and left > 0:
        progress = False
        for candidate in simplifications(program):
            left -= 1
            if fails(candidate):
                program, progress = candidate, True
                break
            if left <= 0:
                break
    used = program.tensors_read()
    stages = tuple(s for s in program.stages if s.name in used or s is program.output)
    lean = Program(tuple(item for item in program.inputs if item[0] in used), stages)
    return lean if lean.inputs and fails(lean) else program


def volume(stage: Stage) -> int:
    """The number of iterations of a stage."""
    return math.prod(stage.shape) * math.prod(extent for _, _, extent in stage.reduce_axes)
