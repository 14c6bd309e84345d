"""Expressions and graphs of tensors evaluated in numpy: what the library's results must equal.

This reads TVM's own nodes and shares no code with the library. A read outside of its tensor gives
NaN (in integers a number far outside), so that it is harmless behind a guard and poison in a
result; under `strict` it raises, unless a condition around it is false there. Opaque stages are
interpreted statement by statement.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import ir, te, tirx
from tvm.ir import prim

from tests.evaluate_functions import BINARY, CALLS, Array, is_floating, numpy_dtype
from tests.evaluate_steps import Steps

Key = tuple[int, int]
_WIDE: contextvars.ContextVar[bool] = contextvars.ContextVar("floats as float64", default=False)
_FAR = -(2**30)  # an index that is outside of every tensor
_MOST_POINTS = 1 << 21  # of a reduction that is evaluated at once
#: the attribute by which a stage is a loop over time
LOOP_STEP = "tvm_autodiff.loop.step"
#: .. and one that keeps some states, or one back over these
KEPT_LOOP, LOOP_BACK = "tvm_autodiff.rewind.kept", "tvm_autodiff.rewind.loops"
_DEPTH = 20_000  # expressions are walked by recursion
_LITERALS = (prim.IntImm, prim.FloatImm)
#: node of a combiner → how numpy reduces by it
_UFUNCS: dict[type, Any] = {prim.Add: np.add, prim.Mul: np.multiply}


class OutsideRead(Exception):
    """A read outside of its tensor that no condition guards."""


def key_of(tensor: te.Tensor) -> Key:
    return hash(tensor.op), tensor.value_index


def poison(dtype: np.dtype) -> Array:
    """What a read outside of a tensor gives."""
    if is_floating(dtype):
        return np.asarray(np.nan).astype(dtype)
    if dtype.kind == "b":
        return np.asarray(False)
    return np.asarray(max(_FAR, np.iinfo(dtype).min) if dtype.kind == "i" else 0).astype(dtype)


def read_array(array: Array, indices: Sequence[Array], name: str, active: Array | None) -> Array:
    """Elements of an array, poison outside; an error where `active` is given and holds there."""
    if not indices:
        return array[()]
    legal = [(index >= 0) & (index < n) for index, n in zip(indices, array.shape, strict=True)]
    if all(ok.all() for ok in legal):
        return array[tuple([index.astype(np.int64, copy=False) for index in indices])]
    inside = functools.reduce(np.logical_and, legal)
    if active is not None and (active & ~inside).any():
        raise OutsideRead(f"{name}, of shape {array.shape}, is read outside")
    if array.size == 0:
        return np.broadcast_to(poison(array.dtype), inside.shape)
    places = [np.where(ok, i, 0).astype(np.int64) for ok, i in zip(legal, indices, strict=True)]
    return np.where(inside, array[tuple(places)], poison(array.dtype))


class Expression:
    """Values of expressions over one grid: `variables` by identity, `tensors` by key.

    A tensor is an array, or a function of its indices and of where they count.
    """

    def __init__(
        self,
        variables: Mapping[int, Any],
        tensors: Mapping[Key, Any],
        strict: bool,
        cut_short: bool = False,
    ) -> None:
        self.variables = dict(variables)
        self.tensors = tensors
        self.strict = strict
        self.cut_short = cut_short
        self.known: dict[tuple[int, int], Array] = {}
        self.masks: list[Array] = []  # alive as long as their addresses are keys

    def value(self, node: Any, active: Array | None = None) -> Array:
        """The value of `node`; under `strict` its reads count where `active` holds."""
        if type(node) in _LITERALS:  # whose hash is that of the number
            return np.asarray(node.value).astype(float_dtype(node.ty))
        key = (hash(node), id(active))
        if key not in self.known:
            dtype = float_dtype(node.ty)
            found = self._compute(node, dtype, active)
            self.known[key] = np.asarray(found).astype(dtype, copy=False)
        return self.known[key]

    def _compute(self, node: Any, dtype: np.dtype, active: Array | None) -> Array:
        cls = type(node)
        if self.cut_short and cls is prim.And:
            return self._choose(node.a, node.b, tirx.const(False, "bool"), active)
        if self.cut_short and cls is prim.Or:
            return self._choose(node.a, tirx.const(True, "bool"), node.b, active)
        if cls in BINARY:
            return BINARY[cls](self.value(node.a, active), self.value(node.b, active))
        if cls is ir.Var:
            return np.asarray(self.variables[hash(node)])
        if cls is prim.Cast:
            return self.value(node.value, active)
        if cls is prim.Not:
            return np.logical_not(self.value(node.a, active))
        if cls is prim.BitwiseNot:
            return np.invert(self.value(node.a, active))
        if cls is prim.Select:
            return self._choose(node.condition, node.true_value, node.false_value, active)
        if cls is prim.Let:
            self.variables[hash(node.var)] = self.value(node.value, active)
            return self.value(node.body, active)
        if cls is ir.TensorLoad:
            indices = [self.value(index, active) for index in node.indices]
            return self._read((hash(node.source), 0), indices, node.source.name, active)
        if cls is ir.Call:
            return self._call(node, dtype, active)
        raise NotImplementedError(f"no value is known for {cls.__name__}")

    def _call(self, node: Any, dtype: np.dtype, active: Array | None) -> Array:
        name = node.op.name
        args = list(node.args)
        if name == "te.tensor_load":
            indices = [self.value(index, active) for index in args[1:]]
            return self._read(key_of(args[0]), indices, args[0].op.name, active)
        name = name.rpartition(".")[2]
        if name in ("call_extern", "call_pure_extern"):
            name, args = args[0].value, args[1:]
        if name == "if_then_else":
            return self._choose(*args, active)
        values = [self.value(arg, active) for arg in args]
        return values[0].view(dtype) if name == "reinterpret" else CALLS[name](*values)

    def _choose(self, condition: Any, then: Any, other: Any, active: Array | None) -> Array:
        holds = self.value(condition, active)
        if not self.strict:
            return np.where(holds, self.value(then), self.value(other))
        everywhere = np.asarray(True) if active is None else active
        masks = everywhere & holds, everywhere & ~holds
        self.masks += masks
        return np.where(holds, self.value(then, masks[0]), self.value(other, masks[1]))

    def _read(self, key: Key, indices: list[Array], name: str, active: Array | None) -> Array:
        if self.strict and active is None:
            active = np.asarray(True)
        tensor = self.tensors[key]
        if callable(tensor):
            return tensor(indices, active)
        return read_array(tensor, indices, name, active if self.strict else None)


@contextlib.contextmanager
def floats_as_float64() -> Iterator[None]:
    """Every float is float64, whatever its dtype: for differences of small steps."""
    token = _WIDE.set(True)
    try:
        yield
    finally:
        _WIDE.reset(token)


def float_dtype(dtype: Any) -> np.dtype:
    found = numpy_dtype(dtype)
    return np.dtype("float64") if _WIDE.get() and is_floating(found) else found


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEPTH))
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        sys.setrecursionlimit(limit)


def _pairs(given: Any) -> list[tuple[Any, Any]]:
    return list(given.items() if isinstance(given, Mapping) else given)


def evaluate(
    expr: Any,
    variables: Mapping[Any, Any] | None = None,
    tensors: Mapping[te.Tensor, Array] | Iterable[tuple[te.Tensor, Array]] = (),
    *,
    strict: bool = False,
    cut_short: bool = False,
) -> Array:
    """The value of an expression without reductions.

    Parameters
    ----------
    variables : mapping
        Numbers, or arrays that broadcast with each other; the result has their common shape.
    tensors : mapping or pairs
        The arrays that reads are taken from.
    strict : bool
        Whether an unguarded read outside of a tensor is an error.
    cut_short : bool
        Whether the first operand of `and` and `or` guards the second, as a user means it.

    Examples
    --------
    >>> i, A = te.var("i"), te.placeholder((3,), name="A")
    >>> body = te.if_then_else(i < 3, A[i] * 2.0, 0.0)
    >>> evaluate(body, {i: np.arange(4)}, {A: np.ones(3, "float32")})
    array([2., 2., 2., 0.], dtype=float32)
    """
    known = {key_of(tensor): np.asarray(array) for tensor, array in _pairs(tensors)}
    bound = {
        hash(var): np.asarray(value).astype(numpy_dtype(var.ty))
        for var, value in (variables or {}).items()
    }
    with _quietly():
        return Expression(bound, known, strict, cut_short).value(expr)


def stages_of(outputs: Iterable[te.Tensor]) -> list[Any]:
    """The operations that tensors depend on, each after those that it reads."""
    done: dict[int, Any] = {}
    pending = [(tensor.op, False) for tensor in reversed(list(outputs))]
    while pending:
        op, ready = pending.pop()
        if hash(op) in done:
            continue
        if ready:
            done[hash(op)] = op
        else:
            pending.append((op, True))
            pending += [(tensor.op, False) for tensor in reversed(list(op.input_tensors))]
    return list(done.values())


def evaluate_graph(
    outputs: Iterable[te.Tensor],
    inputs: Mapping[te.Tensor, Array] | Iterable[tuple[te.Tensor, Array]],
    scalars: Mapping[Any, Any] | None = None,
    *,
    strict: bool = False,
) -> list[Array]:
    """The values of tensors, every stage they need computed in numpy.

    Parameters
    ----------
    outputs : iterable of Tensor
        Tensors that compute stages and opaque loop nests lead to.
    inputs : mapping or pairs
        Arrays of placeholders; a stage that is given is not computed.
    scalars : mapping, optional
        Values of free variables, symbolic extents included.
    strict : bool
        Whether an unguarded read outside of a tensor is an error at once.

    Examples
    --------
    >>> A, k = te.placeholder((2, 3), name="A"), te.reduce_axis((0, 3), "k")
    >>> B = te.compute((2,), lambda i: te.sum(A[i, k], axis=k), name="B")
    >>> evaluate_graph([B], {A: np.arange(6.0).reshape(2, 3)})
    [array([ 3., 12.], dtype=float32)]
    """
    outputs = list(outputs)
    known: dict[Key, Any] = {
        key_of(tensor): np.asarray(array).astype(numpy_dtype(tensor.dtype), copy=False)
        for tensor, array in _pairs(inputs)
    }
    free = _free(scalars)
    with _quietly():
        run_stages(stages_of(outputs), free, known, strict)
    return [known[key_of(tensor)] for tensor in outputs]


def run_stages(
    ops: Iterable[Any], free: Mapping[int, Any], known: dict[Key, Any], strict: bool
) -> None:
    """Compute stages whose values are not known yet, in the order given."""
    for op in ops:
        targets = [op.output(place) for place in range(op.num_outputs)]
        if all(key_of(tensor) in known for tensor in targets):
            continue
        values = _stage(op, free, known, strict)
        known.update(zip(map(key_of, targets), values, strict=True))


def evaluate_batch(
    outputs: Iterable[te.Tensor], inputs: Iterable[tuple[te.Tensor, Array]]
) -> list[Array]:
    """The values of tensors for several arrays of their inputs at once, in float64.

    Parameters
    ----------
    inputs : pairs
        Placeholders and arrays with one more axis before those of the placeholder, equally long
        for all; results have it, too.

    Examples
    --------
    >>> A = te.placeholder((2,), name="A")
    >>> B = te.compute((2,), lambda i: A[1 - i] * 2.0, name="B")
    >>> evaluate_batch([B], [(A, np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))])
    [array([[ 4.,  2.],
           [ 8.,  6.],
           [12., 10.]])]
    """
    outputs = list(outputs)
    arrays = {key_of(tensor): np.asarray(array) for tensor, array in inputs}
    count = len(next(iter(arrays.values())))
    known: dict[Key, Any] = {key: _batched(array) for key, array in arrays.items()}
    with _quietly(), floats_as_float64():
        for op in stages_of(outputs):
            targets = [key_of(op.output(place)) for place in range(op.num_outputs)]
            if all(key in known for key in targets):
                continue
            shape = tuple(int(Expression({}, {}, False).value(dim)) for dim in op.output(0).shape)
            whole = (count, *shape)
            if isinstance(op, te.ExternOp):
                values = _extern_batch(op, count, arrays)
                arrays.update(zip(targets, values, strict=True))
                known.update((key, _batched(arrays[key])) for key in targets)
                continue
            grid = [np.broadcast_to(axis, whole) for axis in np.indices(shape)]
            active = np.ones(whole, bool)
            values = points_of(op, grid, {}, known, active, whole)
            arrays.update(zip(targets, values, strict=True))
            known.update((key, _batched(arrays[key])) for key in targets)
    return [arrays[key_of(tensor)] for tensor in outputs]


def _extern_batch(op: Any, count: int, arrays: Mapping[Key, Array]) -> list[Array]:
    from tests.evaluate_scalars import statement_of
    from tests.evaluate_statements import run_extern

    body = statement_of(op.body)
    shapes = [
        tuple(int(Expression({}, {}, False).value(dim)) for dim in op.output(place).shape)
        for place in range(op.num_outputs)
    ]
    members = [
        run_extern(op, shapes, {}, {key: array[place] for key, array in arrays.items()}, body)
        for place in range(count)
    ]
    return [np.stack(values) for values in zip(*members, strict=True)]


def _batched(array: Array) -> Any:
    def read(indices: list[Array], active: Array) -> Array:
        batch = np.arange(len(array)).reshape([-1] + [1] * (np.ndim(active) - 1))
        inside = np.asarray(True)
        for index, extent in zip(indices, array.shape[1:], strict=True):
            inside = inside & (index >= 0) & (index < extent)
        if not array.size:
            return poison(array.dtype)
        places = [np.where(inside, index, 0).astype(np.int64) for index in indices]
        return np.where(inside, array[(batch, *places)], poison(array.dtype))

    return read


def evaluate_at(
    tensor: te.Tensor,
    points: Sequence[Array],
    inputs: Iterable[tuple[te.Tensor, Any]],
    scalars: Mapping[Any, Any] | None = None,
) -> Array:
    """Some elements of a tensor, of stages that may be too large to be held.

    Parameters
    ----------
    points : sequence of arrays
        Indices of the elements, an array a dimension.
    inputs : pairs
        Placeholders with arrays, or with functions ``(indices, active) -> values``.

    Examples
    --------
    >>> A, n = te.placeholder((10**9,), "float64", name="A"), 10**9
    >>> B = te.compute((n,), lambda i: A[n - 1 - i] * 2.0, name="B")
    >>> evaluate_at(B, [np.array([0, 5])], [(A, lambda indices, active: indices[0] / 1.0)])
    array([2.00000000e+09, 1.99999999e+09])
    """
    known: dict[Key, Any] = {key_of(key): value for key, value in inputs}
    free = _free(scalars)
    for op in stages_of([tensor]):
        for place in range(op.num_outputs):
            known.setdefault(key_of(op.output(place)), _lazily(op, place, free, known))
    with _quietly():
        return known[key_of(tensor)](list(points), np.asarray(True))


def _lazily(op: Any, place: int, free: Mapping[int, Any], known: Mapping[Key, Any]) -> Any:
    shape = [Expression(free, {}, False).value(dim) for dim in op.output(place).shape]

    def read(indices: list[Array], active: Array | None) -> Array:
        inside = np.asarray(True)
        for index, extent in zip(indices, shape, strict=True):
            inside = inside & (index >= 0) & (index < extent)
        if np.any(active & ~inside):
            raise OutsideRead(f"{op.name} is read outside")
        legal = [np.where(inside, index, 0) for index in indices]
        return points_of(op, np.broadcast_arrays(*legal), free, known, active & inside)[place]

    return read


def _free(scalars: Mapping[Any, Any] | None) -> dict[int, Array]:
    pairs = (scalars or {}).items()
    return {hash(var): np.asarray(value).astype(numpy_dtype(var.ty)) for var, value in pairs}


def _stage(op: Any, free: Mapping[int, Any], known: Mapping[Key, Any], strict: bool) -> list[Array]:
    shapes = [
        tuple(int(Expression(free, {}, False).value(dim)) for dim in op.output(place).shape)
        for place in range(op.num_outputs)
    ]
    if isinstance(op, te.ExternOp):
        from tests.evaluate_statements import run_extern, run_loop, run_rewind

        if LOOP_STEP in op.attrs or KEPT_LOOP in op.attrs:
            return run_loop(op, shapes, free, known, strict)
        if LOOP_BACK in op.attrs:
            return run_rewind(op, shapes, free, known, strict)
        return run_extern(op, shapes, free, known)
    if not isinstance(op, te.ComputeOp):
        raise ValueError(f"no value was given for {op.name}")
    grid = np.indices(shapes[0]) if shapes[0] else []
    active = np.ones(shapes[0], bool) if strict else None
    return points_of(op, list(grid), free, known, active)


def points_of(
    op: Any,
    indices: Sequence[Array],
    free: Mapping[int, Any],
    known: Mapping[Key, Any],
    active: Array | None,
    shape: tuple[int, ...] | None = None,
) -> list[Array]:
    """Each output of a compute stage at points; reads are strict where `active` is given."""
    if shape is None:
        shape = np.shape(indices[0]) if indices else ()
    axes = zip(op.axis, indices, strict=True)
    variables = {
        **free,
        **{hash(axis.var): index.astype(numpy_dtype(axis.var.ty)) for axis, index in axes},
    }
    first = op.body[0]
    if isinstance(first, tirx.Reduce):
        return _reduce(first, shape, variables, known, active)
    run = Expression(variables, known, active is not None)
    return [np.broadcast_to(run.value(body, active), shape).copy() for body in op.body]


def _reduce(
    node: Any,
    shape: tuple[int, ...],
    variables: Mapping[int, Any],
    known: Mapping[Key, Any],
    active: Array | None,
) -> list[Array]:
    """``combined = combine(combined, source)`` for every point of the reduce axes, in order."""
    combiner = node.combiner
    outside = Expression(variables, known, active is not None)
    starts = [outside.value(start, active) for start in node.init or combiner.identity_element]
    combined = [np.broadcast_to(start, shape) for start in starts]
    combine = Steps(combiner.result, (*combiner.lhs, *combiner.rhs), float_dtype)
    identity = [Expression({}, {}, False).value(e) for e in combiner.identity_element]
    for here, inside in _boxes(list(node.axis), shape, variables, known):
        mask = inside if active is None else inside & active.reshape(*shape, 1)
        run = Expression(here, known, active is not None)
        # a reduction over no point of a box reads nothing
        holds = inside & run.value(node.condition, None if active is None else mask)
        where = None if active is None else mask & holds
        sources = [run.value(source, where) for source in node.source]
        box = np.broadcast_shapes(*(np.shape(s) for s in sources), np.shape(holds), (*shape, 1))
        terms = [
            np.broadcast_to(np.where(holds, source, neutral), box)
            for source, neutral in zip(sources, identity, strict=True)
        ]
        ufunc = _plain_reduction(combiner)
        if ufunc is not None:
            whole = ufunc.reduce(terms[0], axis=-1, dtype=terms[0].dtype)
            combined = [ufunc(combined[0], whole).astype(whole.dtype)]
            continue
        holds = np.broadcast_to(holds, box)
        everywhere = holds.all(axis=tuple(range(len(shape))))
        for place in range(box[-1]):
            new = combine([*combined, *(term[..., place] for term in terms)])
            if not everywhere[place]:
                pairs = zip(new, combined, strict=True)
                new = [np.where(holds[..., place], value, old) for value, old in pairs]
            combined = new
    return [np.array(np.broadcast_to(values, shape)) for values in combined]


def _plain_reduction(combiner: Any) -> Any:
    """The ufunc of a sum or a product; None for every other combiner."""
    if len(combiner.result) != 1:
        return None
    [result], [lhs], [rhs] = combiner.result, combiner.lhs, combiner.rhs
    ufunc = _UFUNCS.get(type(result))
    if ufunc is None or {hash(result.a), hash(result.b)} != {hash(lhs), hash(rhs)}:
        return None
    return ufunc


def _boxes(
    axes: list[Any], shape: tuple[int, ...], variables: Mapping[int, Any], known: Mapping[Key, Any]
) -> Iterator[tuple[Mapping[int, Any], Array]]:
    """Points of the reduce axes, in order, as a last dimension, and where they count.

    A range that depends on other axes is a box around its values, of which some count.
    """
    lifted = {
        key: value[..., None] if np.ndim(value) else value for key, value in variables.items()
    }
    columns: list[Array] = []
    count = 1
    for number, axis in enumerate(axes):
        here = {**lifted, **_bound(axes[:number], columns)}
        low, high = _range(axis, here, known)
        extent = max(high - low, 0)
        columns = [np.repeat(column, extent) for column in columns]
        columns.append(np.tile(np.arange(low, high), count) if extent else np.zeros(0, np.int64))
        count *= extent
    step = max(1, _MOST_POINTS // max(int(np.prod(shape, dtype=np.int64)), 1))
    for first in range(0, count, step):
        part = [column[first : first + step] for column in columns]
        here = {**lifted, **_bound(axes, part)}
        inside = np.ones((1,) * (len(shape) + 1), bool)
        for axis, column in zip(axes, part, strict=True):
            run = Expression(here, known, False)
            low, extent = run.value(axis.dom.min), run.value(axis.dom.extent)
            inside = inside & (column >= low) & (column - low < extent)
        yield here, inside


def _bound(axes: Sequence[Any], columns: Sequence[Array]) -> dict[int, Array]:
    pairs = zip(axes, columns, strict=True)
    return {hash(axis.var): column.astype(numpy_dtype(axis.var.ty)) for axis, column in pairs}


def _range(axis: Any, variables: Mapping[int, Any], known: Mapping[Key, Any]) -> tuple[int, int]:
    """The smallest first value and the largest end of an axis."""
    run = Expression(variables, known, False)
    low = run.value(axis.dom.min).astype(np.int64)
    high = low + run.value(axis.dom.extent)
    if not np.size(high):
        return 0, 0
    return int(np.min(low)), int(np.max(high))
