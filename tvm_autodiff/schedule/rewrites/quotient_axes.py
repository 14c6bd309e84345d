"""Splits output axes that are read through a quotient into two: groups, and positions in a group.

The memory layout does not change. Grouped convolutions become batches of matrix products this way.

    ``out[c] = Σ_k x[c//4*4 + k] * w[c, k]  →  out[g, r] = Σ_k x[g*4 + k] * w[g*4 + r, k]``
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...codegen.passes.merged_axes import with_merged_parameter
from ...codegen.stages.primfunc import StageFunction
from ...expr.build import add, const, mul, sub
from ...expr.integers.exact_quotient import exact_quotient
from ...expr.linear_terms import linear_terms
from ...expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    binary,
    const_value,
    dtype_of,
    load,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ...expr.rewrite import (
    contains_load,
    expand_lets,
    map_loads,
    postorder,
    replace_outermost,
)
from ...graph.stage import (
    Operation,
    axis_range,
    axis_vars,
    bodies,
    data_axis,
    make_stage,
    reduction_of,
    reduction_stage,
    renew_axis,
    shape_of,
    widened_axis,
)
from ..kernel import Kernel, iterations, results_of, size_of
from .conditions.guards import with_guards


@dataclass(frozen=True)
class SplitKernel:
    """A kernel over split axes, and the split axes of each axis of the result."""

    kernel: Kernel
    groups: tuple[tuple[int, ...], ...]

    def merged(self, launch: StageFunction, whole: Kernel) -> StageFunction:
        """A launch that writes the result of the split kernel, for the result of `whole`."""
        [result] = whole.outputs
        number = len(launch.func.params) - 1
        func = with_merged_parameter(launch.func, number, shape_of(result), self.groups)
        return replace(launch, func=func, outputs=(result,))


def split_at_quotients(kernel: Kernel) -> SplitKernel | None:
    """The kernel with output axes split if reads use their quotients, or None."""
    op = kernel.root
    reduction = reduction_of(op)
    if reduction is None or op.num_outputs != 1:
        return None
    source = expand_lets(reduction.sources[0])
    sizes = _group_sizes(op, source)
    if not sizes:
        return None
    by_place = [sizes.get(node_id(var)) for var in axis_vars(op)]
    spatial, memo, groups = _split(op, source, by_place)
    reduced = [renew_axis(axis) for axis in reduction.axes]
    for old, new in zip(reduction.axes, reduced, strict=True):
        memo[node_id(old.var)] = new.var
    moved = replace(reduction, sources=(replace_outermost(source, memo),), axes=tuple(reduced))
    split = reduction_stage(op.name, spatial, moved)[0]
    if kernel.epilogue is None:
        return SplitKernel(replace(kernel, root=split.op), groups)
    reader = kernel.epilogue
    body = expand_lets(bodies(reader)[0])
    spatial, memo, _ = _split(reader, body, by_place)
    here = [axis.var for axis in spatial]

    def read(tensor: Tensor, _: Sequence[Expr]) -> Expr | None:
        # an epilogue reads its root at its own place only
        return load(split, here) if tensor_key(tensor) == tensor_key(op.output(0)) else None

    fresh = map_loads(replace_outermost(body, memo), read)
    epilogue = make_stage(reader.name, spatial, [fresh])[0].op
    return SplitKernel(replace(kernel, root=split.op, epilogue=epilogue), groups)


def widened_to_quotients(kernel: Kernel) -> tuple[Kernel, Kernel] | None:
    """``out[i] = Σ_k f((i + 1)//5, (i + 1)%5, k), i < 8003  →
    whole[i] = Σ_k f(i//5, i%5, k), i < 8005;  out[i] = whole[i + 1]``

    Returns
    -------
    tuple or None
        A kernel whose axes can be split, and the one that reads its results. None if there is no
        such axis, or nothing to add up.
    """
    op = kernel.root
    reduction = reduction_of(op)
    if reduction is None or op.num_outputs != 1 or reduction.init:
        return None
    source = expand_lets(reduction.sources[0])
    groups = _groups(op, source)
    if not groups or iterations(op) <= size_of([axis_range(axis)[1] for axis in op.axis]):
        return None
    axes: list[Axis] = []
    memo: dict[int, Expr] = {}
    for axis in op.axis:
        group, extent = groups.get(node_id(axis.var)), axis_range(axis)[1]
        if group is None:
            axes.append(axis)
            continue
        first, size = group
        if not isinstance(extent, int):
            if first:
                return None
            axes.append(axis)
            continue
        axes.append(widened_axis(axis, -(-(extent + first) // size) * size))
        memo[node_id(axis.var)] = sub(axis.var, const(first, dtype_of(axis.var)))
    if [axis_range(axis) for axis in axes] == [axis_range(axis) for axis in op.axis]:
        return None
    for node, var, ahead, size in _divisions(op, source):
        if node_id(var) not in groups:
            continue
        dtype = dtype_of(var)
        divided = binary(op_name(node), var, const(size, dtype))
        if op_name(node) == "floordiv":
            divided = add(divided, const((ahead - groups[node_id(var)][0]) // size, dtype))
        memo[node_id(node)] = divided
    moved = with_guards(replace_outermost(source, memo), [*axes, *reduction.axes])
    [whole] = reduction_stage(f"{op.name}_whole", axes, replace(reduction, sources=(moved,)))
    here = [renew_axis(axis) for axis in kernel.ops[-1].axis]
    places = [axis.var for axis in here]
    shifted = [
        add(place, const(groups.get(node_id(axis.var), (0, 1))[0], dtype_of(place)))
        for place, axis in zip(places, op.axis, strict=True)
    ]
    result = results_of(kernel, [load(whole, shifted)], places)
    reader = make_stage(str(kernel.ops[-1].name), here, result)[0].op
    return replace(kernel, root=whole.op, epilogue=None), replace(
        kernel, root=reader, epilogue=None
    )


def _split(
    op: Operation, body: Expr, by_place: Sequence[int | None]
) -> tuple[list[Axis], dict[int, Expr], tuple[tuple[int, ...], ...]]:
    """Split axes, the replacements of nodes of a body, and which axes belong together."""
    spatial: list[Axis] = []
    groups: list[tuple[int, ...]] = []
    memo: dict[int, Expr] = {}
    split: dict[int, tuple[Var, Var, int]] = {}
    for axis, size in zip(op.axis, by_place, strict=True):
        if size is None:
            spatial.append(renew_axis(axis))
            memo[node_id(axis.var)] = spatial[-1].var
            groups.append((len(spatial) - 1,))
            continue
        name, dtype = axis.var.name, dtype_of(axis.var)
        count = exact_quotient(axis_range(axis)[1], size)
        assert count is not None
        outer = data_axis(f"{name}_group", count, dtype)
        inside = data_axis(f"{name}_inside", size, dtype)
        spatial += [outer, inside]
        groups.append((len(spatial) - 2, len(spatial) - 1))
        split[node_id(axis.var)] = outer.var, inside.var, size
        memo[node_id(axis.var)] = add(mul(outer.var, const(size, dtype)), inside.var)
    for node in postorder(body):
        if op_name(node) not in ("floordiv", "floormod"):
            continue
        left, right = operands(node)
        if node_id(left) in split and const_value(right) == split[node_id(left)][2]:
            first, second, _ = split[node_id(left)]
            memo[node_id(node)] = first if op_name(node) == "floordiv" else second
    return spatial, memo, tuple(groups)


def _group_sizes(op: Operation, source: Expr) -> dict[int, int]:
    """For each output axis that is divided by a single literal, which divides it, that literal."""
    found: dict[int, set[int]] = {}
    for node, var, _, size in _divisions(op, source):
        if node_id(operands(node)[0]) == node_id(var):
            found.setdefault(node_id(var), set()).add(size)
    extents = {node_id(axis.var): axis_range(axis)[1] for axis in op.axis}
    return {
        key: size
        for key, (size, *others) in found.items()
        if not others and exact_quotient(extents[key], size) is not None
    }


def _groups(op: Operation, source: Expr) -> dict[int, tuple[int, int]]:
    """For each output axis i of which quotients and remainders ``(i + c)//size, (i + c)%size`` are
    read, ``c % size`` and `size`, if all have the same.
    """
    found: dict[int, set[tuple[int, int]]] = {}
    for _, var, ahead, size in _divisions(op, source):
        found.setdefault(node_id(var), set()).add((ahead % size, size))
    return {key: group for key, (group, *others) in found.items() if not others}


def _divisions(op: Operation, source: Expr) -> Iterator[tuple[Expr, Var, int, int]]:
    """Quotients and remainders of an output axis, or of one and a number: the node, the variable,
    the number, and the literal that it is divided by, if the axis is longer than that.
    """
    extents = {node_id(axis.var): axis_range(axis) for axis in op.axis}
    for node in postorder(source):
        if op_name(node) not in ("floordiv", "floormod"):
            continue
        numerator, divisor = operands(node)
        size = const_value(divisor)
        if not isinstance(size, int) or contains_load(numerator):
            continue
        terms, ahead = linear_terms(numerator)
        if len(terms) != 1 or terms[0][1] != 1 or node_id(terms[0][0]) not in extents:
            continue
        low, extent = extents[node_id(terms[0][0])]
        literal = isinstance(extent, int)
        groups = extent > size if literal else exact_quotient(extent, size) is not None
        if low == 0 and size > 1 and groups:
            yield node, terms[0][0], ahead, size
