"""Makes the index arithmetic of scheduled functions safe from overflow, by applying `widths` to
loop nests.

This is the last rewrite before lowering, so it covers all arithmetic: of the user, of the gradient,
and of split, fused and unrolled loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from ....expr.build import cast, variable
from ....expr.dtypes import integer_range
from ....expr.integers.intervals import Interval, Intervals, add, meet, scalar_dtype, size_interval
from ....expr.integers.widths import Reads, Widths
from ....expr.nodes import Expr, Var, const_value, dtype_of, is_integer, node_id, op_name
from ....expr.rewrite import postorder
from ...functions import with_body
from .circular_bounds import hide_circular_bounds
from .fitting import Fitting
from .opaque_indices import C_CAST, REINTERPRET, hidden, hide_divisions, is_hidden_function
from .wrapped_remainders import choose_remainders

BUFFER_READS: Reads = {
    "tensorload": (
        lambda node: list(node.source.ty.shape),
        lambda node: list(node.indices),
        lambda node, indices: tirx.BufferLoad(node.source, indices),
    )
}


def bounded_function(func: Any, hide: Callable[[Expr], Expr] | None = None) -> Any:
    """Give every intermediate of a function's index arithmetic a type that holds it.

    Examples
    --------
    >>> from tvm import te
    >>> A = te.placeholder((1000003,), name="A")
    >>> def index(rows):
    ...     B = te.compute((rows,), lambda i: A[i * 70000 % 1000003], name="B")
    ...     text = bounded_function(te.create_prim_func([A, B])).script()
    ...     return text[text.rindex("A[") :].strip()
    >>> index(100)
    'A[v_i * 70000 % 1000003]'
    >>> index(100000)
    'A[T.Cast("int32", T.Cast("int64", v_i) * T.int64(70000) % T.int64(1000003))]'
    """
    return _bounded(func, hide, {})


def _bounded(
    func: Any,
    hide: Callable[[Expr], Expr] | None,
    renamed: Mapping[int, Var],
    in_c: bool = False,
    most_bits: int = 64,
) -> Any:
    """The function with bounded arithmetic, and with int64 variables instead of `renamed`."""
    sizes = _sizes(func)
    known = _variables(func, sizes)

    def with_end(var: Var) -> Interval:
        low, high = known(var)
        # TVM counts by extents: it writes a literal for one turn more
        return low, min(high + 1, integer_range(scalar_dtype(var))[1])

    widths = Widths(
        with_end,
        BUFFER_READS,
        is_open=_depends_on_sizes(func) if sizes else lambda var: False,
        hide=hide,
        renamed=renamed,
        wide=bool(renamed),
        explicit=True,
        in_c=in_c,
        most_bits=most_bits,
    )
    value = widths.value
    fitting = Fitting(with_end)

    def fits(parts: Sequence[Expr]) -> bool:
        return not renamed and fitting(parts)

    def values(parts: Sequence[Expr]) -> list[Expr] | None:
        if fits(parts):
            return None
        new = [value(part) for part in parts]
        same = all(node_id(a) == node_id(b) for a, b in zip(parts, new, strict=True))
        return None if same else new

    def store(node: Any) -> Any:
        places = list(node.indices)
        if fits([*places, node.value]):
            return node
        shape = list(node.buffer.ty.shape)
        new = [widths.index(place, n) for place, n in zip(places, shape, strict=True)]
        stored = value(node.value)
        old = [*places, node.value]
        if all(node_id(a) == node_id(b) for a, b in zip(old, [*new, stored], strict=True)):
            return node
        return tirx.BufferStore(node.buffer, stored, new)

    def loop(node: Any) -> Any:
        var = renamed.get(node_id(node.loop_var), node.loop_var)
        new = values([node.min, node.extent])
        if new is None and var is node.loop_var:
            return node
        bounds = [cast(dtype_of(var), bound) for bound in new or [node.min, node.extent]]
        rest = (node.thread_binding, node.annotations, node.step)
        return tirx.For(var, *bounds, node.kind, node.body, *rest)

    def branch(node: Any) -> Any:
        new = values([node.condition])
        return node if new is None else tirx.IfThenElse(new[0], node.then_case, node.else_case)

    def bind(node: Any) -> Any:
        new = values([node.value]) if _is_number(node.value) else None
        return node if new is None else tirx.Bind(node.var, new[0])

    def realize(node: Any) -> Any:
        if renamed:
            places = [widths.wide_value(part) for part in node.iter_values]
            return s_tir.SBlockRealize(places, value(node.predicate), node.block)
        new = values([*node.iter_values, node.predicate])
        return node if new is None else s_tir.SBlockRealize(new[:-1], new[-1], node.block)

    def block(node: Any) -> Any:
        if not renamed:
            return node
        axes = [_wide_axis(axis, renamed[node_id(axis.var)]) for axis in node.iter_vars]
        rest = (node.name_hint, node.body, node.init, node.alloc_buffers, node.match_buffers)
        return s_tir.SBlock(axes, node.reads, node.writes, *rest, node.annotations)

    def region(old: Any) -> Any:
        bounds = [part for extent in old.region for part in (extent.min, extent.extent)]
        new = values(bounds)
        if new is None:
            return old
        pairs = zip(new[::2], new[1::2], strict=True)
        return tirx.BufferRegion(old.source, [ir.Range.from_min_extent(*pair) for pair in pairs])

    def evaluate(node: Any) -> Any:
        new = values([node.value]) if _is_number(node.value) else None
        return node if new is None else tirx.Evaluate(new[0])

    visitors = [
        (tirx.BufferStore, store),
        (tirx.For, loop),
        (tirx.IfThenElse, branch),
        (tirx.Bind, bind),
        (s_tir.SBlockRealize, realize),
        (s_tir.SBlock, block),
        (ir.TensorRegion, region),
        (tirx.Evaluate, evaluate),
    ]
    body = tvm_ffi.structural_map(func.body, visitors)
    return with_body(func, body)


def with_safe_indices(func: Any, by: str = REINTERPRET) -> Any:
    """The function with index arithmetic that TVM compiles correctly.

    Expressions that TVM's simplification gets wrong are hidden, and nothing overflows. A function
    already processed for a GPU is unchanged.
    """
    if is_hidden_function(func):
        return func
    made = func
    if by == C_CAST:
        made = hide_divisions(func, by)
    elif _divides(func):
        made = hide_divisions(choose_remainders(func, _variables(func, _sizes(func))), by)
    made = hide_circular_bounds(made, lambda e: hidden(e, by), _variables(made, _sizes(made)))
    renamed = _wide_variables(made) if _is_large(made) else {}
    in_c = by == C_CAST
    most_bits = 64 if in_c else 128
    return _bounded(made, lambda index: hidden(index, by), renamed, in_c, most_bits)


def _divides(func: Any) -> bool:
    """Whether there are divisions of integers, which few functions have."""
    found: list[Any] = []
    kinds = (prim.FloorDiv, prim.FloorMod, prim.Div, prim.Mod)
    tvm_ffi.structural_walk(func.body, [(kind, found.append) for kind in kinds])
    return any(map(is_integer, found))


def needs_wider_indices(func: Any) -> bool:
    """Whether some index arithmetic of a function is in a type that does not hold it."""
    return _is_large(func) or not tvm_ffi.structural_equal(bounded_function(func), func)


def _is_large(func: Any) -> bool:
    """Whether a position in some buffer does not fit int32."""
    buffers: list[Any] = list(func.params)
    visitors = [
        (tirx.BufferStore, lambda node: buffers.append(node.buffer)),
        (ir.TensorLoad, lambda node: buffers.append(node.source)),
    ]
    tvm_ffi.structural_walk(func.body, visitors)
    shapes = [list(getattr(buffer.ty, "shape", ())) for buffer in buffers]
    return any(_elements(shape) > integer_range("int32")[1] for shape in shapes)


def _elements(shape: Sequence[Expr]) -> int:
    """The number of elements of a shape of literals, or 0 for other shapes."""
    extents = [const_value(extent) for extent in shape]
    return prod(0 if extent is None else int(extent) for extent in extents)


def _wide_variables(func: Any) -> dict[int, Var]:
    """An int64 variable for each int32 one of loops and blocks; threads keep theirs."""
    found: dict[int, Var] = {}

    def rename(var: Var) -> None:
        dtype = dtype_of(var)
        found[node_id(var)] = variable(var.name, "int64") if dtype == "int32" else var

    def loop(node: Any) -> None:
        if node.kind != tirx.ForKind.THREAD_BINDING:
            rename(node.loop_var)

    def block(node: Any) -> None:
        for axis in node.iter_vars:
            rename(axis.var)

    tvm_ffi.structural_walk(func.body, [(tirx.For, loop), (s_tir.SBlock, block)])
    return found


def _wide_axis(axis: Any, var: Var) -> Any:
    low, extent = (cast(dtype_of(var), bound) for bound in (axis.dom.min, axis.dom.extent))
    return tirx.IterVar(ir.Range.from_min_extent(low, extent), var, axis.iter_type)


def _is_number(expr: Expr) -> bool:
    return dtype_of(expr).startswith(("int", "uint", "bool", "float", "bfloat"))


def _sizes(func: Any) -> dict[int, str]:
    """The symbolic sizes of a function, by id, and their types."""
    return {
        node_id(node): scalar_dtype(node)
        for param in func.params
        for extent in getattr(param.ty, "shape", ())
        for node in postorder(extent)
        if op_name(node) == "var"
    }


_Bounds = dict[int, tuple[Expr, Expr]]  #: minimum and extent, by the id of a variable


def _definitions(func: Any) -> tuple[_Bounds, dict[int, Expr], _Bounds]:
    """The ranges of loops, the values of bound variables and block axes, the domains of these."""
    ranges: _Bounds = {}
    values: dict[int, Expr] = {}
    doms: _Bounds = {}

    def loop(node: Any) -> None:
        ranges[node_id(node.loop_var)] = (node.min, node.extent)

    def realize(node: Any) -> None:
        for axis, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            values[node_id(axis.var)] = value
            doms[node_id(axis.var)] = (axis.dom.min, axis.dom.extent)

    def bind(node: Any) -> None:
        values[node_id(node.var)] = node.value

    def attribute(node: Any) -> None:
        if node.attr_key == "thread_extent":
            ranges[node_id(node.node.var)] = (tirx.const(0, "int32"), node.value)

    visitors = [(tirx.For, loop), (s_tir.SBlockRealize, realize), (tirx.Bind, bind)]
    visitors += [(tirx.AttrStmt, attribute)]
    tvm_ffi.structural_walk(func.body, visitors)
    return ranges, values, doms


def _depends_on_sizes(func: Any) -> Callable[[Var], bool]:
    """Whether the interval of a variable depends on symbolic sizes, or on data."""
    ranges, values, doms = _definitions(func)
    known: dict[int, bool] = {}

    def depends(var: Var) -> bool:
        key = node_id(var)
        if key not in known:
            known[key] = True  # what is defined by itself, or not here
            parts = ranges.get(key) or doms.get(key) or ([values[key]] if key in values else None)
            known[key] = parts is None or any(
                op_name(node) in BUFFER_READS or (op_name(node) == "var" and depends(node))
                for node in postorder(list(parts))
            )
        return known[key]

    return depends


def _variables(func: Any, sizes: dict[int, str]) -> Callable[[Var], Interval]:
    """The intervals of a function's variables: loops, block axes, bound values, sizes."""
    ranges, values, doms = _definitions(func)
    known: dict[int, Interval] = {}
    active: set[int] = set()

    def interval(var: Var) -> Interval:
        key = node_id(var)
        if key not in known:
            own = integer_range(scalar_dtype(var))
            if key in active:
                return own
            active.add(key)
            bounds = Intervals(interval)
            found = own
            if key in ranges or key in doms:
                low, extent = ranges.get(key) or doms[key]
                start = bounds.of(low)
                found = start[0], max(start[0], add(start, bounds.of(extent))[1] - 1)
            elif key in sizes:
                found = size_interval(sizes[key])
            if key in values and is_integer(values[key]):
                found = meet(found, bounds.of(values[key]))
            active.discard(key)
            known[key] = found
        return known[key]

    return interval
