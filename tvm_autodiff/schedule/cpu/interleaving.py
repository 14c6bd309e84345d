"""Schedules elementwise kernels whose short last axes choose between formulas, such as the
components of points.

The components of as many rows as a vector has lanes are computed, each as one vector, and
interleaved in registers into memory order.

``out[n, c] = if c == 0 then f(n) else g(n) → out[n .. n + L, :] = interleaved(f(n .. n + L), g(n ..
n + L))``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from ...codegen.loop_nest import (
    VECTORIZED,
    Local,
    Places,
    Statement,
    allocated,
    bind,
    counter,
    function,
    local,
    loop,
    sequence,
    store,
)
from ...codegen.stages.primfunc import StageFunction
from ...codegen.vectors import picked, whole, widened_store
from ...expr.build import add, const, variable
from ...expr.fold import fold
from ...expr.nodes import (
    BRANCHES,
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ...expr.rewrite import depends_on, expand_lets, postorder, substitute
from ...graph.stage import Operation, axis_vars, bodies
from ..declined import Declined, no_gain, other_kind
from ..kernel import Kernel, constant_extent, iterations
from ..machine import Machine
from ..nest.access import stride_of
from ..nest.index_set_splitting import decided
from .loops.crossed import VECTOR_OPS
from .loops.parallel import shared_loops
from .loops.strip_mining import strip_start


def interleaving(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a kernel whose short last axes choose what is computed."""
    op = kernel.root
    extents = [constant_extent(axis) for axis in op.axis]
    # the components of all rows of a block are in registers at once
    short = _short_axes(extents, machine.vector_registers // 2)
    if not short or short == len(op.axis) or not all(extents):
        return other_kind("it has no short axes after a long one of constant extent")
    values = [expand_lets(body) for body in bodies(op)]
    if not _chooses(values, [axis.var for axis in op.axis[-short:]]):
        return other_kind("its last axes choose nothing")
    dtypes = sorted({dtype_of(value) for value in values})
    if len(dtypes) > 1 or dtypes[0] in ("bool", "bfloat16"):
        return Declined("TVM shuffles no vectors of its dtypes")
    lanes = machine.lanes(dtypes[0])
    if extents[-short - 1] < lanes:
        return no_gain("it has fewer rows than a vector has lanes")
    components = _components(op, values, extents, short)
    reason = _not_vectors(components, op, short)
    if reason is not None:
        return Declined(reason)
    read = _tensors([part for component in components for part in component])
    places, buffers = Places.of([*read, *kernel.outputs])
    block = _Block(op, components, kernel.outputs, short, lanes, places)
    threads = machine.threads_for(iterations(op))
    body = _loops(op, extents, short, block, threads)
    # blocks that overlap write some elements twice
    func = function(buffers, body, once=extents[-short - 1] % lanes == 0)
    return [StageFunction(func, tuple(read), tuple(kernel.outputs))]


def _short_axes(extents: Sequence[int], most: int) -> int:
    """The number of last axes that together have at most the given number of points."""
    count = 0
    while count < len(extents) and 0 < prod(extents[len(extents) - count - 1 :]) <= most:
        count += 1
    return count


def _chooses(values: Sequence[Expr], variables: Sequence[Var]) -> bool:
    return any(
        op_name(node) in BRANCHES and depends_on(operands(node)[0], variables)
        for node in postorder(list(values))
    )


def _components(
    op: Operation, values: Sequence[Expr], extents: Sequence[int], short: int
) -> list[tuple[Expr, ...]]:
    """The values at each point of the short axes, in memory order."""
    variables = axis_vars(op)
    chosen = variables[-short:]
    ranges = {node_id(var): (0, extent - 1) for var, extent in zip(variables, extents, strict=True)}
    found = []
    for point in product(*map(range, extents[-short:])):
        here = {node_id(var): (n, n) for var, n in zip(chosen, point, strict=True)}
        at = {var: const(n, dtype_of(var)) for var, n in zip(chosen, point, strict=True)}
        component = [decided(value, variables, {**ranges, **here}) for value in values]
        found.append(tuple(fold(substitute(value, at)) for value in component))
    return found


def _not_vectors(components: Sequence[Sequence[Expr]], op: Operation, short: int) -> str | None:
    """Why the components of neighbouring rows cannot be computed as vectors, or None."""
    variables = axis_vars(op)
    row = variables[-short - 1]
    for node in postorder([value for component in components for value in component]):
        if not depends_on(node, [row]):
            continue
        name = op_name(node)
        if name == "if_then_else" and not depends_on(operands(node)[0], [row]):
            continue
        if name not in VECTOR_OPS:
            return f"{name} depends on its rows, and has no vector form"
        if is_load(node) and stride_of(node, node_id(row), variables) not in (0, 1):
            return "it reads neighbouring rows at places that lie apart"
    return None


def _tensors(values: Sequence[Expr]) -> list[Tensor]:
    loads = [load_tensor(node) for node in postorder(list(values)) if is_load(node)]
    return list({tensor_key(tensor): tensor for tensor in loads}.values())


@dataclass(frozen=True)
class _Block:
    """The data for as many rows as a vector has lanes."""

    op: Operation
    components: Sequence[Sequence[Expr]]
    outputs: Sequence[Tensor]
    short: int
    lanes: int
    places: Places

    def statement(self, row: Var) -> Statement:
        """The rows starting at `row`."""
        variables = axis_vars(self.op)
        count = len(self.components)
        outer = variables[: -self.short - 1]
        lane = variable("lane", dtype_of(row))
        at = {variables[-self.short - 1]: add(row, lane)}
        buffers: list[Local] = []
        inside: list[Statement] = []
        after: list[Statement] = []
        for number, tensor in enumerate(self.outputs):
            vectors = []
            for component in self.components:
                vectors.append(local(f"v{len(buffers)}", [self.lanes], dtype_of(tensor)))
                buffers.append(vectors[-1])
                value = self.places.read(substitute(component[number], at))
                inside.append(store(vectors[-1], value, [lane]))
            rows = [whole(vector) for vector in vectors]
            for part in range(count):
                first = part * self.lanes
                # elements are counted through all vectors, one component after the other
                order = [
                    place % count * self.lanes + place // count
                    for place in range(first, first + self.lanes)
                ]
                zeros = [const(0, dtype_of(var)) for var in variables[-self.short :]]
                place = [*outer, row, *zeros[:-1], const(first, dtype_of(zeros[-1]))]
                write = self.places.write(tensor, component[number], place)
                after.append(widened_store(write, picked(rows, order), self.lanes))
        computed = loop(lane, self.lanes, sequence(inside), VECTORIZED)
        return allocated(buffers, sequence([computed, *after]))


def _loops(
    op: Operation, extents: Sequence[int], short: int, block: _Block, threads: int
) -> Statement:
    """The loops over blocks of rows; the last block overlaps the one before."""
    rows, lanes = extents[-short - 1], block.lanes
    row = counter(op.axis[-short - 1].var.name, rows)
    number = counter("block", rows)
    start = strip_start(number, lanes, rows)
    outer = [(axis.var, constant_extent(axis)) for axis in op.axis[: -short - 1]]
    body = sequence([bind(row, start), block.statement(row)])
    return shared_loops([*outer, (number, -(-rows // lanes))], body, threads)
