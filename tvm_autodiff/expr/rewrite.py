"""Traverses and rewrites expressions as graphs, without recursion.

Every walk keeps its own stack, so an expression thousands of nodes deep does not overflow Python's.
It visits each node once, so n doublings cost n steps instead of 2^n. Rewritten expressions keep
their sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from .build import cast
from .nodes import (
    BRANCHES,
    Expr,
    Tensor,
    Var,
    address,
    const_value,
    dtype_of,
    is_load,
    let_variable,
    load_tensor,
    node_id,
    op_name,
    operands,
    with_operands,
)
from .remembered import remembered

Answer = TypeVar("Answer")


def postorder(roots: Expr | Iterable[Expr]) -> list[Expr]:
    """Every node once, operands before the nodes that use them.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> [op_name(node) for node in postorder(i * 2 + 1)]
    ['var', 'const', 'mul', 'const', 'add']
    """
    pending = list(roots) if isinstance(roots, (list, tuple)) else [roots]
    pending.reverse()
    seen: set[int] = set()
    order: list[Expr] = []
    while pending:
        node = pending.pop()
        if node is None:  # the operands of the node below are done
            order.append(pending.pop())
            continue
        key = address(node)
        if key in seen:
            continue
        seen.add(key)
        parts = operands(node)
        if parts:
            pending += (node, None)
            pending += parts[::-1]
        else:
            order.append(node)
    return order


def preorder(
    roots: Expr | Iterable[Expr], below: Callable[[Expr], Sequence[Expr]] = operands
) -> Iterator[Expr]:
    """Every node once, before its operands, or those that `below` gives: for searches that stop at
    the first match.

    Leaves come in the order of `postorder`.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> [op_name(node) for node in preorder(i * 2 + 1)]
    ['add', 'mul', 'var', 'const', 'const']
    """
    pending = list(roots) if isinstance(roots, (list, tuple)) else [roots]
    pending.reverse()
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        key = address(node)
        if key not in seen:
            seen.add(key)
            yield node
            pending += below(node)[::-1]


def outermost(
    roots: Iterable[Expr],
    wanted: Callable[[Expr], bool],
    below: Callable[[Expr], Sequence[Expr]] = operands,
) -> list[Expr]:
    """The nodes of a kind that are not below another one of them, each once.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> outermost([(i // 2 + 1) // 3 + i // 5], lambda node: op_name(node) == "floordiv")
    [(i // 2 + 1) // 3, i // 5]
    """
    return list(
        filter(wanted, preorder(list(roots), lambda node: () if wanted(node) else below(node)))
    )


class _BottomUp(Generic[Answer]):
    """A walk that finds an answer for each node after those of its operands, once while the object
    lives.
    """

    def __init__(self) -> None:
        self._memo: dict[int, Answer] = {}
        self._alive: list[Expr] = []  # ids are addresses: keep what was keyed

    def __call__(self, root: Expr) -> Answer:
        memo = self._memo
        pending: list[tuple[Expr, tuple[Expr, ...] | None]] = [(root, None)]
        while pending:
            node, parts = pending.pop()
            if address(node) in memo:
                continue
            if parts is None:
                parts = operands(node)
                if parts:
                    pending.append((node, parts))
                    pending += [(part, None) for part in parts[::-1]]
                    continue
            self._find(node, parts)
        return memo[address(root)]

    def _find(self, node: Expr, parts: Sequence[Expr]) -> None:
        """Keep the answer of a node whose operands have theirs."""
        self._memo[address(node)] = self._answer(node, parts)
        self._alive.append(node)

    def _answer(self, node: Expr, parts: Sequence[Expr]) -> Answer:
        """The answer of a node whose operands have theirs."""
        raise NotImplementedError


class Fold(_BottomUp[Answer]):
    """An answer for each node, from those of its operands, found once while the object lives.

    Parameters
    ----------
    of_node : callable
        Called as ``of_node(node, answers)`` with a node and the answers of its operands.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> depth = Fold(lambda node, depths: 1 + max(depths, default=0))
    >>> depth(i * 2 + 1), depth(i)
    (3, 1)
    """

    def __init__(self, of_node: Callable[[Expr, Sequence[Answer]], Answer]) -> None:
        super().__init__()
        self._of_node = of_node

    def _answer(self, node: Expr, parts: Sequence[Expr]) -> Answer:
        return self._of_node(node, [self._memo[part] for part in map(address, parts)])


class Rewriter(_BottomUp[Expr]):
    """A bottom-up rewriting whose memo lives as long as the object.

    Parameters
    ----------
    visit : callable
        Called as ``visit(node)`` with each node whose operands have been rewritten already; returns
        the replacement, or None to keep the node.
    """

    def __init__(self, visit: Callable[[Expr], Expr | None]) -> None:
        super().__init__()
        self._visit = visit

    def _answer(self, node: Expr, parts: Sequence[Expr]) -> Expr:
        rebuilt = node
        if parts:
            keys = list(map(address, parts))
            new_parts = [self._memo[key_of_part] for key_of_part in keys]
            if list(map(address, new_parts)) != keys:
                rebuilt = with_operands(node, new_parts)
        replacement = self._visit(rebuilt)
        return rebuilt if replacement is None else replacement


class BranchRewriter(Rewriter):
    """A `Rewriter` that takes the branch of a condition which becomes a literal, and does not visit
    the other.
    """

    def __call__(self, root: Expr) -> Expr:
        memo = self._memo
        pending: list[tuple[Expr, tuple[Expr, ...] | None]] = [(root, None)]
        while pending:
            node, parts = pending.pop()
            key = address(node)
            if key in memo:
                continue
            if parts is not None:
                self._find(node, parts)
                continue
            parts = operands(node)
            if not parts:
                self._find(node, parts)
                continue
            if op_name(node) in BRANCHES:
                condition = memo.get(address(parts[0]))
                if condition is None:
                    pending += [(node, None), (parts[0], None)]
                    continue
                known = const_value(condition)
                if known is not None:
                    taken = parts[1 if known else 2]
                    if address(taken) in memo:
                        memo[key] = memo[address(taken)]
                        self._alive.append(node)
                    else:
                        pending += [(node, None), (taken, None)]
                    continue
            pending.append((node, parts))
            pending += [(part, None) for part in parts[::-1]]
        return memo[address(root)]


def rewrite(root: Expr, visit: Callable[[Expr], Expr | None]) -> Expr:
    """Rewrite one expression bottom-up: see `Rewriter`."""
    return Rewriter(visit)(root)


def substitute(expr: Expr, mapping: Mapping[Var, Expr]) -> Expr:
    """Replace variables by expressions: ``{i: j + 1}`` turns ``A[i]`` into ``A[j + 1]``.

    Axes of a reduction inside `expr` must not occur in the replacements; `stage.renew_reduction`
    gives fresh ones.
    """
    return substituter(mapping)(expr)


def substituter(mapping: Mapping[Var, Expr]) -> Callable[[Expr], Expr]:
    """A substitution for several expressions that preserves sharing between them.

    Values are converted to the dtype of the variable: an int64 axis may be read at an int32 index.
    """
    return Rewriter(replacement(mapping)) if mapping else lambda expr: expr


def replacement(mapping: Mapping[Var, Expr]) -> Callable[[Expr], Expr | None]:
    """What stands for a variable, in its dtype; None for other nodes."""
    # with the variables, so that nothing else gets their addresses
    table = {address(var): (cast(dtype_of(var), value), var) for var, value in mapping.items()}

    def replaced(node: Expr) -> Expr | None:
        found = table.get(address(node))
        return None if found is None else found[0]

    return replaced


def variables_of(roots: Expr | Iterable[Expr]) -> list[Var]:
    """The variables that occur, in order of first occurrence (let-bound ones included)."""
    return [node for node in preorder(roots) if op_name(node) == "var"]


def contains(roots: Expr | Iterable[Expr], predicate: Callable[[Expr], bool]) -> bool:
    """Whether any node satisfies the predicate."""
    return any(map(predicate, preorder(roots)))


def contains_load(roots: Expr | Iterable[Expr]) -> bool:
    """Whether an expression reads a tensor."""
    return contains(roots, is_load)


def loaded_tensors(expr: Expr) -> list[Tensor]:
    """The tensor of each read, in order; a tensor that is read twice occurs twice."""
    return [load_tensor(node) for node in postorder(expr) if is_load(node)]


def depends_on(expr: Expr, variables: Iterable[Var]) -> bool:
    """Whether any of the variables occurs."""
    wanted = {node_id(var) for var in variables}
    return contains(expr, lambda node: op_name(node) == "var" and node_id(node) in wanted)


def map_loads(expr: Expr, replace: Callable[[Tensor, Sequence[Expr]], Expr | None]) -> Expr:
    """Replace reads: ``replace(tensor, indices)`` returns the new expression or None."""

    def visit(node: Expr) -> Expr | None:
        return replace(load_tensor(node), operands(node)) if is_load(node) else None

    return rewrite(expr, visit)


@remembered(1 << 8)
def expand_lets(expr: Expr) -> Expr:
    """``let v = a in b → b[v := a]``, as a graph in which the value stays shared."""
    bound: dict[int, Expr] = {}
    for node in postorder(expr):
        if op_name(node) == "let":
            value = operands(node)[0]
            known = bound.setdefault(node_id(let_variable(node)), value)
            if node_id(known) != node_id(value):
                return Rewriter(_expand_let)(expr)  # one variable, two values: scope by scope
    if not bound:
        return expr
    memo: dict[int, Expr] = {}
    alive: list[Any] = []
    pending = [(expr, False)]
    while pending:
        node, expanded = pending.pop()
        key = node_id(node)
        if key in memo:
            continue
        name = op_name(node)
        if name == "let":
            parts: tuple[Expr, ...] = (operands(node)[1],)
        elif key in bound:
            parts = (bound[key],)
        else:
            parts = operands(node)
        if not expanded and parts:
            pending.append((node, True))
            pending.extend((part, False) for part in reversed(parts))
            continue
        new_parts = [memo[node_id(part)] for part in parts]
        if name == "let" or key in bound:
            memo[key] = new_parts[0]
        elif any(node_id(a) != node_id(b) for a, b in zip(parts, new_parts, strict=True)):
            memo[key] = with_operands(node, new_parts)
        else:
            memo[key] = node
        alive.append(node)
    return memo[node_id(expr)]


def _expand_let(node: Expr) -> Expr | None:
    if op_name(node) != "let":
        return None
    value, body = operands(node)
    return substitute(body, {let_variable(node): value})


def tree_size(expr: Expr) -> int:
    """The number of nodes with nothing shared, which is what TVM's recursive passes walk."""
    sizes: dict[int, int] = {}
    for node in postorder(expr):
        sizes[address(node)] = 1 + sum([sizes[part] for part in map(address, operands(node))])
    return sizes[address(expr)]


def replace_outermost(root: Expr, replacements: Mapping[int, Expr]) -> Expr:
    """Replace nodes by id; of nested replaced nodes, only the outermost is replaced."""
    done: dict[int, Expr] = dict(replacements)
    pending = [(root, False)]
    while pending:
        node, expanded = pending.pop()
        if node_id(node) in done:
            continue
        parts = operands(node)
        if parts and not expanded:
            pending.append((node, True))
            pending.extend((part, False) for part in reversed(parts))
            continue
        new = [done[node_id(part)] for part in parts]
        same = all(node_id(a) == node_id(b) for a, b in zip(parts, new, strict=True))
        done[node_id(node)] = node if same else with_operands(node, new)
    return done[node_id(root)]
