"""Proves which reads stay inside their tensors for all loop values; only these need no guard.

A read may leave its guard (be hoisted, packed, or made part of a vector or a select) only if
`is_safe` proves it. Otherwise `range_conditions` must hold around it. Symbolic sizes are compared
as expressions, and two of them are equal only if that is proved.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ...expr.build import cast, compare, const
from ...expr.dtypes import integer_range
from ...expr.integers.intervals import Intervals
from ...expr.linear_terms import linear_terms
from ...expr.nodes import (
    INTEGER_DIVISIONS,
    Axis,
    Expr,
    Var,
    binary,
    const_value,
    dtype_of,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import Fold, postorder
from ...expr.simplify import prove
from ...graph.sizes.widened import Widened
from ...graph.stage import Extent, axis_range, shape_of
from .access import Affine, AffineForms, Interval, interval


@dataclass(frozen=True)
class Loops:
    """Loop variables in the order of a nest, and their ranges.

    Attributes
    ----------
    variables : tuple of Var
    ranges : mapping from id to (least, greatest)
        The ranges of loops with numeric ranges.
    symbolic : mapping from id to (low, extent)
        The ranges of the other loops.
    """

    variables: tuple[Var, ...]
    ranges: Mapping[int, Interval]
    symbolic: Mapping[int, tuple[Extent, Extent]] = field(default_factory=dict)


def loops_of(axes: Sequence[Axis]) -> Loops:
    """The loops over some axes."""
    ranges: dict[int, Interval] = {}
    symbolic: dict[int, tuple[Extent, Extent]] = {}
    for axis in axes:
        key = node_id(axis.var)
        low, extent = axis_range(axis)
        if isinstance(low, int) and isinstance(extent, int):
            ranges[key] = (low, low + extent - 1)
        else:
            symbolic[key] = (low, extent)
    return Loops(tuple(axis.var for axis in axes), ranges, symbolic)


def is_safe(
    roots: Sequence[Expr],
    loops: Loops,
    *,
    given: Sequence[Expr] = (),
    thorough: bool = False,
    evaluated: Collection[int] = (),
) -> bool:
    """Whether expressions may be evaluated for all loop values, whatever conditions hold.

    All reads are in bounds, and no integer is divided by a possible zero; `evaluated` nodes, by id,
    are in any case. Without `thorough`, a numeric index is decided only by intervals; with it, also
    by the analyzer and from conditions that are `given`.
    """
    open_nodes = [node for node in postorder(list(roots)) if node_id(node) not in evaluated]
    forms = AffineForms(loops.variables)
    return all(
        thorough and _proved(condition, loops, given)
        for node in filter(is_load, open_nodes)
        for condition in read_conditions(node, loops, forms)
    ) and all(_divides_safely(node, loops, given) for node in open_nodes)


class Safety:
    """What `is_safe` tells of expressions with common parts, each of which is judged once."""

    def __init__(self, loops: Loops) -> None:
        self._loops, self._forms = loops, AffineForms(loops.variables)
        self._judged = Fold(self._is_safe)

    def __call__(self, roots: Sequence[Expr]) -> bool:
        """Whether expressions may be evaluated for all loop values, whatever conditions hold."""
        return all(map(self._judged, roots))

    def _is_safe(self, node: Expr, parts: Sequence[bool]) -> bool:
        if not all(parts):
            return False
        if is_load(node):
            return not read_conditions(node, self._loops, self._forms)
        return _divides_safely(node, self._loops, ())


def range_conditions(
    roots: Sequence[Expr], loops: Loops, given: Sequence[Expr] = ()
) -> list[Expr]:
    """The unproved conditions that keep all reads of expressions in bounds, where conditions that
    are `given` hold.

    Conditions for a read in an index precede those for the read at that index.
    """
    forms = AffineForms(loops.variables)
    found: list[Expr] = []
    for node in postorder(list(roots)):
        if is_load(node):
            found += read_conditions(node, loops, forms)
    return [one for one in found if not given or not _proved(one, loops, given)]


def read_conditions(read: Expr, loops: Loops, forms: AffineForms) -> list[Expr]:
    """The unproved conditions that keep one read in bounds, by the forms over the loops."""
    found: list[Expr] = []
    for index, dim in zip(operands(read), shape_of(load_tensor(read)), strict=True):
        found += _conditions(index, forms.of(index), dim, loops)
    return found


def _conditions(index: Expr, form: Affine | None, dim: Extent, loops: Loops) -> list[Expr]:
    bounds = interval(form, loops.ranges) if form is not None else None
    # a narrow type, such as that of positions in a table, may not hold the dimension
    if isinstance(dim, int):
        holds = dim <= integer_range(dtype_of(index))[1]
    else:
        holds = dtype_of(index) == dtype_of(dim)
    compared = index if holds else cast("int64", index)
    dtype = dtype_of(compared)
    low = compare("ge", compared, const(0, dtype))
    limit = const(dim, dtype) if isinstance(dim, int) else cast(dtype, dim)
    high = compare("lt", compared, limit)
    if bounds is not None and isinstance(dim, int):
        return [low] * (bounds[0] < 0) + [high] * (bounds[1] >= dim)
    if form is not None and _stays_inside(form, dim, loops):
        return []
    if isinstance(dim, int) and not _has_symbols(index, dim, loops):
        least, most = _interval(index, loops)  # of clamps and remainders
        return [low] * (least < 0) + [high] * (most >= dim)
    return [condition for condition in (low, high) if not _proved(condition, loops, ())]


def _interval(index: Expr, loops: Loops) -> Interval:
    """The smallest and largest value of an index over loops with numeric ranges."""
    return Intervals(lambda var: loops.ranges.get(node_id(var), integer_range(dtype_of(var)))).of(
        index
    )


def _stays_inside(form: Affine, dim: Extent, loops: Loops) -> bool:
    """Whether an index lies within a dimension: ``0 <= t + r < n + 4`` for ``t < n, r < 5``.

    The bounds of loops are put in, and what remains is a linear form over sizes.
    """
    least, greatest = (_extreme(form, loops, up) for up in (False, True))
    if least is None or greatest is None:
        return False
    left = _Linear().plus(dim).minus(greatest).plus(-1)
    return _never_negative(least) and _never_negative(left.least())


class _Linear:
    """``Σ factor · term + constant`` over sizes, their quotients, and what else is not linear."""

    def __init__(self) -> None:
        self.terms: dict[object, tuple[Expr, int]] = {}
        self.constant = 0

    def plus(self, value: Extent, factor: int = 1) -> _Linear:
        """The form with a value added, in place."""
        terms, constant = ([], value) if isinstance(value, int) else linear_terms(value)
        self.constant += factor * constant
        for node, times in terms:
            self._add(node, factor * times)
        return self

    def _add(self, node: Expr, factor: int) -> None:
        if op_name(node) == "floormod" and _divisor(node):  # ``n%16 → n - n//16*16``
            numerator, divisor = operands(node)
            self.plus(numerator, factor)
            self._add(binary("floordiv", numerator, divisor), -factor * _divisor(node))
            return
        key = _key(node)
        self.terms[key] = node, self.terms.get(key, (node, 0))[1] + factor

    def minus(self, other: _Linear) -> _Linear:
        """The form with another one subtracted, in place."""
        self.constant -= other.constant
        for key, (node, times) in other.terms.items():
            self.terms[key] = node, self.terms.get(key, (node, 0))[1] - times
        return self

    def least(self) -> _Linear:
        """A form that is not above it: ``n - n//16*16 → 0``."""
        found = _Linear().plus(self.constant)
        for node, factor in self.terms.values():
            divisor = _divisor(node) if op_name(node) == "floordiv" and factor < 0 else 0
            if divisor and factor % divisor == 0:
                found.plus(operands(node)[0], factor // divisor)
            else:
                found.plus(node, factor)
        return found


def _divisor(node: Expr) -> int:
    """The literal divisor of a quotient or remainder; 0 if it has none."""
    value = const_value(operands(node)[1])
    return int(value) if value is not None and value > 0 else 0


def _key(node: Expr) -> object:
    """Equal for equal terms: quotients are written where they are needed."""
    if op_name(node) == "floordiv" and _divisor(node):
        return node_id(operands(node)[0]), _divisor(node)
    return node_id(node)


def _extreme(form: Affine, loops: Loops, up: bool) -> _Linear | None:
    """The greatest value of a form, or the least one, where each of its loops has bounds."""
    found = _Linear().plus(form.constant)
    for key, factor in form.terms:
        if key in loops.ranges:
            found.plus(loops.ranges[key][(factor > 0) == up], factor)
        elif key in loops.symbolic:
            low, extent = loops.symbolic[key]
            found.plus(low, factor)
            if (factor > 0) == up:
                found.plus(extent, factor).plus(-1, factor)
        else:
            return None
    return found


def _never_negative(form: _Linear) -> bool:
    """Whether a form is at least zero for all sizes, which are at least zero."""
    return form.constant >= 0 and all(
        factor >= 0 and (factor == 0 or _is_size(node)) for node, factor in form.terms.values()
    )


def _is_size(node: Expr) -> bool:
    """Whether a term is a size, or a quotient of one."""
    if op_name(node) == "floordiv" and _divisor(node):
        node = operands(node)[0]
    return op_name(node) == "var"


def _has_symbols(index: Expr, dim: Extent, loops: Loops) -> bool:
    """Whether a symbolic size occurs; everything else is decided by affine forms."""
    return not isinstance(dim, int) or any(
        op_name(node) == "var" and node_id(node) not in loops.ranges for node in postorder(index)
    )


def _divides_safely(node: Expr, loops: Loops, given: Sequence[Expr]) -> bool:
    if op_name(node) not in INTEGER_DIVISIONS:
        return True
    divisor = operands(node)[1]
    value = const_value(divisor)
    if value is not None:
        return value != 0
    return _proved(compare("gt", divisor, const(0, dtype_of(divisor))), loops, given)


def _proved(condition: Expr, loops: Loops, given: Sequence[Expr]) -> bool:
    """Whether a condition holds for all loop values and all non-negative sizes."""
    widened = Widened()
    ranges: dict[Var, tuple[Extent, Extent | None]] = {}
    by_id = {node_id(var): var for var in loops.variables}
    for key, var in by_id.items():
        if key in loops.ranges:
            low, high = loops.ranges[key]
            ranges[widened.variable(var)] = (low, high - low + 1)
        elif key in loops.symbolic:
            low, extent = loops.symbolic[key]
            ranges[widened.variable(var)] = (widened(low), widened(extent))
    goal, facts = widened(condition), [widened(fact) for fact in given]
    sizes = dict.fromkeys(widened.others(by_id.values()), (0, None))
    return prove(goal, {**sizes, **ranges}, given=facts, strong=bool(facts))
