"""Schedules reductions that reuse operands: matrix products, convolutions and their gradients,
pairwise distances.

The reduced body may be any elementwise function of operands, at least one of which is constant
along some output axis. The result is a register-tiled function, and copies of operands that it
reads. The tile with the fewest estimated cycles is chosen, from index forms, extents and the number
of operations only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from ...expr.nodes import dtype_of
from ...graph.stage import bodies
from ..cost import LAUNCH_CYCLES, MARGIN, TURNED
from ..declined import Declined, no_gain, other_kind
from ..fusion.row_kernels import lone_rows
from ..kernel import Kernel, iterations
from ..machine import Machine
from ..nest.reductions.elementwise_body import reduced_body, with_joined_reads
from ..rewrites.conditions.outer_guards import without_outer_guards
from ..rewrites.operands.far_operands import over_copies_along
from ..rewrites.results.reversed_results import reversed_results
from ..rewrites.results.turned_results import turned_results
from ..rewrites.sums.split_reduction import divisor_at_least, split_reduction
from ..rule import (
    Made,
    Rest,
    in_parts,
    over_merged_axes,
    over_split_axes,
    over_split_dimensions,
    writes_to,
)
from .tiles.block_choice import best_block
from .tiles.copies import launch_cycles
from .tiles.loop_order import TileOrders
from .tiles.nests import Nest, nest_of, ranges_of
from .tiles.packing import packed_size
from .tiles.reduced_blocks import Blocks, blocks_of
from .tiles.symbolic.choice import symbolic_cycles, symbolic_tiles
from .tiles.tile_choice import best_tile, estimated_cycles, plain_cycles
from .tiles.tile_functions import tile_functions


def contraction(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a kernel that reduces a body with reuse."""
    return over_split_axes(_over_split_dimensions, kernel, machine)


def _over_split_dimensions(kernel: Kernel, machine: Machine) -> Made | Declined:
    return over_split_dimensions(_over_merged_axes, kernel, machine)


def _over_merged_axes(kernel: Kernel, machine: Machine) -> Made | Declined:
    return over_merged_axes(_contraction, kernel, machine)


def _contraction(kernel: Kernel, machine: Machine) -> Made | Declined:
    unguarded = without_outer_guards(kernel)
    if unguarded is not None and _cycles(unguarded, machine) < _cycles(kernel, machine):
        made = _contraction(unguarded, machine)
        if not isinstance(made, Declined):
            return writes_to(made, kernel)
    found = reduced_body(kernel.root)
    if isinstance(found, Declined):
        return found
    if len(found.operands) < 2:
        return other_kind("it does not combine several operands")
    epilogue = () if kernel.epilogue is None else bodies(kernel.epilogue)
    dtype = dtype_of(kernel.root.output(0))
    nest = nest_of(found, dtype, machine, epilogue, kernel.repetition)
    if nest is None:
        return Declined("an extent of its loops is symbolic or empty")
    reused = any(set(nest.spatial) - operand.variables() for operand in found.operands)
    if not reused:
        return other_kind("no operand is read again along an output axis")
    if nest.iterations < LAUNCH_CYCLES:
        return no_gain(f"it has fewer than {LAUNCH_CYCLES} iterations")
    nest = _with_joined_reads(nest, machine) or nest
    blocks = blocks_of(nest, machine)
    split = _split(kernel, nest, blocks, machine)
    if split is not None:
        partial, combined = split
        return in_parts(_contraction(partial, machine), partial, combined, kernel)
    symbolic = symbolic_tiles(kernel, nest, machine)
    if symbolic is not None:
        return symbolic
    inside = nest if blocks is None else blocks.first(nest)
    tile = best_tile(inside, machine)
    plain = plain_cycles(inside, machine)
    cycles = inf if tile is None else estimated_cycles(inside, tile, machine)
    blocked = _in_blocks(kernel, nest, machine)
    # by more than the start of a function, which a tile with copies is charged for
    if blocked is not None and MARGIN * blocked[0] + LAUNCH_CYCLES < min(cycles, plain):
        _, copies, whole = blocked
        if not copies:
            return no_gain("blocks of its results along memory are estimated faster")
        return [*map(Rest, copies), *writes_to([Rest(whole)], kernel)]
    turned = turned_results(kernel)
    faster = turned is not None and symbolic_cycles(turned[0], machine) < min(cycles, plain)
    if tile is not None and cycles <= plain and not faster:
        return tile_functions(kernel, nest, tile, blocks, machine)
    turned = turned or reversed_results(kernel)
    if turned is not None:
        whole, reader = turned
        return in_parts(_contraction(whole, machine), whole, reader, kernel)
    if tile is None:
        return Declined("no tile fits its loops")
    return no_gain("its best tile is estimated slower than plain loops")


