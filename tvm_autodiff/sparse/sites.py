"""Finds read sites: which elements of its inputs each element of a stage depends on, symbolically.

A `Site` holds index expressions and conditions but no values, so finding sites takes the same time
for all extents.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import NotDifferentiableError
from ..expr.build import all_of, any_of, compare, conjuncts, negate, true
from ..expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_float,
    load_tensor,
    node_id,
    op_name,
    operands,
    own_fields,
    tensor_key,
)
from ..expr.printing.text import text
from ..expr.rewrite import contains_load, expand_lets
from ..graph.kinds.kind import Compute, kind_of
from ..graph.kinds.prefix_scan import Scan
from ..graph.stage import (
    Operation,
    axis_range,
    axis_vars,
    bodies,
    data_axis,
    reduce_axis,
    reduction_of,
    shape_of,
)
from ..rules.scalar_rules import NO_DERIVATIVE

#: nodes with the dtype of their operands, and boolean nodes
_OF_OPERANDS = frozenset(("add", "sub", "mul", "div", "floordiv", "floormod", "min", "max"))
_TESTS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not"))

#: the maximum number of separate paths to a node; more are joined into what they share
_MOST_PATHS = 4


@dataclass(frozen=True, eq=False)
class Site:
    """A read of a tensor by a stage.

    ``out[rows]`` depends on ``tensor[columns]`` at all points of the axes where the conditions
    hold.

    Attributes
    ----------
    tensor : Tensor
        The tensor that is read.
    axes : tuple of Axis
        The axes of the output, then those of the reduction. Bounds may depend on outer axes.
    rows, columns : tuple of Expr
        Indices of the output and of the tensor.
    conditions : tuple of Expr
        Conditions on indices only, because conditions on data may or may not hold.
    """

    tensor: Tensor
    axes: tuple[Axis, ...]
    rows: tuple[Expr, ...]
    columns: tuple[Expr, ...]
    conditions: tuple[Expr, ...]

    def text(self, name: str) -> str:
        """``y[i] reads x[i + k] for k < 3 where i < 4``."""
        rows = ", ".join(map(text, self.rows))
        columns = ", ".join(map(text, self.columns))
        own = {node_id(row) for row in self.rows}
        bounds = [
            f"{axis.var.name} < {_bound(axis)}"
            for axis in self.axes
            if node_id(axis.var) not in own
        ]
        tests = " and ".join(map(text, self.conditions))
        return (
            f"{name}[{rows}] reads {self.tensor.op.name}[{columns}]"
            + (f" for {', '.join(bounds)}" if bounds else "")
            + (f" where {tests}" if tests else "")
        )


def _bound(axis: Axis) -> str:
    low, extent = axis_range(axis)
    size = str(extent) if isinstance(extent, int) else text(extent)
    if low == 0:
        return size
    return f"{size} from {low if isinstance(low, int) else text(low)}"


def read_sites(output: Tensor, wanted: Sequence[Tensor]) -> list[Site]:
    """The read sites through which a stage depends smoothly on some tensors.

    Parameters
    ----------
    output : Tensor
        An output of a compute stage or a prefix scan.
    wanted : sequence of Tensor
        The tensors whose reads are returned.

    Raises
    ------
    NotDifferentiableError
        If the stage is opaque, or reads at indices or in ranges that are data.
    """
    op = output.op
    kind = kind_of(op)
    sites = _SITES.get(type(kind), _refused)(output, kind, wanted)
    for site in sites:
        _refuse_jagged(op, site)
    return sites


def _compute(output: Tensor, kind: Compute, wanted: Sequence[Tensor]) -> list[Site]:
    op = output.op
    reduction = reduction_of(op)
    if reduction is None:
        return _sites_of(op, [bodies(op)[output.value_index]], [], (), wanted)
    # the components of a reduction may all depend on all sources; init is under no condition
    tests = conjuncts(reduction.condition)
    return [
        *_sites_of(op, reduction.sources, tests, reduction.axes, wanted),
        *(_sites_of(op, reduction.init, [], (), wanted) if reduction.init else ()),
    ]


def _sites_of(
    op: Operation,
    roots: Sequence[Expr],
    own: Sequence[Expr],
    inner: Sequence[Axis],
    wanted: Sequence[Tensor],
) -> list[Site]:
    """The sites of expressions of a stage, under conditions and over reduce axes."""
    axes = (*op.axis, *inner)
    body = _Body(roots, own)
    if "let" in body.names.values():
        body = _Body([expand_lets(root) for root in roots], own)
    rows = tuple(axis_vars(op))
    places: dict[Hashable, tuple[Expr, list[_Path]]] = {}
    for read, paths in body.paths_to({tensor_key(tensor) for tensor in wanted}):
        columns = body.parts[node_id(read)]
        if not all(body.on_indices[node_id(index)] for index in columns):
            raise NotDifferentiableError(
                f"stage {op.name} reads {text(read)}, at an index that is data: the pattern of "
                'zeros is not known before the call. Use jacobian(format="dense"), or '
                "linearize(...) and products J @ v"
            )
        key = tensor_key(load_tensor(read)), *(body.keys[node_id(index)] for index in columns)
        known = places.setdefault(key, (read, []))[1]
        # conditions on data may or may not hold
        known += [tuple(test for test in path if test.on_indices) for path in paths]
    own_tests = [test for test in body.own if test.on_indices]
    return [
        Site(
            load_tensor(read),
            axes,
            rows,
            body.parts[node_id(read)],
            tuple(test.expr for test in _extended(path, own_tests)),
        )
        for read, paths in places.values()
        for path in _joined(paths)
    ]


@dataclass(frozen=True)
class _Test:
    """A condition that holds, or does not hold, on a path."""

    key: tuple[int, bool]
    node: Expr
    on_indices: bool

    @property
    def expr(self) -> Expr:
        """The condition itself."""
        return negate(self.node) if self.key[1] else self.node


_Path = tuple[_Test, ...]


class _Body:
    """Properties of the nodes of a stage's body, found in one walk."""

    def __init__(self, roots: Sequence[Expr], conditions: Sequence[Expr]) -> None:
        self.roots = roots
        self.order: list[Expr] = []
        self.names: dict[int, str] = {}
        self.parts: dict[int, tuple[Expr, ...]] = {}
        self.floats: dict[int, bool] = {}
        self.on_indices: dict[int, bool] = {}
        self.keys: dict[int, int] = {}  # equal for equal expressions
        table: dict[Hashable, int] = {}
        pending = [*reversed([*roots, *conditions])]
        while pending:
            node = pending[-1]
            here = node_id(node)
            if here in self.floats:
                pending.pop()
                continue
            if here not in self.parts:
                parts = self.parts[here] = operands(node)
                left = [part for part in reversed(parts) if node_id(part) not in self.floats]
                if left:
                    pending += left
                    continue
            pending.pop()
            self.order.append(node)
            parts = self.parts[here]
            name = self.names[here] = op_name(node)
            inner = [node_id(part) for part in parts]
            # a node that combines operands has the dtype of the last one
            combines = name in _OF_OPERANDS
            self.floats[here] = (
                self.floats[inner[-1]] if combines else name not in _TESTS and is_float(node)
            )
            self.on_indices[here] = (
                not self.floats[here]
                and name != "load"
                and all(self.on_indices[part] for part in inner)
            )
            if self.on_indices[here]:
                own = None if combines else (own_fields(node), name == "cast" and dtype_of(node))
                key = (name, own, *(self.keys[part] for part in inner))
                self.keys[here] = table.setdefault(key, len(table))
        self.own = [self._test(condition, False) for condition in conditions]

    def paths_to(self, wanted: set[tuple[int, int]]) -> list[tuple[Expr, list[_Path]]]:
        """Each read of the tensors, with the conditions of each path to a root."""
        active: set[int] = set()
        reads: list[Expr] = []
        for node in self.order:
            here = node_id(node)
            if not self.floats[here]:
                continue
            if self.names[here] == "load":
                if tensor_key(load_tensor(node)) in wanted:
                    active.add(here)
                    reads.append(node)
            elif self.names[here] not in NO_DERIVATIVE and any(
                node_id(part) in active for part in self.parts[here]
            ):
                active.add(here)
        paths: dict[int, list[_Path]] = {
            node_id(root): [()] for root in self.roots if node_id(root) in active
        }
        for node in reversed(self.order):
            here = node_id(node)
            if here not in paths or self.names[here] == "load":
                continue
            for part, tests in self._steps(here):
                there = node_id(part)
                if there in active:
                    arriving = [_extended(path, tests) for path in paths[here]]
                    paths[there] = _joined([*paths.get(there, ()), *arriving])
        return [(read, paths[node_id(read)]) for read in reads if node_id(read) in paths]

    def _steps(self, here: int) -> list[tuple[Expr, list[_Test]]]:
        """The operands of a node, each with the conditions under which it counts."""
        if self.names[here] not in ("select", "if_then_else"):
            return [(part, []) for part in self.parts[here]]
        condition, then, otherwise = self.parts[here]
        holds = [self._test(part, False) for part in conjuncts(condition)]
        return [(then, holds), (otherwise, [self._test(condition, True)])]

    def _test(self, condition: Expr, negated: bool) -> _Test:
        here = node_id(condition)
        key = self.keys.get(here, -1 - here)  # data: equal only to itself
        return _Test((key, negated), condition, self.on_indices[here])


