"""The least work that gradients can take, counted point by point from the definition.

The floor counts the pairs (gradient element, summed read) that are not structurally zero. Every
index and every condition of a path is evaluated in numpy at every point of its stage; nothing is
solved and no derivative is taken.

A pair counts if the element read depends on a requested input and the point reaches the output.
Equal reads of a stage count once. A condition on values (`x > 0`, the winner of a maximum) excludes
nothing. A stage between two others that only copies adds nothing: its readers can read its source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from tests.evaluate import evaluate, evaluate_graph, key_of, stages_of
from tests.walks import address_of, bound_values, in_order, is_float, name_of, parts_of, read_of

Array = np.ndarray
#: operators through which nothing is differentiated
CONSTANT = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "floor", "ceil"))
CONSTANT |= {"round", "trunc", "nearbyint", "isnan", "isinf", "isfinite"}


@dataclass(frozen=True)
class Reads:
    """One read site over all points (output element, reduced element) of its stage, both flat.

    `where` marks the points that read. `at` is the flat index of the element that each point reads,
    or None if the index is data, so that any element may be read.
    """

    tensor: te.Tensor
    at: Array | None
    where: Array


def floor_of(
    output: te.Tensor,
    inputs: Sequence[te.Tensor],
    data: Mapping[te.Tensor, Array] | None = None,
    identity: bool = False,
) -> int:
    """Pairs that are not structurally zero, plus the elements of the gradients.

    Parameters
    ----------
    output, inputs : Tensor, sequence of Tensor
        What is differentiated, and with respect to what.
    data : mapping from Tensor to array, optional
        Values of integer inputs that indices read.
    identity : bool
        The head is the identity: the gradients are Jacobians.

    Examples
    --------
    >>> from tvm import te
    >>> x, k = te.placeholder((9,), name="x"), te.reduce_axis((0, 3), "k")
    >>> y = te.compute((4,), lambda i: te.sum(x[2 * i + k], axis=k), name="y")
    >>> floor_of(y, [x])  # 12 reads, 9 elements
    21
    """
    ops = [op for op in stages_of([output]) if not isinstance(op, te.PlaceholderOp)]
    sites = {hash(op): reads_of(op, data or {}) for op in ops}
    depends = _dependence(ops, sites, inputs)
    size = _size(output)
    reached = {key_of(output): np.eye(size, dtype=bool) if identity else _ones(1, size)}
    pairs = 0
    for op in reversed(ops):
        arrived = [reached[key_of(t)] for t in _outputs(op) if key_of(t) in reached]
        if not arrived:
            continue
        here = np.logical_or.reduce(arrived)
        follows = key_of(op.output(0)) != key_of(output) and _is_copy(op)
        for site in sites[hash(op)]:
            key = key_of(site.tensor)
            if key not in depends:
                continue
            live = site.where & (depends[key].any() if site.at is None else depends[key][site.at])
            if not follows:
                pairs += int(live.sum(axis=1) @ here.sum(axis=0))
            target = reached.setdefault(key, np.zeros((len(here), _size(site.tensor)), bool))
            for row, origin in zip(target, here, strict=True):
                if site.at is None:
                    row |= bool((live & origin[:, None]).any())
                else:
                    row[site.at[live & origin[:, None]]] = True
    rows = size if identity else 1
    return pairs + rows * sum(map(_size, inputs))


def reads_of(op: Any, data: Mapping[te.Tensor, Array]) -> list[Reads]:
    """The distinct read sites of float tensors in a stage that a derivative can flow to."""
    reduction = _reduction(op)
    grid, inside = _points(op)
    roots, everywhere = list(op.body), np.ones((1, 1), bool)
    if reduction is not None:
        assert all(map(_is_literal, reduction.init)), "an init that reads is not counted"
        roots = list(reduction.source)
        everywhere = inside & _holds(reduction.condition, grid)
    roots = [root for root in roots if is_float(root)]
    where: dict[int, Array] = {}
    for root in roots:
        _reach(where, root, everywhere)
    shape = np.broadcast_shapes(inside.shape, *(np.shape(value) for value in grid.values()))
    found: list[Reads] = []
    nodes = in_order(roots)
    bound = bound_values(nodes)
    for node in reversed(nodes):
        mask = where.get(address_of(node))
        if mask is None or name_of(node) in CONSTANT or not is_float(node):
            continue
        if name_of(node) == "load":
            _add(found, _read(node, np.broadcast_to(mask, shape), grid, data))
        elif name_of(node) in ("if_then_else", "select"):
            condition, then, otherwise = parts_of(node)
            by_value = _depends_on_values(condition)
            holds = np.ones((1, 1), bool) if by_value else _holds(condition, grid)
            _reach(where, then, mask & holds)
            _reach(where, otherwise, mask if by_value else mask & ~holds)
        elif name_of(node) == "let":
            _reach(where, node.body, mask)
        elif address_of(node) in bound:
            _reach(where, bound[address_of(node)], mask)
        else:
            for part in parts_of(node):
                _reach(where, part, mask)
    return found


def _reduction(op: Any) -> Any:
    """The reduction that a stage is, or None."""
    return op.body[0] if isinstance(op.body[0], tirx.Reduce) else None


def _axis_vars(op: Any) -> list[Any]:
    return [axis.var for axis in op.axis]


def _outputs(op: Any) -> list[te.Tensor]:
    return [op.output(place) for place in range(op.num_outputs)]


def _shape(tensor: te.Tensor) -> tuple[int, ...]:
    return tuple(int(extent) for extent in tensor.shape)


def _is_literal(node: Any) -> bool:
    return name_of(node) == "const"


def _points(op: Any) -> tuple[dict[Any, Array], Array]:
    """Values of a stage's variables over (output elements, reduced elements), and which exist.

    A range that depends on other axes becomes a box around its values; not all of its points exist.
    """
    shape = _shape(op.output(0))
    grid: dict[Any, Array] = {
        var: value.reshape(-1, 1)
        for var, value in zip(_axis_vars(op), np.indices(shape), strict=True)
    }
    reduction = _reduction(op)
    inside = np.ones((math.prod(shape), 1), bool)
    if reduction is None:
        return grid, inside
    extents = []
    for axis in reduction.axis:
        low, high = _bounds(axis, grid)
        least, most = int(low.min()), int(high.max())
        grid[axis.var] = np.arange(least, most).reshape(1, *(1 for _ in extents), -1)
        grid = {var: _aligned(value, len(extents) + 2) for var, value in grid.items()}
        extents.append(most - least)
    for axis in reduction.axis:
        low, high = _bounds(axis, grid)
        inside = _aligned(inside, len(extents) + 1) & (grid[axis.var] >= low)
        inside = inside & (grid[axis.var] < high)
    for axis in reduction.axis:
        grid[axis.var] = np.broadcast_to(grid[axis.var], (1, *extents)).reshape(1, -1)
    for var in _axis_vars(op):
        grid[var] = grid[var].reshape(-1, 1)
    return grid, inside.reshape(inside.shape[0], -1)


def _bounds(axis: Any, grid: Mapping[Any, Array]) -> tuple[Array, Array]:
    low = evaluate(axis.dom.min, grid)
    return low, low + evaluate(axis.dom.extent, grid)


def _aligned(value: Array, rank: int) -> Array:
    """The array with trailing axes added up to `rank`."""
    return value.reshape(*value.shape, *(1 for _ in range(rank - value.ndim)))


def _holds(condition: Any, grid: Mapping[Any, Array]) -> Array:
    if _depends_on_values(condition):
        return np.ones((1, 1), bool)
    return np.atleast_2d(evaluate(condition, grid))


def _depends_on_values(expr: Any) -> bool:
    return any(name_of(node) == "load" or is_float(node) for node in in_order(expr))


def _reach(where: dict[int, Array], node: Any, mask: Array) -> None:
    known = where.get(address_of(node))
    where[address_of(node)] = mask if known is None else known | mask


def _read(
    node: Any, mask: Array, grid: Mapping[Any, Array], data: Mapping[te.Tensor, Array]
) -> Reads:
    tensor = read_of(node)
    loads = [part for part in in_order(list(parts_of(node))) if name_of(part) == "load"]
    if loads:
        return Reads(tensor, None, mask & _in_range(node, loads, grid, data))
    at = np.zeros((1, 1), int)
    for index, extent in zip(parts_of(node), _shape(tensor), strict=True):
        value = evaluate(index, grid)
        assert not (np.broadcast_to((value < 0) | (value >= extent), mask.shape) & mask).any()
        at = at * extent + np.clip(value, 0, extent - 1)
    return Reads(tensor, np.broadcast_to(at, mask.shape), mask)


def _in_range(
    node: Any, loads: Sequence[Any], grid: Mapping[Any, Array], data: Mapping[te.Tensor, Array]
) -> Array:
    """Where the indices that are data lie inside the tensor."""
    needed = [read_of(part) for part in loads]
    values = list(zip(needed, evaluate_graph(needed, data), strict=True))
    inside = np.ones((1, 1), bool)
    for index, extent in zip(parts_of(node), _shape(read_of(node)), strict=True):
        value = evaluate(index, grid, values)
        inside = inside & (value >= 0) & (value < extent)
    return inside


def _add(found: list[Reads], new: Reads) -> None:
    """Add a site, or merge it with one that reads the same elements."""
    for place, old in enumerate(found):
        same = key_of(old.tensor) == key_of(new.tensor)
        if same and old.at is not None and new.at is not None and np.array_equal(old.at, new.at):
            found[place] = Reads(old.tensor, old.at, old.where | new.where)
            return
    found.append(new)


def _dependence(
    ops: Sequence[Any], sites: Mapping[int, list[Reads]], inputs: Sequence[te.Tensor]
) -> dict[tuple[int, int], Array]:
    """For each tensor on the path, which of its elements depend on a requested input."""
    depends = {key_of(tensor): np.ones(_size(tensor), bool) for tensor in inputs}
    for op in ops:
        alive = np.zeros(_size(op.output(0)), bool)
        for site in sites[hash(op)]:
            known = depends.get(key_of(site.tensor))
            if known is not None:
                element = known.any() if site.at is None else known[site.at]
                alive |= (site.where & element).any(axis=1)
        if alive.any():
            depends.update((key_of(t), alive) for t in _outputs(op) if is_float(t))
    return depends


def _is_copy(op: Any) -> bool:
    """Whether each element of a stage is an element of another, or a literal."""
    pending = list(op.body)
    while pending:
        node = pending.pop()
        if name_of(node) in ("if_then_else", "select"):
            pending += parts_of(node)[1:]
        elif name_of(node) not in ("load", "const"):
            return False
    return True


def _ones(*shape: int) -> Array:
    return np.ones(shape, bool)


def _size(tensor: te.Tensor) -> int:
    return math.prod(_shape(tensor))
