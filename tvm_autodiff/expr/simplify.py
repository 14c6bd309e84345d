"""Simplification and proofs with TVM's analyzer, and a form of divisions that TVM compiles
correctly.

TVM 0.27 compiles an index with a negative coefficient inside ``//`` or ``%`` to wrong code, so
every emitted or lowered index goes through `normalize_div_mod`. Exact linear reasoning is in
`domain`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import ir, sym

from ..errors import UnsolvableError
from . import build
from .hidden_reads import hide_index_reads, hide_reads
from .integers.ceil_division import rounded_numerator
from .integers.intervals import Intervals, range_intervals
from .integers.wrapping import hide_wrapping
from .linear_terms import linear_sum, linear_terms
from .nodes import (
    COMPARISONS,
    INDEX_DTYPES,
    INTEGER_DIVISIONS,
    Expr,
    Var,
    const_value,
    dtype_of,
    is_integer,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    same_node,
    with_operands,
)
from .rewrite import Rewriter, contains_load, rewrite, substituter, variables_of
from .sharing.lets import merge_equal
from .sharing.weights import provable

Ranges = Mapping[Var, tuple["Expr | int", "Expr | int | None"]]

#: a coefficient above this does not multiply a whole operand, which may be large
_LARGE = 64


def _analyzer(ranges: Ranges | None, endless: Sequence[Var] = ()) -> Any:
    """An analyzer that knows the ranges; `endless` variables have no bounds at all."""
    analyzer = sym.Analyzer()
    anything = sym.ConstIntBound(sym.ConstIntBound.NEG_INF, sym.ConstIntBound.POS_INF)
    for var in endless:
        analyzer.update(var, anything, True)
    pending = list((ranges or {}).items())
    bound: set[int] = set()
    waiting = {node_id(var) for var, _ in pending}
    while pending:
        ready = [
            item
            for item in pending
            if not any(
                node_id(v) in waiting and node_id(v) not in bound
                for part in item[1]
                if part is not None and not isinstance(part, int)
                for v in variables_of(part)
            )
        ]
        for var, (lo, extent) in ready or pending:
            if extent is not None:
                # in the dtype of the variable, because an extent of one replaces the variable by
                # the minimum
                bounds = (_of_dtype(part, dtype_of(var)) for part in (lo, extent))
                analyzer.bind(var, ir.Range.from_min_extent(*bounds))
            elif const_value(lo) is not None:
                low = int(const_value(lo) or 0)
                analyzer.update(var, sym.ConstIntBound(low, sym.ConstIntBound.POS_INF), True)
            bound.add(node_id(var))
        pending = [item for item in pending if node_id(item[0]) not in bound]
    return analyzer


def _of_dtype(bound: Expr | int, dtype: str) -> Expr:
    return build.const(bound, dtype) if isinstance(bound, int) else build.cast(dtype, bound)


def simplify(expr: Expr, ranges: Ranges | None = None) -> Expr:
    """Simplify an expression with TVM's analyzer, in a form that TVM compiles correctly.

    An expression that the analyzer would take too long to walk is returned unchanged.

    Parameters
    ----------
    expr : integer or boolean expression
        The expression.
    ranges : mapping of Var to (min, extent), optional
        Ranges of variables. An extent of None means no upper bound.

    Examples
    --------
    >>> from tvm import te
    >>> i, j = te.var("i"), te.var("j")
    >>> simplify((i * 8 + j) // 8, {j: (0, 8)})
    i
    """
    if not provable(expr):
        return normalize_div_mod(expr)
    analyzer, [exact], hidden = _prepared([expr], ranges)
    found = analyzer.simplify(exact)
    return normalize_div_mod(_put_back(found, hidden) if hidden else found)


def _prepared(
    exprs: Sequence[Expr], ranges: Ranges | None, endless: Sequence[Var] = ()
) -> tuple[Any, list[Expr], dict[Var, Expr]]:
    """An analyzer with the ranges, the expressions in a form it can handle, and what is hidden."""
    exprs, ranges, reads = hide_reads(exprs, ranges)
    analyzer = _analyzer(ranges, endless)
    exact, wrapping = hide_wrapping(exprs, analyzer)
    return analyzer, exact, {**reads, **wrapping}


def _put_back(expr: Expr, hidden: Mapping[Var, Expr]) -> Expr:
    """The expression with hidden parts restored, the outermost last: they may be nested."""
    for var, value in reversed(list(hidden.items())):
        expr = substituter({var: value})(expr)
    return expr


def prove(
    condition: Expr,
    ranges: Ranges | None = None,
    *,
    given: Sequence[Expr] = (),
    strong: bool = False,
) -> bool:
    """Whether TVM's analyzer proves a condition from the `given` ones; `strong` adds its SMT
    solver.

    Conditions that the analyzer would take too long to walk are neither proved nor used.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> prove(i % 4 < 4), prove(i < 4), prove(i < 4, {i: (0, 4)})
    (True, False, True)
    """
    if not provable(condition):
        return False
    given = [fact for fact in given if provable(fact)]
    strength = sym.ProofStrength.SYMBOLIC_BOUND if strong else sym.ProofStrength.DEFAULT
    analyzer, [condition, *facts], _ = _prepared([condition, *given], ranges)
    with contextlib.ExitStack() as scopes:
        for fact in facts:
            scopes.enter_context(analyzer.constraint_scope(fact))
        return bool(analyzer.can_prove(condition, strength))


def prove_equal(left: Expr | int, right: Expr | int, ranges: Ranges | None = None) -> bool:
    """Whether TVM's analyzer proves that two integer expressions are equal.

    Examples
    --------
    >>> from tvm import te
    >>> n = te.var("n")
    >>> prove_equal(n + n, 2 * n), prove_equal(n, 3)
    (True, False)
    """
    a, b = const_value(left), const_value(right)
    if a is not None and b is not None:
        return a == b
    exact = [
        build.const(x, dtype_of(y)) if isinstance(x, int) else x
        for x, y in ((left, right), (right, left))
    ]
    if not all(map(provable, exact)):
        return node_id(exact[0]) == node_id(exact[1])
    analyzer, (left, right), _ = _prepared(exact, ranges)
    return bool(analyzer.can_prove_equal(left, right))


def constant_bounds(expr: Expr | int, ranges: Ranges | None = None) -> tuple[int, int]:
    """The smallest and the largest possible value of an integer expression, both inclusive.

    Raises
    ------
    UnsolvableError
        If there is no constant bound.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> constant_bounds(3 - i // 2, {i: (0, 8)})
    (0, 3)
    """
    value = const_value(expr)
    if value is not None:
        return int(value), int(value)
    [expr], ranges, _ = hide_index_reads([expr], ranges)
    endless = _endless([expr], ranges)
    if provable(expr):
        analyzer, [exact], _ = _prepared([expr], ranges, endless)
        found = analyzer.const_int_bound(exact)
        low, high = found.min_value, found.max_value
    else:
        low, high = (
            (-(2**63), 2**63) if endless else Intervals(range_intervals(ranges or {})).of(expr)
        )
    bits = 31 if dtype_of(expr) == "int32" else 63
    if high >= (1 << bits) - 1 or low <= 1 - (1 << bits):
        raise UnsolvableError(
            f"{expr} has no constant bounds: give its variables ranges with constant extents"
        )
    return low, high


def _endless(exprs: Sequence[Expr], ranges: Ranges) -> list[Var]:
    """The index variables without a range, which are treated as unbounded."""
    bounds = [part for pair in ranges.values() for part in pair]
    roots = [*exprs, *(part for part in bounds if part is not None and not isinstance(part, int))]
    known = {node_id(var) for var in ranges}
    found = variables_of(roots)
    return [v for v in found if node_id(v) not in known and dtype_of(v) in INDEX_DTYPES]


def normalize_div_mod(expr: Expr) -> Expr:
    """Reduce the coefficients inside ``//`` and ``%`` by positive constants to [0, divisor).

    ``(a*i + c) % n → ((a % n)*i + c % n) % n``, ``(a*i + c) // n → (a // n)*i + c // n + ((a % n)*i
    + c % n) // n``, or the same of the mirrored numerator ``-x - 1``, whichever has smaller
    coefficients. Large ones multiply ``i % n`` instead of ``i``, which keeps numbers small.
    ``(i + -i % n) // n → (i + n - 1) // n``. Nothing else in the expression changes.

    Examples
    --------
    >>> from tvm import te
    >>> j = te.var("j")
    >>> normalize_div_mod((2 - j) % 3), normalize_div_mod((j * 4 - 1) // 3)
    (2 - j % 3, j + (j + 2) // 3 - 1)
    """
    return rewrite(expr, normalize_node)


def normalize_node(node: Expr) -> Expr | None:
    """The step of `normalize_div_mod` at one node, or None if nothing changes."""
    name = op_name(node)
    if name != "floordiv" and name != "floormod":
        return None
    dtype = dtype_of(node)
    if dtype not in ("int32", "int64"):
        return None
    numerator, divisor = operands(node)
    value = const_value(divisor)
    if value is None or value <= 0:
        return None
    c = int(value)
    terms, constant = linear_terms(numerator)
    if name == "floormod":
        opened = [_without_remainder(node, k, c) for node, k in terms]
        if any(new is not old for new, (old, _) in zip(opened, terms, strict=True)):
            terms = [(new, k) for new, (_, k) in zip(opened, terms, strict=True)]
            whole = build.binary(name, linear_sum(terms, constant, dtype), divisor)
            again = normalize_node(whole)
            return whole if again is None else again
    else:
        rounded = rounded_numerator(terms, constant, c)
        if rounded is not None:
            return _reduced(name, *rounded, c, dtype)
    collected = _summands(numerator) == len(terms) + (constant != 0)
    reduced = collected and 0 <= constant < c and all(0 <= k < c for _, k in terms)
    if reduced and (name == "floordiv" or not _is_mirrored(terms, c)):
        return None
    return _reduced(name, terms, constant, c, dtype)


def collect_terms(expr: Expr) -> Expr:
    """``x[i + (3 - i), (2*k)//2] → x[3, k]``, ``i - k + 1 + k >= 0 → i + 1 >= 0``: cancel terms in
    the indices of reads and in comparisons of integers.

    Others without such terms are unchanged.

    Examples
    --------
    >>> from tvm import te
    >>> i, k = te.var("i"), te.var("k")
    >>> x = te.placeholder((9, 9), name="x")
    >>> list(operands(collect_terms(load(x, [i + (3 - i), (i + k * 2 - i) // 2]))))
    [3, k]
    >>> list(operands(collect_terms(load(x, [(i + k * 16) // 16 - i // 16, i]))))
    [k, i]
    >>> collect_terms(i - k + 1 + k >= 0)
    i + 1 >= 0
    """

    collected = Rewriter(_collected)

    def visit(node: Expr) -> Expr | None:
        parts = operands(node)
        if not is_load(node) and not (op_name(node) in COMPARISONS and is_integer(parts[0])):
            return None
        new = list(map(collected, parts))
        if all(map(same_node, parts, new)):
            return None
        return load(load_tensor(node), new) if is_load(node) else with_operands(node, new)

    return rewrite(expr, visit)


def _collected(node: Expr) -> Expr | None:
    """The step of `collect_terms` at one node of an index."""
    if op_name(node) in ("add", "sub") and dtype_of(node) in ("int32", "int64"):
        terms, constant = linear_terms(node)
        if sum(op_name(term) in INTEGER_DIVISIONS for term, _ in terms) > 1:
            # quotients that the steps before have made equal are not one node
            terms, constant = linear_terms(merge_equal([node])[0])
        if _summands(node) > len(terms) + (constant != 0):
            return linear_sum(terms, constant, dtype_of(node))
    return normalize_node(node)


def _summands(expr: Expr) -> int:
    """The number of operands of sums; `linear_terms` has fewer where some cancel."""
    count, pending = 0, [expr]
    while pending:
        node = pending.pop()
        if op_name(node) in ("add", "sub"):
            pending += operands(node)
        else:
            count += 1
    return count


def _without_remainder(node: Expr, factor: int, c: int) -> Expr:
    """``e % m → e`` in a term ``factor*(e % m)`` of a numerator of ``% c`` if c divides factor*m.
    """
    if op_name(node) != "floormod":
        return node
    inner, divisor = operands(node)
    modulus = const_value(divisor)
    return inner if modulus and factor * int(modulus) % c == 0 else node


def _is_mirrored(terms: list[tuple[Expr, int]], c: int) -> bool:
    """Whether modulo c the negative coefficients are the smaller ones."""
    return sum(-k % c for _, k in terms) < sum(k % c for _, k in terms)


def _reduced(name: str, terms: list[tuple[Expr, int]], constant: int, c: int, dtype: str) -> Expr:
    """Write the division of ``sum(k * operand) + constant`` by c with reduced coefficients."""
    sign = 1
    if _is_mirrored(terms, c):
        # x // c = -1 - (-x - 1) // c,  x % c = c - 1 - (-x - 1) % c
        sign, constant = -1, -constant - 1
        terms = [(node, -k) for node, k in terms]
    outside: list[tuple[Expr, int]] = []
    inside: list[tuple[Expr, int]] = []
    divisor = build.const(c, dtype)
    for node, k in terms:
        low = k % c
        if low and low != k and (low > _LARGE or contains_load(node)):
            # k*y = k*c*(y // c) + k*(y % c)
            outside.append((build.binary("floordiv", node, divisor), k))
            node = build.binary("floormod", node, divisor)
        outside.append((node, k // c))
        inside.append((node, low))
    inner = linear_sum(inside, constant % c, dtype)
    is_plain = not any(k for _, k in inside)
    if name == "floormod":
        result = inner if is_plain else build.binary("floormod", inner, divisor)
        if sign < 0:
            result = linear_sum([(result, -1)], c - 1, dtype)
    else:
        if not is_plain:
            outside.append((build.binary("floordiv", inner, divisor), 1))
        shift = constant // c
        outside = [(node, sign * k) for node, k in outside]
        result = linear_sum(outside, shift if sign > 0 else -1 - shift, dtype)
    return result
