"""Affine index forms of a loop nest, the intervals they span, and strides in memory.

Rules decide from these plain numbers only. `products` finds the factors of a product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...codegen.passes.short_circuit import condition_of
from ...expr.dtypes import keeps_values
from ...expr.nodes import (
    INDEX_DTYPES,
    Expr,
    Tensor,
    Var,
    const_value,
    dtype_of,
    is_integer,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import depends_on, expand_lets, postorder
from ...graph.stage import (
    Operation,
    Reduction,
    axis_range,
    loop_axes,
    shape_of,
    sources_of,
)
from ..kernel import iterations, size_of

Interval = tuple[int, int]


@dataclass(frozen=True)
class Affine:
    """``Σ coefficient · variable + constant``; terms are ordered by the loop nest."""

    terms: tuple[tuple[int, int], ...]  #: (id of the variable, coefficient)
    constant: int = 0

    @property
    def linear(self) -> tuple[tuple[int, int], ...]:
        """The form without its constant, which identifies a linear form."""
        return self.terms

    def coefficient(self, key: int) -> int:
        """The coefficient of a variable."""
        return dict(self.terms).get(key, 0)


class AffineForms:
    """The affine forms of expressions over some variables; each node is looked at once.

    Parameters
    ----------
    variables : sequence of Var
        The variables in the order of the loop nest.
    """

    def __init__(self, variables: Sequence[Var]) -> None:
        self.order = {node_id(var): number for number, var in enumerate(variables)}
        self._known: dict[int, Affine | None] = {}
        self._alive: list[Expr] = []  # ids are addresses: keep what was keyed

    def of(self, root: Expr) -> Affine | None:
        """The form of an expression, if it has one."""
        known = self._known
        pending = [root]
        while pending:
            node = pending[-1]
            key = node_id(node)
            if key in known:
                pending.pop()
                continue
            unknown = [part for part in operands(node) if node_id(part) not in known]
            if unknown:
                pending += unknown
                continue
            pending.pop()
            known[key] = _form(node, self.order, known)
            self._alive.append(node)
        return known[node_id(root)]


def affine_forms(roots: Sequence[Expr], variables: Sequence[Var]) -> dict[int, Affine]:
    """The affine form of every node under `roots` that has one, by node id."""
    order = {node_id(var): number for number, var in enumerate(variables)}
    forms: dict[int, Affine] = {}
    for node in postorder(list(roots)):
        form = _form(node, order, forms)
        if form is not None:
            forms[node_id(node)] = form
    return forms


def _form(
    node: Expr, order: Mapping[int, int], forms: Mapping[int, Affine | None] | Mapping[int, Affine]
) -> Affine | None:
    name = op_name(node)
    if name == "const":
        value = const_value(node)
        return Affine((), value) if isinstance(value, int) and is_integer(node) else None
    if name == "var":
        return Affine(((node_id(node), 1),)) if node_id(node) in order else None
    parts = [forms.get(node_id(part)) for part in operands(node)]
    if not parts or None in parts or not is_integer(node):
        return None
    left = parts[0]
    assert left is not None
    if name == "cast":
        # what may wrap round is no linear form; ranges are not known here
        return left if keeps_values(dtype_of(operands(node)[0]), dtype_of(node)) else None
    if dtype_of(node) not in INDEX_DTYPES:
        return None
    right = parts[1] if len(parts) > 1 else None
    if right is None:
        return None
    if name in ("add", "sub"):
        return combine(left, right, 1 if name == "add" else -1, order)
    if name == "mul":
        if not right.terms:
            return scaled(left, right.constant)
        if not left.terms:
            return scaled(right, left.constant)
    return None


def scaled(form: Affine, factor: int) -> Affine:
    """``factor · form``."""
    terms = tuple((key, c * factor) for key, c in form.terms if c * factor)
    return Affine(terms, form.constant * factor)


def combine(left: Affine, right: Affine, sign: int, order: Mapping[int, int]) -> Affine:
    """``left + sign · right``, with the terms in the given order of variables."""
    total = dict(left.terms)
    for key, c in right.terms:
        total[key] = total.get(key, 0) + sign * c
    terms = sorted(((k, c) for k, c in total.items() if c), key=lambda term: order[term[0]])
    return Affine(tuple(terms), left.constant + sign * right.constant)


def interval(form: Affine, ranges: Mapping[int, Interval]) -> Interval | None:
    """The smallest and largest value of a form, or None if a range is not numeric."""
    low = high = form.constant
    for key, c in form.terms:
        bounds = ranges.get(key)
        if bounds is None:
            return None
        low += c * bounds[0 if c > 0 else 1]
        high += c * bounds[1 if c > 0 else 0]
    return low, high


def strides_along(roots: Sequence[Expr], var: Var, variables: Sequence[Var]) -> list[int] | None:
    """Distances in memory between neighbours along a variable, read by read; None if one varies."""
    found: list[int] = []
    for node in postorder(list(roots)):
        if is_load(node):
            stride = stride_of(node, node_id(var), variables)
            if stride is None or stride < 0:
                return None
            found.append(stride)
    return found


def stride_of(read: Expr, key: int, variables: Sequence[Var]) -> int | None:
    """The distance in memory, in elements, between neighbours of a read along a variable.

    Zero when the read does not depend on it, None when the distance is no constant.
    """
    tensor: Tensor = load_tensor(read)
    indices = operands(read)
    forms = affine_forms(list(indices), variables)
    stride: int | None = 1
    total = 0
    for index, dim in zip(reversed(indices), reversed(shape_of(tensor)), strict=True):
        form = forms.get(node_id(index))
        if form is None and any(node_id(node) == key for node in postorder(index)):
            return None
        c = 0 if form is None else form.coefficient(key)
        if c and stride is None:
            return None
        total += c * (stride or 0)
        stride = stride * dim if isinstance(dim, int) and stride is not None else None
    return total


def unit_strides(op: Operation, var: Var) -> bool:
    """Whether every read is contiguous in memory along a variable, or constant."""
    roots, variables = sources_of(op), [axis.var for axis in loop_axes(op)]
    return all(
        stride_of(node, node_id(var), variables) in (0, 1)
        for node in postorder(roots)
        if is_load(node) and depends_on_any(node, var)
    )


def depends_on_any(read: Expr, var: Var) -> bool:
    """Whether an index of a read depends on a variable."""
    return any(depends_on(index, [var]) for index in operands(read))


def streamed(op: Operation, reduction: Reduction) -> list[Expr]:
    """The reads that are of another element for each point; others are reused, in tiles."""
    variables = [axis.var for axis in (*op.axis, *reduction.axes)]
    points = iterations(op)
    return [
        node
        for node in postorder([expand_lets(source) for source in reduction.sources])
        if is_load(node)
        and size_of(shape_of(load_tensor(node))) >= points
        and all(depends_on_any(node, var) for var in variables)
    ]


def is_flat(op: Operation, lanes: int) -> bool:
    """Whether several output axes are contiguous in every read as they are in the output, in whole
    vectors and without branches.
    """
    roots, variables = sources_of(op), [axis.var for axis in loop_axes(op)]
    total = 1
    for axis in reversed(op.axis):
        strides, extent = strides_along(roots, axis.var, variables), axis_range(axis)[1]
        if not strides or any(stride != total for stride in strides):
            return False
        if not isinstance(extent, int):
            return False
        total *= extent
    return len(op.axis) > 1 and total % lanes == 0 and not has_branches(roots)


def has_branches(roots: Sequence[Expr], var: Var | None = None) -> bool:
    """Whether there is a branch or a marked condition; with `var`, one that depends on it.

    A loop over such a variable has no vectors.
    """
    return any(
        (op_name(node) == "if_then_else" or condition_of(node) is not None)
        and (var is None or depends_on(operands(node)[0], [var]))
        for node in postorder(list(roots))
    )


def is_value(roots: Sequence[Expr], variables: Sequence[Var]) -> bool:
    """Whether a variable occurs outside indices of reads, as in ``y == place[row]``."""
    wanted = {node_id(var) for var in variables}
    pending, seen = list(roots), set(wanted)
    while pending:
        node = pending.pop()
        if node_id(node) in wanted:
            return True
        if node_id(node) not in seen and not is_load(node):
            seen.add(node_id(node))
            pending += operands(node)
    return False
