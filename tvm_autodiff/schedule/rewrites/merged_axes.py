"""Merges axes that are neighbours in memory in all that a kernel reads and writes.

The memory layout does not change. Convolutions of 1x1, layers over batches of sequences and
contractions of several axes become products of two matrices this way.

    ``y[n, c, h, w] = Σ_k x[n, k, h, w] * f[c, k]  →  y[n, c, p] = Σ_k x[n, k, p] * f[c, k]``
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ...codegen.passes.merged_axes import with_split_parameter
from ...codegen.stages.primfunc import StageFunction
from ...expr.dtypes import integer_range
from ...expr.nodes import (
    Axis,
    Expr,
    Tensor,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    operands,
    tensor_key,
)
from ...expr.rewrite import contains_load, depends_on, expand_lets, map_loads, postorder
from ...expr.simplify import prove_equal
from ...graph.sizes.equal_sizes import is_same
from ...graph.stage import (
    Extent,
    Operation,
    axis_range,
    axis_vars,
    bodies,
    is_compute,
    make_stage,
    placeholder,
    reduction_bounds,
    reduction_of,
    reduction_stage,
    shape_of,
    widened_axis,
)
from ..kernel import Kernel
from ..nest.access import is_value

Groups = tuple[tuple[int, ...], ...]  #: which axes or dimensions become one
Key = tuple[int, int]

_LARGEST = integer_range("int32")[1]  #: extent of an axis


@dataclass(frozen=True)
class View:
    """What a tensor with merged dimensions stands for, and the dimensions that each consists of."""

    tensor: Tensor
    groups: Groups


@dataclass(frozen=True)
class MergedKernel:
    """A kernel over merged axes, and what the tensors that it reads and writes stand for."""

    kernel: Kernel
    views: Mapping[Key, View]

    def whole(self, launch: StageFunction) -> StageFunction:
        """A launch of the merged kernel over the tensors of the whole one."""
        func = launch.func
        first = len(launch.inputs) + len(launch.scalars)
        numbered = [*enumerate(launch.inputs), *enumerate(launch.outputs, first)]
        for number, tensor in numbered:
            view = self.views.get(tensor_key(tensor))
            if view is not None:
                func = with_split_parameter(func, number, shape_of(view.tensor), view.groups)
        inputs, outputs = map(self._tensors, (launch.inputs, launch.outputs))
        return replace(launch, func=func, inputs=inputs, outputs=outputs)

    def _tensors(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        found = ((tensor, self.views.get(tensor_key(tensor))) for tensor in tensors)
        return tuple(tensor if view is None else view.tensor for tensor, view in found)


def merged_axes(kernel: Kernel, mixed: bool = False) -> MergedKernel | None:
    """The kernel with as many axes merged as all reads allow, or None if there are none; of literal
    extent all, or none, unless they may be `mixed`.
    """
    op, reader = kernel.root, kernel.epilogue
    reduction = reduction_of(op) if is_compute(op) else None
    if reduction is None:
        return _merged_map(kernel)
    bounds = reduction_bounds(op)
    if contains_load(bounds) or depends_on(bounds, axis_vars(op)):
        return None
    if depends_on(bounds, [axis.var for axis in reduction.axes]):
        return None
    inside = [expand_lets(source) for source in reduction.sources]
    after = [] if reader is None else [expand_lets(body) for body in bodies(reader)]
    parts = [*inside, reduction.condition, *reduction.init]
    outside = [_mergeable(*pair, parts, False) for pair in pairwise(op.axis)]
    if reader is not None:
        again = [_mergeable(*pair, after, False) for pair in pairwise(reader.axis)]
        outside = [both and other for both, other in zip(outside, again, strict=True)]
    within = [_mergeable(*pair, parts, mixed) for pair in pairwise(reduction.axes)]
    if not any((*outside, *within)):
        return None
    groups, summed = _groups(len(op.axis), outside), _groups(len(reduction.axes), within)
    made = [*_extents(op.axis, groups), *_extents(reduction.axes, summed)]
    if any(isinstance(extent, int) and extent > _LARGEST for extent in made):
        return None  # a call tells of tensors that are too large for symbolic ones
    kept = {*_merged_pairs(op.axis, outside), *_merged_pairs(reduction.axes, within)}
    if reader is not None:
        kept |= _merged_pairs(reader.axis, outside)
    views = _views([*parts, *after], kept)
    if views is None:
        return None
    sources = tuple(_over(source, views) for source in inside)
    axes = tuple(_widened(reduction.axes, summed))
    root = reduction_stage(
        op.name, _widened(op.axis, groups), replace(reduction, sources=sources, axes=axes)
    )[0]
    epilogue = None
    if reader is not None:
        # an epilogue reads its root at its own place only
        views = {**views, tensor_key(op.output(0)): (root, groups)}
        body = [_over(expr, views) for expr in after]
        epilogue = make_stage(reader.name, _widened(reader.axis, groups), body)[0].op
    return _merged(kernel, root, epilogue, [*parts, *after], views, groups)


def _merged_map(kernel: Kernel) -> MergedKernel | None:
    """The same for a kernel without a reduction."""
    op = kernel.root
    if not is_compute(op) or kernel.epilogue is not None:
        return None
    values = [expand_lets(body) for body in bodies(op)]
    outside = [_mergeable(*pair, values, False) for pair in pairwise(op.axis)]
    groups = _groups(len(op.axis), outside)
    if not any(outside) or any(
        isinstance(extent, int) and extent > _LARGEST for extent in _extents(op.axis, groups)
    ):
        return None
    views = _views(values, _merged_pairs(op.axis, outside))
    if views is None:
        return None
    [root, *_] = make_stage(op.name, _widened(op.axis, groups), [_over(v, views) for v in values])
    return _merged(kernel, root, None, values, views, groups)


def _merged(
    kernel: Kernel,
    root: Tensor,
    epilogue: Operation | None,
    parts: Sequence[Expr],
    views: Mapping[Key, tuple[Tensor, Groups]],
    groups: Groups,
) -> MergedKernel:
    fixed = kernel.repetition.fixed
    fixed |= {tensor_key(view) for key, (view, _) in views.items() if key in fixed}
    merged = Kernel(root.op, epilogue, replace(kernel.repetition, fixed=fixed))
    tensors = {tensor_key(t): t for node in _loads(parts) for t in [load_tensor(node)]}
    found = {
        tensor_key(view): View(tensors[key], dims)
        for key, (view, dims) in views.items()
        if key in tensors
    }
    for new, old in zip(merged.outputs, kernel.outputs, strict=True):
        found[tensor_key(new)] = View(old, groups)
    return MergedKernel(merged, found)


def _mergeable(outer: Axis, inner: Axis, roots: Sequence[Expr], mixed: bool) -> bool:
    """Whether all reads that depend on either of two axes have them as indices of neighbouring
    dimensions, the second of which the inner axis runs through; of literal extent both, or none,
    unless they may be `mixed`: tiles know what is literal.
    """
    ranges = [axis_range(axis) for axis in (outer, inner)]
    if any(low != 0 or is_same(extent, 0) for low, extent in ranges):
        return False
    length = ranges[1][1]
    literal = {isinstance(extent, int) for _, extent in ranges}
    if (len(literal) > 1 and not mixed) or is_value(roots, [outer.var, inner.var]):
        return False
    wanted = [node_id(outer.var), node_id(inner.var)]
    for node in _loads(roots):
        indices, shape = operands(node), shape_of(load_tensor(node))
        dims = [
            dim for dim, index in enumerate(indices) if depends_on(index, [outer.var, inner.var])
        ]
        if dims and (
            [node_id(indices[dim]) for dim in dims] != wanted
            or dims[1] != dims[0] + 1
            or not _are_equal(shape[dims[1]], length)
            or (not mixed and isinstance(shape[dims[0]], int) not in literal)
        ):
            return False
    return True


def _are_equal(left: Extent, right: Extent) -> bool:
    if isinstance(left, int) or isinstance(right, int):
        return is_same(left, right)
    return prove_equal(left, right)


def _loads(roots: Sequence[Expr]) -> list[Expr]:
    return [node for node in postorder(list(roots)) if is_load(node)]


def _groups(count: int, joined: Sequence[bool]) -> Groups:
    """``3, [True, False] → ((0, 1), (2,))``: which of some places become one with those before."""
    groups: list[tuple[int, ...]] = [(0,)] if count else []
    for place, one in enumerate(joined, 1):
        groups[-1:] = [(*groups[-1], place)] if one else [groups[-1], (place,)]
    return tuple(groups)


def _merged_pairs(axes: Sequence[Axis], joined: Sequence[bool]) -> set[tuple[int, int]]:
    pairs = zip(pairwise(axes), joined, strict=True)
    return {(node_id(left.var), node_id(right.var)) for (left, right), one in pairs if one}


def _views(
    roots: Sequence[Expr], kept: Container[tuple[int, int]]
) -> dict[Key, tuple[Tensor, Groups]] | None:
    """For each tensor that is read along merged axes, one with merged dimensions; None if its reads
    differ in what they merge.
    """
    found: dict[Key, tuple[Tensor, Groups]] = {}
    for node in _loads(roots):
        tensor, indices = load_tensor(node), operands(node)
        joined = [tuple(map(node_id, pair)) in kept for pair in pairwise(indices)]
        groups = _groups(len(indices), joined)
        known = found.get(tensor_key(tensor))
        if known is not None and known[1] != groups:
            return None
        if known is None:
            shape = [_extent([shape_of(tensor)[dim] for dim in dims]) for dims in groups]
            made = placeholder(shape, dtype_of(tensor), tensor.op.name)
            found[tensor_key(tensor)] = made, groups
    return {key: one for key, one in found.items() if any(len(dims) > 1 for dims in one[1])}


def _extent(extents: Sequence[Extent]) -> Extent:
    first, *rest = extents
    for extent in rest:
        first = first * extent
    return first


def _over(expr: Expr, views: Mapping[Key, tuple[Tensor, Groups]]) -> Expr:
    """``x[n, k, h, w] → x[n, k, p]``, where p has the variable of w."""

    def read(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        if tensor_key(tensor) not in views:
            return None
        view, groups = views[tensor_key(tensor)]
        return load(view, [indices[dims[-1]] for dims in groups])

    return map_loads(expr, read)


def _widened(axes: Sequence[Axis], groups: Groups) -> list[Axis]:
    """The last axis of each group, over the places of all of them."""
    pairs = zip(groups, _extents(axes, groups), strict=True)
    return [
        axes[dims[-1]] if len(dims) == 1 else widened_axis(axes[dims[-1]], extent)
        for dims, extent in pairs
    ]


def _extents(axes: Sequence[Axis], groups: Groups) -> list[Extent]:
    """The extent of each group."""
    return [_extent([axis_range(axes[dim])[1] for dim in dims]) for dims in groups]
