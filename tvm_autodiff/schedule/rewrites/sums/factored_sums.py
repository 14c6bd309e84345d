"""Sums with fewer multiplications: common factors once, and loop invariants first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....expr.costly import is_expensive, is_slow, may_be_infinite
from ....expr.factoring import apart, factored
from ....expr.nodes import Expr, Tensor, const_value, dtype_of, load, node_id
from ....expr.rewrite import contains, depends_on, loaded_tensors
from ....expr.sharing.lets import bind_shared
from ....graph.graph import each_stage
from ....graph.sizes.nonnegative import not_empty
from ....graph.stage import (
    Operation,
    axis_range,
    axis_vars,
    bounds_of,
    data_axis,
    is_compute,
    make_stage,
    reduction_of,
    reduction_stage,
    renewed_reduction,
)
from ...nest.products import guarded, is_sum

#: in which a product of literals and factors keeps its range; float16 holds numbers up to 65504
_DTYPES = ("float32", "float64")


def with_factored_sums(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y = Σ_k (f(k)*a*2 + f(k)*a*b) → s = Σ_k f(k)*(2 + b), y = s*a``, ``y[i] = Σ_k x[i,
    k]/sqrt(v[i]) → s[i] = Σ_k x[i, k], y[i] = s[i]/sqrt(v[i])``, and so in each sum where it saves
    work.

    Other stages stay as they are: what a maximum is taken of may be computed again elsewhere, and
    compared with it. A sum may leave the range of its dtype where a factor kept each of its terms
    inside.
    """
    return each_stage(outputs, _changed)


def _changed(op: Operation) -> list[Tensor] | None:
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None or not is_sum(reduction) or dtype_of(reduction.sources[0]) not in _DTYPES:
        return None
    if not const_value(reduction.condition) or reduction.init:
        return None
    loops = [*axis_vars(op), *(axis.var for axis in reduction.axes)]
    [source] = factored(reduction.sources, lambda part: depends_on(part, loops))
    reduced = [axis.var for axis in reduction.axes]
    computes = contains(source, is_expensive)  # others wait for memory

    def is_slow_outside(node: Expr) -> bool:
        return is_slow(node) and not depends_on(node, reduced)

    def stays(part: Expr) -> bool:
        # what is computed for each result is worth a product for it, what is read is not
        return depends_on(part, reduced if contains(part, is_slow_outside) else loops)

    worthwhile = computes or contains(source, is_slow_outside)
    parts = apart(source, stays) if worthwhile else None
    if parts is None:
        if node_id(source) == node_id(reduction.sources[0]):
            return None
        bound = replace(reduction, sources=(bind_shared(source),))
        return reduction_stage(op.name, list(op.axis), bound)
    inside, times = bind_shared(parts[0]), parts[1]
    axes = [data_axis(str(axis.var.name), axis_range(axis)[1]) for axis in op.axis]
    rename = dict(zip(axis_vars(op), [axis.var for axis in axes], strict=True))
    inner = renewed_reduction(replace(reduction, sources=(inside,)), rename)
    [total] = reduction_stage(f"{op.name}_unscaled", axes, inner)
    whole = times(load(total, axis_vars(op)))
    # factors may divide by zero or read anywhere where the sum has no terms
    if any(depends_on(bound, reduced) for axis in reduction.axes for bound in bounds_of(axis)):
        if may_be_infinite(whole) or len(loaded_tensors(whole)) > 1:
            return None  # whether it has terms is no expression of the results' places
    else:
        whole = guarded(not_empty(reduction.axes), whole)
    return make_stage(op.name, list(op.axis), [whole])
