"""Rewrites stages into a form that TVM lowers correctly.

Reductions have no `where=` and no `init=` (TVM silently drops both), and sums of float16 and
bfloat16 are float32 inside. Coefficients inside floordiv and floormod are in [0, divisor) (TVM
miscompiles others). Reads are guarded by branches only. There are no intrinsics that back ends do
not support, structurally equal stages are merged, and dead ones are removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...errors import LoweringError
from ...expr.build import cast, compare, like, negate
from ...expr.dtypes import common_index, keeps_values
from ...expr.float_functions import MOST_EXPONENT, TWO_FLOATS, why_meaningless, widest_of
from ...expr.integers.bits import without_bits
from ...expr.integers.decided_divisions import with_decided_divisions
from ...expr.integers.intervals import Intervals, range_intervals
from ...expr.integers.narrow import without_narrow_types
from ...expr.integers.shifts import with_shifts
from ...expr.integers.truncated import with_floor_divisions
from ...expr.integers.wrapping import opaque_conversions, opaque_unsigned
from ...expr.nodes import (
    COMPARISONS,
    Axis,
    Expr,
    Tensor,
    Var,
    always,
    binary,
    call_node,
    const_value,
    dtype_of,
    is_const,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    same_node,
    tensor_key,
)
from ...expr.rewrite import contains_load, rewrite, substituter, variables_of
from ...expr.simplify import normalize_node, simplify
from ...graph.graph import retarget, tensors_read_by, topological
from ...graph.kinds.custom import without_rules
from ...graph.kinds.kind import kind_of
from ...graph.kinds.loop import Loop
from ...graph.kinds.rewind import KeptLoop, Rewind, loops_in, stage_of_loops, with_loops
from ...graph.kinds.update_loops import UpdateLoops, update_stage
from ...graph.marks.checkpoint import generation_of
from ...graph.marks.value_marks import has_marks, unmarked
from ...graph.plain_reduction import fold_condition, of_one_dtype, split_init
from ...graph.sizes.narrowed import narrowed
from ...graph.stage import (
    Extent,
    Operation,
    Reduction,
    axis_range,
    bodies,
    bounds_of,
    data_axis,
    is_compute,
    is_scan,
    make_stage,
    outputs_of,
    reduce_axis,
    reduction_of,
    reduction_stage,
    rename_bounds,
    shape_of,
    whole_tensor,
    with_bodies,
)
from ...graph.structural import EqualStages
from .conditions.chosen_conditions import with_conjunctions
from .conditions.guards import with_guards
from .conditions.opaque_divisors import with_opaque_divisors
from .conditions.unordered_comparisons import with_unordered_comparisons
from .selections import selected_in_order
from .sums.accumulation import accumulated_wide, scattered_wide

#: dtype → the one in which TVM compares such numbers
_COMPARED_AS = {"bool": "int32", "uint32": "int64"}


def normal_form(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Equal tensors in the form that lowers correctly; all results are distinct tensors."""
    replaced: dict[tuple[int, int], Tensor] = {}
    # what a sweep computes again is merged with nothing that was computed before
    stages: defaultdict[int, EqualStages] = defaultdict(EqualStages)
    generations: dict[tuple[int, int], int] = {}
    wanted = {tensor_key(tensor) for tensor in outputs}
    for op in topological(outputs):
        if is_scan(op):
            raise LoweringError(
                f"stage {op.name} is a te.scan, which TVM cannot lower: "
                "unroll it into compute stages"
            )
        current = retarget(op, lambda tensor: replaced.get(tensor_key(tensor)))[0].op
        marked = has_marks(current)
        generation = generation_of(op)
        if not is_compute(op):
            reads = map(tensor_key, tensors_read_by(op))
            generation = max((generations.get(key, 0) for key in reads), default=0)
        # a selection may have got its place as one more output
        for old, new in zip(outputs_of(op), _plain(current, stages[generation]), strict=False):
            generations[tensor_key(old)] = generation
            same = _source_of_copy(new) if marked and tensor_key(old) not in wanted else None
            if same is not None:
                new = same
            if tensor_key(old) != tensor_key(new):
                replaced[tensor_key(old)] = new
    seen: set[tuple[int, int]] = set()
    results = []
    for tensor in outputs:
        result = replaced.get(tensor_key(tensor), tensor)
        if tensor_key(result) in seen:
            result = copy_of(result)
        seen.add(tensor_key(result))
        results.append(result)
    return results


