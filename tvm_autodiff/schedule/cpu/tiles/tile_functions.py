"""The functions of a register tile: copies of operands, the tile, and a transposition of its
results where that is faster than to write them in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....codegen.loop_nest import Buffer, Places, Statement, counter, function
from ....codegen.stages.primfunc import StageFunction
from ....expr.build import cast, const, mul, true, variable
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    tensor_key,
)
from ....expr.rewrite import map_loads, postorder, substituter
from ....graph.stage import (
    Extent,
    Operation,
    Reduction,
    axis_range,
    bodies,
    data_axis,
    make_stage,
    outputs_of,
    reduction_stage,
    renew_axis,
)
from ...declined import Declined
from ...kernel import Kernel
from ...machine import Machine
from ...nest.elementwise_body import reduced_body
from ...rule import Made, Rest, writes_to
from ..loops.crossed import crossed
from ..loops.parallel import shared_loops, threads_of
from ..loops.results import stored
from .copies import needs_copy
from .loop_order import TileOrders, reduction_order
from .nests import Nest, nest_of, padded_extents
from .packing import TileAxes, pack
from .tile_choice import tile_cycles, worth_turning
from .tiling import Spot, Tile, TileCode


def nest_of_kernel(kernel: Kernel, machine: Machine) -> Nest | None:
    """The loops of what a kernel reduces, or None if there are none."""
    found = reduced_body(kernel.root)
    if isinstance(found, Declined):
        return None
    epilogue = () if kernel.epilogue is None else bodies(kernel.epilogue)
    dtype = dtype_of(kernel.root.output(0))
    return nest_of(found, dtype, machine, epilogue, kernel.repetition)


def tile_functions(kernel: Kernel, nest: Nest, tile: Tile, machine: Machine) -> Made | Declined:
    """The copies of operands, the tile, and a transposition of its results if there is one."""
    inner = inner_axes(nest, tile)
    found = read_or_packed(kernel, nest, tile, inner, machine)
    if isinstance(found, Declined):
        return found
    copies, reads = found
    turned = _turned(kernel, nest, tile, machine)
    results = kernel.outputs if turned is None else [turned[0]]
    reduced = summed(nest, tile, reads)
    inputs, places, buffers = parameters(kernel, reduced.sources, results, turned is None)
    order = _vector_last(nest, tile)

    def stores(values: Sequence[Expr], here: Sequence[Expr]) -> list[Statement]:
        if turned is None:
            return stored(kernel, values, here, places)
        return [places.write(turned[0], values[0], [here[axis] for axis in order])]

    code = TileCode(tile, nest.body.axes, reduced, inner.inside, places, stores)
    starts, loops, numbers = tile_loops(nest, tile, inner, range(len(nest.spatial)), machine)
    ends = ends_of(nest, tile) if turned is None else {}
    cycles = tile_cycles(nest, tile, replace(machine, threads=1))
    body = code.allocated(code.at(Spot(starts, ends, values=numbers)))
    body = shared_loops(loops, body, threads_of(kernel, machine, cycles))
    func = function(buffers, body, once=True)
    launches: Made = [*copies, StageFunction(func, inputs, tuple(results))]
    return launches if turned is None else writes_to([*launches, Rest(turned[1])], kernel)


def read_or_packed(
    kernel: Kernel, nest: Nest, tile: Tile, inner: TileAxes, machine: Machine
) -> tuple[list[Rest], list[Expr]] | Declined:
    """The copies that a tile needs, and what it reads."""
    padded = padded_extents(nest, tile)
    copies: list[Rest] = []
    reads: list[Expr] = []
    for number, operand in enumerate(nest.body.operands):
        if not needs_copy(operand, nest, tile, machine, padded):
            reads.append(operand.expr)
            continue
        name = f"{kernel.root.name}_pack{number}"
        packed = pack(operand, name, nest.loops(padded), nest.spatial, inner)
        if packed is None or operand.variables() & nest.blocks:
            return Declined("an operand cannot be packed")
        copies.append(Rest(Kernel(packed.tensor.op)))
        reads.append(packed.read)
    return copies, reads


def inner_axes(nest: Nest, tile: Tile) -> TileAxes:
    """The innermost variables of a tile."""

    def variables(name: str) -> dict[int, Var]:
        axes = [axis.var for axis in nest.body.axes]
        return {node_id(var): variable(f"{var.name}_{name}", dtype_of(var)) for var in axes}

    return TileAxes(
        nest.spatial[tile.vector],
        {nest.spatial[axis]: factor for axis, factor in tile.factors.items()},
        tuple(nest.spatial[axis] for axis, _ in tile.unrolled),
        tuple(nest.reduced[axis] for axis in reduction_order(nest, tile)),
        variables("number"),
        variables("inside"),
    )


def summed(nest: Nest, tile: Tile, reads: Sequence[Expr]) -> Reduction:
    """The reduction of a tile over what it reads, its axes in the order of the loops."""
    found = nest.body.reduction
    sources = nest.body.over(reads, frozenset(nest.spatial[axis] for axis, _ in tile.unrolled))
    axes = tuple(found.axes[place] for place in reduction_order(nest, tile))
    return Reduction(found.combiner, tuple(sources), axes, true(), ())


def parameters(
    kernel: Kernel, sources: Sequence[Expr], results: Sequence[Tensor], finishes: bool = True
) -> tuple[tuple[Tensor, ...], Places, list[Buffer]]:
    """What a function reads that reduces `sources` and, if it `finishes`, has the epilogue of a
    kernel; and its buffers, those of the results last.
    """
    roots = list(sources)
    if finishes and kernel.epilogue is not None:
        roots += bodies(kernel.epilogue)
    own = set(map(tensor_key, outputs_of(kernel.root)))
    reads = [load_tensor(node) for node in postorder(roots) if is_load(node)]
    found = {tensor_key(tensor): tensor for tensor in reads if tensor_key(tensor) not in own}
    places, buffers = Places.of([*found.values(), *results])
    return tuple(found.values()), places, buffers


def tile_loops(
    nest: Nest, tile: Tile, inner: TileAxes, axes: Sequence[int], machine: Machine
) -> tuple[dict[int, Expr], list[tuple[Var, Extent]], dict[Var, Expr]]:
    """Where a tile begins along some output axes, the loops over them, outermost first, and the
    values of the numbers of tiles.
    """
    padded, factors = padded_extents(nest, tile), tile.factors
    starts: dict[int, Expr] = {}
    loops: list[tuple[Var, Extent]] = []
    numbers: dict[Var, Expr] = {}
    for axis in TileOrders(nest, tile, padded, machine).best():
        if axis not in axes:
            continue
        one, factor = nest.body.axes[axis], factors.get(axis, 1)
        whole = padded.get(node_id(one.var), axis_range(one)[1])
        extent = whole // factor if isinstance(whole, int) else whole
        var = counter(one.var.name, whole)
        starts[axis] = mul(var, const(factor, dtype_of(var)))
        if extent == 1:
            starts[axis] = const(0, dtype_of(var))
        else:
            loops.append((var, extent))
            if node_id(one.var) in inner.numbers:
                number = inner.numbers[node_id(one.var)]
                numbers[number] = cast(dtype_of(number), var)
    return starts, loops, numbers


def ends_of(nest: Nest, tile: Tile) -> dict[int, Extent]:
    """The ends of literal axes that the factors of a tile do not divide."""
    found: dict[int, Extent] = {}
    for axis, factor in tile.factors.items():
        key = nest.spatial[axis]
        if key not in nest.blocks and nest.extents[key] % factor:
            found[axis] = nest.extents[key]
    return found


def _vector_last(nest: Nest, tile: Tile) -> list[int]:
    return [axis for axis in range(len(nest.spatial)) if axis != tile.vector] + [tile.vector]


def _turned(
    kernel: Kernel, nest: Nest, tile: Tile, machine: Machine
) -> tuple[Tensor, Kernel] | None:
    """The results with the vectorised axis last, and the kernel that transposes them, if that is
    faster.
    """
    order = _vector_last(nest, tile)
    straight = order == list(range(len(order)))
    if straight or len(kernel.outputs) > 1 or not worth_turning(nest, tile, machine):
        return None
    kept = _in_order(nest, tile, f"{kernel.root.name}_kept", order)
    last = Kernel(_reader(kernel, kept, order))
    return None if isinstance(crossed(last, machine), Declined) else (kept, last)


def _in_order(nest: Nest, tile: Tile, name: str, order: Sequence[int]) -> Tensor:
    """The reduction over whole tiles, with its output axes in another order."""
    padded = padded_extents(nest, tile)
    axes: list[Axis] = []
    table: dict[Var, Expr] = {}
    for axis in (nest.body.axes[place] for place in order):
        extent = padded.get(node_id(axis.var), axis_range(axis)[1])
        axes.append(data_axis(axis.var.name, extent, dtype_of(axis.var)))
        table[axis.var] = axes[-1].var
    found = nest.body.reduction
    reduced = [renew_axis(axis) for axis in found.axes]
    table |= {old.var: new.var for old, new in zip(found.axes, reduced, strict=True)}
    sources = tuple(map(substituter(table), found.sources))
    return reduction_stage(name, axes, replace(found, sources=sources, axes=tuple(reduced)))[0]


def _reader(kernel: Kernel, kept: Tensor, order: Sequence[int]) -> Operation:
    """The stage that reads results in another order: the epilogue of the kernel, or a copy."""
    if kernel.epilogue is None:
        axes = [renew_axis(axis) for axis in kernel.root.axis]
        read = load(kept, [axes[place].var for place in order])
        return make_stage(f"{kernel.root.name}_out", axes, [read])[0].op
    root = tensor_key(kernel.root.output(0))

    def permuted(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        if tensor_key(tensor) != root:
            return None
        return load(kept, [indices[place] for place in order])

    body = map_loads(bodies(kernel.epilogue)[0], permuted)
    return make_stage(kernel.epilogue.name, list(kernel.epilogue.axis), [body])[0].op
