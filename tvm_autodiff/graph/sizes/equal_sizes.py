"""One expression for all extents that are equal: ``n + 1 - 1 → n``.

Extents are compared by identity, so two of equal value would look like different sizes.
"""

from __future__ import annotations

from ...expr.linear_terms import linear_sum, linear_terms
from ...expr.nodes import Expr, dtype_of, node_id
from ...expr.simplify import prove_equal
from ...expr.structural import StructuralKeys
from ..stage import Extent


class EqualSizes:
    """Replaces each extent by the first one of its value, as far as linear forms tell.

    Examples
    --------
    >>> from tvm import te
    >>> n, same = te.var("n"), EqualSizes()
    >>> same(n + 1 - 1).same_as(n), same(n * 2 + 1).same_as(same(1 + n + n))
    (True, True)
    """

    def __init__(self) -> None:
        self._keys = StructuralKeys()
        self._known: dict[object, Extent] = {}

    def __call__(self, extent: Extent) -> Extent:
        """The representative of an extent."""
        if isinstance(extent, int):
            return extent
        found, constant = linear_terms(extent)
        terms: dict[int, tuple[Expr, int]] = {}
        for node, factor in found:  # equal nodes are one term
            number = self._keys.expr(node)
            terms[number] = node, terms.get(number, (node, 0))[1] + factor
        merged = {number: term for number, term in terms.items() if term[1]}
        if not merged:
            return constant
        forms = frozenset((number, factor) for number, (_, factor) in merged.items())
        key = (forms, constant, dtype_of(extent))
        if key not in self._known:
            self._known[key] = linear_sum(list(merged.values()), constant, dtype_of(extent))
        return self._known[key]


def is_same(left: Extent, right: Extent) -> bool:
    """Whether two extents are equal numbers, or the same expression."""
    if isinstance(left, int) or isinstance(right, int):
        return isinstance(left, int) and isinstance(right, int) and left == right
    return node_id(left) == node_id(right)


def equal_extents(left: Extent, right: Extent) -> bool:
    """Whether two extents are equal for all sizes."""
    if isinstance(left, int) or isinstance(right, int):
        return is_same(left, right)
    return is_same(left, right) or prove_equal(left, right)