def _extended(path: _Path, tests: Sequence[_Test]) -> _Path:
    known = {test.key for test in path}
    return (*path, *(test for test in tests if test.key not in known))


def _joined(paths: list[_Path]) -> list[_Path]:
    """Paths without those that another one contains; too many are reduced to what they share."""
    if len(paths) == 1:
        return paths
    kept: list[tuple[_Path, frozenset[tuple[int, bool]]]] = []
    for path in paths:
        own = frozenset(test.key for test in path)
        if not any(other <= own for _, other in kept):
            kept = [pair for pair in kept if not own <= pair[1]] + [(path, own)]
    if len(kept) <= _MOST_PATHS:
        return [path for path, _ in kept]
    shared = frozenset.intersection(*(own for _, own in kept))
    return [tuple(test for test in kept[0][0] if test.key in shared)]


def copy_site(op: Operation, tensor: Tensor) -> Site:
    """The site of a stage that equals a tensor."""
    axes = [data_axis(f"i{n}", extent) for n, extent in enumerate(shape_of(op.output(0)))]
    here = tuple(axis.var for axis in axes)
    return Site(tensor, tuple(axes), here, here, ())


def _scan(output: Tensor, kind: Scan, wanted: Sequence[Tensor]) -> list[Site]:
    """``before[a, j]`` depends on the elements ``[a, k]`` with ``k < j``, in order of the scan."""
    keys = {tensor_key(tensor) for tensor in wanted}
    shape = shape_of(output)
    count = len(kind.rows)
    here = [data_axis(f"i{n}", extent) for n, extent in enumerate(shape)]
    there = [reduce_axis(f"k{n}", extent) for n, extent in enumerate(shape[count:])]
    left, right = [axis.var for axis in there], [axis.var for axis in here[count:]]
    if kind.backward:
        left, right = right, left
    sites = []
    for tensor in {tensor_key(t): t for t in kind.elements if tensor_key(t) in keys}.values():
        place = [*(axis.var for axis in here[:count]), *(axis.var for axis in there)]
        sites.append(
            Site(
                tensor,
                (*here, *there),
                tuple(axis.var for axis in here),
                tuple(place[len(place) - len(shape_of(tensor)) :]),
                (_before(left, right),),
            )
        )
    return sites


