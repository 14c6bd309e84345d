"""Reads a reduction as an elementwise body over operands: ``Σ_k (x[i, k] - c[j, k])²``, ``max_k
a[i, k] + b[k, j]``.

Tuples, such as a maximum and its index, are included. Operands can be copied to where a kernel
needs them. The body is then free of branches: with every operand read in bounds, nothing else in it
can fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ....codegen.passes.short_circuit import condition_of
from ....expr.build import cast, compare, multiplied, select, zero_like
from ....expr.costly import EXPENSIVE
from ....expr.nodes import (
    BITWISE_CLASSES,
    BRANCHES,
    COMPARISONS,
    INTEGER_DIVISIONS,
    Axis,
    Expr,
    Var,
    const_value,
    dtype_of,
    is_load,
    node_id,
    op_name,
    operands,
    with_operands,
)
from ....expr.rewrite import contains_load, expand_lets, postorder, replace_outermost
from ....expr.sharing.lets import bind_shared, merge_equal
from ....graph.stage import Operation, Reduction, reduction_of
from ...cost import CALL, DIVISION
from ...declined import NO_REDUCTION, Declined, other_kind
from .products import Operand, Product, atoms_of, is_sum, knows, product_of

_SLOW = {**dict.fromkeys(("div", "sqrt", "rsqrt"), DIVISION), **dict.fromkeys(EXPENSIVE, CALL)}
_FREE = frozenset(("const", "var"))
#: what any values can be put into without harm; integers are divided by literals only
_ELEMENTWISE = frozenset(
    (*COMPARISONS, *BITWISE_CLASSES, *BRANCHES, *INTEGER_DIVISIONS, *_SLOW, *_FREE)
    + ("add", "sub", "mul", "min", "max", "abs", "cast", "and", "or", "not", "bitwise_not")
    + ("floor", "ceil", "round", "trunc", "nearbyint")
)

Steps = tuple[tuple[frozenset[int], float], ...]


@dataclass(frozen=True)
class Body:
    """A reduction read as ``⊕ exprs(operands)``.

    Attributes
    ----------
    exprs : tuple of Expr
        The reduced values, without branches and lets; they contain each operand's expression
        unchanged.
    steps : tuple of (set of int, float)
        The work for a point of the loops: ids of the variables that it varies along, and its number
        of operations.
    inside : tuple of (set of int, float)
        The work for the operands, in the same form.
    """

    axes: tuple[Axis, ...]
    reduction: Reduction
    operands: list[Operand]
    exprs: tuple[Expr, ...]
    steps: Steps
    inside: Steps = ()

    def over(self, reads: Sequence[Expr], _inside: Sequence[int] = ()) -> tuple[Expr, ...]:
        """The body over the replacements of its operands."""
        pairs = zip(self.operands, reads, strict=True)
        table = {node_id(old.expr): new for old, new in pairs}
        return tuple(bind_shared(replace_outermost(expr, table)) for expr in self.exprs)


def reduced_body(op: Operation) -> Product | Body | Declined:
    """What a stage reduces: a product of operands, or a body of any form.

    It is a product if no operand varies along all outputs unless it is a read, whose conditions
    are no data: such an operand would be copied to be used once. Factors of loops alone, ``exp(-(i
    - k)**2)``, are operands.
    """
    product = product_of(op, of_loops=True)
    if product is not None and len(product.operands) > 1 and not _is_narrow(product):
        product = _with_absorbed(product)
    if product is not None and len(product.operands) > 1:
        spatial = {node_id(axis.var) for axis in product.axes}
        reused = all(_is_read(one) or spatial - one.variables() for one in product.operands)
        if reused and not any(map(_fails_outside, product.operands)):
            return product
    return body_of(op)


def _is_narrow(product: Product) -> bool:
    """Whether a product of two factors would be rounded to 16 bits, or leave their range."""
    return dtype_of(product.reduction.sources[0]) in ("float16", "bfloat16")


def _with_absorbed(product: Product) -> Product:
    """``a[i, k]*f(u[i], v[k])*b[k, j]``: a factor that is computed takes those over its loops along
    into its copy, ``(a[i, k]*f(u[i], v[k]))*b[k, j]``.
    """
    left = list(product.operands)
    for one in product.operands:
        own = [other for other in left if other is not one and knows(one, other.atoms)]
        if not one.is_load and own and any(other is one for other in left):
            left = _joined(left, one, own)
    return product if len(left) == len(product.operands) else replace(product, operands=left)


def with_joined_reads(body: Product | Body) -> Product | None:
    """``a[i, k]*c[i, k]*b[k, j] → (a[i, k]*c[i, k])*b[k, j]``: reads over the same loops as one
    factor, which is copied; None if there are none, or all have the same.
    """
    if not isinstance(body, Product) or _is_narrow(body):
        return None
    left = list(body.operands)
    for one in body.operands:
        own = [other for other in left if other is not one and other.atoms == one.atoms]
        if own and any(other is one for other in left):
            left = _joined(left, one, own)
    return replace(body, operands=left) if 1 < len(left) < len(body.operands) else None


def _joined(every: Sequence[Operand], one: Operand, others: Sequence[Operand]) -> list[Operand]:
    """The operands with one in place of several."""
    whole = replace(
        one,
        expr=multiplied([*(other.expr for other in others), one.expr]),
        guards=[guard for other in (one, *others) for guard in other.guards],
    )
    left = [operand for operand in every if not any(operand is other for other in others)]
    return [whole if operand is one else operand for operand in left]


def _fails_outside(operand: Operand) -> bool:
    """Whether a factor of loops alone may divide by zero beyond their ends, where copies go on."""
    alone = not contains_load(operand.expr)
    return alone and any(map(_may_divide_by_zero, postorder(operand.expr)))


def _is_read(operand: Operand) -> bool:
    """Whether an operand is a read, if its loops are where it counts."""
    return operand.is_load and not any(map(contains_load, operand.guards))


def body_of(op: Operation) -> Body | Declined:
    """The body of a reduction, and its operands."""
    reduction = reduction_of(op)
    if reduction is None:
        return NO_REDUCTION
    sources = merge_equal([expand_lets(source) for source in reduction.sources])
    if any(map(_may_divide_by_zero, postorder(sources))):
        return Declined("it divides integers by what may be zero")
    if any(op_name(node) == "eq" and condition_of(node) is not None for node in postorder(sources)):
        return Declined("it negates a condition of floats")
    variables = [axis.var for axis in (*op.axis, *reduction.axes)]
    varies = _varies_along(sources, variables)
    found: dict[int, Operand] = {}
    for node in _operands_of(sources, varies):
        atoms = atoms_of([node], variables)
        if atoms is None:
            return Declined("a read does not depend on its loops in an affine way")
        # vectors of truth values have another memory layout than single ones
        plain = cast("int8", node) if dtype_of(node) == "bool" else node
        found[node_id(node)] = Operand(plain, atoms)
    nodes = _above(sources, found)
    others = [op_name(node) for node in nodes if op_name(node) not in _ELEMENTWISE]
    if others:
        return other_kind(f"its body calls {others[-1]}")
    exprs = _without_branches(sources, nodes, found)
    steps = _steps(reduction, sources, nodes, varies, frozenset(map(node_id, variables)))
    computed = [node for one in _operands_of(sources, varies) for node in postorder(one)]
    slow = [(varies[node_id(node)], _SLOW.get(op_name(node), 0.0)) for node in computed]
    inside = tuple(step for step in slow if step[1])
    return Body(tuple(op.axis), reduction, list(found.values()), exprs, steps, inside)


def _may_divide_by_zero(node: Expr) -> bool:
    return op_name(node) in INTEGER_DIVISIONS and not const_value(operands(node)[1])


def _varies_along(sources: Sequence[Expr], variables: Sequence[Var]) -> dict[int, frozenset[int]]:
    """The loop variables that each node depends on, by id."""
    loops = {node_id(var) for var in variables}
    varies: dict[int, frozenset[int]] = {}
    for node in postorder(sources):
        key = node_id(node)
        own = {key} & loops
        varies[key] = frozenset(own).union(*(varies[node_id(part)] for part in operands(node)))
    return varies


def _operands_of(sources: Sequence[Expr], varies: Mapping[int, frozenset[int]]) -> list[Expr]:
    """Reads, and expensive functions of one read along its own axes, such as ``tanh(a[i, k])``.

    The latter are computed once per element instead of once per point of the loops.
    """
    every = frozenset().union(*(varies[node_id(source)] for source in sources))
    alone: set[int] = set()
    costly: set[int] = set()
    reading: set[int] = set()
    for node in postorder(sources):
        key, parts = node_id(node), [node_id(part) for part in operands(node)]
        if is_load(node) or any(part in reading for part in parts):
            reading.add(key)
        if is_load(node) or any(part in alone and varies[part] == varies[key] for part in parts):
            alone.add(key)
        slow = op_name(node) in _SLOW or op_name(node) in BRANCHES
        if not is_load(node) and (slow or any(part in costly for part in parts)):
            costly.add(key)
    found: list[Expr] = []
    seen: set[int] = set()
    pending = list(reversed(sources))
    while pending:
        node = pending.pop()
        key = node_id(node)
        if key in seen or key not in reading:
            continue
        seen.add(key)
        if is_load(node) or (key in alone and key in costly and varies[key] != every):
            found.append(node)
        else:
            pending += reversed(_parts(node))
    return found


def _parts(node: Expr) -> tuple[Expr, ...]:
    """The operands of a node; for a marked condition, the condition."""
    condition = condition_of(node)
    return operands(node) if condition is None else (condition,)


def _above(sources: Sequence[Expr], found: Mapping[int, Operand]) -> list[Expr]:
    """The nodes that contain operands or are outside of them, operands first."""
    order: list[Expr] = []
    seen = set(found)
    pending = [(source, False) for source in reversed(sources)]
    while pending:
        node, expanded = pending.pop()
        if expanded:
            order.append(node)
        elif node_id(node) not in seen:
            seen.add(node_id(node))
            pending.append((node, True))
            pending += [(part, False) for part in reversed(_parts(node))]
    return order


def _without_branches(
    sources: Sequence[Expr], nodes: Sequence[Expr], found: Mapping[int, Operand]
) -> tuple[Expr, ...]:
    """``if c then a else b → select(c, a, b)``, and conditions without their marks."""
    memo: dict[int, Expr] = {}
    for key, operand in found.items():
        value = operand.expr
        truth = node_id(value) != key
        memo[key] = compare("ne", value, zero_like(value)) if truth else value
    for node in nodes:
        parts = [memo[node_id(part)] for part in _parts(node)]
        if condition_of(node) is not None:
            memo[node_id(node)] = parts[0]
        elif op_name(node) == "if_then_else":
            memo[node_id(node)] = select(*parts)
        else:
            memo[node_id(node)] = with_operands(node, parts) if parts else node
    return tuple(memo[node_id(source)] for source in sources)


def _steps(
    reduction: Reduction,
    sources: Sequence[Expr],
    nodes: Sequence[Expr],
    varies: Mapping[int, frozenset[int]],
    loops: frozenset[int],
) -> Steps:
    """The work for a point, including the combination; a summed product is part of it."""
    combined = postorder(merge_equal(reduction.combiner.result))
    steps = {loops: float(max(1, sum(op_name(node) not in _FREE for node in combined)))}
    roots = {node_id(source) for source in sources}
    for node in nodes:
        name, key = op_name(node), varies[node_id(node)]
        fused = name == "mul" and node_id(node) in roots and is_sum(reduction)
        if name not in _FREE and key and not fused:
            key = loops if node_id(node) in roots else key
            steps[key] = steps.get(key, 0.0) + _SLOW.get(name, 1.0)
    return tuple(steps.items())