def _source_of_copy(tensor: Tensor) -> Tensor | None:
    """The tensor that a stage of one elementwise output copies as a whole, else None."""
    op = tensor.op
    if op.num_outputs != 1 or not is_compute(op) or reduction_of(op) is not None:
        return None
    return whole_tensor(bodies(op)[0], list(op.axis))


def source_of_copies(tensor: Tensor) -> Tensor:
    """The tensor that a tensor copies through any number of stages, or the tensor itself."""
    source = _source_of_copy(tensor)
    return tensor if source is None else source_of_copies(source)


def copy_of(tensor: Tensor) -> Tensor:
    """A stage that copies a tensor."""
    axes = [data_axis(f"i{number}", extent) for number, extent in enumerate(shape_of(tensor))]
    return make_stage(f"{tensor.op.name}_copy", axes, [load(tensor, [a.var for a in axes])])[0]


def _plain(op: Operation, stages: EqualStages) -> list[Tensor]:
    if not is_compute(op):
        kind = kind_of(op)
        if isinstance(kind, (Loop, KeptLoop, Rewind)):
            return outputs_of(stages.first(_normal_loops(op, kind)))
        if isinstance(kind, UpdateLoops):
            return outputs_of(stages.first(_normal_updates(op, kind)))
        scattered = scattered_wide(op)
        return outputs_of(stages.first(op)) if scattered is None else [scattered]
    op = of_one_dtype(narrowed(op))
    reduction = reduction_of(op)
    if reduction is not None:
        alike = _with_ranges_of_one_type(reduction)
        if alike is not reduction:
            op = reduction_stage(op.name, list(op.axis), alike)[0].op
            reduction = alike
        ordered = selected_in_order(reduction)
        if ordered is not reduction:
            op = reduction_stage(op.name, list(op.axis), ordered)[0].op
            reduction = reduction_of(op)
    split = accumulated_wide(op)
    if split is None and reduction is not None and reduction.init:
        split = split_init(op)
    if split is not None:
        reader, read = split
        merged = _plain(read[0].op, stages)
        # a selection may have got its place as one more output
        table = {tensor_key(old): new for old, new in zip(read, merged, strict=False)}
        readers = {hash(tensor.op): tensor.op for tensor in reader}.values()
        current = [retarget(op, lambda t: table.get(tensor_key(t)))[0].op for op in readers]
        return [
            tensor for op in current for tensor in outputs_of(stages.first(_with_normal_nodes(op)))
        ]
    if reduction is not None and not always(reduction.condition):
        op = reduction_stage(op.name, list(op.axis), fold_condition(reduction))[0].op
    return outputs_of(stages.first(_with_normal_nodes(op)))


def _normal_loops(op: Operation, kind: Loop | KeptLoop | Rewind) -> Operation:
    """The loops of a stage over steps in normal form."""
    loops = [
        replace(
            loop, step=loop.step.with_outputs(normal_form(without_rules(loop.step.outputs)))
        )
        for loop in loops_in(kind)
    ]
    return stage_of_loops(str(op.name), with_loops(kind, loops))[0].op


