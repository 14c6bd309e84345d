"""Protects guards that TVM would ignore: selects become branches, and conditions that read are
marked.

``select(c, x[i], 0) → if c then x[i] else 0`` and ``i < n and I[i] > 0 → i < n and marked(I[i] >
0)`` unless what is guarded is proved to be safe (`codegen.passes.short_circuit` implements marks).
A select by a marked condition becomes a branch as well. All other selects and conditions stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ....codegen.passes.short_circuit import (
    condition_of,
    holds_mark,
    marked,
    surely_evaluated,
)
from ....expr.build import conjuncts, if_then_else, like, negate, select
from ....expr.dtypes import integer_range
from ....expr.nodes import (
    Axis,
    Expr,
    binary,
    dtype_of,
    is_load,
    let_variable,
    load_tensor,
    node_id,
    op_name,
    operands,
    with_operands,
)
from ....expr.rewrite import Rewriter, contains_load, postorder
from ....expr.sharing.failing import Failing
from ....expr.structural import StructuralKeys
from ....graph.stage import shape_of
from ...nest.in_range import Loops, Safety, is_safe, loops_of

_CAN_FAIL = frozenset(("load", "floordiv", "floormod", "truncdiv", "truncmod"))

#: node → operands that it may leave without evaluating them, in the order that marks give them
_SIDES = {"if_then_else": (1, 2), "select": (1, 2), "and": (0, 1), "or": (0, 1)}

Facts = dict[int, Expr]  #: conditions that hold where a node is evaluated, by id


def with_guards(root: Expr, axes: Sequence[Axis]) -> Expr:
    """The body of a stage over some axes with its guards in a form that TVM keeps."""
    order = postorder(root)
    bound = _guarded_lets(order)
    failing = _failing(order, bound)
    if not any(op_name(node) == "if_then_else" or node_id(node) in failing for node in order):
        return root
    loops = loops_of(axes)
    choices = [node for node in order if op_name(node) == "select" and node_id(node) in failing]
    branches: set[int] = set()
    if choices:
        facts = _facts(order)
        failing_where = Failing([root], order, _SIDES, StructuralKeys().parts(root))
        for node in choices:
            condition, *sides = operands(node)
            given = list(facts[node_id(node)].values())
            evaluated = failing_where.evaluated_with(condition)
            if not is_safe(sides, loops, given=given, thorough=True, evaluated=evaluated):
                branches.add(node_id(node))
    # TVM joins the conditions of nested branches: what holds around one is no proof. That goes for
    # a select that becomes a branch, too, and a mark in its condition makes a branch of a select.
    marks: set[int] = set()
    tested: set[int] = set()
    while True:
        for part in _conditions(order, failing, branches):
            if node_id(part) not in tested:
                values = _values_in(part, bound)
                if not is_safe([part, *values], loops, thorough=True):
                    marks.add(node_id(part))
            tested.add(node_id(part))
        more = {
            node_id(node)
            for node in choices
            if marks and any(node_id(part) in marks for part in postorder(operands(node)[0]))
        }
        if more <= branches:
            break
        branches |= more
    if not branches and not marks:
        return root
    memo: dict[int, Expr] = {}
    for node in order:
        parts = [memo[node_id(part)] for part in operands(node)]
        same = all(node_id(a) == node_id(b) for a, b in zip(operands(node), parts, strict=True))
        new = node if same else with_operands(node, parts)
        if node_id(node) in branches:
            new = if_then_else(*operands(new))
        memo[node_id(node)] = marked(new) if node_id(node) in marks else new
    return memo[node_id(root)]


def unmarked(roots: Sequence[Expr], loops: Loops) -> list[Expr]:
    """``marked(c) → c`` if c is safe to evaluate for all loop values."""
    if not holds_mark(list(roots)):
        return list(roots)

    def visit(node: Expr) -> Expr | None:
        condition = condition_of(node)
        return condition if condition is not None and is_safe([condition], loops) else None

    return list(map(Rewriter(visit), roots))


def selected(sources: Sequence[Expr], axes: Sequence[Axis]) -> tuple[Expr, ...]:
    """``if c then a else b → select(c, a, b)`` if a and b are safe to evaluate, because vectors
    have no branches; reads at data of a and b may be clamped for that.
    """
    return selected_within(sources, loops_of(axes))


def selected_within(sources: Sequence[Expr], loops: Loops) -> tuple[Expr, ...]:
    """What is `selected` where loops run over some ranges."""
    if not any(op_name(node) == "if_then_else" for node in postorder(list(sources))):
        return tuple(sources)
    safety, plain = Safety(loops), unmarked(sources, loops)
    surely = with_sure_conditions(plain)

    def visit(node: Expr) -> Expr | None:
        if op_name(node) != "if_then_else":
            return None
        condition, *branches = operands(node)
        condition = surely(condition)
        safe = None if holds_mark(condition) else safe_branches(branches, safety)
        return None if safe is None else select(condition, *safe)

    return tuple(map(Rewriter(visit), plain))


def with_sure_conditions(roots: Sequence[Expr]) -> Callable[[Expr], Expr]:
    """``marked(c) → c`` for conditions of a `select` that expressions evaluate whatever holds: only
    a branch would be merged with conditions around it.
    """
    if not holds_mark(list(roots)):
        return lambda condition: condition
    sure = set(map(node_id, surely_evaluated(roots)))

    def visit(node: Expr) -> Expr | None:
        return condition_of(node) if node_id(node) in sure else None

    return Rewriter(visit)


def safe_branches(branches: Sequence[Expr], is_safe: Safety) -> list[Expr] | None:
    """The branches of a choice in a form that may be evaluated for all loop values, or None.

    ``x[i, I[i]] → x[i, clamp(I[i], 0, n - 1)]``: where the condition holds, the read is in bounds,
    and where it does not, nothing uses what is read.
    """
    if is_safe(branches):
        return list(branches)

    def clamped(node: Expr) -> Expr | None:
        if not is_load(node) or not contains_load(operands(node)):
            return None
        dims = shape_of(load_tensor(node))
        indices = [
            _clamped(index, dim) if isinstance(dim, int) and contains_load(index) else index
            for index, dim in zip(operands(node), dims, strict=True)
        ]
        return with_operands(node, indices)

    rewriter = Rewriter(clamped)
    found = [rewriter(branch) for branch in branches]
    return found if is_safe(found) else None


def _clamped(index: Expr, extent: int) -> Expr:
    """An index at a place of a dimension, which has one."""
    least, most = integer_range(dtype_of(index))
    if extent <= most:
        index = binary("min", index, like(index, extent - 1))
    return binary("max", index, like(index, 0)) if least < 0 else index


def _guarded_lets(order: Sequence[Expr]) -> dict[int, Expr]:
    """The values of variables that are bound behind a guard, by variable: TVM puts them in where
    they are used, also in conditions that it joins with the guard.
    """
    lets = [node for node in order if op_name(node) == "let"]
    if not lets or not any(op_name(node) == "if_then_else" for node in order):
        return {}
    facts = _facts(order)
    guarded = [node for node in lets if facts[node_id(node)]]
    return {node_id(let_variable(node)): operands(node)[0] for node in guarded}


def _values_in(root: Expr, bound: Mapping[int, Expr]) -> list[Expr]:
    """The values of bound variables in an expression, and in these values."""
    found: dict[int, Expr] = {}
    pending = [root]
    while pending:
        for node in postorder(pending.pop()):
            value = bound.get(node_id(node))
            if value is not None and node_id(node) not in found:
                found[node_id(node)] = value
                pending.append(value)
    return list(found.values())


def _failing(order: Sequence[Expr], bound: Mapping[int, Expr]) -> set[int]:
    """Ids of the nodes whose evaluation could fail because of a node below, or a value that is
    `bound` to a variable.
    """
    found: set[int] = set()
    for node in order:
        parts = [*operands(node), *([bound[node_id(node)]] if node_id(node) in bound else [])]
        under = any(node_id(part) in found for part in parts)
        if under or op_name(node) in _CAN_FAIL:
            found.add(node_id(node))
    return found


def _conditions(order: Sequence[Expr], failing: set[int], branches: set[int]) -> list[Expr]:
    """The parts of conditions that could fail: what branches test and what is joined.

    The selects in `branches` become branches.
    """
    found: dict[int, Expr] = {}
    for node in order:
        name = op_name(node)
        is_branch = name == "if_then_else" or node_id(node) in branches
        tested = operands(node)[:1] if is_branch else ()
        for part in operands(node) if name in ("and", "or") else tested:
            while op_name(part) in ("not", "likely"):
                [part] = operands(part)
            plain = op_name(part) not in ("and", "or") and condition_of(part) is None
            if plain and node_id(part) in failing:
                found[node_id(part)] = part
    return list(found.values())


def _facts(order: Sequence[Expr]) -> dict[int, Facts]:
    """What holds wherever a node is evaluated: on all paths to it from the root, which comes last.
    """
    facts: dict[int, Facts] = {node_id(order[-1]): {}}
    for node in reversed(order):
        here = facts[node_id(node)]
        parts = operands(node)
        more: list[list[Expr]] = [[] for _ in parts]
        if op_name(node) == "if_then_else":
            more = [[], conjuncts(parts[0]), [negate(parts[0])]]
        for part, conditions in zip(parts, more, strict=True):
            reached = {**here, **{node_id(condition): condition for condition in conditions}}
            known = facts.get(node_id(part))
            if known is not None:
                reached = {key: fact for key, fact in known.items() if key in reached}
            facts[node_id(part)] = reached
    return facts
