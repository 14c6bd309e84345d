"""A step of a loop for one row, as straight-line code.

The rows of the step are independent. The code computes values over the state of one row and
elements of what the step reads. Components, reductions over them and conditions on them are
unrolled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, TypeAlias

from ....expr.build import cast, const, select, variable
from ....expr.costly import EXPENSIVE
from ....expr.nodes import (
    BINARY_CLASSES,
    INTEGER_DIVISIONS,
    Expr,
    Tensor,
    Var,
    const_value,
    dtype_of,
    is_float,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
    with_operands,
)
from ....expr.rewrite import Rewriter, expand_lets, postorder
from ....expr.sharing.lets import merge_equal
from ....graph.graph import topological
from ....graph.kinds.loop import Step
from ....graph.stage import (
    Extent,
    Operation,
    Reduction,
    axis_range,
    bodies,
    bounds_of,
    is_compute,
    is_placeholder,
    loop_axes,
    outputs_of,
    reduction_of,
    shape_of,
)
from ...declined import Declined, no_gain, other_kind
from ..literals import over_numbers

Key: TypeAlias = tuple[Any, ...]

DTYPES = ("float32", "float64", "int32", "int64")  #: of what is read and written

#: operators that there are for vectors
_OPERATIONS = EXPENSIVE | {*BINARY_CLASSES, "truncdiv", "not", "select", "if_then_else", "cast"}
_OPERATIONS |= {"const", "var", "load", "sqrt", "fma", "abs", "floor", "ceil", "trunc"}


@dataclass(frozen=True)
class RowProgram:
    """A step for one row.

    Attributes
    ----------
    rows : tuple of Var
        The indices of the row.
    extents : tuple of int
        The number of rows along each index.
    states : tuple of tuple of Var
        For each carry, one variable for each of its components.
    bindings : tuple of (Var, Expr)
        Bindings in order: values over states, `rows`, earlier variables and elements of ``step.xs``
        and ``step.consts``. Each of them may be evaluated for every row.
    news, ys : tuple of tuple of Expr
        The components of the next carries, and of the results.
    """

    rows: tuple[Var, ...]
    extents: tuple[int, ...]
    states: tuple[tuple[Var, ...], ...]
    bindings: tuple[tuple[Var, Expr], ...]
    news: tuple[tuple[Expr, ...], ...]
    ys: tuple[tuple[Expr, ...], ...]

    @property
    def components(self) -> int:
        """The numbers in the state of a row."""
        return sum(map(len, self.states))


def row_program(step: Step, axes: int, most: int) -> RowProgram | Declined:
    """The step for a row along its first `axes` axes.

    ``h'[i, c] = Σ_k w[c, k]·h[i, k]  →  h'0 = w[0, 0]·h0 + w[0, 1]·h1; h'1 = ..``

    Parameters
    ----------
    step : Step
        A step in normal form.
    axes : int
        The number of leading axes of all carries and results that are rows.
    most : int
        The maximum number of unrolled points of all stages for one row.
    """
    if not all(is_compute(tensor.op) for tensor in step.outputs):
        return other_kind("it has stages other than te.compute")
    tensors = [*step.carries, *step.outputs]
    leading = {shape_of(tensor)[:axes] for tensor in tensors}
    extents = leading.pop() if len(leading) == 1 else ()
    if len(extents) != axes or not all(isinstance(extent, int) for extent in extents):
        return other_kind("its carries and results have no common leading axes of literal size")
    if not all(isinstance(dim, int) for tensor in tensors for dim in shape_of(tensor)[axes:]):
        return other_kind("the size of a row is not literal")
    if any(dtype_of(tensor) not in DTYPES for tensor in (*step.inputs, *step.outputs)):
        return other_kind("it has elements that are not plain numbers")
    large = _too_large(step, extents, most)
    if large is not None:
        return large
    try:
        return _Writer(step, tuple(int(extent) for extent in extents), most).program()
    except _CannotError as found:
        return found.declined


def _too_large(step: Step, extents: Sequence[Extent], most: int) -> Declined | None:
    """Why not, if a row of one stage takes too many points: told before any of them is written."""
    for op in topological(step.outputs):
        ranges = [axis_range(axis)[1] for axis in loop_axes(op)] if is_compute(op) else []
        if not ranges or not all(isinstance(n, int) for n in ranges):
            continue
        rows, row = ranges[: len(extents)], ranges[len(extents) :]
        if rows == list(extents) and prod(map(int, row)) > most:
            return no_gain(f"a row of {op.name} takes more than {most} points")
    return None


class _CannotError(Exception):
    """The step has no straight-line code."""

    def __init__(self, declined: Declined) -> None:
        super().__init__(declined.reason)
        self.declined = declined


class _Writer:
    """Evaluates elements of tensors on demand, each once."""

    def __init__(self, step: Step, extents: tuple[int, ...], most: int) -> None:
        self._step, self._extents, self._most = step, extents, most
        self._rows = tuple(
            variable(f"r{n}", dtype_of(axis.var))
            for n, axis in enumerate(list(step.outputs[0].op.axis)[: len(extents)])
        )
        self._row_keys = [node_id(row) for row in self._rows]
        self._states = {
            tensor_key(carry): {
                place: variable(str(carry.op.name), dtype_of(carry))
                for place in self._places(carry)
            }
            for carry in step.carries
        }
        self._bindings: list[tuple[Var, Expr]] = []
        self._known: dict[Key, Expr] = {}
        self._points = 0

    def program(self) -> RowProgram:
        """All results of the step."""
        found = [
            tuple(
                self._element(tensor, [*self._rows, *(const(n, "int32") for n in place)])
                for place in self._places(tensor)
            )
            for tensor in self._step.outputs
        ]
        count = len(self._step.news)
        states = tuple(tuple(vars.values()) for vars in self._states.values())
        return RowProgram(
            self._rows,
            self._extents,
            states,
            tuple(self._bindings),
            tuple(found[:count]),
            tuple(found[count:]),
        )

    def _places(self, tensor: Tensor) -> list[tuple[int, ...]]:
        count = prod(int(dim) for dim in shape_of(tensor)[len(self._extents) :])
        if count > self._most:
            raise _CannotError(no_gain(f"a row of {tensor.op.name} has {count} elements"))
        return components_of(tensor, len(self._extents))

    def _element(self, tensor: Tensor, indices: Sequence[Expr], guarded: bool = False) -> Expr:
        """The value of an element; `guarded` if it is under a condition."""
        indices = [self._plain(index) for index in indices]
        if guarded and not self._inside(tensor, indices):
            raise _CannotError(other_kind(f"{tensor.op.name} is read under a condition"))
        place = tuple(map(index_key, indices))
        key: Key = (*tensor_key(tensor), *place)
        if key in self._known:
            return self._known[key]
        if tensor_key(tensor) in self._states:
            return self._state(tensor, indices)
        if is_placeholder(tensor.op):
            self._known[key] = self._bound(load(tensor, indices), str(tensor.op.name))
            return self._known[key]
        if not is_compute(tensor.op):
            raise _CannotError(other_kind(f"stage {tensor.op.name} is not a te.compute"))
        for one, value in zip(outputs_of(tensor.op), self._stage(tensor.op, indices), strict=True):
            other: Key = (*tensor_key(one), *place)
            self._known[other] = value
        return self._known[key]

    def _state(self, tensor: Tensor, indices: Sequence[Expr]) -> Var:
        count = len(self._rows)
        own = [node_id(index) for index in indices[:count]] == self._row_keys
        values = [const_value(index) for index in indices[count:]]
        if not own or None in values:
            raise _CannotError(no_gain(f"rows of {tensor.op.name} meet"))
        found = self._states[tensor_key(tensor)].get(tuple(int(n) for n in values if n is not None))
        if found is None:
            raise _CannotError(other_kind(f"{tensor.op.name} is read outside of its bounds"))
        return found

    def _plain(self, index: Expr) -> Expr:
        """An index without casts around a row or a number."""
        inner = index
        while op_name(inner) == "cast":
            inner = operands(inner)[0]
        if node_id(inner) in self._row_keys:
            return inner
        if any(is_load(node) for node in postorder(index)):
            raise _CannotError(other_kind("an index is data"))
        return index

    def _inside(self, tensor: Tensor, indices: Sequence[Expr]) -> bool:
        """Whether an element is in bounds for all rows."""
        sizes = dict(zip(self._row_keys, self._extents, strict=True))
        for index, dim in zip(indices, shape_of(tensor), strict=True):
            value = const_value(index)
            last = sizes.get(node_id(index), 0) - 1 if value is None else value
            if not isinstance(dim, int) or not 0 <= last < dim:
                return False
        return True

    def _stage(self, op: Operation, indices: Sequence[Expr]) -> list[Expr]:
        table = {
            node_id(axis.var): cast(dtype_of(axis.var), index)
            for axis, index in zip(op.axis, indices, strict=True)
        }
        reduction = reduction_of(op)
        name = str(op.name)
        if reduction is None:
            self._count()
            return [self._value(body, table, name) for body in bodies(op)]
        results = self._reduced(reduction, table, name)
        return [results[int(body.value_index)] for body in bodies(op)]

    def _reduced(self, reduction: Reduction, table: dict[int, Expr], name: str) -> list[Expr]:
        """The points of a reduction in order; a sum starts with its first term."""
        names = [op_name(result) for result in reduction.combiner.result]
        first = reduction.init or reduction.combiner.identity
        total = None if names == ["add"] and not reduction.init else list(first)
        for point in self._reduction_points(reduction, table):
            self._count()
            here = {**table, **point}
            condition = const_value(self._folded(reduction.condition, here))
            if condition is None:
                raise _CannotError(other_kind(f"the terms of {name} have a condition"))
            if not condition:
                continue
            terms = [self._value(source, here, name) for source in reduction.sources]
            if total is None:
                total = terms
                continue
            total = [self._bound(e, name) for e in reduction.combiner.apply(total, terms)]
        return list(first) if total is None else total

    def _reduction_points(
        self, reduction: Reduction, table: dict[int, Expr]
    ) -> list[dict[int, Expr]]:
        points: list[dict[int, Expr]] = [{}]
        for axis in reduction.axes:
            wider = []
            for point in points:
                here = {**table, **point}
                low, extent = (const_value(self._folded(b, here)) for b in bounds_of(axis))
                if low is None or extent is None:
                    raise _CannotError(other_kind("the bounds of a reduction are not numeric"))
                dtype = dtype_of(axis.var)
                wider += [
                    {**point, node_id(axis.var): const(n, dtype)}
                    for n in range(int(low), int(low) + int(extent))
                ]
                if len(wider) > self._most:
                    raise _CannotError(no_gain("a row has too many terms"))
            points = wider
        return points

    def _count(self) -> None:
        self._points += 1
        if self._points > self._most:
            raise _CannotError(no_gain(f"a row takes more than {self._most} points"))

    def _folded(self, expr: Expr, table: dict[int, Expr]) -> Expr:
        def visit(node: Expr) -> Expr | None:
            if op_name(node) == "var":
                return table.get(node_id(node))
            return over_numbers(node)

        return Rewriter(visit)(expand_lets(expr))

    def _value(self, expr: Expr, table: dict[int, Expr], name: str) -> Expr:
        """An expression at an index of the loops, over variables."""
        [plain] = merge_equal([self._folded(expr, table)])
        free = {node_id(node) for node in _unguarded(plain)}
        for node in postorder(plain):
            if op_name(node) not in _OPERATIONS:
                raise _CannotError(other_kind(f"stage {name} calls {op_name(node)}"))
            divides = op_name(node) in INTEGER_DIVISIONS and not is_float(node)
            if divides and node_id(node) not in free:
                raise _CannotError(other_kind(f"stage {name} divides under a condition"))

        return self._over_variables(plain, free, name)

    def _over_variables(self, root: Expr, free: Container[int], name: str) -> Expr:
        """Replaces reads, and parts that occur twice, by variables.

        Both sides of a branch may then be evaluated.
        """
        order = postorder(root)
        uses = Counter(node_id(part) for node in order for part in operands(node))
        indices = [index for node in order if is_load(node) for index in operands(node)]
        positions = {node_id(node) for node in postorder(indices)}
        done: dict[int, Expr] = {}
        for node in order:
            key = node_id(node)
            if is_load(node):
                done[key] = self._element(load_tensor(node), operands(node), key not in free)
                continue
            parts = [done[node_id(part)] for part in operands(node)]
            if op_name(node) == "if_then_else":
                value = select(*parts)
            else:
                value = with_operands(node, parts) if parts else node
            if parts and uses[key] > 1 and key not in positions and is_float(value):
                value = self._bound(value, name)
            done[key] = value
        return self._bound(done[node_id(root)], name)

    def _bound(self, value: Expr, name: str) -> Expr:
        if op_name(value) in ("var", "const"):
            return value
        var = variable(name, dtype_of(value))
        self._bindings.append((var, value))
        return var


def index_key(index: Expr) -> Key:
    """A key that equal indices share: a number, or one variable."""
    value = const_value(index)
    return ("id", node_id(index)) if value is None else ("at", int(value))


def components_of(tensor: Tensor, axes: int) -> list[tuple[int, ...]]:
    """The components of a row of a tensor, in memory order."""
    return list(product(*(range(int(dim)) for dim in shape_of(tensor)[axes:])))


def _unguarded(expr: Expr) -> list[Expr]:
    """The nodes that are always evaluated."""
    found: dict[int, Expr] = {}
    pending = [expr]
    while pending:
        node = pending.pop()
        if node_id(node) in found:
            continue
        found[node_id(node)] = node
        guards = op_name(node) in ("if_then_else", "select", "and", "or")
        pending += operands(node)[:1] if guards else operands(node)
    return list(found.values())