def _before(left: Sequence[Var], right: Sequence[Var]) -> Expr:
    """Whether an index comes before another one, with the last index running fastest."""
    if not left:
        return negate(true())
    first = compare("lt", left[0], right[0])
    if len(left) == 1:
        return first
    equal = compare("eq", left[0], right[0])
    return any_of([first, all_of([equal, _before(left[1:], right[1:])])])


def _refused(output: Tensor, kind: object, wanted: Sequence[Tensor]) -> list[Site]:
    names = ", ".join(tensor.op.name for tensor in wanted)
    raise NotDifferentiableError(
        f"stage {output.op.name}, which depends on {names}, is a {type(kind).__name__} stage: its "
        'pattern of zeros is not known. Use jacobian(format="dense"), or linearize(...) and '
        "products J @ v"
    )


def _refuse_jagged(op: Operation, site: Site) -> None:
    """Raise if the range of an axis is read from a tensor."""
    for axis in site.axes:
        bounds = [bound for bound in axis_range(axis) if not isinstance(bound, int)]
        if bounds and contains_load(bounds):
            raise NotDifferentiableError(
                f"stage {op.name} sums {axis.var.name} over a range that is data, "
                f"{text(bounds[-1])}: the pattern of zeros is not known before the call. Use "
                'jacobian(format="dense"), or linearize(...) and products J @ v'
            )


_SITES: Mapping[type, Callable[..., list[Site]]] = {Compute: _compute, Scan: _scan}
