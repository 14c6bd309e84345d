"""Finds tensors that outputs read but do not depend on, such as the maximum that softmax subtracts.

To first order, a change δ of a tensor m shifts or scales what is computed from it: ``x - m → -δ``,
``exp(x - m) → ·(1 - δ)``, ``Σ_k`` of that ``→ ·(1 - δ)``, and the quotient of the two does not
change. If every path from m ends this way, its cotangent is zero for any cotangent of the outputs,
and no gradient has to be computed for it. Expressions without a rule prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

from ..expr.nodes import (
    Expr,
    Tensor,
    const_value,
    is_const,
    is_float,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
    same_node,
    tensor_key,
)
from ..expr.rewrite import depends_on, expand_lets, postorder, substituter
from ..expr.simplify import prove_equal
from ..graph.graph import Graph, tensors_read_by
from ..graph.stage import Operation, axis_vars, bodies, is_compute, outputs_of, reduction_of
from .reductions.reducers import classify
from .scalar_rules import NO_DERIVATIVE

#: the maximum number of stages that a change is followed through
_MOST_STAGES = 32

Key = tuple[int, int]
#: Σ coefficient · δ[indices], where δ is the change of the tensor in question
Degree = tuple[tuple[Fraction, tuple[Expr, ...]], ...]


@dataclass(frozen=True)
class Shift:
    """``value + degree``; an empty degree means no change."""

    degree: Degree = ()


@dataclass(frozen=True)
class Scale:
    """``value · base**degree``."""

    degree: Degree
    base: str


@dataclass(frozen=True)
class Zero:
    """A literal zero, which scaling does not change."""


Change = Shift | Scale | Zero
SAME = Shift()

#: maps the operands of a node and their changes to its change, or to None if it is unknown
_Rule = Callable[[Sequence[Expr], Sequence[Change]], Change | None]


def unneeded_tensors(
    graph: Graph,
    ends: Collection[Key],
    reached: Collection[int],
    asked: Collection[Key],
) -> set[Key]:
    """Keys of reductions whose cotangent is zero for every cotangent of the outputs.

    Parameters
    ----------
    graph : Graph
        The stages between the outputs and the inputs.
    ends : collection of keys
        The tensors with given cotangents.
    reached : collection of int
        The hashes of the stages that depend on the inputs.
    asked : collection of keys
        Tensors whose cotangent is always required.
    """
    found: set[Key] = set()
    for op in graph.ops:
        if hash(op) not in reached or not is_compute(op) or reduction_of(op) is None:
            continue
        for tensor in outputs_of(op):
            key = tensor_key(tensor)
            if key in asked or not is_float(tensor):
                continue
            if _is_unneeded(tensor, graph, ends):
                found.add(key)
    return found


def _is_unneeded(tensor: Tensor, graph: Graph, ends: Collection[Key]) -> bool:
    if tensor_key(tensor) in ends or not graph.consumers(tensor):
        return False
    here = tuple(axis_vars(tensor.op))
    changes: dict[Key, Change] = {tensor_key(tensor): Shift(((Fraction(1), here),))}
    pending = {hash(op): op for op in graph.consumers(tensor)}
    for _ in range(_MOST_STAGES):
        op = _first(pending, graph)
        if op is None:
            return True
        read = {tensor_key(tensor) for tensor in tensors_read_by(op)} if is_compute(op) else set()
        if read.isdisjoint(changes):  # by way of a custom rule, or of an equal form
            return False
        for output, change in zip(outputs_of(op), _of_stage(op, changes), strict=True):
            if change is None:
                return False
            if isinstance(change, Zero) or not change.degree or not is_float(output):
                continue
            if tensor_key(output) in ends:
                return False
            changes[tensor_key(output)] = change
            pending.update((hash(reader), reader) for reader in graph.consumers(output))
    return False


def _first(pending: dict[int, Operation], graph: Graph) -> Operation | None:
    """The pending stage that comes before all others."""
    if not pending:
        return None
    return pending.pop(min(pending, key=graph.place))


def _of_stage(op: Operation, changes: dict[Key, Change]) -> list[Change | None]:
    """The change of each output of a stage, or None if it is unknown."""
    reduction = reduction_of(op)
    if reduction is None:
        return [_of_expression(expand_lets(body), changes) for body in bodies(op)]
    parts = [*reduction.sources, *reduction.init]
    found = [_of_expression(expand_lets(part), changes) for part in parts]
    if all(change == SAME or isinstance(change, Zero) for change in found):
        return [SAME] * op.num_outputs
    [change, *others] = found
    kind = classify(reduction.combiner, 0)
    fits = isinstance(change, Scale) if kind == "sum" else kind in ("max", "min")
    inner = [axis.var for axis in reduction.axes]
    if others or not fits or change is None or isinstance(change, Zero):
        return [None] * op.num_outputs
    if any(depends_on(index, inner) for _, indices in change.degree for index in indices):
        return [None]  # the elements change by different amounts
    return [change]


def _of_expression(root: Expr, changes: dict[Key, Change]) -> Change | None:
    found: dict[int, Change | None] = {}
    for node in postorder(root):
        parts = operands(node)
        name = op_name(node)
        if is_load(node) and tensor_key(load_tensor(node)) in changes:
            found[node_id(node)] = _of_read(node, changes)
        elif not is_float(node) or name in NO_DERIVATIVE:
            found[node_id(node)] = SAME  # nothing is carried on, as in the table of scalar rules
        elif is_const(node, 0):
            found[node_id(node)] = Zero()
        else:
            below = [found[node_id(part)] for part in parts]
            rule = _RULES.get(name)
            if all(change == SAME or isinstance(change, Zero) for change in below):
                found[node_id(node)] = SAME
            elif rule is None or None in below:
                found[node_id(node)] = None
            else:
                found[node_id(node)] = rule(parts, [change for change in below if change])
    return found[node_id(root)]


def _of_read(node: Expr, changes: dict[Key, Change]) -> Change:
    tensor = load_tensor(node)
    change = changes[tensor_key(tensor)]
    assert not isinstance(change, Zero)
    move = substituter(dict(zip(axis_vars(tensor.op), operands(node), strict=True)))
    degree = tuple((c, tuple(move(index) for index in indices)) for c, indices in change.degree)
    return Shift(degree) if isinstance(change, Shift) else Scale(degree, change.base)


def _sum(left: Degree, right: Degree, factor: Fraction = Fraction(1)) -> Degree:
    """``left + factor·right``; terms that cancel disappear."""
    total = list(left)
    for coefficient, indices in right:
        for place, (known, others) in enumerate(total):
            if _same_indices(indices, others):
                total[place] = known + factor * coefficient, others
                break
        else:
            total.append((factor * coefficient, indices))
    return tuple(term for term in total if term[0])


def _same_indices(left: Sequence[Expr], right: Sequence[Expr]) -> bool:
    return all(same_node(a, b) or prove_equal(a, b) for a, b in zip(left, right, strict=True))


def _times(change: Change, factor: Fraction) -> Change:
    if isinstance(change, Zero):
        return change
    degree = _sum((), change.degree, factor)
    return Shift(degree) if isinstance(change, Shift) else _scale(degree, change.base)


def _scale(degree: Degree, base: str) -> Change:
    return Scale(degree, base) if degree else SAME


def _literal(node: Expr) -> Fraction | None:
    value = const_value(node)
    return None if value is None or not isfinite(value) else Fraction(value)


def _scaled(changes: Sequence[Change], sign: int) -> Change | None:
    """The product or quotient of two values that scale by the same base or not at all."""
    bases = {change.base for change in changes if isinstance(change, Scale)}
    if len(bases) != 1 or any(isinstance(c, Shift) and c.degree for c in changes):
        return None
    left, right = (() if isinstance(change, Zero) else change.degree for change in changes)
    return _scale(_sum(left, right, Fraction(sign)), bases.pop())


def _added(sign: int) -> _Rule:
    def rule(parts: Sequence[Expr], changes: Sequence[Change]) -> Change | None:
        left, right = (SAME if isinstance(change, Zero) else change for change in changes)
        if isinstance(left, Shift) and isinstance(right, Shift):
            return Shift(_sum(left.degree, right.degree, Fraction(sign)))
        return _joined(parts, changes)

    return rule


def _joined(parts: Sequence[Expr], changes: Sequence[Change]) -> Change | None:
    """One of several values that all change in the same way; any scale fits zero."""
    scaled = any(isinstance(change, Scale) for change in changes)
    left, *rest = [c for c in changes if not isinstance(c, Zero)] if scaled else changes
    for right in rest:
        if type(left) is not type(right) or isinstance(left, Zero) or isinstance(right, Zero):
            return None
        if isinstance(left, Scale) and isinstance(right, Scale) and left.base != right.base:
            return None
        if _sum(left.degree, right.degree, Fraction(-1)):
            return None
    return left


def _mul(parts: Sequence[Expr], changes: Sequence[Change]) -> Change | None:
    for place in (0, 1):
        factor = _literal(parts[1 - place])
        if factor is not None and isinstance(changes[place], Shift):
            return _times(changes[place], factor)
    return _scaled(changes, 1)


def _div(parts: Sequence[Expr], changes: Sequence[Change]) -> Change | None:
    divisor = _literal(parts[1])
    if divisor and isinstance(changes[0], Shift):
        return _times(changes[0], 1 / divisor)
    return _scaled(changes, -1)


def _exponential(base: str) -> _Rule:
    def rule(parts: Sequence[Expr], changes: Sequence[Change]) -> Change | None:
        [change] = changes
        return _scale(change.degree, base) if isinstance(change, Shift) else None

    return rule


def _logarithm(base: str) -> _Rule:
    def rule(parts: Sequence[Expr], changes: Sequence[Change]) -> Change | None:
        [change] = changes
        fits = isinstance(change, Scale) and change.base == base
        return Shift(change.degree) if fits and isinstance(change, Scale) else None

    return rule


def _root(power: Fraction) -> _Rule:
    def rule(parts: Sequence[Expr], changes: Sequence[Change]) -> Change | None:
        return _times(changes[0], power) if isinstance(changes[0], Scale) else None

    return rule


def _power(parts: Sequence[Expr], changes: Sequence[Change]) -> Change | None:
    exponent = _literal(parts[1])
    return None if exponent is None else _root(exponent)(parts, changes[:1])


_RULES: dict[str, _Rule] = {
    "add": _added(1),
    "sub": _added(-1),
    "mul": _mul,
    "div": _div,
    "exp": _exponential("e"),
    "exp2": _exponential("2"),
    "exp10": _exponential("10"),
    "log": _logarithm("e"),
    "log2": _logarithm("2"),
    "log10": _logarithm("10"),
    "sqrt": _root(Fraction(1, 2)),
    "rsqrt": _root(Fraction(-1, 2)),
    "power": _power,
    "cast": lambda parts, changes: changes[0],
    "abs": lambda parts, changes: changes[0] if isinstance(changes[0], Scale) else None,
    "max": _joined,
    "min": _joined,
    "select": lambda parts, changes: _joined(parts[1:], changes[1:]),
    "if_then_else": lambda parts, changes: _joined(parts[1:], changes[1:]),
}
