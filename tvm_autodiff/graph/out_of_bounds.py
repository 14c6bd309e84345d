"""Refuses tensors of negative size, indices of floats, and reads that are provably out of bounds,
before anything is built on them.

Only proved violations are errors. A read is checked if every loop around it runs and if the extreme
values of its index are exact: the index is affine in the axes of a box, or the box is small enough
to try all points. Reads in branches are tried at the points where the conditions hold. Data in an
index or a condition, ragged loops and `where=` are not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from ..errors import InvalidArgumentError, OutOfBoundsError, UnsolvableError
from ..expr.build import conjuncts, negate
from ..expr.integers.integer_functions import compile_integers
from ..expr.integers.intervals import Intervals, range_intervals
from ..expr.linear_terms import linear_terms
from ..expr.nodes import (
    Axis,
    Expr,
    Var,
    always,
    const_value,
    dtype_of,
    is_float,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
)
from ..expr.printing.text import text
from ..expr.rewrite import expand_lets, postorder, variables_of
from ..expr.simplify import constant_bounds, prove, simplify
from .stage import (
    Extent,
    Operation,
    axis_range,
    bodies,
    is_compute,
    is_placeholder,
    is_scan,
    reduction_of,
    shape_of,
    sources_of,
)

#: the maximum number of points at which a non-affine index is tried
_MOST_POINTS = 1 << 12
_LARGEST = {"int32": 2**31 - 1, "int64": 2**63 - 1}


@dataclass(frozen=True)
class Box:
    """The axes around a read, with minimum and extent, and sizes, which are at least one."""

    ranges: dict[int, tuple[Extent, Extent]]
    axes: dict[int, Var]
    sizes: dict[Var, tuple[int, None]]


def refuse_reads_out_of_bounds(ops: Sequence[Operation]) -> None:
    """Raise if a stage provably reads outside a tensor, or a tensor has a negative size.

    Parameters
    ----------
    ops : sequence of Operation
        The stages of a graph, including placeholders, whose shapes define the sizes.

    Raises
    ------
    OutOfBoundsError
        The message names the stage, the tensor, the index and the bounds.
    InvalidArgumentError
        If a dimension is a negative number, or an index a float.
    """
    _refuse_negative_sizes(ops)
    _refuse_float_indices(ops)
    if any(map(is_scan, ops)):
        return  # the ranges of the repeated stages of a te.scan are not those of its axes
    sizes = sizes_of(ops)
    for op in ops:
        if not is_compute(op):
            continue
        for axes, roots in loops_of_stage(op):
            reads = unguarded_reads(roots)
            doubtful = [read for read in reads if not is_inside(read, axes)]
            box = box_of(axes, sizes)
            if box is not None:
                for read in doubtful:
                    _check(op, read, box)
                for read, conditions in _guarded_reads(roots):
                    _check_at_points(op, read, conditions, axes, box)


def sizes_of(ops: Sequence[Operation]) -> dict[Var, tuple[int, None]]:
    """The symbolic sizes of placeholders, which are at least one."""
    return {
        dim: (1, None)
        for op in ops
        if is_placeholder(op)
        for dim in shape_of(op.output(0))
        if not isinstance(dim, int) and op_name(dim) == "var"
    }


def _refuse_negative_sizes(ops: Sequence[Operation]) -> None:
    for op in ops:
        shape = shape_of(op.output(0))
        if any(isinstance(dim, int) and dim < 0 for dim in shape):
            raise InvalidArgumentError(
                f"{op.name} has shape {shape}, and a dimension cannot be negative: make the "
                "tensors that it reads larger"
            )


def _refuse_float_indices(ops: Sequence[Operation]) -> None:
    """Indices that TVM would round towards zero without a word."""
    for op in filter(is_compute, ops):
        for read in filter(is_load, postorder(sources_of(op))):
            for index in filter(is_float, operands(read)):
                raise InvalidArgumentError(
                    f"{op.name} reads {load_tensor(read).op.name} at {text(index)}, which is "
                    f"{dtype_of(index)}: make an integer of it, as by .astype('int32')"
                )


def loops_of_stage(op: Operation) -> Iterator[tuple[list[Axis], list[Expr]]]:
    """The axes of a stage, and the expressions that it evaluates at every point of them."""
    reduction = reduction_of(op)
    if reduction is None:
        yield list(op.axis), [expand_lets(body) for body in bodies(op)]
        return
    yield list(op.axis), [expand_lets(value) for value in reduction.init]
    if always(reduction.condition):
        axes = [*op.axis, *reduction.axes]
        yield axes, [expand_lets(source) for source in reduction.sources]


def unguarded_reads(roots: Iterable[Expr]) -> list[Expr]:
    """The reads that are evaluated whatever the conditions are, including reads in conditions."""
    pending, seen, found = list(roots), set(), []
    while pending:
        node = pending.pop()
        if node_id(node) in seen:
            continue
        seen.add(node_id(node))
        name, parts = op_name(node), operands(node)
        if is_load(node):
            found.append(node)
        # of a choice, and of a short-circuit condition, only the first operand
        pending += parts[:1] if name in ("if_then_else", "select", "and", "or") else parts
    return found


def _guarded_reads(roots: Iterable[Expr]) -> Iterator[tuple[Expr, list[Expr]]]:
    """The reads in branches, each with the conditions of one of its occurrences."""
    pending: list[tuple[Expr, list[Expr]]] = [(root, []) for root in roots]
    seen: set[tuple[int, bool]] = set()
    while pending:
        node, conditions = pending.pop()
        key = node_id(node), bool(conditions)
        if key in seen:
            continue
        seen.add(key)
        name, parts = op_name(node), operands(node)
        if is_load(node) and conditions:
            yield node, conditions
        if name in ("if_then_else", "select"):
            condition, then, other = parts
            pending.append((condition, conditions))
            if not _reads_data([condition]):
                pending.append((then, [*conditions, condition]))
                pending.append((other, [*conditions, negate(condition)]))
            continue
        # a short-circuit condition always evaluates only its first operand
        parts = parts[:1] if name in ("and", "or") else parts
        pending += [(part, conditions) for part in parts]


def _reads_data(roots: Sequence[Expr]) -> bool:
    return any(is_load(node) for node in postorder(list(roots)))


def is_inside(read: Expr, axes: Sequence[Axis]) -> bool:
    """Whether each index is simply an axis that is as long as the dimension, or a number in it."""
    extents = {node_id(axis.var): axis.dom for axis in axes}
    for index, dim in zip(operands(read), load_tensor(read).shape, strict=True):
        number, size = const_value(index), const_value(dim)
        if number is not None and size is not None and 0 <= number < size:
            continue
        dom = extents.get(node_id(index))
        if dom is None or const_value(dom.min) != 0:
            return False
        if node_id(dom.extent) != node_id(dim):
            have = const_value(dom.extent)
            if have is None or size is None or have > size:
                return False
    return True


def box_of(axes: Sequence[Axis], sizes: Mapping[Var, tuple[int, None]]) -> Box | None:
    """The axes as a box whose points are all visited, for all sizes, or None for other loops."""
    known = {node_id(var) for var in sizes}
    ranges: dict[int, tuple[Extent, Extent]] = {}
    for axis in axes:
        low, extent = axis_range(axis)
        for bound in (low, extent):
            if not isinstance(bound, int) and any(
                node_id(var) not in known for var in variables_of(bound)
            ):
                return None
        if extent <= 0 if isinstance(extent, int) else not prove(extent >= 1, sizes):
            return None
        ranges[node_id(axis.var)] = low, extent
    return Box(ranges, {node_id(axis.var): axis.var for axis in axes}, dict(sizes))


def _check(op: Operation, read: Expr, box: Box) -> None:
    tensor = load_tensor(read)
    for number, (index, dim) in enumerate(zip(operands(read), shape_of(tensor), strict=True)):
        found = extremes(index, dim, box)
        if found is None:
            continue
        least, most = found
        if _below(least, 0, box) or not _below(most, dim, box, certain=False):
            raise _error(op, read, number, (least, most))


def _error(
    op: Operation, read: Expr, number: int, values: tuple[Extent, Extent]
) -> OutOfBoundsError:
    tensor, index = load_tensor(read), operands(read)[number]
    last = shape_of(tensor)[number] - 1
    return OutOfBoundsError(
        f"stage {op.name} reads {text(read, limit=200)}, and the index {text(index, limit=200)} of "
        f"dimension {number} takes the values {_shown(values[0])} to {_shown(values[1])} where "
        f"{tensor.op.name} has 0 to {_shown(last)}: make {tensor.op.name} larger, or guard the "
        "read with te.if_then_else"
    )


def _check_at_points(
    op: Operation, read: Expr, conditions: Sequence[Expr], axes: Sequence[Axis], box: Box
) -> None:
    """Check a read in a branch: evaluate its indices at the points where the branch is taken."""
    if is_inside(read, axes):
        return
    for number, (index, dim) in enumerate(
        zip(operands(read), shape_of(load_tensor(read)), strict=True)
    ):
        if not isinstance(dim, int) or _reads_data([index]):
            continue
        [mine, *others] = _independent(index, conditions)
        taken = [value for value, *hold in _tried(mine, box) or [] if all(hold)]
        outside = taken and (min(taken) < 0 or max(taken) >= dim)
        if outside and all(any(map(all, _tried(other, box) or [])) for other in others):
            raise _error(op, read, number, (min(taken), max(taken)))


def _independent(index: Expr, conditions: Sequence[Expr]) -> list[list[Expr]]:
    """Groups that share no variable: the index with the conditions related to it, then other
    conditions.
    """
    groups = [([index], _variables(index))]
    for part in (part for condition in conditions for part in conjuncts(condition)):
        used = _variables(part)
        touched = [bool(used & variables) for _, variables in groups]
        pairs = list(zip(groups, touched, strict=True))
        met = [group for group, hit in pairs if hit]
        apart = [group for group, hit in pairs if not hit]
        exprs = [*(expr for group, _ in met for expr in group), part]
        joined = exprs, used.union(*(variables for _, variables in met))
        groups = [joined, *apart] if touched[0] else [*apart, joined]
    return [exprs for exprs, _ in groups]


def _variables(expr: Expr) -> set[int]:
    return {node_id(var) for var in variables_of(expr)}


def _below(value: Extent, bound: Extent, box: Box, certain: bool = True) -> bool:
    """Whether ``value < bound`` is certain, or possible if `certain` is false."""
    if isinstance(value, int) and isinstance(bound, int):
        return value < bound
    return prove(value < bound, box.sizes) if certain else not prove(value >= bound, box.sizes)


def _shown(value: Extent) -> str:
    return str(value) if isinstance(value, int) else text(simplify(value))


def extremes(index: Expr, dim: Extent, box: Box) -> tuple[Extent, Extent] | None:
    """The smallest and the largest value of an index, both attained; None if unknown or in bounds.
    """
    value = const_value(index)
    if value is not None:
        return int(value), int(value)
    nodes = postorder(index)
    if any(is_load(node) or dtype_of(node) not in (*_LARGEST, "bool") for node in nodes):
        return None
    affine = _affine_extremes(index, box)
    return _tried_extremes(index, dim, box) if affine is None else affine


def _affine_extremes(index: Expr, box: Box) -> tuple[Extent, Extent] | None:
    terms, constant = linear_terms(index)
    ends: list[tuple[Extent, Extent]] = [(constant, constant)]
    sizes = {node_id(var) for var in box.sizes}
    seen: set[int] = set()
    for operand, factor in terms:
        while op_name(operand) == "cast" and dtype_of(operand) != "bool":
            [operand] = operands(operand)
        key = node_id(operand)
        if key in seen:
            return None
        seen.add(key)
        if key in box.ranges:
            low, extent = box.ranges[key]
            pair = low * factor, (low + extent - 1) * factor
            ends.append(pair if factor > 0 else pair[::-1])
        elif key in sizes:
            ends.append((operand * factor, operand * factor))
        else:
            return None
    least, most = (_total(side) for side in zip(*ends, strict=True))
    limit = _LARGEST[dtype_of(index)]
    if any(isinstance(end, int) and abs(end) > limit for end in (least, most)):
        return None
    return least, most


def _total(parts: Sequence[Extent]) -> Extent:
    """A sum whose literals are one: TVM adds in int64 what does not fit the type of a size."""
    literals = sum(part for part in parts if isinstance(part, int))
    return sum((part for part in parts if not isinstance(part, int)), literals)


def _tried_extremes(index: Expr, dim: Extent, box: Box) -> tuple[int, int] | None:
    """The extremes over all points, or None if they are in bounds, which is cheaper to check."""
    bounds = _bounds([index], box)
    if bounds is None:
        return None
    try:
        least, most = constant_bounds(index, bounds)
    except UnsolvableError:
        return None
    if isinstance(dim, int) and least >= 0 and most < dim:
        return None
    tried = _tried([index], box)
    return None if tried is None else (min(tried)[0], max(tried)[0])


def _bounds(exprs: Sequence[Expr], box: Box) -> dict[Var, tuple[int, int]] | None:
    """The minimum and extent of each variable, or None if one of them is a size."""
    bounds: dict[Var, tuple[int, int]] = {}
    for var in variables_of(list(exprs)):
        low, extent = box.ranges.get(node_id(var), (None, None))
        if not isinstance(low, int) or not isinstance(extent, int):
            return None
        bounds[var] = low, extent
    return bounds


def _is_below(interval: tuple[int, int], dtype: str) -> bool:
    """Whether all values lie strictly inside the range of a dtype."""
    return max(-interval[0], interval[1]) < _LARGEST[dtype]


def _tried(exprs: Sequence[Expr], box: Box) -> list[tuple[int, ...]] | None:
    """The values at all points, if there are few points and no step leaves its dtype."""
    bounds = _bounds(exprs, box)
    if bounds is None or prod(extent for _, extent in bounds.values()) > _MOST_POINTS:
        return None
    intervals = Intervals(range_intervals(bounds))
    for node in postorder(list(exprs)):
        kind = dtype_of(node)
        if kind not in (*_LARGEST, "bool"):
            return None
        if op_name(node) in ("floordiv", "floormod", "truncdiv", "truncmod") and not const_value(
            operands(node)[1]
        ):
            return None
        if kind == "bool" or _is_below(intervals.of(node), kind):
            continue
        try:  # TVM's analyzer, created for each node, finds terms that cancel
            if not _is_below(constant_bounds(node, bounds), kind):
                return None
        except UnsolvableError:
            return None
    try:
        values = compile_integers(list(exprs), list(bounds))
    except UnsolvableError:
        return None
    points = product(*(range(low, low + extent) for low, extent in bounds.values()))
    return [tuple(values(*point)) for point in points]
