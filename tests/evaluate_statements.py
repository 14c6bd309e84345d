"""Opaque stages evaluated statement by statement: loops, stores, conditions, local buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import ir, te, tirx

from tests.evaluate import (
    LOOP_STEP,
    Array,
    Expression,
    Key,
    float_dtype,
    key_of,
    run_stages,
    stages_of,
)
from tests.evaluate_functions import numpy_dtype


def run_extern(
    op: te.ExternOp,
    shapes: Sequence[tuple[int, ...]],
    free: Mapping[int, Any],
    known: Mapping[Key, Any],
) -> list[Array]:
    """The outputs of an opaque stage whose body is a loop nest."""
    results = [
        np.zeros(shape, float_dtype(op.output(place).dtype)) for place, shape in enumerate(shapes)
    ]
    arrays = [*(known[key_of(tensor)] for tensor in op.inputs), *results]
    buffers: dict[Key, Array] = {}
    variables = dict(free)
    for buffer, array in zip(
        [*op.input_placeholders, *op.output_placeholders], arrays, strict=True
    ):
        buffers[hash(buffer), 0] = array
        # extents of a buffer may be variables of its own
        for dim, extent in zip(buffer.ty.shape, array.shape, strict=True):
            if isinstance(dim, ir.Var):
                variables[hash(dim)] = np.asarray(extent, numpy_dtype(dim.ty))
    _Run(variables, buffers).statement(op.body)
    return results


def run_loop(
    op: te.ExternOp,
    shapes: Sequence[tuple[int, ...]],
    free: Mapping[int, Any],
    known: Mapping[Key, Any],
    strict: bool,
) -> list[Array]:
    """The outputs of a loop over time: its step evaluated stage by stage, once for each time."""
    step = op.attrs[LOOP_STEP].step
    places = [[int(place) for place in part] for part in op.attrs["tvm_autodiff.loop.places"]]
    inputs = [known[key_of(tensor)] for tensor in op.inputs]
    init, xs, consts = ([inputs[place] for place in part] for part in places)
    count = len(init)
    stacks = [
        np.zeros(shape, float_dtype(op.output(count + n).dtype))
        for n, shape in enumerate(shapes[count:])
    ]
    lengths = {len(array) for array in (*xs, *stacks)}
    if not lengths:
        length = op.attrs["tvm_autodiff.loop.length"]
        constant = isinstance(length, int)
        lengths = {length if constant else int(Expression(free, {}, False).value(length))}
    [length] = lengths
    fixed = {key_of(x): array for x, array in zip(step.consts, consts, strict=True)}
    ops = [stage for stage in stages_of(step.outputs) if not isinstance(stage, te.PlaceholderOp)]
    carries = init
    backward = bool(op.attrs["tvm_autodiff.loop.reverse"])
    for time in reversed(range(length)) if backward else range(length):
        here = dict(fixed)
        here.update((key_of(x), array) for x, array in zip(step.carries, carries, strict=True))
        here.update((key_of(x), array[time]) for x, array in zip(step.xs, xs, strict=True))
        run_stages(ops, free, here, strict)
        carries = [here[key_of(new)] for new in step.news]
        for stack, y in zip(stacks, step.ys, strict=True):
            stack[time] = here[key_of(y)]
    return [*(np.array(carry) for carry in carries), *stacks]


class _Run:
    def __init__(self, variables: dict[int, Any], buffers: dict[Key, Array]) -> None:
        self.variables, self.buffers = variables, buffers

    def value(self, node: Any) -> Array:
        return Expression(self.variables, self.buffers, strict=True).value(node)

    def statement(self, node: Any) -> None:
        _STATEMENTS[type(node)](self, node)

    def loop(self, node: Any) -> None:
        first, key = int(self.value(node.min)), hash(node.loop_var)
        dtype = numpy_dtype(node.loop_var.ty)
        for place in range(first, first + int(self.value(node.extent))):
            self.variables[key] = np.asarray(place, dtype)
            self.statement(node.body)

    def repeat(self, node: Any) -> None:
        while self.value(node.condition):
            self.statement(node.body)

    def store(self, node: Any) -> None:
        index = tuple(int(self.value(index)) for index in node.indices)
        array = self.buffers[hash(node.buffer), 0]
        inside = all(0 <= i < n for i, n in zip(index, array.shape, strict=True))
        assert inside, f"a store outside of {node.buffer.name}: {index}"
        array[index] = self.value(node.value)

    def condition(self, node: Any) -> None:
        if self.value(node.condition):
            self.statement(node.then_case)
        elif node.else_case is not None:
            self.statement(node.else_case)

    def sequence(self, node: Any) -> None:
        for part in node.seq:
            self.statement(part)

    def allocate(self, node: Any) -> None:
        shape = tuple(int(self.value(dim)) for dim in node.buffer.ty.shape)
        self.buffers[hash(node.buffer), 0] = np.zeros(shape, float_dtype(node.buffer.ty.dtype))

    def bind(self, node: Any) -> None:
        self.variables[hash(node.var)] = self.value(node.value)


_STATEMENTS: dict[type, Callable[[_Run, Any], None]] = {
    tirx.For: _Run.loop,
    tirx.While: _Run.repeat,
    tirx.BufferStore: _Run.store,
    tirx.IfThenElse: _Run.condition,
    tirx.SeqStmt: _Run.sequence,
    tirx.AllocBuffer: _Run.allocate,
    tirx.Bind: _Run.bind,
}


def run_function(func: tirx.PrimFunc, arrays: Sequence[Array]) -> None:
    """Run a function written as a loop nest on arrays, one for each of its buffers, in place."""
    variables: dict[int, Any] = {}
    buffers: dict[Key, Array] = {}
    for buffer, array in zip(func.params, arrays, strict=True):
        buffers[hash(buffer), 0] = array
        for dim, extent in zip(buffer.ty.shape, array.shape, strict=True):
            if isinstance(dim, ir.Var):
                variables[hash(dim)] = np.asarray(extent, numpy_dtype(dim.ty))
    _Run(variables, buffers).statement(func.body.block.body)
