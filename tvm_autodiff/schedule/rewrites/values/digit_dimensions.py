"""Dimensions of intermediate tensors that are computed by their digits are several dimensions.

Who writes the window of a filter as one flat axis computes its values at quotients and remainders:
loops over the two digits divide nothing, and sums over the axis follow
(`sums/quotient_sums.py`).

    ``t[i, q] = f(x[i + q//5, q%5]), q < 25, y[i] = Σ_q t[i, q]  →  t[i, a, b] = f(x[i + a, b]),
    y[i] = Σ_q t[i, q//5, q%5]``

Results and arguments stay as they are, and so does what is read where loops do not tell the digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....expr.build import add, const, mul
from ....expr.linear_terms import linear_terms
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    const_value,
    dtype_of,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
    same_node,
    tensor_key,
)
from ....expr.rewrite import (
    contains,
    contains_load,
    depends_on,
    expand_lets,
    postorder,
    substituter,
)
from ....expr.sharing.lets import bind_shared
from ....graph.graph import Graph
from ....graph.stage import (
    Operation,
    axis_range,
    bodies,
    data_axis,
    is_compute,
    loop_axes,
    reduced_axes,
    reduction_bounds,
    reduction_of,
    sources_of,
    with_bodies,
)
from ...cost import STORE
from ...kernel import iterations
from ...nest.decided import decided
from ...nest.in_range import loops_of
from ...nest.literals import FLOOR_DIVISIONS
from .layouts import Key, Layout, digits_at, with_layouts


def with_digit_dimensions(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Equal tensors, of which intermediate ones have a dimension for each digit of an axis."""
    graph = Graph(outputs)
    if not any(map(_divides, graph.ops)):
        return list(outputs)
    free = _Free(graph, {tensor_key(tensor) for tensor in outputs})
    return with_layouts(outputs, graph, lambda op, current: _split(current, free.dimensions(op)))


def _divides(op: Operation) -> bool:
    return is_compute(op) and contains(bodies(op), lambda node: op_name(node) in FLOOR_DIVISIONS)


class _Free:
    """Which dimensions of intermediate tensors are read at loops only, whose digits are loops."""

    def __init__(self, graph: Graph, kept: set[Key]) -> None:
        self._graph, self._kept = graph, kept
        self._found: set[tuple[int, int]] = set()
        for op in reversed(graph.ops):  # readers before what they read
            numbers = range(len(op.axis)) if is_compute(op) else ()
            self._found.update((hash(op), n) for n in numbers if self._is_free(op, n))

    def dimensions(self, op: Operation) -> list[int]:
        """The dimensions of a stage that may be several."""
        numbers = range(len(op.axis)) if is_compute(op) else ()
        return [n for n in numbers if (hash(op), n) in self._found]

    def _is_free(self, op: Operation, dimension: int) -> bool:
        if op.num_outputs != 1 or reduction_of(op) is not None:
            return False
        tensor, extent = op.output(0), axis_range(op.axis[dimension])[1]
        if tensor_key(tensor) in self._kept or not isinstance(extent, int):
            return False
        return all(
            self._reads_at_loops(reader, tensor, dimension, extent)
            for reader in self._graph.consumers(tensor)
        )

    def _reads_at_loops(
        self, reader: Operation, tensor: Tensor, dimension: int, extent: int
    ) -> bool:
        if not is_compute(reader) or contains_load(reduction_bounds(reader)):
            return False
        if STORE * iterations(reader) <= iterations(tensor.op):
            return True  # a border, which may divide
        for read in postorder(sources_of(reader)):
            if not is_load(read) or tensor_key(load_tensor(read)) != tensor_key(tensor):
                continue
            index = operands(read)[dimension]
            own = [n for n, axis in enumerate(reader.axis) if same_node(axis.var, index)]
            summed = [a for a in reduced_axes(reader) if same_node(a.var, index)]
            if own and (hash(reader), own[0]) not in self._found:
                return False
            if summed and axis_range(summed[0]) != (0, extent):
                return False
            if not own and not summed and not _has_digits(index, tensor.op, dimension, reader):
                return False
        return True


