"""Restricts reductions to the points that count: where the source of a sum can be non-zero, and
that of another reducer is not its identity.

The source of each sum is split into summands with conditions, `domain/` solves the domain of each,
each sum takes the cheapest strategy, as in a gradient, and sums over equal boxes are joined. Other
reducers of one value have one such part. A stage that would not become cheaper is unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from ...errors import UnsolvableError
from ...expr.nodes import (
    Axis,
    Expr,
    Tensor,
    dtype_of,
    is_integer,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ...expr.rewrite import contains, contains_load, depends_on, substituter, tree_size
from ...expr.simplify import constant_bounds
from ...graph.graph import retarget, tensors_read_by, topological
from ...graph.plain_reduction import fold_condition, split_init
from ...graph.stage import (
    Combiner,
    Operation,
    Reduction,
    axis_range,
    axis_vars,
    bodies,
    bounds_of,
    is_compute,
    outputs_of,
    reduction_of,
    reduction_stage,
    rename_bounds,
)
from ...keywords import checked_keywords
from ...rules.reductions.reducers import classify
from ...rules.terms import Condition
from ..cases.conditions import cases_of
from ..strategies.table import cheapest
from ..sums.assemble import assemble
from ..sums.bands import is_banded
from ..sums.counted import counted
from ..sums.data.bounds import windows_of, with_equations
from ..sums.data.equations import is_data_equation
from ..sums.data.stored_masks import with_stored_masks
from ..sums.iterations import stage_iterations
from ..sums.solve import solve
from ..sums.sum import Sum, Target, Updates
from ..sums.summands import Summand, summands
from ..transposition.sparse_operands import with_guarded_reads
from ..walk import each_stage, tensor_list


@checked_keywords
def simplify_reductions(tensors: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """Restrict every reduction to the points that count: of a sum, where its source can be
    non-zero.

    An equation in a guard removes an axis, an inequality shrinks the box:
    ``Σ_{a<8, k<4} if a == b then f(a, k) else 0  →  Σ_{k<4} f(b, k)``,
    ``Σ_{k<100} if k < 3 then f else 0  →  Σ_{k<3} f``. A sum of terms splits where their
    conditions differ, and terms over equal boxes stay together:
    ``Σ_k (if k < 3 then f else 0) + (if k == b then g else 0)  →  Σ_{k<3} f  +  g[k := b]``.
    A sum that only some of the elements have becomes a smaller stage:
    ``Σ_k if i == j then f(i, k) else 0  →  if i == j then part[i] else 0, part[i] = Σ_k f(i, k)``.
    Data may determine an axis as well: ``Σ_{k<8} if k == I[i] then A[k] else 0`` reads ``A[I[i]]``,
    and a segment sum ``out[n] = Σ_e if idx[e] == n then v[e] else 0`` is a scatter-add
    ``out[idx[e]] += v[e]``.
    A sum without remaining axes becomes a single term, and a sum over an empty domain becomes zero.
    The identity of another reducer takes the place of zero:
    ``max_{k<100} if 4*j <= k < 4*j + 4 then x[k] else lowest  →  max_{k<4} x[4*j + k]``. A maximum
    may have any constant there, such as ``-1e30``, with which it begins then. If a number of the
    data equals a constant above the identity, the constant precedes it in the derivative.

    Parameters
    ----------
    tensors : Tensor or sequence of Tensor
        The outputs. All stages that they need are simplified, except reductions of several values,
        such as the place of a maximum, and opaque stages.

    Returns
    -------
    list of Tensor
        Tensors of the same shapes and values, up to the order of summation. A stage is unchanged if
        no form with fewer iterations is found.

    Raises
    ------
    InvalidArgumentError
        If an argument is not a tensor.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import estimate_cost
    >>> head = te.placeholder((50,), name="head")
    >>> a = te.reduce_axis((0, 50), name="a")
    >>> dX = te.compute(
    ...     (50,), lambda b: te.sum(te.if_then_else(49 - a == b, head[a], 0.0), axis=a), name="dX"
    ... )
    >>> [simple] = simplify_reductions(dX)
    >>> estimate_cost(dX).iterations, estimate_cost(simple).iterations
    (2500, 50)

    References
    ----------
    apache/tvm issue 1996, "Automatic differentiation for tensor expressions".
    """
    return each_stage(tensor_list(tensors), _simplified)


def solve_masks(tensors: Sequence[Tensor]) -> list[Tensor]:
    """`simplify_reductions` for the stages that are a reduction with an equation that determines an
    axis, or with bounds that leave a narrow band of it.

    The equation may be that of a tensor which a sum reads and which is spread with zeros.

    Such a reduction is dense in an axis that data determines (a segment sum, a one-hot product), or
    that the indices do (a diagonal, every second place of a transposed convolution, a filter as a
    sum over all places, a pool as a maximum over all places).
    """
    return each_stage(tensors, _without_masks)


def solved_form(op: Operation) -> list[Tensor] | None:
    """What `solve_masks` gives for a reduction other than a sum, of which the conditions would not
    bound the terms of its derivative; None for all other stages.

    Its derivative takes loops that follow their guards as a box with these guards, so that a form
    with no smaller box would have the same form again.
    """
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None or classify(reduction.combiner, 0) == "sum":
        return None
    [found] = _without_masks(op)
    if tensor_key(found) == tensor_key(op.output(0)):
        return None
    form = reduction_of(found.op)
    if form is None:
        return [found]
    loops = [*axis_vars(found.op), *(axis.var for axis in form.axes)]
    follows = depends_on([bounds_of(axis)[1] for axis in form.axes], loops)
    return None if follows and _box(found.op, form) >= _box(op, reduction) else [found]


def _box(op: Operation, reduction: Reduction) -> int:
    """The points of a reduction where each extent is the largest one; a large number if sizes or
    data tell them.
    """
    ranges = {axis.var: axis_range(axis) for axis in (*op.axis, *reduction.axes)}
    points = 1
    for axis in reduction.axes:
        extent = axis_range(axis)[1]
        try:
            points *= extent if isinstance(extent, int) else constant_bounds(extent, ranges)[1]
        except UnsolvableError:
            return sys.maxsize
    return points


def _without_masks(op: Operation) -> list[Tensor]:
    """One stage for `solve_masks`."""
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None:
        return outputs_of(op)
    summed = [axis.var for axis in reduction.axes]

    ranges = {axis.var: axis_range(axis) for axis in (*op.axis, *reduction.axes)}
    is_sum = classify(reduction.combiner, 0) == "sum"
    written = reduction.sources[0]
    sparse = with_guarded_reads(written) if is_sum else written

    covered: set[int] = set()  #: parts of conditions, whose cases are among those of the whole

    def has_cases(node: Expr) -> bool:
        covered.update(map(node_id, operands(node)))
        if not is_sum or node_id(node) in covered or not depends_on(node, summed):
            return False  # only sums are split into cases
        return cases_of([Condition(node, False)], ranges) is not None

    def determines(node: Expr) -> bool:
        if op_name(node) in ("or", "gt", "ge"):
            return has_cases(node)
        if op_name(node) in ("and", "not", "lt", "le"):
            bounds = with_equations([Condition(node, False)])
            if any(is_data_equation(one.expr) for one in bounds):
                return True
            return next(windows_of(bounds), None) is not None or has_cases(node)
        if op_name(node) not in ("eq", "ne") or not is_integer(operands(node)[0]):
            return False  # where two numbers are not equal, the other branch has the equation
        return contains_load(node) or depends_on(node, summed)

    source = with_stored_masks(sparse)
    values = [source, reduction.condition]
    if not contains(values, determines) and not is_banded(values, reduction.axes):
        return outputs_of(op)
    masked = op
    if node_id(source) != node_id(written):
        changed = replace(reduction, sources=(source,))
        masked = reduction_stage(op.name, list(op.axis), changed)[0].op
    found = _simplified(masked)
    return outputs_of(op) if tensor_key(found[0]) == tensor_key(masked.output(0)) else found


def _simplified(op: Operation) -> list[Tensor]:
    """The cheapest form of one stage, or its own outputs."""
    if not is_compute(op) or op.num_outputs != 1:
        return outputs_of(op)
    reduction = reduction_of(op)
    if reduction is None:
        return outputs_of(op)
    if reduction.init:
        return [_with_init(op)]
    return [_cheapest(op, fold_condition(reduction))]


def _with_init(op: Operation) -> Tensor:
    """``init ⊕ (⊕_k f)`` as a plain reduction and a combination, if that is cheaper than one
    stage.
    """
    [combination], [plain] = split_init(op)
    [simple] = _simplified(plain.op)
    if tensor_key(simple) == tensor_key(plain):
        return op.output(0)
    table = {tensor_key(plain): simple}
    [candidate] = retarget(combination.op, lambda tensor: table.get(tensor_key(tensor)))
    return candidate if _work(candidate, op) < _work(op.output(0), op) else op.output(0)


def _cheapest(op: Operation, reduction: Reduction) -> Tensor:
    best: Tensor = op.output(0)
    forms = _sums if classify(reduction.combiner, 0) == "sum" else _combined
    try:
        least = _work(best, op)
        for candidate in forms(op, reduction):
            work = _work(candidate, op)
            if work < least:
                best, least = candidate, work
    except UnsolvableError:  # the bounds cannot be determined: keep it as written
        return best
    return best


def _sums(op: Operation, reduction: Reduction) -> Iterator[Tensor]:
    """A sum with the terms of its source apart, and with fewer of them."""
    [source] = reduction.sources
    apart, together = summands(source), summands(source, most=1)
    for split in [apart] if len(apart) == len(together) else [apart, together]:
        yield _summed(op, reduction, split)


def _combined(op: Operation, reduction: Reduction) -> Iterator[Tensor]:
    """``⊕_k if c(i, k) then v else w  →  ⊕_r v[k := g(i, r)]``, with the reducer beginning with w.
    """
    found = counted(reduction)
    if found is None:
        return
    target = Target((), tuple(op.axis))
    definition = SummandSum(op.name, op, reduction, found.part, found.combiner)
    whole = definition.at(target)
    if found.counts and not _leaves_points(reduction.axes, whole):
        return
    if whole is None:
        [nothing] = found.combiner.identity
        whole = Sum((), nothing, (), (), (), definition, target, combiner=found.combiner)
    dtype = dtype_of(reduction.sources[0])
    yield assemble(op.name, target, [cheapest(whole)], dtype=dtype)


def _leaves_points(axes: Sequence[Axis], whole: Sum | None) -> bool:
    """Whether each element has a point outside of a solution: the solution has fewer points."""
    every = [axis_range(axis)[1] for axis in axes]
    solved = [0] if whole is None else [axis_range(axis)[1] for axis in whole.axes]
    if not all(isinstance(extent, int) for extent in (*every, *solved)):
        return False
    return prod(solved) < prod(every)


def _summed(op: Operation, reduction: Reduction, parts: Sequence[Summand]) -> Tensor:
    """The sum of the parts' sums, each over its own domain."""
    target = Target((), tuple(op.axis))
    terms: list[Sum] = []
    for number, part in enumerate(parts):
        name = op.name if len(parts) == 1 else f"{op.name}_{number}"
        whole = SummandSum(name, op, reduction, part).at(target)
        if whole is not None:
            terms += cheapest(whole)
    return assemble(op.name, target, [terms], dtype=dtype_of(reduction.sources[0]))


