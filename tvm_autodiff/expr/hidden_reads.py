"""Hides reads from TVM's analyzer, which fails on them in comparisons and beside branches.

The analyzer looks up what it knows of ``I[j] <= 4``, and the branches of ``select(i < 4, i, 7 - i)
== I[j]``, by a hash of the whole comparison. Tensors have no hash, so it raises a TypeError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .build import variable
from .nodes import COMPARISONS, INDEX_DTYPES, Expr, Var, dtype_of, is_load, node_id, op_name
from .rewrite import contains, postorder, replace_outermost
from .sharing.lets import merge_equal

Ranges = Mapping[Var, tuple["Expr | int", "Expr | int | None"]]


def hide_reads(
    exprs: Sequence[Expr], ranges: Ranges | None
) -> tuple[list[Expr], Ranges, dict[Var, Expr]]:
    """``select(c, a, b) < I[j]  →  select(c, a, b) < v``; without branches and comparisons nothing
    changes.

    Parameters
    ----------
    exprs : sequence of Expr
        Integer expressions and conditions.
    ranges : mapping of Var to (min, extent), optional
        Ranges of variables. Their bounds may contain reads, too.

    Returns
    -------
    list of Expr, mapping, dict of Var to Expr
        The expressions, the ranges, and the read that each new variable replaces. Equal reads share
        one variable.

    Examples
    --------
    >>> from tvm import te, tirx
    >>> i, table = te.var("i"), te.placeholder((9,), "int32", name="table")
    >>> [hidden], _, values = hide_reads([tirx.Select(i < 4, i, 7 - i) < table(i)], None)
    >>> len(values), hidden.b.name
    (1, 'read')
    """
    roots = [*exprs, *_bounds(ranges)]
    if contains(roots, _is_hashed) and contains(roots, is_load):
        return _hidden(exprs, ranges, is_load)
    return list(exprs), dict(ranges or {}), {}


def hide_index_reads(
    exprs: Sequence[Expr], ranges: Ranges | None
) -> tuple[list[Expr], Ranges, dict[Var, Expr]]:
    """Hide all reads of int32 and int64 values, which may be arbitrary."""
    return _hidden(exprs, ranges, lambda n: is_load(n) and dtype_of(n) in INDEX_DTYPES)


def _bounds(ranges: Ranges | None) -> list[Expr]:
    parts = [part for pair in (ranges or {}).values() for part in pair]
    return [part for part in parts if part is not None and not isinstance(part, int)]


def _hidden(
    exprs: Sequence[Expr], ranges: Ranges | None, hides: Callable[[Expr], bool]
) -> tuple[list[Expr], Ranges, dict[Var, Expr]]:
    given = dict(ranges or {})
    roots = [*exprs, *_bounds(given)]
    if not contains(roots, hides):
        return list(exprs), given, {}
    merged = merge_equal(roots)
    reads = {node_id(n): n for n in postorder(merged) if hides(n)}
    names = {key: variable("read", dtype_of(read)) for key, read in reads.items()}
    hidden = [replace_outermost(expr, names) for expr in merged]
    rest = iter(hidden[len(exprs) :])

    def moved(bound: Expr | int | None) -> Expr | int | None:
        return bound if bound is None or isinstance(bound, int) else next(rest)

    changed = {var: (moved(low), moved(extent)) for var, (low, extent) in given.items()}
    return hidden[: len(exprs)], changed, {names[key]: reads[key] for key in reads}


def _is_hashed(node: Expr) -> bool:
    return op_name(node) in ("select", "if_then_else", *COMPARISONS)
