"""Opaque stages evaluated statement by statement: loops, stores, conditions, local buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import ir, te, tirx

from tests.evaluate import (
    KEPT_LOOP,
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
from tests.evaluate_scalars import Frame, Statement, statement_of


def run_extern(
    op: te.ExternOp,
    shapes: Sequence[tuple[int, ...]],
    free: Mapping[int, Any],
    known: Mapping[Key, Any],
    body: Statement | None = None,
) -> list[Array]:
    """The outputs of an opaque stage whose body is a loop nest, or that body as a function."""
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
    (body or statement_of(op.body))(Frame(variables, buffers))
    return results


def run_loop(
    op: te.ExternOp,
    shapes: Sequence[tuple[int, ...]],
    free: Mapping[int, Any],
    known: Mapping[Key, Any],
    strict: bool,
) -> list[Array]:
    """The outputs of a loop over time: its step evaluated stage by stage, once for each time. The
    rows of a loop that keeps states are left at zero.
    """
    if LOOP_STEP in op.attrs:
        step, prefix = op.attrs[LOOP_STEP].step, "tvm_autodiff.loop"
        backward = bool(op.attrs["tvm_autodiff.loop.reverse"])
    else:
        held, prefix = op.attrs[KEPT_LOOP].step.loop, "tvm_autodiff.rewind"
        step, backward = held.step, held.reverse
    inputs = [known[key_of(tensor)] for tensor in op.inputs]
    parts = [[inputs[int(place)] for place in part] for part in op.attrs[f"{prefix}.places"]]
    init, xs, consts = parts
    stacks = _stacks(op, shapes, len(init), len(step.ys))
    length = _length(op.attrs[f"{prefix}.length"], [*xs, *stacks], free)
    run = _Steps(step, consts, free, strict)
    carries = init
    for time in reversed(range(length)) if backward else range(length):
        carries, ys = run.once(carries, [array[time] for array in xs])
        for stack, y in zip(stacks, ys, strict=True):
            stack[time] = y
    first = len(init) + len(stacks)
    kept = _stacks(op, shapes, first, len(shapes) - first)
    return [*(np.array(carry) for carry in carries), *stacks, *kept]


def run_rewind(
    op: te.ExternOp,
    shapes: Sequence[tuple[int, ...]],
    free: Mapping[int, Any],
    known: Mapping[Key, Any],
    strict: bool,
) -> list[Array]:
    """The outputs of a loop back: from all states, each computed once from the first one. What the
    stage works in is left at zero, and what is kept for it is not looked at.
    """
    held = op.attrs["tvm_autodiff.rewind.loops"].step
    inputs = [known[key_of(tensor)] for tensor in op.inputs]
    parts = [[inputs[int(n)] for n in part] for part in op.attrs["tvm_autodiff.rewind.places"]]
    ahead = _Steps(held.ahead.step, parts[2], free, strict)
    back = _Steps(held.back.step, parts[5], free, strict)
    carries = parts[3]
    stacks = _stacks(op, shapes, len(carries), len(held.back.step.ys))
    sequences = [*parts[1], *parts[4], *stacks]
    length = _length(op.attrs["tvm_autodiff.rewind.length"], sequences, free)
    times = list(reversed(range(length)) if held.ahead.reverse else range(length))
    states = [parts[0]]
    for time in times[:-1]:
        states.append(ahead.once(states[-1], [array[time] for array in parts[1]])[0])
    for time in reversed(times):
        rows = [*states.pop(), *(array[time] for array in parts[4])]
        carries, ys = back.once(carries, rows)
        for stack, y in zip(stacks, ys, strict=True):
            stack[time] = y
    first = len(carries) + len(stacks)
    work = _stacks(op, shapes, first, len(shapes) - first)
    return [*(np.array(carry) for carry in carries), *stacks, *work]


def _stacks(
    op: te.ExternOp, shapes: Sequence[tuple[int, ...]], first: int, count: int
) -> list[Array]:
    return [
        np.zeros(shapes[n], float_dtype(op.output(n).dtype)) for n in range(first, first + count)
    ]


def _length(given: Any, sequences: Sequence[Array], free: Mapping[int, Any]) -> int:
    lengths = {len(array) for array in sequences}
    if not lengths:
        constant = isinstance(given, int)
        lengths = {given if constant else int(Expression(free, {}, False).value(given))}
    [length] = lengths
    return length


class _Steps:
    """A step evaluated stage by stage."""

    def __init__(
        self, step: Any, consts: Sequence[Array], free: Mapping[int, Any], strict: bool
    ) -> None:
        self.step, self.free, self.strict = step, free, strict
        self.fixed = {key_of(x): array for x, array in zip(step.consts, consts, strict=True)}
        ops = stages_of(step.outputs)
        self.ops = [stage for stage in ops if not isinstance(stage, te.PlaceholderOp)]

    def once(
        self, carries: Sequence[Array], xs: Sequence[Array]
    ) -> tuple[list[Array], list[Array]]:
        """The next carries, and what is put out."""
        here = dict(self.fixed)
        here.update((key_of(x), array) for x, array in zip(self.step.carries, carries, strict=True))
        here.update((key_of(x), array) for x, array in zip(self.step.xs, xs, strict=True))
        run_stages(self.ops, self.free, here, self.strict)
        results = [here[key_of(tensor)] for tensor in self.step.outputs]
        return results[: len(carries)], results[len(carries) :]


def run_function(func: tirx.PrimFunc, arrays: Sequence[Array]) -> None:
    """Run a function written as a loop nest on arrays, one for each of its buffers, in place."""
    variables: dict[int, Any] = {}
    buffers: dict[Key, Array] = {}
    for buffer, array in zip(func.params, arrays, strict=True):
        buffers[hash(buffer), 0] = array
        for dim, extent in zip(buffer.ty.shape, array.shape, strict=True):
            if isinstance(dim, ir.Var):
                variables[hash(dim)] = np.asarray(extent, numpy_dtype(dim.ty))
    statement_of(func.body.block.body)(Frame(variables, buffers))