@dataclass(frozen=True)
class SummandSum:
    """``Σ_k part`` of a stage whose source is a sum of such parts, or another reducer's only part.
    """

    name: str
    op: Operation
    reduction: Reduction
    part: Summand
    combiner: Combiner | None = None

    def stage_name(self, what: str) -> str:
        """The name of a stage that is the whole sum."""
        return self.name

    def at(self, target: Target) -> Sum | None:
        """The sum at the elements of a target, or None if the conditions never hold."""
        move = substituter(
            {axis.var: place for axis, place in zip(self.op.axis, target.indices, strict=True)}
            if target.places is not None
            else {}
        )
        return solve(
            self,
            target,
            move(self.part.value),
            [Condition(move(c.expr), c.guards) for c in self.part.conditions],
            [rename_bounds(axis, move) for axis in self.reduction.axes],
            combiner=self.combiner,
        )

    def updates(self, target: Target) -> Updates:
        """``out[i] = Σ_k if c then v  →  for all (i, k): if c then out[i] += v``."""
        axes = (*self.op.axis, *self.reduction.axes)
        return Updates(self.part.value, self.part.conditions, axes, tuple(axis_vars(self.op)))

    def cases(self) -> None:
        """None, because the indices of a stage are its axes."""
        return None

    def parts(self) -> list[SummandSum] | None:
        """The sums of the cases of the conditions."""
        axes = (*self.op.axis, *self.reduction.axes)
        found = cases_of(self.part.conditions, {axis.var: axis_range(axis) for axis in axes})
        if found is None:
            return None
        return [replace(self, part=replace(self.part, conditions=case)) for case in found]


def _work(tensor: Tensor, op: Operation) -> tuple[int, int, int]:
    """The cost of a tensor beyond what a stage reads: iterations, stages, size of the bodies."""
    given = {hash(read.op) for read in tensors_read_by(op)}

    def reads(stage: Operation) -> list[Tensor]:
        return [] if hash(stage) in given else tensors_read_by(stage)

    stages = [stage for stage in topological([tensor], reads) if hash(stage) not in given]
    iterations = sum(stage_iterations(stage, scans=True) for stage in stages)
    sizes = [tree_size(b) for stage in stages if is_compute(stage) for b in bodies(stage)]
    return iterations, len(stages), sum(sizes)
