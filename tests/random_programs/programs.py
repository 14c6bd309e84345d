"""Small tensor programs as plain data, and as te code that can be pasted into a file.

Nothing here knows TVM but the text that is written. Values are in `interpreter`, drawing in `draw`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Node:
    """An expression.

    Attributes
    ----------
    op : str
        ``"const"`` (a float), ``"int"``, ``"var"``, ``"load"``, ``"cast"``, or a key of `TEXTS`.
    args : tuple of Node
    value : Any
        A literal, or the name of a variable or tensor.
    dtype : str
        ``"float"`` (that of the stage), ``"bool"``, ``"index"`` (that of the axes), ``"own"`` (that
        of the tensor that is read), or a dtype that the expression is computed in whatever the
        stage.
    """

    op: str
    args: tuple[Node, ...] = ()
    value: Any = None
    dtype: str = "index"


Extent = Any  #: an int, or a Node over sizes, axes and loads
Axis = tuple[str, Extent, Extent]  #: name, first value, extent


@dataclass(frozen=True)
class Input:
    """A placeholder. Integers are data with values from `low` to `high`."""

    name: str
    shape: tuple[Extent, ...]
    dtype: str
    low: int = 0
    high: int = 0

    @property
    def is_float(self) -> bool:
        return "float" in self.dtype


@dataclass(frozen=True)
class Stage:
    """``name[axes] = reducer over reduce_axes of bodies``, or just ``bodies``."""

    name: str
    axes: tuple[tuple[str, Extent], ...]
    bodies: tuple[Node, ...]
    dtype: str = "float64"
    reducer: str | None = None
    reduce_axes: tuple[Axis, ...] = ()
    where: Node | None = None
    init: Node | None = None

    @property
    def shape(self) -> tuple[Extent, ...]:
        return tuple(extent for _, extent in self.axes)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.name + "_b" * place for place in range(len(self.bodies)))

    def roots(self) -> list[Node]:
        """Every expression of the stage."""
        ends = [end for _, *range_ in self.reduce_axes for end in range_]
        found = [*self.bodies, self.where, self.init, *self.shape, *ends]
        return [root for root in found if isinstance(root, Node)]


@dataclass(frozen=True)
class Program:
    """Inputs, and stages in order; the last one is the output.

    Attributes
    ----------
    index : str
        dtype of constant extents; ``sizes`` have dtypes of their own.
    sizes : tuple of (name, dtype)
        Symbolic extents.
    """

    inputs: tuple[Input, ...]
    stages: tuple[Stage, ...]
    index: str = "int32"
    sizes: tuple[tuple[str, str], ...] = ()

    @property
    def output(self) -> Stage:
        return self.stages[-1]

    @property
    def differentiable(self) -> str:
        """The name of the tensor that is differentiated: of a pair of index and value the value."""
        stage = self.output
        return stage.outputs[-1] if stage.reducer in ARG_REDUCERS else stage.name

    def tensors_read(self) -> set[str]:
        """Names of the tensors that some stage reads."""
        return {n.value for s in self.stages for r in s.roots() for n in nodes(r) if n.op == "load"}

    def source(self) -> str:
        """The program as te code."""
        return Writer(self).program()

    def tensors(self) -> dict[str, Any]:
        """The te tensors and sizes by name: what executing the printed program defines."""
        namespace: dict[str, Any] = {}
        exec(compile(self.source(), "<random program>", "exec"), namespace)
        outputs = [name for stage in self.stages for name in stage.outputs]
        names = [*(x.name for x in self.inputs), *outputs, *(name for name, _ in self.sizes)]
        return {name: namespace[name] for name in names}


#: operator → its te code
TEXTS: dict[str, str] = {
    "add": "({} + {})",
    "sub": "({} - {})",
    "mul": "({} * {})",
    "div": "({} / {})",
    "floordiv": "({} // {})",
    "floormod": "({} % {})",
    "mod_if_any": "({} % {})",  # of a size that is not zero where the value counts
    "shift_left": "({} << {})",
    "bitwise_xor": "({} ^ {})",
    "truncdiv": "te.truncdiv({}, {})",
    "truncmod": "te.truncmod({}, {})",
    "max": "MAX({}, {})",
    "min": "MIN({}, {})",
    "abs": "te.abs({})",
    "floor": "te.floor({})",
    "exp": "te.exp({})",
    "log": "te.log({})",
    "sqrt": "te.sqrt({})",
    "rsqrt": "te.rsqrt({})",
    "atan": "te.atan({})",
    "asinh": "te.asinh({})",
    "erf": "te.erf({})",
    "tanh": "te.tanh({})",
    "sigmoid": "te.sigmoid({})",
    "sin": "te.sin({})",
    "cos": "te.cos({})",
    "lt": "LT({}, {})",
    "le": "LE({}, {})",
    "gt": "GT({}, {})",
    "ge": "GE({}, {})",
    "eq": "EQ({}, {})",
    "ne": "NE({}, {})",
    "and": "te.all({}, {})",
    "or": "te.any({}, {})",
    "not": "tirx.Not({})",
    "if_then_else": "te.if_then_else({}, {}, {})",
    "select": "tirx.Select({}, {}, {})",
    "hypot": "tirx.hypot({}, {})",
    "atan2": "tirx.atan2({}, {})",
    "fmod": "tirx.fmod({}, {})",
    "copysign": "tirx.copysign({}, {})",
    "wider": 'tirx.Cast("float64", {})',
    "sinf": 'tirx.call_pure_extern("float32", "sinf", {})',
    "cosf": 'tirx.call_pure_extern("float32", "cosf", {})',
}
ARG_REDUCERS = ("argmax", "argmin")
HEADER = '''\
from tvm import te, tirx
const = tirx.const


def same(node):
    """The node over operands of one dtype: a number takes that of the other operand."""

    def make(a, b):
        a, b = (getattr(x, "var", x) for x in (a, b))  # of a reduce axis
        dtype = next((str(x.ty) for x in (a, b) if not isinstance(x, int)), "int32")
        a, b = (const(x, dtype) if isinstance(x, int) else x for x in (a, b))
        dtypes = {str(a.ty), str(b.ty)}
        if len(dtypes) > 1:
            a, b = (tirx.Cast("int64", x) for x in (a, b))
        return node(a, b)

    return make


LT, LE, GT, GE, EQ, NE, MAX, MIN = map(
    same, (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE, tirx.Max, tirx.Min)
)


def arg(order, identity):
    def step(a, b):
        first = order(a[1], b[1])
        return tirx.Select(first, a[0], b[0]), tirx.Select(first, a[1], b[1])

    return te.comm_reducer(step, lambda t, u: (const(0, t), identity(u)))


prod = te.comm_reducer(lambda a, b: a * b, lambda t: const(1, t))
either = te.comm_reducer(lambda a, b: a + b - a * b, lambda t: const(0, t))
positive = te.comm_reducer(lambda a, b: tirx.Max(a, b), lambda t: const(0, t))
argmax = arg(tirx.GE, te.min_value)
argmin = arg(tirx.LE, te.max_value)
moments = te.comm_reducer(
    lambda a, b: (a[0] + b[0], a[1] + b[1]), lambda t, u: (const(0, t), const(0, u))
)
'''
_USER_REDUCERS = ("prod", "either", "positive", "argmax", "argmin", "moments")


class Writer:
    """te code of a program."""

    def __init__(self, program: Program) -> None:
        self.source = program
        self.dtypes = {x.name: x.dtype for x in program.inputs}
        for stage in program.stages:
            self.dtypes.update(dict.fromkeys(stage.outputs, stage.dtype))
            if stage.reducer in ARG_REDUCERS:
                self.dtypes[stage.name] = "index"

    def program(self) -> str:
        lines = [HEADER]
        for name, dtype in self.source.sizes:
            lines.append(f'{name} = te.var("{name}", "{dtype}")')
        for x in self.source.inputs:
            shape = self.shape(x.shape)
            lines.append(f'{x.name} = te.placeholder({shape}, "{x.dtype}", name="{x.name}")')
        for stage in self.source.stages:
            lines += self.stage(stage)
        return "\n".join(lines) + "\n"

    def shape(self, extents: tuple[Extent, ...]) -> str:
        listed = [self.extent(extent) for extent in extents]
        return f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"

    def extent(self, extent: Extent) -> str:
        if isinstance(extent, Node):
            return self.text(extent, "")
        return str(extent) if self.source.index == "int32" else f'const({extent}, "int64")'

    def stage(self, stage: Stage) -> list[str]:
        lines = []
        bounding = {name for name, _ in stage.axes}
        own, inner = [], []  # a range over axes is written inside of their lambda
        for name, first, extent in stage.reduce_axes:
            ends = [end for end in (first, extent) if isinstance(end, Node)]
            depends = any(n.value in bounding for end in ends for n in nodes(end) if n.op == "var")
            end = Node("add", (as_node(first), as_node(extent))) if first != 0 else extent
            if not isinstance(first, Node) and not isinstance(extent, Node):
                end = first + extent
            made = f'te.reduce_axis(({self.extent(first)}, {self.extent(end)}), "{name}")'
            for other, _, _ in stage.reduce_axes:
                made = re.sub(rf"\b{other}\b(?!\")", f"{other}.var", made)
            (inner if depends or inner else own).append((name, made))
            bounding.add(name)
        lines += [f"{name} = {made}" for name, made in own]
        bodies = [self.text(body, stage.dtype) for body in stage.bodies]
        body = bodies[0] if len(bodies) == 1 else f"({', '.join(bodies)})"
        if stage.reducer is not None:
            keywords = "".join(
                f", {key}={self.text(node, stage.dtype)}"
                for key, node in (("where", stage.where), ("init", stage.init))
                if node is not None
            )
            function = stage.reducer if stage.reducer in _USER_REDUCERS else f"te.{stage.reducer}"
            axes = ", ".join(name for name, _, _ in stage.reduce_axes)
            body = f"{function}({body}, axis=[{axes}]{keywords})"
        for name, made in reversed(inner):
            body = f"(lambda {name}: {body})({made})"
        variables = ", ".join(name for name, _ in stage.axes)
        function = f"lambda {variables}: {body}" if variables else f"lambda: {body}"
        arguments = f'{self.shape(stage.shape)}, {function}, name="{stage.name}"'
        lines.append(f"{', '.join(stage.outputs)} = te.compute({arguments})")
        return lines

    def text(self, node: Node, dtype: str) -> str:
        """The expression in a stage of `dtype`."""
        args = [self.text(arg, dtype) for arg in node.args]
        if node.op == "const":
            return f'const({node.value!r}, "{dtype if node.dtype == "float" else node.dtype}")'
        if node.op == "int" and node.dtype != "index":  # te widens what is beside a plain number
            return f'const({node.value}, "{node.dtype}")'
        if node.op in ("int", "var"):
            return str(node.value)
        if node.op == "load":
            read = f"{node.value}({', '.join(args)})"
            own = self.dtypes[node.value]
            if node.dtype == "float" and own != dtype:
                return f'tirx.Cast("{dtype}", {read})'
            return read
        if node.op == "cast":
            to = {"float": dtype, "index": self.source.index}.get(node.dtype, node.dtype)
            return f'tirx.Cast("{to}", {args[0]})'
        return TEXTS[node.op].format(*args)


def as_node(extent: Extent) -> Node:
    return extent if isinstance(extent, Node) else Node("int", value=int(extent))


def nodes(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    yield node
    for arg in node.args:
        yield from nodes(arg)


def replacements(node: Node) -> Iterator[Node]:
    """Simpler expressions in place of this one: an operand, or the same deeper down."""
    if node.op in ("const", "int", "var"):
        return
    if node.op != "load":
        for arg in node.args:
            if arg.op not in ("const", "int") and arg.dtype == node.dtype:
                yield arg
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
        smaller = [
            replace(stage, bodies=(*stage.bodies[:n], simpler, *stage.bodies[n + 1 :]))
            for n, body in enumerate(stage.bodies)
            for simpler in replacements(body)
        ]
        if stage.init is not None:
            smaller.insert(0, replace(stage, init=None))
        if stage.where is not None:
            smaller.insert(0, replace(stage, where=None))
            smaller += [replace(stage, where=where) for where in replacements(stage.where)]
        for candidate in smaller:
            yield replace(
                program, stages=(*program.stages[:place], candidate, *program.stages[place + 1 :])
            )


def without_unused(program: Program) -> Program:
    """The program without inputs and stages that nothing reads."""
    while True:
        used = program.tensors_read()
        stages = tuple(s for s in program.stages if s is program.output or used & set(s.outputs))
        inputs = tuple(x for x in program.inputs if x.name in used)
        lean = replace(program, inputs=inputs, stages=stages)
        if lean == program:
            return program
        program = lean


def shrink(program: Program, fails: Any, attempts: int = 200) -> Program:
    """A smaller program that still fails. `fails` is false for programs that make no sense."""
    left, progress = attempts, True
    while progress and left > 0:
        progress = False
        for candidate in simplifications(program):
            left -= 1
            if fails(candidate):
                program, progress = candidate, True
                break
            if left <= 0:
                break
    lean = without_unused(program)
    return lean if lean.inputs and lean != program and fails(lean) else program
