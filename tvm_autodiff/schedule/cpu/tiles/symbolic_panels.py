"""Register tiles whose vectors run along an output axis of symbolic extent.

The axis is cut into panels of a few vectors. What whole panels leave is computed one vector at a
time over copies of the operands that end with zeros, and only lanes inside of the result are
stored. Another axis of symbolic extent may run in blocks of rows.

    ``y[i, j], j < n  →  y[i, 64*p + c], c < 64, p < n//64;
    then y[i, n - n%64 + 16*v + c], c < min(16, what is left), v < ceil((n%64)/16)``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....codegen.loop_nest import (
    function,
)
from ....codegen.stages.primfunc import StageFunction
from ....expr.build import add, all_of, compare, const, if_then_else, zero_like
from ....expr.nodes import Expr, Tensor, binary, dtype_of, load, node_id, tensor_key
from ....expr.rewrite import map_loads, replace_outermost
from ....graph.graph import tensors_read_by
from ....graph.stage import (
    axis_vars,
    bodies,
    data_axis,
    make_stage,
    renew_axis,
    shape_of,
)
from ...kernel import Kernel
from ...rule import Made, Rest
from .copies import needs_copy
from .ended_copy import Inside, ended_copy
from .nests import padded_extents
from .packing import pack
from .panel_loops import Code, Loops, Panels, Run
from .symbolic_rows import (
    BlockAxis,
    BlockKernel,
    block_kernel,
)
from .tile_choice import narrow_tile
from .tile_functions import inner_axes, nest_of_kernel, tile_function


def panel_functions(panels: Panels) -> Made | None:
    """The copies of operands, and the function of all panels; None if a copy follows the rows."""
    extent, width = panels.extent, panels.panel.size
    dtype, lanes = dtype_of(extent), panels.tile.width
    rest = binary("floormod", extent, const(width, dtype))
    vectors = binary("floordiv", add(rest, const(lanes - 1, dtype)), const(lanes, dtype))
    full = binary("floordiv", extent, const(width, dtype))
    runs = (
        Run(width, const(0, dtype), full, False),
        Run(lanes, extent - rest, vectors, True),
    )
    copied = _copied(panels)
    if copied is None:
        return None
    shared: dict[int, Tensor] = {}
    codes: list[Code] = []
    for run in runs:
        code = _code(panels, run, copied, shared)
        if code is None:
            return None
        codes.append(code)
    body = Loops(panels)
    parts = [body.piece(run, code) for run, code in zip(runs, codes, strict=True)]
    if any(part is None for part in parts):
        return None
    statement = body.together([part for part in parts if part is not None], codes[0].nest)
    [result] = panels.kernel.outputs
    func = function([*body.buffers.values()], statement)
    last = replace(
        codes[0].launch, func=func, inputs=tuple(body.inputs.values()), outputs=(result,)
    )
    return [*(launch for code in codes for launch in code.copies), last]


def _copied(panels: Panels) -> list[bool] | None:
    """Which operands are copied, if there are several panels."""
    size = 2 * panels.panel.size
    one = replace(panels.machine, threads=1)
    axes = (*panels.axes[:-1], replace(panels.panel, size=size))
    block = block_kernel(panels.kernel, axes, one.symbolic_size)
    nest = None if block is None else nest_of_kernel(block.kernel, one)
    if nest is None:
        return None
    padded = padded_extents(nest, panels.tile)
    return [needs_copy(each, nest, panels.tile, one, padded) for each in nest.body.operands]


def _code(
    panels: Panels, run: Run, copied: Sequence[bool], shared: dict[int, Tensor]
) -> Code | None:
    """The code of a piece; copies that are the same for all pieces are `shared`, by operand."""
    tile = replace(panels.tile, vectors=run.width // panels.tile.width)
    axes = (*panels.axes[:-1], replace(panels.panel, size=run.width))
    one = replace(panels.machine, threads=1)
    block = block_kernel(panels.kernel, axes, one.symbolic_size)
    nest = None if block is None else nest_of_kernel(block.kernel, one)
    if block is None or nest is None:
        return None
    if run.partial and panels.rows is None:
        tile = narrow_tile(nest, one, tile) or tile
    padded, inner = padded_extents(nest, tile), inner_axes(nest, tile)
    along = nest.spatial[panels.panel.number]
    reads: list[Expr] = []
    copies: list[Rest | StageFunction] = []
    whole: dict[tuple[int, int], Tensor] = {}
    pieces: set[tuple[int, int]] = set()
    for number, operand in enumerate(nest.body.operands):
        varies = along in operand.variables()
        if not (copied[number] or (varies and run.partial)):
            reads.append(operand.expr)
            continue
        name = f"{panels.kernel.root.name}_{'rest' if run.partial else 'pack'}{number}"
        packed = pack(operand, name, nest.loops(padded), nest.spatial, inner)
        if packed is None:
            return None
        tensor, read = packed
        reads.append(read)
        if not varies and number in shared:
            whole[tensor_key(tensor)] = shared[number]
            continue
        all_pieces = tensor
        inside: list[Inside] = []
        if varies:
            all_pieces, inside = _of_all_pieces(tensor, block, run, panels.panel)
            pieces.add(tensor_key(tensor))
        else:
            shared[number] = tensor
        if any(tensor_key(one) in block.whole for one in tensors_read_by(all_pieces.op)):
            return None  # it follows the rows
        whole[tensor_key(tensor)] = all_pieces
        copy = Kernel(all_pieces.op)
        copies.append(ended_copy(copy, inside, panels.machine) if inside else Rest(copy))
    [launch] = tile_function(block.kernel, nest, tile, one, reads, blocks=True)
    assert isinstance(launch, StageFunction), "a block writes its results itself"
    return None if launch.scalars else Code(block, launch, copies, whole, pieces, nest)


def _of_all_pieces(
    tensor: Tensor, block: BlockKernel, run: Run, panel: BlockAxis
) -> tuple[Tensor, list[Inside]]:
    """``p[k, c] = block[k, c]  →  all[number, k, c] = x[k, start(number) + c]``, and zero outside
    of x; with the places that are inside.
    """
    [body] = bodies(tensor.op)
    axes = [renew_axis(axis) for axis in tensor.op.axis]
    table = {node_id(a): b.var for a, b in zip(axis_vars(tensor.op), axes, strict=True)}
    piece = data_axis("piece", run.count, dtype_of(run.count))
    start = run.at(piece.var)
    inside: list[Inside] = []

    def read(one: Tensor, indices: Sequence[Expr]) -> Expr | None:
        whole, dims = block.whole.get(tensor_key(one), (one, {}))
        if set(dims.values()) != {panel.number}:
            return None
        [dim] = dims
        moved = list(indices)
        moved[dim] = add(start, indices[dim])
        if run.partial:
            extent = shape_of(whole)[dim]
            end = const(extent, dtype_of(start)) if isinstance(extent, int) else extent
            inside.append((replace_outermost(moved[dim], table), end))
        return load(whole, moved)

    made = replace_outermost(map_loads(body, read), table)
    if inside:
        holds = all_of(compare("lt", place, end) for place, end in inside)
        made = if_then_else(holds, made, zero_like(made))
    return make_stage(tensor.op.name, [piece, *axes], [made])[0], inside
