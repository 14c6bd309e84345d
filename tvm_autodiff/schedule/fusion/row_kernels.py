"""Kernels with the axes that are the rows of a fusion group.

A member computes elements of a row, reduces within it, or reduces across the rows. A kernel that
does not run well row by row is not a member.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...expr.costly import is_expensive
from ...expr.nodes import (
    BRANCHES,
    COMPARISONS,
    Axis,
    Expr,
    Var,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ...expr.rewrite import contains_load, depends_on, postorder
from ...graph.stage import (
    Operation,
    Reduction,
    axis_range,
    bodies,
    is_compute,
    reduced_axes,
    reduction_bounds,
    reduction_of,
    shape_of,
    sources_of,
)
from ..cost import LAUNCH_CYCLES, MAX_COPIES, MIN_LANES, SHORT_LOOP, THREAD_CYCLES
from ..declined import Declined
from ..kernel import Kernel, iterations, size_of
from ..nest.access import depends_on_any, stride_of
from ..nest.inside import has_borders, stage_reads_within, unit_strides_inside
from ..nest.reductions.commuting import commutes
from ..nest.reductions.elementwise_body import reduced_body
from ..nest.reductions.masked_reductions import masked_reduction_of
from ..nest.reductions.prefix_reductions import prefix_reduction_of


@dataclass(frozen=True)
class RowKernel:
    """A kernel of a fusion group.

    Attributes
    ----------
    kernel : Kernel
    rows : tuple of int
        The numbers of the axes that are the rows: output axes, or reduce axes when `across`.
    across : bool
        Whether the rows are reduced.
    """

    kernel: Kernel
    rows: tuple[int, ...]
    across: bool = False

    @property
    def row_axes(self) -> list[Axis]:
        """The axes of the root that are the rows."""
        reduction = reduction_of(self.kernel.root)
        axes = reduction.axes if self.across and reduction else self.kernel.root.axis
        return [axes[number] for number in self.rows]

    def row_vars(self, op: Operation) -> list[Var]:
        """The variables of a stage of the kernel that are the rows."""
        if hash(op) == hash(self.kernel.root):
            return [axis.var for axis in self.row_axes]
        return [] if self.across else [op.axis[number].var for number in self.rows]

    @cached_property
    def read_places(self) -> list[tuple[tuple[int, int], tuple[int, ...] | None]]:
        """For each read, the key of the tensor, and the positions of the rows in its index; None if
        one is not there.
        """
        return [
            (tensor_key(tensor), _places(indices, variables))
            for op in self.kernel.ops
            for variables in (self.row_vars(op),)
            for tensor, indices in self.kernel.reads[hash(op)]
        ]


def _places(indices: Sequence[Expr], rows: Sequence[Var]) -> tuple[int, ...] | None:
    """The positions of the rows in an index."""
    ids = [node_id(index) for index in indices]
    if not rows or any(node_id(var) not in ids for var in rows):
        return None
    return tuple(ids.index(node_id(var)) for var in rows)


def natural_rows(kernel: Kernel, certain: bool) -> RowKernel | None:
    """A kernel by itself, with its natural rows.

    With `certain`, only if there is no choice: a reduction along memory has its output axes as
    rows. Otherwise also the outer axes of an elementwise stage, and the first axis that a column
    reduction reduces.
    """
    op = kernel.root
    if not is_compute(op) or not _starts_at_zero(op):
        return None
    reduction = reduction_of(op)
    if reduction is None:
        return None if certain else checked_rows(RowKernel(kernel, _outer_axes(op)))
    if _has_reuse(op, reduction):
        return None
    if len(op.axis) and contiguous_run(op, reduction.axes) >= 2 * MIN_LANES:
        if _slides(op, reduction):
            return None
        return checked_rows(RowKernel(kernel, tuple(range(len(op.axis)))))
    if certain or contiguous_run(op, op.axis) < 2 * MIN_LANES:
        return None
    return checked_rows(RowKernel(kernel, (0,), across=True))


def lone_rows(kernel: Kernel) -> RowKernel | None:
    """A reduction along memory by itself, each result a row: for which no tile was found, or that
    has a single result.
    """
    op = kernel.root
    reduction = _split_reduction(kernel)
    if reduction is None:
        return None
    along = contiguous_run(op, reduction.axes) >= 2 * MIN_LANES and not _slides(op, reduction)
    return RowKernel(kernel, tuple(range(len(op.axis)))) if along else None


def gathered_rows(kernel: Kernel, lanes: int) -> RowKernel | None:
    """``y[i] = Σ_k v[place[i, k]]*x[i, k]``: a reduction of whole vectors of which some reads are
    at places that are data in the order of memory, if no vectors lie along the results.
    """
    op = kernel.root
    reduction = _split_reduction(kernel)
    count = 0 if reduction is None else size_of([axis_range(reduction.axes[-1])[1]])
    if reduction is None or count < lanes:
        return None
    if count % lanes and any(map(is_expensive, postorder(list(reduction.sources)))):
        return None  # what fills no vector would be functions of single numbers
    if len(op.axis) and unit_strides_inside(op, op.axis[-1].var):
        return None
    var = reduction.axes[-1].var
    reads, variables = stage_reads_within(op, var)
    own = [node for node in reads if depends_on_any(node, var)]
    straight = [node for node in own if not contains_load(operands(node))]
    if not 0 < len(straight) < len(own):
        return None
    strides = [stride_of(node, node_id(var), variables) for node in straight]
    along = all(stride == 1 for stride in strides)
    return RowKernel(kernel, tuple(range(len(op.axis)))) if along else None


def _split_reduction(kernel: Kernel) -> Reduction | None:
    """The reduction of a kernel if lanes may hold parts of it."""
    op = kernel.root
    reduction = reduction_of(op)
    if reduction is None or not commutes(reduction.combiner):
        return None
    if not _starts_at_zero(op) or prefix_reduction_of(op) is not None:
        return None
    if masked_reduction_of(op) is not None:
        return None
    if contains_load([bound for part in kernel.ops for bound in reduction_bounds(part)]):
        return None
    return reduction


def _slides(op: Operation, reduction: Reduction) -> bool:
    """``y[i] = Σ_k x[i + k]``: whether vectors of results read what vectors of terms would read, so
    that no vector has to be added up.
    """
    if not len(op.axis) or not unit_strides_inside(op, op.axis[-1].var):
        return False
    if size_of([axis_range(op.axis[-1])[1]]) < 2 * MIN_LANES:
        return False
    along = (op.axis[-1].var, reduction.axes[-1].var)
    return any(
        all(depends_on_any(node, var) for var in along)
        for node in postorder(list(reduction.sources))
        if is_load(node)
    )


def _ends_at_borders(op: Operation, reduction: Reduction) -> bool:
    """``y[i] = Σ_k if k <= i then x[i - k] else 0``: whether conditions compare a reduced axis with
    the last output axis, for more terms than can be unrolled.
    """
    if size_of([axis_range(axis)[1] for axis in reduction.axes]) <= MAX_COPIES:
        return False
    last, reduced = op.axis[-1].var, [axis.var for axis in reduction.axes]
    branches = [n for n in postorder(list(reduction.sources)) if op_name(n) == "if_then_else"]
    return any(
        op_name(node) in COMPARISONS and depends_on(node, [last]) and depends_on(node, reduced)
        for node in postorder([operands(branch)[0] for branch in branches])
    )


def _starts_at_zero(op: Operation) -> bool:
    return all(axis_range(axis)[0] == 0 for axis in op.axis)


def _outer_axes(op: Operation) -> tuple[int, ...]:
    """Leading axes that leave a row long enough for a loop."""
    inner, count = 1, len(op.axis)
    while count > 1 and inner < SHORT_LOOP:
        count -= 1
        inner *= size_of([axis_range(op.axis[count])[1]])
    return tuple(range(count)) if inner >= 2 * MIN_LANES else ()


def checked_rows(member: RowKernel) -> RowKernel | None:
    """The member, if it runs well row by row."""
    op = member.kernel.root
    reduction = reduction_of(op)
    if not member.rows or len(set(member.rows)) != len(member.rows):
        return None
    if contains_load([bound for part in member.kernel.ops for bound in reduction_bounds(part)]):
        return None  # loops of a row that data end
    if prefix_reduction_of(op) is not None:
        return None  # one step per element, which a separate row cannot express
    if masked_reduction_of(op) is not None:
        return None  # apart, each element is combined with one result
    if reduction is None and _reshapes(op):
        return None  # apart, it copies nothing: its result is what it reads
    inner = inner_axes(member)
    # a tile has borders of its own; what a window computes of functions is shared in a row
    windows = member.across or (_is_long_window(op) and (bool(inner) or not _gathers(op)))
    windows = windows or (bool(inner) and _is_cheap_window(op, inner[-1].var))
    if reduction is not None and _has_reuse(op, reduction, windows):
        return None
    if reduction is None and _chooses_components(op, inner):
        return None  # apart, each component is computed for as many rows as a vector has lanes
    if any(_changes_within(part, member) for part in member.kernel.ops):
        return None  # all elements of a row share the loops that reduce it
    columns = member.across and inner and member.rows == (0,)
    if reduction is not None and not columns and not commutes(reduction.combiner):
        return None  # its lanes are partial results
    if inner and reduction is not None and _ends_at_borders(op, reduction):
        return None  # apart, the borders of its rows are loops of their own
    if op.num_outputs != 1 and reduction is None:
        return None
    if not inner and reduction is not None and _reads_columns(op, reduction, member):
        return None  # apart, vectors run over the rows
    if inner and node_id(inner[-1].var) != node_id(op.axis[-1].var):
        return None  # a row would be written with gaps
    symbolic = any(not isinstance(axis_range(axis)[1], int) for axis in inner)
    if symbolic and reduction is not None:
        return None  # its results are kept in registers, or for each thread
    if size_of([axis_range(axis)[1] for axis in inner]) > 2 * THREAD_CYCLES:
        return None  # a row so long is worth threads of its own
    if not inner or unit_strides_inside(op, inner[-1].var):
        return member
    # results of a row one by one, each a sum along memory, unless a tile would share what they read
    sums = (
        reduction is not None
        and not member.across
        and contiguous_run(op, reduction.axes) >= 2 * MIN_LANES
        and not _has_reuse(op, reduction, windows=True)
    )
    return member if sums else None


def _chooses_components(op: Operation, inner: Sequence[Axis]) -> bool:
    """Whether short last loops choose functions of a row, or anything behind a long loop."""
    extents = [axis_range(axis)[1] for axis in inner]
    first = next(n for n in range(len(inner) + 1) if size_of(extents[n:]) <= MAX_COPIES)
    variables = [axis.var for axis in inner[first:]]
    nodes = postorder(bodies(op))
    long = size_of(extents[first - 1 : first]) >= SHORT_LOOP
    conditions = [operands(node)[0] for node in nodes if op_name(node) in BRANCHES]
    return (long if first else any(map(is_expensive, nodes))) and any(
        depends_on(one, variables) and not contains_load(one) for one in conditions
    )


def _is_cheap_window(op: Operation, var: Var) -> bool:
    """Whether reads are clamped or reflected along a variable, and no expensive function is there.
    """
    sources = sources_of(op)
    return has_borders(sources, var) and not any(map(is_expensive, postorder(sources)))


def _is_long_window(op: Operation) -> bool:
    """Whether a window is too long to be written out, for as many results, without an expensive
    function: what its neighbours read again is worth a tile.
    """
    sizes = [size_of([axis_range(a)[1] for a in axes]) for axes in (reduced_axes(op), op.axis)]
    return min(sizes) >= SHORT_LOOP and not any(map(is_expensive, postorder(sources_of(op))))


def _gathers(op: Operation) -> bool:
    """Whether a stage reads at data, where no neighbour is certain to read the same."""
    return any(is_load(n) and contains_load(operands(n)) for n in postorder(sources_of(op)))


def _changes_within(op: Operation, member: RowKernel) -> bool:
    """Whether a range that a stage reduces over depends on more than the rows."""
    rows = {node_id(var) for var in member.row_vars(op)}
    inner = [a.var for a in (*op.axis, *reduced_axes(op)) if node_id(a.var) not in rows]
    return any(depends_on(bound, inner) for bound in reduction_bounds(op))


def _reads_columns(op: Operation, reduction: Reduction, member: RowKernel) -> bool:
    """``y[i] = Σ_k x[k, i]``, ``y[i, j] = Σ_k x[k, j, i]``: whether rows that are too long to be
    unrolled are next to each other in memory, element by element.
    """
    if size_of([axis_range(axis)[1] for axis in reduction.axes]) <= MAX_COPIES:
        return False
    *others, last = member.row_axes
    long = [axis for axis in others if size_of([axis_range(axis)[1]]) >= 2 * MIN_LANES]
    rows = [node_id(axis.var) for axis in (*long, last)]
    variables = [axis.var for axis in (*op.axis, *reduction.axes)]
    return any(
        any(stride_of(node, row, variables) == 1 for row in rows)
        and all(stride_of(node, node_id(a.var), variables) not in (0, 1) for a in reduction.axes)
        for node in postorder(list(reduction.sources))
        if is_load(node)
    )


def _reshapes(op: Operation) -> bool:
    """Whether a stage only copies a tensor of as many elements, at quotients of its axes."""
    body, *others = bodies(op)
    if others or not is_load(body):
        return False
    quotients = any(op_name(node) in ("floordiv", "floormod") for node in postorder([body]))
    return quotients and size_of(shape_of(load_tensor(body))) == size_of(shape_of(op.output(0)))


def inner_axes(member: RowKernel) -> list[Axis]:
    """Output axes of the root that are not the rows."""
    axes = list(member.kernel.root.axis)
    return axes if member.across else [a for n, a in enumerate(axes) if n not in member.rows]


def _has_reuse(op: Operation, reduction: Reduction, windows: bool = False) -> bool:
    """Whether a reduction needs a separate tile: its body has several operands, all of which are
    reused; with `windows`, also by windows that overlap. Where rows are summed across, each would
    read and write all results for each place of the window.
    """
    if iterations(op) < LAUNCH_CYCLES:
        return False
    variables = [axis.var for axis in (*op.axis, *reduction.axes)]
    streams = any(
        all(depends_on_any(node, var) for var in variables)
        and (not windows or size_of(shape_of(load_tensor(node))) >= iterations(op))
        for node in postorder(list(reduction.sources))
        if is_load(node)
    )
    if streams:
        return False
    body = reduced_body(op)
    return not isinstance(body, Declined) and len(body.operands) > 1


def contiguous_run(op: Operation, axes: Sequence[Axis]) -> int:
    """The number of elements of trailing axes along which reads are contiguous inside borders."""
    if not len(axes) or not unit_strides_inside(op, axes[-1].var):
        return 0
    loads, variables = stage_reads_within(op, axes[-1].var)
    if not any(depends_on_any(node, axes[-1].var) for node in loads):
        return 0
    run = 1
    near, extent = [0] * len(loads), 1
    for axis in reversed(axes):
        strides = [stride_of(node, node_id(axis.var), variables) for node in loads]
        if run > 1 and any(s != n * extent for s, n in zip(strides, near, strict=True)):
            break
        extent = size_of([axis_range(axis)[1]])
        near = [0 if stride is None else stride for stride in strides]
        run *= extent
    return run
