"""Hides index expressions from an incorrect simplification in TVM.

When it flattens buffers, TVM rewrites ``(i + 1)//2 + i//2`` to ``(i + 1)//2*2``, divides by zero on
``(i + 1)%3 - i``, and turns ``(i*2 + k + 6)//10`` into a constant under the condition of a read. It
does not analyse calls, so affected indices and comparisons are wrapped in a call that does not
change their value. Correct cases (divisions of one numerator, ``n//4, n%4``, or of different
variables) stay visible.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from ....errors import UnsolvableError
from ....expr.build import add
from ....expr.integers.intervals import C_CASTS
from ....expr.linear_terms import linear_sum, linear_terms
from ....expr.nodes import (
    INTEGER_DIVISIONS,
    Expr,
    call_node,
    const_value,
    dtype_of,
    is_float,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import contains, rewrite, substituter, variables_of
from ....expr.simplify import constant_bounds
from ...functions import with_body

_COMPARISONS = (prim.LT, prim.LE, prim.GT, prim.GE)
#: choice → the number of its first value operand
_CHOICES = {"select": 1, "if_then_else": 1, "min": 0, "max": 0}


#: the wrapper of an index: a call that LLVM removes, or, for C, a cast, because C has no such call
#: for a literal, which an index may have become
REINTERPRET, C_CAST = "reinterpret", "call_pure_extern"
_HIDDEN = "tvm_autodiff.indices_hidden"  #: attribute of a function whose indices are in casts


def hide_divisions(func: Any, by: str = REINTERPRET) -> Any:
    """``A[(i + 1)//2 + i//2, j] → A[reinterpret((i + 1)//2 + i//2), j]``, only if necessary.

    Block variables are judged by their bound values, because fused loops contain divisions as well.
    With `C_CAST`, indices of buffers private to a thread or a block stay visible, so that TVM can
    see how little of them it needs; a function that was processed this way is unchanged.

    Examples
    --------
    >>> from tvm import te
    >>> A = te.placeholder((9,), name="A")
    >>> def indices(index):
    ...     B = te.compute((5,), lambda i: A[index(i)], name="B")
    ...     text = hide_divisions(te.create_prim_func([A, B])).script()
    ...     return text[text.rindex("A[") :].strip()
    >>> indices(lambda i: (i + 1) // 2 + i // 2)
    'A[T.reinterpret("int32", (v_i + 1) // 2 + v_i // 2)]'
    >>> indices(lambda i: i // 2 + i % 3)
    'A[v_i // 2 + v_i % 3]'
    """
    if is_hidden_function(func):
        return func
    bound: dict[Any, Expr] = {}

    def bind(realize: Any) -> None:
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            bound[axis.var] = value

    loops: dict[Any, tuple[int, int]] = {}

    def enter(loop: Any) -> None:
        low, extent = const_value(loop.min), const_value(loop.extent)
        if low is not None and extent is not None:
            loops[loop.loop_var] = (int(low), int(extent))

    tvm_ffi.structural_walk(func.body, [(s_tir.SBlockRealize, bind), (tirx.For, enter)])
    resolve = _resolver(bound)

    def confuses(parts: Sequence[Expr]) -> bool:
        if not any(contains(part, _is_division) for part in parts):
            return False
        return confuses_tvm(parts) and confuses_tvm(without_carry(parts, loops))

    def hide(parts: Sequence[Expr]) -> list[Expr] | None:
        if not confuses([resolve(part) for part in parts if not _is_hidden(part)]):
            return None
        return [hidden(part, by) for part in parts]

    def hide_terms(indices: Sequence[Expr]) -> list[Expr] | None:
        visible = [part for part in indices if not _is_hidden(part)]
        if not confuses([resolve(part) for part in visible]):
            return None
        terms = [term for part in visible for term, _ in linear_terms(part)[0]]
        kept = {
            node_id(term)
            for group in _related(terms, resolve)
            if not confuses([resolve(term) for term in group])
            for term in group
        }
        return [part if _is_hidden(part) else _hidden_but(part, kept, by) for part in indices]

    def stays(buffer: Any) -> bool:
        return by == C_CAST and str(buffer.scope()) != "global"

    def read(node: Any) -> Any:
        if stays(node.source):
            return node
        indices = hide_terms(list(node.indices))
        return node if indices is None else tirx.BufferLoad(node.source, indices)

    def write(node: Any) -> Any:
        if stays(node.buffer):
            return node
        indices = hide_terms(list(node.indices))
        return node if indices is None else tirx.BufferStore(node.buffer, node.value, indices)

    def comparison(node: Any) -> Any:
        sides = None if is_float(node.a) else hide([node.a, node.b])
        return node if sides is None else type(node)(*sides)

    visitors = [(ir.TensorLoad, read), (tirx.BufferStore, write)]
    visitors += [(kind, comparison) for kind in _COMPARISONS]
    body = tvm_ffi.structural_map(func.body, visitors)
    made = with_body(func, body)
    return made.with_attr(_HIDDEN, True) if by == C_CAST else made


def is_hidden_function(func: Any) -> bool:
    """Whether the indices of a function are hidden by C casts."""
    return func.attrs is not None and _HIDDEN in func.attrs


def _resolver(bound: dict[Any, Expr]) -> Callable[[Expr], Expr]:
    """Block variables replaced by expressions over loops; inner blocks come after outer ones."""
    outer_first: dict[Any, Expr] = {}
    for var, value in bound.items():
        outer_first[var] = substituter(outer_first)(value)
    return substituter(outer_first)


def hidden(index: Expr, by: str) -> Expr:
    """An index or a number inside a call that TVM does not simplify."""
    if const_value(index) is not None or _is_hidden(index):
        return index
    dtype = dtype_of(index)
    if by == C_CAST and dtype in C_CASTS:
        return tirx.call_pure_extern(dtype, C_CASTS[dtype], index)
    return call_node(REINTERPRET, [index], dtype)


def _related(terms: Sequence[Expr], resolve: Callable[[Expr], Expr]) -> list[list[Expr]]:
    """Terms in groups that have no variable in common: TVM simplifies each group apart."""
    groups: list[tuple[set[int], list[Expr]]] = []
    for term in terms:
        variables = {node_id(var) for var in variables_of(resolve(term))}
        members = [term]
        apart = []
        for theirs, others in groups:
            if variables & theirs:
                variables |= theirs
                members = [*others, *members]
            else:
                apart.append((theirs, others))
        groups = [*apart, (variables, members)]
    return [members for _, members in groups]


def _hidden_but(index: Expr, kept: Container[int], by: str) -> Expr:
    """``f(i) + j → reinterpret(f(i)) + j`` for a term j that is kept, so that vectors along j are
    runs of memory.
    """
    terms, constant = linear_terms(index)
    shown = [one for one in terms if node_id(one[0]) in kept]
    if not shown:
        return hidden(index, by)
    if len(shown) == len(terms):
        return index
    rest = [one for one in terms if node_id(one[0]) not in kept]
    dtype = dtype_of(index)
    return add(hidden(linear_sum(rest, constant, dtype), by), linear_sum(shown, 0, dtype))


def _is_hidden(index: Expr) -> bool:
    return op_name(index) in (REINTERPRET, C_CAST)


def _is_division(node: Expr) -> bool:
    return op_name(node) in INTEGER_DIVISIONS


def confuses_tvm(indices: Sequence[Expr]) -> bool:
    """Whether a division has a numerator with a constant, or shares a variable with a summand that
    does not divide the same numerator.

    Examples
    --------
    >>> from tvm import te
    >>> i, j = te.var("i"), te.var("j")
    >>> [confuses_tvm(e) for e in ([i // 4, i % 4], [i // 2, j], [i // 2 + i * j], [(i + 1) // 2])]
    [False, False, True, True]
    """
    numerators: list[tuple[Expr, set[int]]] = []
    for term in _summands(indices):
        numerator = _numerator(term)
        if contains(numerator, _is_division):
            return True
        if numerator is not term and _has_constant(numerator):
            return True
        variables = {node_id(var) for var in variables_of(numerator)}
        for other, theirs in numerators:
            if variables & theirs and not prim.expr_deep_equal(numerator, other):
                return True
        numerators.append((numerator, variables))
    return False


def without_carry(indices: Sequence[Expr], ranges: Mapping[Expr, tuple[int, int]]) -> list[Expr]:
    """``(f//32*48 + i)//48 → f//32`` and ``(f//32*48 + i)%48 → i`` with i in [0, 48).

    This is a fused loop's part of a tiled index, which TVM handles correctly in its own tiles.

    Examples
    --------
    >>> from tvm import te
    >>> f, i = te.var("f"), te.var("i")
    >>> without_carry([(f // 32 * 48 + i) // 48, (f // 32 * 48 + i) % 48], {i: (0, 48)})
    [f // 32, i]
    """

    def visit(node: Expr) -> Expr | None:
        if op_name(node) not in ("floordiv", "floormod"):
            return None
        numerator, divisor = operands(node)
        size = const_value(divisor)
        terms, constant = linear_terms(numerator)
        if size is None or size <= 0 or constant:
            return None
        high = [(term, k // int(size)) for term, k in terms if k % int(size) == 0]
        low = [(term, k) for term, k in terms if k % int(size)]
        if not high or not low:
            return None
        try:
            least, most = constant_bounds(linear_sum(low, 0, dtype_of(node)), ranges)
        except UnsolvableError:
            return None
        if least < 0 or most >= size:
            return None
        return linear_sum(high if op_name(node) == "floordiv" else low, 0, dtype_of(node))

    return [rewrite(index, visit) for index in indices]


def _summands(indices: Sequence[Expr]) -> list[Expr]:
    """The operands of sums, differences and products with literals, without the literals."""
    pending, found = list(reversed(indices)), []
    while pending:
        node = pending.pop()
        name, parts = op_name(node), operands(node)
        literal = [const_value(part) is not None for part in parts]
        if name in ("add", "sub") or (name == "mul" and any(literal)):
            pending += [part for part, skip in zip(parts, literal, strict=True) if not skip]
        elif name != "const":
            found.append(node)
    return found


def _has_constant(numerator: Expr) -> bool:
    """Whether a constant is added, also in a side of a choice, which TVM may select."""
    pending = [numerator]
    while pending:
        node = pending.pop()
        name, parts = op_name(node), operands(node)
        if name in _CHOICES:
            pending += parts[_CHOICES[name] :]
        elif name == "mul":
            pending += [part for part in parts if const_value(part) is None]
        elif name in ("add", "sub"):
            pending += parts
        elif const_value(node) is not None:
            return True
    return False


def _numerator(term: Expr) -> Expr:
    """``(n // 4) % 3 → n``."""
    while _is_division(term) and const_value(operands(term)[1]) is not None:
        term = operands(term)[0]
    return term
