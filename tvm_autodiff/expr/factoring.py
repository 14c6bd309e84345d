"""Takes common factors out of sums, and literals together.

Derivatives add products with factors in common, and scatter literals over them. ``a*b + c*a`` has
three roundings, ``(b + c)*a`` two: its error is at most ``2·ε·(|a*b| + |c*a|)`` in both forms. The
factors of a product stay in order, so that it leaves the range of the dtype where it did before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .build import add, conjuncts, div, like, mul, neg
from .nodes import (
    BRANCHES,
    Expr,
    const_value,
    is_const,
    is_float,
    is_load,
    node_id,
    op_name,
    operands,
    with_operands,
)
from .rewrite import contains, expand_lets, postorder
from .sharing.failing import can_fail
from .sharing.lets import merge_equal

#: whether a loop around an expression changes a part of it
Varies = Callable[[Expr], bool]

#: literals up to this size are multiplied with each other: several of them stay in range
_LARGE = 2.0**16
_STEPS = frozenset(("floor", "ceil", "round", "nearbyint", "trunc", "fmod", "floormod"))
_OPERATIONS = frozenset(("add", "sub", "mul", "div"))


def factored(
    roots: Sequence[Expr], varies: Varies, stays: Varies = lambda part: False
) -> list[Expr]:
    """``a*b*c + d*b*a → (c + d)*a*b``, and ``(x*2)*s → x*(s*2)`` if only x varies.

    Parameters
    ----------
    roots : sequence of Expr
        Expressions of the same loops. What they share is shared afterwards.
    varies : callable
        Whether a loop changes a part. Literals are multiplied with what none changes.
    stays : callable
        Whether a reciprocal is a factor; others divide: ``x*(1/s) → x/s``.

    Returns
    -------
    list of Expr
        Without lets; the given ones if nothing is saved.
    """
    merged = merge_equal([expand_lets(root) for root in roots])
    found = _Factoring(merged, varies, stays)
    changed = merge_equal([found.expression(root) for root in merged])
    return changed if _work(changed, varies) < _work(merged, varies) else list(roots)


def apart(
    root: Expr, varies: Varies, divides: Varies, stays: Varies = lambda part: False
) -> tuple[Expr, Callable[[Expr], Expr]] | None:
    """``f(k)*a/b → f(k), and sum → sum*a/b`` for a and b that no loop changes: `varies` tells it of
    factors, `divides` of divisors. Reciprocals that stay are factors.

    Returns
    -------
    tuple or None
        The factors that vary, and what multiplies their sum by the others; None if all vary, or
        none does.
    """
    [merged] = merge_equal([expand_lets(root)])
    found = _Factoring([merged], varies, stays)
    product = found.product(merged)
    changed = [(divides if f.divides else varies)(f.node) for f in product.factors]
    inside = tuple(f for f, changes in zip(product.factors, changed, strict=True) if changes)
    outside = tuple(f for f, changes in zip(product.factors, changed, strict=True) if not changes)
    if not inside or (not outside and product.literal == 1.0):
        return None

    def times(total: Expr) -> Expr:
        value = found.written(_Product(product.literal, (_Factor(total),)), root)
        for factor in outside:
            value = div(value, factor.node) if factor.divides else mul(value, factor.node)
        return value

    return found.written(_Product(1.0, inside), root), times


def _work(roots: Sequence[Expr], varies: Varies) -> int:
    """The operations that loops repeat."""
    return sum(_is_arithmetic(node) and varies(node) for node in postorder(list(roots)))


def _is_arithmetic(node: Expr) -> bool:
    return is_float(node) and op_name(node) in _OPERATIONS and not _is_sign(node)


def _is_sign(node: Expr) -> bool:
    return op_name(node) == "mul" and any(is_const(part, -1) for part in operands(node))


@dataclass(frozen=True)
class _Factor:
    """A factor or, with `divides`, a divisor of a product."""

    node: Expr
    divides: bool = False

    @property
    def key(self) -> tuple[int, bool]:
        """Equal for equal factors of one set of expressions."""
        return node_id(self.node), self.divides


@dataclass(frozen=True)
class _Product:
    """A literal times factors, in the order in which they are multiplied."""

    literal: float
    factors: tuple[_Factor, ...] = ()

    def counts(self) -> Counter[tuple[int, bool]]:
        """How often each factor occurs."""
        return Counter(factor.key for factor in self.factors)

    def parted(self, common: Counter[tuple[int, bool]]) -> tuple[_Product, _Product]:
        """The common factors without the literal, and what is left without them."""
        left = Counter(common)
        taken: list[_Factor] = []
        kept: list[_Factor] = []
        for factor in self.factors:
            (taken if left[factor.key] > 0 else kept).append(factor)
            left[factor.key] -= 1
        return _Product(1.0, tuple(taken)), _Product(self.literal, tuple(kept))

    def times(self, other: _Product) -> _Product:
        """The product of both."""
        return _Product(self.literal * other.literal, (*self.factors, *other.factors))

    def by(self, literal: float) -> _Product:
        """The product with another literal."""
        return replace(self, literal=literal)


def _below_steps(order: Sequence[Expr]) -> set[int]:
    """What integers, comparisons and roundings are made of: another rounding of it may be another
    element or branch.
    """
    found: set[int] = set()
    for node in reversed(order):  # what is read before what reads it
        steps = not is_float(node) or is_load(node) or op_name(node) in _STEPS
        if steps or node_id(node) in found:
            found.update(map(node_id, operands(node)))
    return found


class _Factoring:
    """The factors of each node of some expressions, which share equal parts."""

    def __init__(self, roots: Sequence[Expr], varies: Varies, stays: Varies) -> None:
        self._varies, self._stays = varies, stays
        order = postorder(list(roots))
        uses = Counter(node_id(part) for node in order for part in operands(node))
        uses.update(map(node_id, roots))
        self._exact = _below_steps(order)
        self._made: dict[int, Expr] = {}
        self._equal: dict[tuple[object, ...], Expr] = {}
        self._alive: list[Expr] = []
        self._known: dict[int, _Product] = {}
        for node in order:
            product = self._of(node)
            if is_float(node) and operands(node) and uses[node_id(node)] > 1:
                # what several read is one factor of each, but for its sign
                sign = -1.0 if product.literal < 0 else 1.0
                product = self._one(self.written(product.by(abs(product.literal)), node), sign)
            self._known[node_id(node)] = product

    def product(self, node: Expr) -> _Product:
        """The factors of a node."""
        return self._known[node_id(node)]

    def expression(self, node: Expr) -> Expr:
        """A node as the product of its factors."""
        key = node_id(node)
        if key not in self._made:
            self._made[key] = self.written(self._known[key], node)
        return self._made[key]

    def _one(self, node: Expr, literal: float = 1.0) -> _Product:
        value = const_value(node)
        if value is not None and is_float(node) and _is_moderate(value):
            return _Product(literal * float(value))
        return _Product(literal, (_Factor(self._same(node)),))

    def _same(self, node: Expr) -> Expr:
        """The first of equal operations, so that factors are compared by identity."""
        self._alive.append(node)
        if op_name(node) not in _OPERATIONS:
            return node
        return self._equal.setdefault((op_name(node), *map(node_id, operands(node))), node)

    def _of(self, node: Expr) -> _Product:
        name, parts = op_name(node), operands(node)
        if node_id(node) in self._exact:
            return self._one(node)
        if is_float(node) and name in _OPERATIONS:
            left, right = (self._known[node_id(part)] for part in parts)
            if name == "mul" and _is_moderate(left.literal * right.literal):
                return left.times(right)
            if name == "div" and is_const(parts[0], 1) and self._stays(node):
                return self._one(self._rebuilt(node))
            if name == "div":
                return left.times(_Product(1.0, (_Factor(self.expression(parts[1]), True),)))
            if name in ("add", "sub"):
                sign = -1.0 if name == "sub" else 1.0
                return self._added(node, left, right.by(sign * right.literal))
        if is_float(node) and name in BRANCHES and is_const(parts[2], 0):
            return self._guarded(node)
        return self._one(self._rebuilt(node))

    def _added(self, node: Expr, left: _Product, right: _Product) -> _Product:
        """``a*b + c*a → (b + c)*a``."""
        common = left.counts() & right.counts()
        # a sign, and a literal that both have, are factors as well
        both = left.factors and right.factors and abs(left.literal) == abs(right.literal)
        literal = left.literal if both else 1.0
        if left.literal < 0 < right.literal:
            left, right, literal = right, left, abs(literal)
        taken, first = left.parted(common)
        _, second = right.parted(common)
        total = add(
            self.written(first.by(first.literal / literal), node),
            self.written(second.by(second.literal / literal), node),
        )
        return self._one(total).times(taken.by(literal))

    def _guarded(self, node: Expr) -> _Product:
        """``if c then 2*x else 0 → 2*(if c then x else 0)``; only literals are surely finite."""
        condition, then, zero = operands(node)
        product = self._known[node_id(then)]
        inner = self.written(product.by(1.0), node)
        guarded = with_operands(node, [self.expression(condition), inner, zero])
        return self._one(guarded, product.literal)

    def _rebuilt(self, node: Expr) -> Expr:
        parts = [self.expression(part) for part in operands(node)]
        same = all(node_id(a) == node_id(b) for a, b in zip(operands(node), parts, strict=True))
        return node if same else with_operands(node, parts)

    def written(self, product: _Product, typed: Expr) -> Expr:
        """The expression of a product, in the dtype of a node.

        The literal goes to a factor that no loop changes, if there is one, else behind the first.
        """
        factors, literal = product.factors, abs(product.literal)
        if not factors:
            return like(typed, product.literal)
        if len(factors) == 1 and product.literal == 1.0 and not factors[0].divides:
            return factors[0].node
        fixed = (
            number
            for number, factor in enumerate(factors)
            if not factor.divides and not self._varies(factor.node)
        )
        place = next(fixed, 0) if literal != 1.0 else None
        value = like(typed, 1.0)
        for number, factor in enumerate(factors):
            if factor.divides:
                value = mul(value, like(typed, literal)) if number == place else value
                value = div(value, factor.node)
            else:
                node = mul(factor.node, like(typed, literal)) if number == place else factor.node
                value = mul(value, node)
        return neg(value) if product.literal < 0 else value


def _is_moderate(value: float) -> bool:
    return 1 / _LARGE <= abs(value) <= _LARGE


def addends_of(source: Expr) -> list[Expr]:
    """``a + (b + c) → a, b, c``"""
    pending, found = [source], []
    while pending:
        part = pending.pop()
        if op_name(part) == "add":
            pending += reversed(operands(part))
        else:
            found.append(part)
    return found


def factors_of(source: Expr) -> tuple[list[Expr], list[Expr]]:
    """The conditions of a product, and its factors.

    ``if c and d then a*(b*x) else 0 → (c, d), (a, b, x)``
    """
    pairs = conditional_factors(source)
    guards = {node_id(one): one for _, conditions in pairs for one in conditions}
    return list(guards.values()), [factor for factor, _ in pairs]


def _is_conditional(factor: Expr) -> bool:
    """``if c then b else 0``, or a choice between b and zero by what can be looked at anywhere."""
    if op_name(factor) not in BRANCHES or not is_const(operands(factor)[2], 0):
        return False
    return op_name(factor) == "if_then_else" or not contains(operands(factor)[0], can_fail)


def conditional_factors(source: Expr) -> list[tuple[Expr, tuple[Expr, ...]]]:
    """The factors of a product, each with the conditions under which it is written.

    ``a*(if c and d then b else 0) → (a, ()), (b, (c, d))``
    """
    found: list[tuple[Expr, tuple[Expr, ...]]] = []
    pending: list[tuple[Expr, tuple[Expr, ...]]] = [(source, ())]
    while pending:
        factor, conditions = pending.pop(0)
        name = op_name(factor)
        if name == "mul":
            pending = [*((part, conditions) for part in operands(factor)), *pending]
        elif _is_conditional(factor):
            condition, then, _ = operands(factor)
            pending.insert(0, (then, (*conditions, *conjuncts(condition))))
        else:
            found.append((factor, conditions))
    return found
