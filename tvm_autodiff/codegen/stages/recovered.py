"""Reads te stages back from a function: the inverse of `te.create_prim_func`.

TVM keeps no te beside the functions that its pipelines pass on, but each block of a function made
from te has axes, reads and writes, from which the stage follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from ...errors import LoweringError
from ...expr.build import cast, lowest, true
from ...expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    binary,
    const_value,
    dtype_of,
    is_tensor,
    load,
    node_id,
    same_node,
)
from ...expr.rewrite import substituter, variables_of
from ...expr.simplify import prove_equal
from ...graph.stage import (
    Combiner,
    Reduction,
    data_axis,
    make_stage,
    reduce_axis,
    reduction_stage,
    renew_axis,
)
from .kept_stages import kept_stages, sizes_matching
from .recovered_pairs import Selection, selection

Argument = Any  #: the value of a parameter: a tensor for a buffer, an expression for a scalar
Table = Mapping[Var, Expr]  #: the values of variables


class UnrecoveredError(LoweringError):
    """A function was not made from te; the message names the reason."""


@dataclass(frozen=True)
class _Reducer:
    """An operation by which blocks reduce, and its identity for a dtype."""

    name: str
    identity: Callable[[str], float]


#: update node → its reducer
_REDUCERS: dict[type, _Reducer] = {
    prim.Add: _Reducer("add", lambda dtype: 0),
    prim.Mul: _Reducer("mul", lambda dtype: 1),
    prim.And: _Reducer("and", lambda dtype: 1),
    prim.Or: _Reducer("or", lambda dtype: 0),
    prim.Max: _Reducer("max", lowest),
    prim.Min: _Reducer("min", lambda dtype: float(tirx.max_value(dtype).value)),
}


def recovered(
    func: Any, arguments: Sequence[Argument], shapes: Sequence[Sequence[Expr]] = ()
) -> list[Tensor]:
    """The results of a function as te tensors over its arguments.

    Parameters
    ----------
    func : PrimFunc
        Blocks that each compute all of a buffer from others, in the order of execution.
    arguments : sequence of Tensor or Expr
        The values of all parameters except the last ones: tensors for buffers, integer expressions
        for scalars. The other parameters are its results.
    shapes : sequence of sequences of Expr, optional
        The shapes of the results, if a size is a dimension only of these.

    Raises
    ------
    UnrecoveredError
        If TVM does not make such a block from a compute stage.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import show
    >>> x = te.placeholder((4,), name="x")
    >>> func = te.create_prim_func([x, te.compute((4,), lambda i: x[3 - i] * 2.0, name="y")])
    >>> print(show(recovered(func, [te.placeholder((4,), name="a")])[0]))
    inputs  a: float32[4]
    y[i] = a[3 - i]*2.0  float32[4]
    """
    kept = kept_stages(func, arguments, shapes)
    if kept is not None:
        return kept
    reader = _Reader(func, arguments, shapes)
    reader.read(func.body, _Frame())
    return [reader.tensor(param) for param in func.params[len(arguments) :]]


def _holds_blocks(statement: Any) -> bool:
    """Whether a statement is loops around blocks, or a sequence of such loops."""
    if isinstance(statement, tirx.SeqStmt):
        return all(_holds_blocks(part) for part in statement.seq)
    while isinstance(statement, tirx.For):
        statement = statement.body
        if isinstance(statement, tirx.SeqStmt):
            return _holds_blocks(statement)
    return isinstance(statement, s_tir.SBlockRealize)


@dataclass(frozen=True)
class _Frame:
    """The context of a block: enclosing axes, output and reduced, the values of their variables,
    and the initial values of reductions.
    """

    axes: tuple[Axis, ...] = ()
    reduced: tuple[Axis, ...] = ()
    table: Table = field(default_factory=dict)
    starts: Mapping[int, Expr] = field(default_factory=dict)


class _Reader:
    """Reads the blocks of a function one after another."""

    def __init__(
        self, func: Any, arguments: Sequence[Argument], shapes: Sequence[Sequence[Expr]]
    ) -> None:
        self._sizes: dict[Var, Expr] = {}
        self._tensors: dict[int, Tensor] = {}
        for param, argument in zip(func.params, arguments, strict=False):
            if not is_tensor(argument):
                self._sizes[param] = argument
                continue
            self._tensors[node_id(param)] = argument
            self._sizes = sizes_matching(param.ty.shape, argument.shape) | self._sizes
        for param, shape in zip(func.params[len(arguments) :], shapes, strict=False):
            self._sizes = sizes_matching(param.ty.shape, shape) | self._sizes

    def tensor(self, buffer: Any) -> Tensor:
        """The tensor for a buffer."""
        found = self._tensors.get(node_id(buffer))
        if found is None:
            raise UnrecoveredError(f"buffer {buffer.name} is read before a block writes all of it")
        return found

    def read(self, statement: Any, frame: _Frame) -> None:
        """The stages of a statement.

        Loops do not matter, because each block states the points it runs over.
        """
        if isinstance(statement, tirx.SeqStmt):
            for part in statement.seq:
                self.read(part, frame)
        elif isinstance(statement, tirx.For):
            self.read(statement.body, frame)
        elif isinstance(statement, s_tir.SBlockRealize):
            self._block(statement, frame)
        else:
            raise UnrecoveredError(f"a {type(statement).__name__} is outside of blocks")

    def _block(self, realize: Any, frame: _Frame) -> None:
        block, name = realize.block, str(realize.block.name_hint)
        if const_value(realize.predicate) != 1:
            raise UnrecoveredError(f"block {name} runs under a condition")
        if block.match_buffers:
            raise UnrecoveredError(f"block {name} uses views of buffers")
        inside = self._inside(realize, frame)
        if not _holds_blocks(block.body):
            self._stage(block, inside)
        elif inside.axes and block.alloc_buffers:
            raise UnrecoveredError(f"block {name} allocates buffers")
        else:
            self.read(block.body, inside)

    def _inside(self, realize: Any, frame: _Frame) -> _Frame:
        """The frame inside a block."""
        block, table = realize.block, dict(frame.table)
        axes, reduced = list(frame.axes), list(frame.reduced)
        for axis, value in zip(block.iter_vars, realize.iter_values, strict=True):
            dtype, name = dtype_of(axis.var), _axis_name(axis)
            if all(var in table for var in variables_of(value)):
                table[axis.var] = self._over(value, table)  # a number, or an axis around
                continue
            low, extent = (self._over(x, table) for x in (axis.dom.min, axis.dom.extent))
            if axis.iter_type == tirx.IterVar.CommReduce:
                new = reduce_axis(name, extent, low, dtype)
                reduced.append(new)
            elif axis.iter_type == tirx.IterVar.DataPar and not frame.axes:
                new = data_axis(name, extent, dtype)
                axes.append(new)
            else:
                raise UnrecoveredError(
                    f"block {block.name_hint} is computed in an order of {name}"
                )
            table[axis.var] = new.var
        starts = {**frame.starts, **_starts(block)}
        return _Frame(tuple(axes), tuple(reduced), table, starts)

    def _stage(self, block: Any, frame: _Frame) -> None:
        """``B[i] = value`` as a stage, ``B[i] = B[i] + value`` with an initial value as a sum."""
        name = str(block.name_hint)
        parts = list(block.body.seq) if isinstance(block.body, tirx.SeqStmt) else [block.body]
        stores = [part for part in parts if isinstance(part, tirx.BufferStore)]
        states = {node_id(one.buffer): _state(one) for one in stores}
        table = dict(frame.table)
        for part in parts:
            if isinstance(part, tirx.Bind):
                table[part.var] = self._value(part.value, table, states)
            elif not isinstance(part, tirx.BufferStore):
                kind = type(part).__name__
                raise UnrecoveredError(f"block {name} holds a {kind}, which te does not make")
        values = [self._value(one.value, table, states) for one in stores]
        self._check_places(stores, name, frame, table)
        titles = [name if len(stores) == 1 else str(one.buffer.name) for one in stores]
        starts = [frame.starts.get(node_id(one.buffer)) for one in stores]
        tuple_ = None
        if len(stores) > 1 and frame.reduced:
            tuple_ = selection(values, [states[node_id(one.buffer)] for one in stores], starts)
        if tuple_ is not None:
            results = _selected(name, titles, frame, tuple_, stores)
        else:
            results = [
                self._component(title, value, one, start, frame, states)
                for title, value, one, start in zip(titles, values, stores, starts, strict=True)
            ]
        for one, result in zip(stores, results, strict=True):
            self._tensors[node_id(one.buffer)] = result

    def _component(
        self,
        title: str,
        value: Expr,
        store: Any,
        start: Expr | None,
        frame: _Frame,
        states: Mapping[int, Var],
    ) -> Tensor:
        """The value that a block writes into one buffer, independently of others."""
        source, reducer = value, None
        if start is not None or frame.reduced:
            source, reducer = _reduced(value, states[node_id(store.buffer)], start, title)
        others = {node_id(var) for var in variables_of(source)}
        if others & {node_id(var) for var in states.values()}:
            raise UnrecoveredError(f"block {title} has an unknown reducer")
        if reducer is None:
            return make_stage(title, frame.axes, [source])[0]
        return _reduction(title, frame.axes, frame.reduced, source, reducer)

    def _check_places(self, stores: Sequence[Any], name: str, frame: _Frame, table: Table) -> None:
        """Check that each buffer is written once, completely, in the order of the axes."""
        for one in stores:
            if node_id(one.buffer) in self._tensors:
                raise UnrecoveredError(f"block {name} writes {one.buffer.name} a second time")
            places = [self._over(index, table) for index in one.indices]
            dims = [self._over(dim, {}) for dim in one.buffer.ty.shape]
            whole = len(places) == len(frame.axes) and all(
                (same_node(place, axis.var) or (const_value(place) == 0 and const_value(dim) == 1))
                and prove_equal(dim, axis.dom.extent)
                for place, dim, axis in zip(places, dims, frame.axes, strict=True)
            )
            if not whole:
                raise UnrecoveredError(f"block {name} writes parts of {one.buffer.name}")

    def _over(self, expr: Expr, table: Table) -> Expr:
        """An expression without reads, over the axes of stages and the sizes of arguments."""
        return substituter({**self._sizes, **table})(expr)

    def _value(self, expr: Expr, table: Table, states: Mapping[int, Var]) -> Expr:
        """An expression over tensors; the value computed so far is a variable."""

        def read(node: Any) -> Expr:
            state = states.get(node_id(node.source))
            if state is None:
                return load(self.tensor(node.source), list(node.indices))
            return state

        return self._over(tvm_ffi.structural_map(expr, (ir.TensorLoad, read), order="post"), table)


def _axis_name(axis: Axis) -> str:
    """The name of a te axis, without the prefix that TVM adds."""
    return str(axis.var.name).removeprefix("v_")


def _state(store: Any) -> Var:
    """The value computed so far for the element that a store writes."""
    return tirx.Var(f"{store.buffer.name}_state", str(store.buffer.ty.dtype))


def _starts(block: Any) -> dict[int, Expr]:
    """The initial value of each buffer that a block reduces into."""
    if block.init is None:
        return {}
    parts = block.init.seq if isinstance(block.init, tirx.SeqStmt) else [block.init]
    return {node_id(part.buffer): part.value for part in parts}


def _reduced(value: Expr, state: Var, start: Expr | None, name: str) -> tuple[Expr, _Reducer]:
    """``state + x → x`` and the sum, for any reducer."""
    reducer = _REDUCERS.get(type(value))
    if reducer is None:
        raise UnrecoveredError(f"block {name} has an unknown reducer")
    if start is None or const_value(start) != reducer.identity(dtype_of(value)):
        raise UnrecoveredError(f"block {name} does not start with the identity of its reducer")
    left, right = value.a, value.b
    if same_node(left, state):
        return right, reducer
    if same_node(right, state):
        return left, reducer
    raise UnrecoveredError(f"block {name} does not reduce into the element that it writes")


def _selected(
    name: str, titles: Sequence[str], frame: _Frame, found: Selection, stores: Sequence[Any]
) -> list[Tensor]:
    """The components of a reduction that selects, in the dtypes of their buffers."""
    reduction = Reduction(found.combiner, found.sources, frame.reduced, true(), ())
    components = reduction_stage(name, frame.axes, reduction)
    results = []
    for title, tensor, store in zip(titles, components, stores, strict=True):
        dtype = str(store.buffer.ty.dtype)
        if dtype != dtype_of(tensor):
            axes = [renew_axis(axis) for axis in frame.axes]
            body = cast(dtype, load(tensor, [axis.var for axis in axes]))
            tensor = make_stage(title, axes, [body])[0]
        results.append(tensor)
    return results


def _reduction(
    name: str, axes: Sequence[Axis], reduced: Sequence[Axis], source: Expr, reducer: _Reducer
) -> Tensor:
    dtype = dtype_of(source)
    lhs, rhs = tirx.Var("x", dtype), tirx.Var("y", dtype)
    identity = tirx.const(reducer.identity(dtype), dtype)
    combiner = Combiner((lhs,), (rhs,), (binary(reducer.name, lhs, rhs),), (identity,))
    return reduction_stage(name, axes, Reduction(combiner, (source,), tuple(reduced), true(), ()))[
        0
    ]
