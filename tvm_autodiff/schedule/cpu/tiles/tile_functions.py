"""The functions of a register tile: copies of operands, the tile, and a transposition of its
results where that is faster than to write them in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ....codegen.loop_nest import Buffer, Places, Statement, counter, function, nested
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
    operands,
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
from ...declined import Declined, no_gain
from ...kernel import Kernel
from ...machine import Machine
from ...nest.reductions.elementwise_body import reduced_body
from ...rule import Made, Rest, writes_to
from ..loops.crossed import crossed
from ..loops.parallel import shared_loops, threads_of
from ..loops.results import stored
from .copies import needs_copy
from .loop_order import TileOrders, reduction_order
from .nests import Nest, nest_of, padded_extents
from .packing import Packed, TileAxes, pack
from .panel_copy import panel_copy
from .panels import Panels, panels_of
from .reduced_blocks import Blocks
from .tile import Part, Spot, Tile
from .tile_choice import tile_cycles, worth_finishing_apart, worth_turning
from .tiling import TileCode


def nest_of_kernel(kernel: Kernel, machine: Machine) -> Nest | None:
    """The loops of what a kernel reduces, or None if there are none."""
    found = reduced_body(kernel.root)
    if isinstance(found, Declined):
        return None
    epilogue = () if kernel.epilogue is None else bodies(kernel.epilogue)
    dtype = dtype_of(kernel.root.output(0))
    return nest_of(found, dtype, machine, epilogue, kernel.repetition)


def tile_functions(
    kernel: Kernel, nest: Nest, tile: Tile, blocks: Blocks | None, machine: Machine
) -> Made | Declined:
    """The copies of operands, the tile, in `blocks` of the reduction if it has some, and a
    transposition of its results if there is one.

    An operand is copied panel by panel in the function of the tile where that takes no more reads.
    """
    turned = _turned(kernel, nest, tile, machine)
    last = kernel.epilogue
    if last is not None and turned is None and worth_finishing_apart(nest, tile, machine):
        sums = replace(kernel, epilogue=None)
        made = tile_functions(sums, replace(nest, finishing=0.0), tile, blocks, machine)
        finish = Rest(replace(kernel, root=last, epilogue=None))
        return made if isinstance(made, Declined) else [*made, finish]
    inner = inner_axes(nest, tile, machine)
    found = read_or_packed(kernel, nest, tile, inner, machine)
    if isinstance(found, Declined):
        return found
    copies, reads = found
    reduced = summed(nest, tile, reads, machine)
    write = _Function(kernel, nest, tile, inner, reduced, turned, machine)
    padded = padded_extents(nest, tile)
    launch: StageFunction | Declined = no_gain("it copies no operand")
    for number, packed in copies.items():
        panels = panels_of(nest.body.operands[number], nest, tile, padded, machine)
        if panels is not None:
            launch = write.over_panels(packed, panels)
            if not isinstance(launch, Declined):
                del copies[number]
                break
    if isinstance(launch, Declined):
        launch = write.over_tiles() if blocks is None else write.over_blocks(blocks)
    launches: Made = [*map(copied, copies.values()), launch]
    return launches if turned is None else writes_to([*launches, Rest(turned[1])], kernel)


@dataclass(frozen=True)
class _Function:
    """Writes the function of a tile; with `turned` its results are in another order."""

    kernel: Kernel
    nest: Nest
    tile: Tile
    inner: TileAxes
    reduced: Reduction
    turned: tuple[Tensor, Kernel] | None
    machine: Machine

    def over_tiles(self) -> StageFunction:
        """The function that reads whole copies."""
        inputs, places, buffers = self._parameters([])
        order = tile_order(self.nest, self.tile, self.machine)
        starts, loops, numbers = tile_loops(self.nest, self.tile, self.inner, order)
        code, spot = self._code(places), self._spot(starts, numbers)
        return self._function(loops, code.allocated(code.at(spot)), inputs, buffers)

    def over_blocks(self, blocks: Blocks) -> StageFunction:
        """The function that passes over one block of the reduction after the other."""
        inputs, places, buffers = self._parameters([])
        order = tile_order(self.nest, self.tile, self.machine)
        starts, loops, numbers = tile_loops(self.nest, self.tile, self.inner, order)
        code, spot = self._code(places), self._spot(starts, numbers)
        turns = [(var, extent) for var, extent in loops if isinstance(extent, int)]

        def body(part: Part) -> Statement:
            return self._shared(loops, code.allocated(code.at(replace(spot, part=part))))

        return self._made(blocks.over(turns, code.sums, body), inputs, buffers)

    def over_panels(self, packed: Packed, panels: Panels) -> StageFunction | Declined:
        """The function that copies each panel of an operand before the tiles that read it."""
        inputs, places, buffers = self._parameters([packed.tensor])
        starts, loops, numbers = tile_loops(self.nest, self.tile, self.inner, panels.order)
        here: dict[Var, Expr] = dict(numbers)
        for axis, start in starts.items():
            var = self.nest.body.axes[axis].var
            here[var] = cast(dtype_of(var), start)
        leading = operands(packed.read)[: packed.leading]
        copy = panel_copy(packed, list(map(substituter(here), leading)), places, self.machine)
        if isinstance(copy, Declined):
            return copy
        code, spot = self._code(places), self._spot(starts, numbers)
        tiles = nested(loops[panels.outer :], code.at(spot))
        body = code.allocated(copy.before(tiles))
        return self._function(loops[: panels.outer], body, inputs, buffers)

    def _parameters(
        self, panels: Sequence[Tensor]
    ) -> tuple[tuple[Tensor, ...], Places, list[Buffer]]:
        sources = [*self.reduced.sources, *(body for one in panels for body in bodies(one.op))]
        finishes = self.turned is None
        return parameters(self.kernel, sources, self._results, finishes, panels)

    @property
    def _results(self) -> list[Tensor]:
        return self.kernel.outputs if self.turned is None else [self.turned[0]]

    def _code(self, places: Places) -> TileCode:
        kernel, turned, order = self.kernel, self.turned, _vector_last(self.nest, self.tile)

        def stores(values: Sequence[Expr], here: Sequence[Expr]) -> list[Statement]:
            if turned is None:
                return stored(kernel, values, here, places)
            return [places.write(turned[0], values[0], [here[axis] for axis in order])]

        axes, kept = self.nest.body.axes, () if turned is None else order
        return TileCode(self.tile, axes, self.reduced, self.inner.inside, places, stores, kept)

    def _spot(self, starts: Mapping[int, Expr], numbers: Mapping[Var, Expr]) -> Spot:
        ends = ends_of(self.nest, self.tile) if self.turned is None else {}
        return Spot(starts, ends, values=numbers)

    def _function(
        self,
        loops: Sequence[tuple[Var, Extent]],
        body: Statement,
        inputs: tuple[Tensor, ...],
        buffers: list[Buffer],
    ) -> StageFunction:
        return self._made(self._shared(loops, body), inputs, buffers)

    def _shared(self, loops: Sequence[tuple[Var, Extent]], body: Statement) -> Statement:
        cycles = tile_cycles(self.nest, self.tile, replace(self.machine, threads=1))
        return shared_loops(loops, body, threads_of(self.kernel, self.machine, cycles))

    def _made(
        self, body: Statement, inputs: tuple[Tensor, ...], buffers: list[Buffer]
    ) -> StageFunction:
        return StageFunction(function(buffers, body, once=True), inputs, tuple(self._results))


def copied(packed: Packed) -> Rest:
    """The copy of an operand as a kernel of its own."""
    return Rest(Kernel(packed.tensor.op))


def read_or_packed(
    kernel: Kernel, nest: Nest, tile: Tile, inner: TileAxes, machine: Machine
) -> tuple[dict[int, Packed], list[Expr]] | Declined:
    """The copies that a tile needs, by the number of the operand, and what it reads."""
    padded = padded_extents(nest, tile)
    copies: dict[int, Packed] = {}
    reads: list[Expr] = []
    for number, operand in enumerate(nest.body.operands):
        if not needs_copy(operand, nest, tile, machine, padded):
            reads.append(operand.expr)
            continue
        name = f"{kernel.root.name}_pack{number}"
        packed = pack(operand, name, nest.loops(padded), nest.spatial, inner)
        if packed is None or operand.variables() & nest.blocks:
            return Declined("an operand cannot be packed")
        copies[number] = packed
        reads.append(packed.read)
    return copies, reads


def inner_axes(nest: Nest, tile: Tile, machine: Machine) -> TileAxes:
    """The innermost variables of a tile."""

    def variables(name: str) -> dict[int, Var]:
        axes = [axis.var for axis in nest.body.axes]
        return {node_id(var): variable(f"{var.name}_{name}", dtype_of(var)) for var in axes}

    return TileAxes(
        nest.spatial[tile.vector],
        {nest.spatial[axis]: factor for axis, factor in tile.factors.items()},
        tuple(nest.spatial[axis] for axis, _ in tile.unrolled),
        tuple(nest.reduced[axis] for axis in reduction_order(nest, tile, machine)),
        variables("number"),
        variables("inside"),
    )


def summed(nest: Nest, tile: Tile, reads: Sequence[Expr], machine: Machine) -> Reduction:
    """The reduction of a tile over what it reads, its axes in the order of the loops."""
    found = nest.body.reduction
    inside = [nest.spatial[axis] for axis in (tile.vector, *(axis for axis, _ in tile.unrolled))]
    sources = nest.body.over(reads, inside)
    axes = tuple(found.axes[place] for place in reduction_order(nest, tile, machine))
    return Reduction(found.combiner, tuple(sources), axes, true(), ())


def parameters(
    kernel: Kernel,
    sources: Sequence[Expr],
    results: Sequence[Tensor],
    finishes: bool = True,
    panels: Sequence[Tensor] = (),
) -> tuple[tuple[Tensor, ...], Places, list[Buffer]]:
    """What a function reads that reduces `sources` and, if it `finishes`, has the epilogue of a
    kernel, without `panels`, which it computes; and its buffers, those of the results last.
    """
    roots = list(sources)
    if finishes and kernel.epilogue is not None:
        roots += bodies(kernel.epilogue)
    own = set(map(tensor_key, [*outputs_of(kernel.root), *panels]))
    reads = [load_tensor(node) for node in postorder(roots) if is_load(node)]
    found = {tensor_key(tensor): tensor for tensor in reads if tensor_key(tensor) not in own}
    places, buffers = Places.of([*found.values(), *results])
    return tuple(found.values()), places, buffers


def tile_order(nest: Nest, tile: Tile, machine: Machine) -> list[int]:
    """The output axes in the order of their loops, outermost first."""
    return TileOrders(nest, tile, padded_extents(nest, tile), machine).best()


def tile_loops(
    nest: Nest, tile: Tile, inner: TileAxes, axes: Sequence[int]
) -> tuple[dict[int, Expr], list[tuple[Var, Extent]], dict[Var, Expr]]:
    """Where a tile begins along some output axes, the loops over them in their order, and the
    values of the numbers of tiles.
    """
    padded, factors = padded_extents(nest, tile), tile.factors
    starts: dict[int, Expr] = {}
    loops: list[tuple[Var, Extent]] = []
    numbers: dict[Var, Expr] = {}
    for axis in axes:
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