def _normal_node(node: Expr) -> Expr | None:
    """``fmod(a, b) → truncmod(a, b)``, which is equal and supported by every back end, for
    operands of 16 bits in float32; ``stop_gradient(a) → a``, ``checkpoint(a) → a``; ``p == q →
    int32(p) == int32(q)`` for conditions, which TVM compares as floats; ``u < 2, t[u] → int64(u) <
    2, t[int64(u)]`` for an unsigned u, of which TVM subtracts in its own type; and operands of a
    function of several dtypes become the widest of them, since TVM passes them as they are.
    """
    if is_load(node):
        indices = [cast(common_index(dtype_of(index)), index) for index in operands(node)]
        same = all(map(same_node, indices, operands(node)))
        return None if same else load(load_tensor(node), indices)
    meaningless = why_meaningless(node)
    if meaningless is not None:
        raise LoweringError(meaningless)
    if op_name(node) == "ldexp":
        return _normal_ldexp(node)
    if op_name(node) in TWO_FLOATS and len({dtype_of(part) for part in operands(node)}) > 1:
        parts = operands(node)
        # the next number is that of the result's dtype
        wide = dtype_of(node) if op_name(node) == "nextafter" else widest_of(parts, dtype_of(node))
        alike = call_node(op_name(node), [cast(wide, part) for part in parts], wide)
        normal = _normal_node(alike)
        return cast(dtype_of(node), alike if normal is None else normal)
    if op_name(node) == "fmod":
        kind = dtype_of(node)
        wide = "float64" if kind == "float64" else "float32"
        return cast(kind, binary("truncmod", *(cast(wide, part) for part in operands(node))))
    condition = _condition_of_number(node)
    if condition is not None:
        return condition
    compared = dtype_of(operands(node)[0]) if op_name(node) in COMPARISONS else ""
    if compared in _COMPARED_AS:
        return compare(op_name(node), *(cast(_COMPARED_AS[compared], p) for p in operands(node)))
    if compared == "uint64" and any(const_value(part) is not None for part in operands(node)):
        return compare(op_name(node), *map(_hidden_literal, operands(node)))
    plain = unmarked(node)
    return normalize_node(node) if plain is None else plain


def _condition_of_number(node: Expr) -> Expr | None:
    """``int32(c) != 0 → c``, ``int32(c) == 0 → not c`` for a condition c: vectors have no branches,
    and a condition behind a number is taken for one that must not be evaluated everywhere.
    """
    if op_name(node) not in ("ne", "eq"):
        return None
    number, value = operands(node)
    if const_value(number) is not None:
        number, value = value, number
    if op_name(number) == "cast":
        [number] = operands(number)
    if dtype_of(number) != "bool" or const_value(value) not in (0, 1):
        return None
    return number if (op_name(node) == "ne") == is_const(value, 0) else negate(number)


def _hidden_literal(expr: Expr) -> Expr:
    """``2 → reinterpret(2)``: a number that TVM does not subtract from others of its type."""
    return expr if const_value(expr) is None else call_node("reinterpret", (expr,), dtype_of(expr))


def _normal_ldexp(node: Expr) -> Expr:
    """``ldexp(x, n)`` as the C library takes it: an int32 n, and no x of 16 bits."""
    x, n = operands(node)
    if not keeps_values(dtype_of(n), "int32"):
        low = 0 if dtype_of(n).startswith("u") else -MOST_EXPONENT
        n = binary("max", binary("min", n, like(n, MOST_EXPONENT)), like(n, low))
    wide = "float64" if dtype_of(node) == "float64" else "float32"
    return cast(dtype_of(node), call_node("ldexp", [cast(wide, x), cast("int32", n)], wide))


def _normal(body: Expr, axes: Sequence[Axis]) -> Expr:
    return with_guards(_without_wraps(body, axes), axes)


def _without_wraps(body: Expr, axes: Sequence[Axis]) -> Expr:
    """The normal form but for guards of reads."""
    known = range_intervals({axis.var: axis_range(axis) for axis in axes})
    body, intervals = with_decided_divisions(without_bits(body), known), Intervals(known)
    body = with_floor_divisions(with_shifts(body, intervals), intervals)
    plain = without_narrow_types(body, intervals)
    plain = opaque_conversions(plain, intervals)
    body = with_conjunctions(rewrite(plain, _normal_node))  # which negates comparisons
    body = opaque_unsigned(with_unordered_comparisons(body))
    ranges = {axis.var: axis_range(axis) for axis in axes}
    own = set(map(node_id, ranges))
    sizes = {var: (1, None) for var in variables_of(body) if node_id(var) not in own}
    return with_opaque_divisors(body, range_intervals({**sizes, **ranges}))


