"""Lists the contributions to the entries of a Jacobian, for each path, at the points of composed
sites.

At each point of its axes a `Contribution` adds its value to one entry. The stages in between are
composed by substitution, from the output back:

    y[i] = Σ_k w[k]·z[i + k],  z[b] = f(x[b])  →  J[i, i + k] += w[k]·f'(x[i + k])

Nothing is transposed and no equation is solved. Reductions on a path multiply the number of points;
`transforms` decides whether this is worthwhile.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ..domain import Domain, simplify_domain
from ..expr.build import add, compare, const
from ..expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_float,
    is_load,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ..expr.rewrite import contains_load, expand_lets, postorder, substituter, variables_of
from ..expr.simplify import prove
from ..expr.structural import StructuralKeys
from ..graph.kinds.kind import Compute, kind_of
from ..graph.sizes.nonnegative import nonnegative
from ..graph.stage import (
    Extent,
    axis_range,
    axis_vars,
    data_axis,
    outputs_of,
    reduce_axis_over,
    rename_bounds,
    renew_axis,
    shape_of,
)
from ..rules.linearize import linearize
from ..rules.terms import Condition, Term, guarded
from .paths import Paths
from .points import Sizes, extents_of

#: the number of contributions at one tensor from which colouring is the shorter program
_MOST = 64


@dataclass(frozen=True, eq=False)
class Contribution:
    """``J[rows, place] += value`` at all points of the axes where the conditions hold.

    Attributes
    ----------
    axes : tuple of Axis
        The axes of the output, then the reduce axes on the path. Bounds are constants or sizes.
    rows, place : tuple of Expr
        The element of the output, and the element of the tensor at the end of the path.
    conditions : tuple of Condition
        Conditions on indices and on data.
    value : Expr
        The value, in the dtype of that tensor.
    """

    axes: tuple[Axis, ...]
    rows: tuple[Expr, ...]
    place: tuple[Expr, ...]
    conditions: tuple[Condition, ...]
    value: Expr

    @property
    def on_indices(self) -> tuple[Expr, ...]:
        """The conditions that decide whether a point is an entry."""
        return tuple(c.expr for c in self.conditions if is_on_indices(c.expr))

    def points(self, sizes: Sizes) -> int:
        """The number of points of the box."""
        return prod(extents_of([axis_range(axis)[1] for axis in self.axes], sizes))

    @property
    def guarded(self) -> Expr:
        """The value if the conditions hold, and zero otherwise."""
        return guarded(self.value, [replace(c, guards=True) for c in self.conditions])

    def summed(self) -> tuple[Axis, ...]:
        """The axes that no index and no condition on indices depends on; entries sum over them."""
        fixed = variables_of([*self.rows, *self.place, *self.on_indices])
        fixed += variables_of(
            [
                bound
                for axis in self.axes
                for bound in axis_range(axis)
                if not isinstance(bound, int)
            ]
        )
        known = {node_id(var) for var in fixed}
        return tuple(axis for axis in self.axes if node_id(axis.var) not in known)


def contributions_of(output: Tensor, input: Tensor) -> list[Contribution] | str:
    """The contributions to the Jacobian of `output` with respect to `input`, or why there is no
    such list.
    """
    paths = Paths(output, input)
    axes = tuple(data_axis(f"i{n}", extent) for n, extent in enumerate(shape_of(output)))
    here = tuple(axis.var for axis in axes)
    start = Contribution(axes, here, here, (), const(1.0, dtype_of(output)))
    arrived: dict[tuple[int, int], list[Contribution]] = {tensor_key(output): [start]}
    keys = StructuralKeys()
    for op in reversed(paths.ops):
        outputs = outputs_of(op)
        if not any(tensor_key(tensor) in arrived for tensor in outputs):
            continue
        equal = paths.equal(op)
        if equal is not None:
            known = arrived.setdefault(tensor_key(equal), [])
            known += arrived[tensor_key(outputs[0])]
            continue
        kind = kind_of(op)
        if not isinstance(kind, Compute):
            return f"{op.name} is a {type(kind).__name__} stage"
        # the value is linear in what arrives: only reads that lead to the input count
        wanted = paths.reads(op)
        terms = linearize(op, wanted)
        for number, tensor in enumerate(outputs):
            for arrival in arrived.get(tensor_key(tensor), ()):
                own = [term for term in terms if term.component == number]
                for key, part in _through(arrival, axis_vars(op), own):
                    arrived.setdefault(key, []).append(part)
        for tensor in wanted:
            key = tensor_key(tensor)
            arrived[key] = _merged(arrived.get(key, []), keys)
            if len(arrived[key]) > _MOST:
                return f"more than {_MOST} paths lead to {tensor.op.name}"
            if any(contains_load(part.place) for part in arrived[key]):
                return f"{op.name} reads {tensor.op.name} at a place that is data"
    found = arrived.get(tensor_key(input), [])
    if any(not _has_plain_box(part) for part in found):
        return "the range of a reduction follows another axis"
    return [shrunk for part in found if (shrunk := _shrunk(part)) is not None]


def _through(
    arrival: Contribution, op_axes: Sequence[Var], terms: Sequence[Term]
) -> list[tuple[tuple[int, int], Contribution]]:
    """Continue a contribution to a tensor through the stage that computes the tensor."""
    fresh: dict[int, Axis] = {}
    found = []
    for term in terms:
        table: dict[Var, Expr] = dict(zip(op_axes, arrival.place, strict=True))
        for axis in term.reduce_axes:
            new = fresh.setdefault(node_id(axis.var), renew_axis(axis))
            table[axis.var] = new.var
        move = substituter(table)
        through = substituter({term.seed: arrival.value})
        inner = tuple(rename_bounds(fresh[node_id(axis.var)], move) for axis in term.reduce_axes)
        conditions = tuple(Condition(move(expand_lets(c.expr)), c.guards) for c in term.conditions)
        part = Contribution(
            (*arrival.axes, *inner),
            arrival.rows,
            tuple(move(index) for index in term.indices),
            (*arrival.conditions, *conditions),
            through(move(expand_lets(term.value))),
        )
        found.append((tensor_key(term.tensor), part))
    return found


def _merged(parts: Sequence[Contribution], keys: StructuralKeys) -> list[Contribution]:
    """``J[r, c] += u; J[r, c] += v  →  J[r, c] += u + v`` for equal axes and conditions."""
    found: dict[Hashable, Contribution] = {}
    for part in parts:
        key = (
            tuple(node_id(axis.var) for axis in part.axes),
            tuple(keys.expr(index) for index in part.place),
            frozenset((keys.expr(c.expr), c.guards) for c in part.conditions),
        )
        old = found.get(key)
        found[key] = part if old is None else replace(old, value=add(old.value, part.value))
    return list(found.values())


def _has_plain_box(part: Contribution) -> bool:
    """Whether no bound depends on another axis or on data."""
    own = {node_id(axis.var) for axis in part.axes}
    bounds = [b for axis in part.axes for b in axis_range(axis) if not isinstance(b, int)]
    return not contains_load(bounds) and all(
        node_id(var) not in own for var in variables_of(bounds)
    )


def _shrunk(part: Contribution) -> Contribution | None:
    """The contribution over a smaller box that its conditions on indices allow.

    ``J[c, i] where c == 0 → J[0, i]``; None if no point is left.
    """
    tests = part.on_indices
    if not tests:
        return part
    ranges = {axis.var: axis_range(axis) for axis in part.axes}
    domain = Domain(
        tuple(axis.var for axis in part.axes),
        ranges,
        tuple(_as_inequality(test, ranges) for test in tests),
    )
    solution = simplify_domain(domain)
    if solution.new_domain.is_empty:
        return None
    new, sizes = solution.new_domain, dict.fromkeys(domain.parameters, 64)
    if new.volume(sizes) >= domain.volume(sizes):
        return part
    move = substituter(dict(solution.old_to_new))
    data = [c for c in part.conditions if not is_on_indices(c.expr)]
    left = [Condition(expr, True) for expr in new.conditions]
    return Contribution(
        tuple(reduce_axis_over(var, nonnegative(new.ranges[var][1])) for var in new.variables),
        tuple(map(move, part.rows)),
        tuple(map(move, part.place)),
        (*left, *(Condition(move(c.expr), c.guards) for c in data)),
        move(part.value),
    )


def _as_inequality(test: Expr, ranges: Mapping[Var, tuple[Extent, Extent]]) -> Expr:
    """``i != 0 → i > 0`` if ``i >= 0``, and the same at the other end, because boxes have no holes.
    """
    if op_name(test) != "ne":
        return test
    left, right = operands(test)
    if prove(compare("ge", left, right), ranges):
        return compare("gt", left, right)
    return compare("lt", left, right) if prove(compare("le", left, right), ranges) else test


def is_on_indices(condition: Expr) -> bool:
    """Whether a condition reads no tensor and compares no floats."""
    return not any(is_load(node) or is_float(node) for node in postorder(condition))
