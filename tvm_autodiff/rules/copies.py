"""Recognises stages that only copy, and continues terms through them to their sources.

Examples are padding, transpose, reshape and concatenation. The solver then sees one system instead
of two, and the copy needs no cotangent of its own. Each element of such a stage comes from at most
one read, so no work is repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod

from ..expr.build import sub
from ..expr.nodes import (
    Expr,
    Tensor,
    const_value,
    is_const,
    is_load,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ..expr.rewrite import substituter
from ..expr.simplify import simplify
from ..graph.graph import tensors_read_by
from ..graph.stage import Operation, axis_vars, bodies, is_compute, shape_of
from .linearize import linearize
from .terms import Condition, Term

#: the maximum number of paths that are fused through a sequence of copies. The solver handles, and
#: each element of one source sums, the product of their branches; of many sources each would get a
#: sum of its own, where one sum gives the cotangent of the copy
_MOST_PATHS = 4

Key = tuple[int, int]


class Copies:
    """The copies that the terms of a graph continue through.

    A sequence of copies that read the same tensor at several places has the product of these
    numbers as paths, and a stack of tensors has one for each. Beyond `_MOST_PATHS` paths, the last
    copy keeps its own cotangent, so that the work grows with the length of the sequence instead of
    the product.

    Parameters
    ----------
    may_pass : callable
        Whether a tensor may be fused through, so that it has no cotangent.
    counts : callable
        Whether a tensor gets a cotangent at all.
    """

    def __init__(self, may_pass: Callable[[Tensor], bool], counts: Callable[[Tensor], bool]):
        self._may_pass, self._counts = may_pass, counts
        self._terms: dict[Key, list[Term] | None] = {}
        self._ends: dict[Key, Counter[Key]] = {}

    def terms(self, tensor: Tensor) -> list[Term] | None:
        """The terms of a tensor's stage if it is fused through, or None."""
        key = tensor_key(tensor)
        if key not in self._terms:
            terms = terms_of_copy(tensor.op) if self._may_pass(tensor) else None
            if terms is not None:
                terms = [term for term in terms if self._counts(term.tensor)]
                ends = sum((self._reached(term.tensor) for term in terms), Counter[Key]())
                if ends.total() > _MOST_PATHS:
                    terms = None
                else:
                    self._ends[key] = ends
            self._terms[key] = terms
        return self._terms[key]

    def _reached(self, tensor: Tensor) -> Counter[Key]:
        """The tensors behind copies, each with the number of paths to it."""
        key = tensor_key(tensor)
        return Counter({key: 1}) if self.terms(tensor) is None else self._ends[key]


def terms_of_copy(op: Operation) -> list[Term] | None:
    """The terms of a stage that only copies, or None for any other stage.

    A copy is a read, a literal, or a branch between copies. A stage with fewer elements than a
    source, such as a slice, does not count, because its small cotangent is worth storing. Nor does
    a stage with so many paths that they are joined, because each element of the source would then
    need a sum over all of them.

    Examples
    --------
    >>> from tvm import te, topi
    >>> x = te.placeholder((4, 4), name="x")
    >>> len(terms_of_copy(topi.nn.pad(x, [1, 1]).op))
    1
    >>> terms_of_copy(topi.exp(x).op) is None
    True
    """
    if not is_compute(op) or op.num_outputs != 1 or not _is_copy(bodies(op)[0]):
        return None
    sources = tensors_read_by(op)
    if not all(_is_not_larger(source, op.output(0)) for source in sources):
        return None
    terms = linearize(op, sources)
    plain = all(node_id(term.value) == node_id(term.seed) for term in terms)
    return terms if plain else None


def _is_copy(body: Expr) -> bool:
    pending = [body]
    while pending:
        node = pending.pop()
        if op_name(node) in ("if_then_else", "select"):
            pending += operands(node)[1:]
        elif not is_load(node) and not is_const(node):
            return False
    return True


def _is_not_larger(source: Tensor, copy: Tensor) -> bool:
    """Whether a source has at most as many elements; each symbolic extent must be at most that of
    another dimension of the copy, which may have a border: ``n`` and ``n + 4``.
    """
    left, right = shape_of(source), list(shape_of(copy))
    for extent in left:
        if isinstance(extent, int):
            continue
        more = {
            n: const_value(simplify(sub(other, extent)))
            for n, other in enumerate(right)
            if not isinstance(other, int)
        }
        fitting = {n: border for n, border in more.items() if border is not None and border >= 0}
        if not fitting:
            return False
        right.pop(min(fitting, key=lambda n: fitting[n]))
    known = [prod(extent for extent in shape if isinstance(extent, int)) for shape in (left, right)]
    return known[0] <= known[1]


def through_copy(term: Term, copy: Operation, inner: Term) -> Term:
    """``dy += p·dt[g], dt[a] = [c(a)]·q(a)·dx[h(a)]  →  dy += [c(g)]·q(g)·p·dx[h(g)]``."""
    rename = substituter(dict(zip(axis_vars(copy), term.indices, strict=True)))
    scale = substituter({inner.seed: term.value})
    return Term(
        inner.tensor,
        tuple(rename(index) for index in inner.indices),
        term.component,
        term.seed,
        scale(rename(inner.value)),
        (*term.conditions, *(Condition(rename(c.expr), c.guards) for c in inner.conditions)),
        term.reduce_axes,
    )
