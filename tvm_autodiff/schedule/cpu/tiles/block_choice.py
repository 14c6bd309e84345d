"""Chooses blocks of neighbouring results that are summed up along memory together: what several of
them read is loaded once, and no addition waits for the one before.

Each result has its own vector of partial sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from ....expr.nodes import Expr, dtype_of, is_integer, is_load, node_id, operands
from ....expr.rewrite import postorder, variables_of
from ....graph.stage import axis_range, bodies, reduction_stage
from ...cost import LATENCY, LAUNCH_CYCLES, MARGIN, MAX_NODES, NEAR_BYTE
from ...declined import Declined
from ...fusion.groups import FusionGroup
from ...fusion.row_items import FOLD, Item, items_of
from ...fusion.row_kernels import RowKernel
from ...kernel import Kernel, with_root
from ...machine import Machine
from ...nest.access import has_branches, stride_of
from ...nest.reductions.elementwise_body import Body, Steps, reduced_body
from ...nest.reductions.products import Product
from .loop_order import TileOrders
from .nests import Nest, nest_of
from .tile import Tile, factors_of


@dataclass(frozen=True)
class Block:
    """A kernel and the blocks of its results.

    Attributes
    ----------
    kernel : Kernel
        The kernel, whose factors are multiplied in the order in which blocks share most.
    steps : tuple of int
        The results of a block along each output axis.
    cycles : float
        The estimated time of all blocks, in cycles of one core.
    """

    kernel: Kernel
    steps: tuple[int, ...]
    cycles: float

    @property
    def are_single(self) -> bool:
        """Whether each block is one result."""
        return max(self.steps) == 1


def best_block(member: RowKernel, machine: Machine) -> Block | None:
    """The blocks of least estimated time of a reduction along memory: single results, if no others
    are clearly faster. None if results differ in more than their places.
    """
    kernel = member.kernel
    nest = _nest(member, machine)
    if nest is None:
        return None
    loads, computed = _loads(nest, machine), _computed(nest)
    found = [
        (_cycles(nest, steps, loads, computed, machine), steps)
        for steps in _steps(kernel, nest, machine)
    ]
    # among equals, the block of fewer results
    alone, best = found[0], min(found, key=lambda one: one[0] * (1 + 0.01 * prod(one[1])))
    cycles, steps = best if MARGIN * best[0] < alone[0] else alone
    ordered = kernel if machine.exact_math else _multiplied(kernel, nest, steps)
    return Block(ordered, steps, cycles)


def _multiplied(kernel: Kernel, nest: Nest, steps: Sequence[int]) -> Kernel:
    """The kernel with factors multiplied first that several results of a block share; not those
    that are a number, of which the scale of a quotient and its reciprocal may vanish together.
    """
    body = nest.body
    if max(steps) == 1 or not isinstance(body, Product) or body.scale:
        return kernel
    if not all(operand.variables() for operand in body.operands):
        return kernel
    unrolled = [key for key, step in zip(nest.spatial, steps, strict=True) if step > 1]
    reads = [operand.expr for operand in body.operands]
    sources = body.over(reads, [nest.reduced[-1], *unrolled])
    changed = replace(body.reduction, sources=sources)
    return with_root(kernel, reduction_stage(kernel.root.name, list(kernel.root.axis), changed))


def _nest(member: RowKernel, machine: Machine) -> Nest | None:
    """The loops of a reduction whose results differ in their indices only."""
    kernel = member.kernel
    found = reduced_body(kernel.root)
    if isinstance(found, Declined) or member.across or not len(kernel.root.axis):
        return None
    if any(operand.guards for operand in found.operands):
        return None
    extents = tuple(axis_range(axis)[1] for axis in kernel.root.axis)
    [item, *_] = items_of(FusionGroup((kernel,), (member,), extents, kernel.outputs), machine)
    if item.kind != FOLD or item.guarded or not item.straight or _is_cut(item):
        return None
    dtype = dtype_of(kernel.root.output(0))
    nest = nest_of(found, dtype, machine, (), kernel.repetition)
    if nest is None or nest.iterations < LAUNCH_CYCLES:
        return None
    last = node_id(item.reduced[-1].var)
    return replace(nest, reduced=(*(key for key in nest.reduced if key != last), last))


def _is_cut(item: Item) -> bool:
    return any(has_branches(item.sources, axis.var) for axis in (*item.op.axis, *item.reduced))


def _steps(kernel: Kernel, nest: Nest, machine: Machine) -> Iterator[tuple[int, ...]]:
    """Results of a block along each output axis, of up to two axes: one by one first."""
    most = machine.accumulators // len(nest.body.reduction.sources)
    finish = () if kernel.epilogue is None else bodies(kernel.epilogue)
    nodes = len(postorder([*nest.body.reduction.sources, *finish]))
    most = min(most, MAX_NODES // nodes)
    choices = [(1, *factors_of(nest.extents.get(key, 1))) for key in nest.spatial]
    for steps in product(*choices):
        if prod(steps) <= most and sum(step > 1 for step in steps) <= 2:
            yield steps


def _cycles(
    nest: Nest, steps: Sequence[int], loads: Steps, computed: Steps, machine: Machine
) -> float:
    """An estimate of the time of all blocks, in cycles of one core."""
    inside = dict(zip(nest.spatial, steps, strict=True))
    count, lanes = prod(steps), machine.lanes(nest.dtype)
    last = nest.extents.get(nest.reduced[-1], nest.symbolic)
    cost = machine.vector_cycles(min(lanes, last) * nest.itemsize)

    def of_block(work: Steps) -> float:
        factors = ((n for key, n in inside.items() if key in along) for along, _ in work)
        return cost * sum(each * prod(ns) for (_, each), ns in zip(work, factors, strict=True))

    read = of_block(loads)
    whole, rest = divmod(last, lanes)
    vectors = whole + rest.bit_count()  # what is left is read in powers of two
    turns = nest.count(nest.reduced[:-1]) * vectors
    # a result has as many sums as hide each other, of the vectors of its row
    sums = max(1, min(LATENCY // count, vectors))
    tile = Tile(0, steps[0], 1, tuple(enumerate(steps))[1:])
    padded = {**nest.extents}
    for key in nest.extents.keys() & inside.keys():
        padded[key] = -(-padded[key] // inside[key]) * inside[key]
    once = max(of_block(computed), read, LATENCY / sums) + 0.15 * read + 1.0 / sums
    combined = (min(lanes, last) - 1).bit_length() * (LATENCY + count * cost)
    blocks = nest.count(nest.spatial, padded) // count
    orders = TileOrders(nest, tile, padded, machine)
    order = list(range(len(nest.spatial)))
    each = -(-blocks // machine.threads) * (once * turns + combined)
    moved = NEAR_BYTE * orders.near_bytes(order) / machine.threads + orders.first_cycles()
    return max(each, moved) + orders.far_cycles(order)


def _loads(nest: Nest, machine: Machine) -> Steps:
    """For each read at a point of the loops, the ids of the variables that it varies along, and the
    lines of the first cache that a vector lies in.
    """
    reads = ((node, along) for node, along in _inside(nest) if is_load(node))
    return tuple((along, _lines_of(node, along, nest, machine)) for node, along in reads)


def _computed(nest: Nest) -> Steps:
    """The work at a point of the loops, with that for operands, of which no copy is made."""
    slow = nest.body.inside if isinstance(nest.body, Body) else ()
    plain = [(along, 1.0) for node, along in _inside(nest) if not is_load(node)]
    return (*nest.steps, *slow, *plain)


def _inside(nest: Nest) -> Iterator[tuple[Expr, frozenset[int]]]:
    """What operands read and compute, and the ids of the variables that it varies along."""
    loops = set(map(node_id, nest.variables))
    for node in postorder([operand.expr for operand in nest.body.operands]):
        if operands(node) and not is_integer(node):
            yield node, frozenset(map(node_id, variables_of(node))) & loops


def _lines_of(read: Expr, along: frozenset[int], nest: Nest, machine: Machine) -> float:
    """One line where all rows begin with a line."""
    lanes, last = machine.lanes(nest.dtype), nest.reduced[-1]
    keys = [key for key in along if key != last and nest.extents.get(key) != 1]
    strides = [stride_of(read, key, nest.variables) for key in keys]
    even = all(stride is not None and stride % lanes == 0 for stride in strides)
    return 1.0 if even or last not in along else 1.0 + lanes * nest.itemsize / machine.line_bytes