def _in_blocks(
    kernel: Kernel, nest: Nest, machine: Machine
) -> tuple[float, Sequence[Kernel], Kernel] | None:
    """The estimated time of results that are summed up along memory, in blocks, the copies that
    they read, and the kernel over these; None if they are not, or may not be in parts.
    """
    if machine.exact_math:
        return None
    copies, whole = over_copies_along(kernel) or ([], kernel)
    member = lone_rows(whole)
    found = None if member is None else best_block(member, machine)
    if found is None:
        return None
    finished = nest.count(nest.spatial) * nest.finishing / machine.lanes(nest.dtype)
    cycles = found.cycles + finished / machine.threads
    return cycles + sum(_turned_cycles(copy, machine) for copy in copies), copies, whole


def _turned_cycles(copy: Kernel, machine: Machine) -> float:
    return launch_cycles(iterations(copy.root, machine.symbolic_size), 2 * TURNED, machine)


def _with_joined_reads(nest: Nest, machine: Machine) -> Nest | None:
    """The nest whose reads over the same loops are one copied operand, if that takes less time."""
    joined = with_joined_reads(nest.body)
    if joined is None:
        return None
    other = replace(nest, body=joined)
    found = [best_tile(one, machine) for one in (nest, other)]
    pairs = zip((nest, other), found, strict=True)
    own, together = (
        inf if tile is None else estimated_cycles(one, tile, machine) for one, tile in pairs
    )
    return other if together < own else None


def _cycles(kernel: Kernel, machine: Machine) -> float:
    """The estimated time of the best tile of a kernel; infinite if it has none."""
    found = reduced_body(kernel.root)
    if isinstance(found, Declined):
        return inf
    nest = nest_of(found, dtype_of(kernel.root.output(0)), machine, (), kernel.repetition)
    if nest is None:
        return inf
    tile = best_tile(nest, machine)
    return inf if tile is None else estimated_cycles(nest, tile, machine)


def _split(
    kernel: Kernel, nest: Nest, blocks: Blocks | None, machine: Machine
) -> tuple[Kernel, Kernel] | None:
    """The parts of a reduction that stay in a core's cache while all outputs pass over them, where
    no blocks of it do.
    """
    if len(kernel.outputs) > 1:
        return None  # no rule for one value combines several
    ranges = ranges_of(nest.extents)
    sizes = [packed_size(operand, ranges, nest.symbolic) for operand in nest.body.operands]
    outputs = nest.count(nest.spatial)
    itemsize = nest.itemsize
    total = sum(sizes)
    if total * itemsize <= machine.cache_bytes or outputs * itemsize > machine.cache_bytes // 4:
        return None
    # below two register files of results for each thread, parts of a reduction keep threads busy
    busy = 2 * machine.vector_registers * machine.lanes(nest.dtype) * machine.threads
    enough = outputs >= busy
    if blocks is not None and (enough or machine.threads == 1):
        return None
    if enough and _stays(nest, machine):
        return None
    shared = set(nest.reduced)
    for operand in nest.body.operands:
        shared &= {atom[0][0] for atom in operand.atoms if len(atom) == 1}
    for number, key in enumerate(nest.reduced):
        if key in shared and key in nest.extents:
            wanted = -(-total * itemsize * 2 // machine.cache_bytes)
            parts = divisor_at_least(nest.extents[key], max(wanted, machine.threads))
            if parts > 1 and outputs * parts <= total:
                return split_reduction(kernel, number, parts)
    return None


def _stays(nest: Nest, machine: Machine) -> bool:
    """Whether what tiles read again stays in the cache until they do.

    An operand is read again in each turn of a loop over tiles that it does not depend on: of the
    outermost one, a turn reads what has to stay.
    """
    tile = best_tile(nest, machine)
    if tile is None:
        return True
    steps = {nest.spatial[axis]: factor for axis, factor in tile.factors.items()}
    best = TileOrders(nest, tile, nest.extents, machine).best()
    order = [nest.spatial[axis] for axis in best]
    loops = [key for key in order if nest.count([key]) > steps.get(key, 1)]
    held = 0
    for operand in nest.body.operands:
        again = [place for place, key in enumerate(loops) if key not in operand.variables()]
        if again:
            outside = {key: steps.get(key, 1) for key in loops[: again[0]]}
            ranges = ranges_of({**nest.extents, **outside})
            held += packed_size(operand, ranges, nest.symbolic)
    # panels that were packed before the loop over steps are contiguous, and evict little else
    packed = nest.repetition.times > 1 and any(map(nest.is_fixed, nest.body.operands))
    return held * nest.itemsize <= (machine.cache_bytes if packed else machine.cache_bytes // 2)
