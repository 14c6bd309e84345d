"""Parts of a long formula that several of its terms read, as stages of their own, which are
differentiated instead.

The derivative by each of many numbers would compute them, and what leads to them, again.
"""

from __future__ import annotations

from collections import Counter

from ...expr.costly import is_slow
from ...expr.nodes import Tensor, is_float, is_load, node_id, operands
from ...expr.rewrite import postorder, preorder
from ...graph.stage import Operation
from .stored import needed_operands, parts_of

#: slow functions of a formula, and elements that it reads, from which on its parts are stages
_LEAST = 4


def shared_parts(op: Operation) -> list[Tensor] | None:
    """The results of an equal stage that reads its shared parts; None if it has none.

    ``y[i] = exp(a[i]/b[i])*c[i] + log(a[i]/b[i])*d[i]  →  p[i] = a[i]/b[i], y[i] = exp(p[i])*c[i] +
    log(p[i])*d[i]``

    A part calls a slow function, depends on several elements and all axes, and every element of the
    result needs it.
    """
    found = parts_of(op)
    if found is None:
        return None
    order = postorder(found.sources)
    reads = {node_id(node) for node in order if is_load(node) and is_float(node)}
    slow = sum(map(is_slow, order))
    if slow < _LEAST or len(reads) < _LEAST:
        return None
    every = frozenset(range(len(op.axis)))
    uses = Counter(node_id(part) for node in order for part in operands(node))
    parts = []
    for node in preorder(found.sources, needed_operands):
        fact = found.facts[node_id(node)]
        several = len(fact.reads) > 1 and uses[node_id(node)] > 1
        if fact.slow and several and is_float(node) and fact.axes == every:
            parts.append(node)
    return found.stored(parts, "shared") if parts else None
