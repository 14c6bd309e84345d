"""What a stage computes from neighbours before it takes slow functions of it, as stages of its own,
which are differentiated instead.

Each neighbour gets a term of the adjoint, at another distance. Without such a stage, each of the
terms computes the functions again for the element at its distance, and the derivative of each term
has as many terms again.
"""

from __future__ import annotations

from ...expr.costly import is_slow
from ...expr.nodes import Expr, Tensor, node_id
from ...expr.rewrite import postorder, preorder
from ...graph.stage import Operation, reduction_of
from .common_part import common_part, place_of, places_below
from .stored import needed_operands, parts_of


def stencil_parts(op: Operation) -> list[Tensor] | None:
    """The results of an equal stage that reads what it computes from neighbours; None if it has no
    slow function of that.

    ``y[i] = 2*sqrt((x[i + 1] - x[i])**2 + 1)  →  p[i] = x[i + 1] - x[i], y[i] = 2*sqrt(p[i]**2 +
    1)``

    All that a slow function has of several elements, each at a distance along the axes, is in such
    a part, which every element of the result, or every term of a sum, needs. A function that is the
    whole result is read where it is differentiated, and is none.
    """
    found = parts_of(op, sums=True)
    if found is None:
        return None
    order = postorder(found.sources)
    numbers = {node_id(node): number for number, node in enumerate(order)}
    places = places_below(order, lambda read: place_of(read, found.axes))
    results = set() if reduction_of(op) else set(map(node_id, found.sources))
    parts: dict[int, Expr] = {}
    for node in preorder(found.sources, needed_operands):
        if is_slow(node) and node_id(node) not in results:
            part = common_part(node, places, numbers)
            if part is not None:
                parts[node_id(part)] = part
    return found.stored(list(parts.values()), "stencil") if parts else None