def _has_digits(index: Expr, op: Operation, dimension: int, reader: Operation) -> bool:
    """Whether the loops of a reader decide the digits of an index: ``a*5 + b`` with b < 5."""
    axis, loops = op.axis[dimension], loops_of(loop_axes(reader))
    found = _divided(list(map(expand_lets, bodies(op))), [axis])
    if found is None:
        return False
    digits = digits_at(index, (int(axis_range(axis)[1]) // found[1], found[1]))
    left = decided(digits, loops.variables, loops.ranges)
    return not contains(left, lambda node: op_name(node) in FLOOR_DIVISIONS)


def _split(op: Operation, dimensions: Sequence[int]) -> Layout | None:
    """A stage over the digits of some axes, or None if it divides none of them."""
    if not dimensions:
        return None
    found = over_digits(list(map(expand_lets, bodies(op))), op.axis, dimensions)
    if found is None:
        return None
    [tensor] = with_bodies(op, list(map(bind_shared, found.values)), found.axes)
    return Layout(tensor, found.places)


@dataclass(frozen=True)
class DigitLoops:
    """Expressions over the digits of loops.

    Attributes
    ----------
    values : list of Expr
        The expressions, over all that is in `groups`.
    groups : list of list of Axis
        The digits of each loop, the outermost one first.
    """

    values: list[Expr]
    groups: list[list[Axis]]

    @property
    def axes(self) -> list[Axis]:
        """All loops, in order."""
        return [axis for group in self.groups for axis in group]

    def places(self, indices: Sequence[Expr]) -> list[Expr]:
        """The digits of indices of the loops."""
        pairs = zip(indices, self.groups, strict=True)
        extents = ([int(axis_range(a)[1]) for a in g] if len(g) > 1 else [] for _, g in pairs)
        pairs = zip(indices, extents, strict=True)
        return [digit for index, sizes in pairs for digit in digits_at(index, sizes)]


def over_digits(
    values: Sequence[Expr],
    axes: Sequence[Axis],
    dimensions: Sequence[int],
    others: Sequence[Axis] = (),
) -> DigitLoops | None:
    """Expressions over the digits to which they divide some of their axes, by number, and `others`;
    None if they divide none.

    An axis that they divide after a shift has these digits if that decides the quotients, as it
    does ``(q + 1)//2`` for q of 2*a + b.
    """
    current, groups = list(values), [[axis] for axis in axes]
    left: set[int] = set()  # axes whose digits do not decide the quotients
    while found := _divided(
        current, [a for n in dimensions for a in groups[n] if node_id(a.var) not in left]
    ):
        axis, size, shifted = found
        name, dtype = str(axis.var.name), dtype_of(axis.var)
        outer = data_axis(f"{name}_outer", int(axis_range(axis)[1]) // size, dtype)
        inner = data_axis(f"{name}_inner", size, dtype)
        place = add(mul(outer.var, const(size, dtype)), inner.var)
        pair = {node_id(axis.var): [outer, inner]}
        split = [[b for a in group for b in pair.get(node_id(a.var), [a])] for group in groups]
        loops = loops_of([*(one for group in split for one in group), *others])
        moved = list(map(substituter({axis.var: place}), current))
        moved = decided(moved, loops.variables, loops.ranges)
        if shifted and any(
            op_name(node) in FLOOR_DIVISIONS and depends_on(node, [inner.var])
            for node in postorder(moved)
        ):
            left.add(node_id(axis.var))
            continue
        current, groups = moved, split
    return None if all(len(group) == 1 for group in groups) else DigitLoops(current, groups)


def _divided(values: Sequence[Expr], axes: Sequence[Axis]) -> tuple[Axis, int, bool] | None:
    """An axis that values divide, the least divisor, of which its extent is a multiple, and whether
    they divide it after a shift only.
    """
    sizes: list[tuple[bool, int, Axis]] = []
    for node in postorder(list(values)):
        if op_name(node) not in FLOOR_DIVISIONS:
            continue
        numerator, divisor = operands(node)
        size = const_value(divisor)
        terms, shift = linear_terms(numerator)
        if len(terms) != 1 or terms[0][1] != 1:
            continue
        for axis in axes:
            extent = axis_range(axis)[1]
            if not same_node(axis.var, terms[0][0]) or not isinstance(extent, int):
                continue
            if isinstance(size, int) and 1 < size < extent and extent % size == 0:
                sizes.append((shift != 0, size, axis))
    if not sizes:
        return None
    shifted, size, axis = min(sizes, key=lambda one: one[:2])
    return axis, size, shifted