def _normal_updates(op: Operation, loops: UpdateLoops) -> Operation:
    """Update loops in normal form; their conditions guard the reads behind them already."""
    conditions, place = (
        tuple(_without_wraps(part, loops.axes) for part in parts)
        for parts in (loops.conditions, loops.place)
    )
    value = _without_wraps(loops.value, loops.axes)
    if _same((*loops.conditions, *loops.place, loops.value), (*conditions, *place, value)):
        return op
    normal = replace(loops, conditions=conditions, place=place, value=value)
    return update_stage(str(op.name), normal, shape_of(op.output(0))).op


def _with_normal_nodes(op: Operation) -> Operation:
    reduction = reduction_of(op)
    if reduction is None:
        old = bodies(op)
        new = [_normal(body, op.axis) for body in old]
        if _same(old, new):
            return op
        return with_bodies(op, new)[0].op
    literal = _with_literal_bounds(reduction)
    axes = [*op.axis, *literal.axes]
    sources = tuple(_normal(source, axes) for source in literal.sources)
    if literal is reduction and _same(reduction.sources, sources):
        return op
    return reduction_stage(op.name, list(op.axis), replace(literal, sources=sources))[0].op


def _with_ranges_of_one_type(reduction: Reduction) -> Reduction:
    """``k in [int64 0, int32 n)  →  k' in [0, int64(n))`` with ``int32(k')`` instead of k: TVM
    creates ranges of mixed types, and then rejects them.
    """
    table: dict[Var, Expr] = {}
    axes = []
    for axis in reduction.axes:
        low, extent = bounds_of(axis)
        dtypes = {dtype_of(low), dtype_of(extent), dtype_of(axis.var)}
        if len(dtypes) > 1:
            renamed = [cast("int64", substituter(table)(bound)) for bound in (low, extent)]
            axes.append(reduce_axis(axis.var.name, renamed[1], renamed[0], "int64"))
            table[axis.var] = cast(dtype_of(axis.var), axes[-1].var)
        else:
            axes.append(rename_bounds(axis, substituter(table)) if table else axis)
    if not table:
        return reduction
    rename = substituter(table)
    return replace(
        reduction,
        sources=tuple(map(rename, reduction.sources)),
        axes=tuple(axes),
        condition=rename(reduction.condition),
    )


def _with_literal_bounds(reduction: Reduction) -> Reduction:
    """``k < (i + 1)*4 - i*4 → k < 4``: bounds that only seem to depend on other axes."""
    table: dict[Var, Expr] = {}
    axes = []
    for axis in reduction.axes:
        low, extent = (_literal(bound, table) for bound in axis_range(axis))
        if all(map(_same_bound, (low, extent), axis_range(axis))):
            axes.append(axis)
            continue
        axes.append(reduce_axis(axis.var.name, extent, low, dtype_of(axis.var)))
        table[axis.var] = axes[-1].var
    if not table:
        return reduction
    rename = substituter(table)
    sources = tuple(rename(source) for source in reduction.sources)
    return replace(reduction, sources=sources, axes=tuple(axes))


def _literal(bound: Extent, table: Mapping[Var, Expr]) -> Extent:
    """A bound as a number if it is one, else over the replacements of axes."""
    if isinstance(bound, int):
        return bound
    value = None if contains_load(bound) else const_value(simplify(bound))
    return value if isinstance(value, int) else substituter(table)(bound)


def _same_bound(left: Extent, right: Extent) -> bool:
    if isinstance(left, int) or isinstance(right, int):
        return isinstance(left, int) and isinstance(right, int)
    return same_node(left, right)


def _same(old: Sequence[Expr], new: Sequence[Expr]) -> bool:
    return all(same_node(a, b) for a, b in zip(old, new, strict=True))
