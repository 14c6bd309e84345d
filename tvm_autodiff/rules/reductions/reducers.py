"""The derivative of a reduction with respect to its source, by a table of reducers.

For seeds at the output, the rules give what arrives at each component of the source at every reduce
position. Sum; max, min and selections such as argmax; product; and sums that are rescaled as in an
online softmax have their own rules. Every other reducer uses the general rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

from ...expr.nodes import Expr, is_const, node_id, op_name, operands
from ...graph.stage import Combiner, Operation, Reduction
from ..terms import Contribution
from .arg_reduction import extreme, selection
from .general_reducer import general
from .prefix_suffix import prefix_suffix
from .product import product
from .reducing import Reducing, SourceSeed, own_condition
from .rescaled_sum import rescaled, rescaled_sum


def classify(combiner: Combiner, component: int) -> str:
    """The kind of a reducer's component: ``sum max min product selection rescaled`` or ``general``.

    Examples
    --------
    A running pair (max, sum of exp) is rescaled in its second component, argmax a selection in
    both.
    """
    lhs, rhs = combiner.lhs[component], combiner.rhs[component]
    result, identity = combiner.result[component], combiner.identity[component]
    name = op_name(result)
    if name in _SIMPLE_KINDS:
        kind, neutral = _SIMPLE_KINDS[name]
        if {node_id(part) for part in operands(result)} == {node_id(lhs), node_id(rhs)} and (
            neutral is None or is_const(identity, neutral)
        ):
            return kind
    if name == "select":
        _, then, otherwise = operands(result)
        if node_id(then) == node_id(lhs) and node_id(otherwise) == node_id(rhs):
            return "selection"
    return "general" if rescaled(combiner, component) is None else "rescaled"


#: node that combines two values → (kind, identity that the rule relies on)
_SIMPLE_KINDS: dict[str, tuple[str, int | None]] = {
    "add": ("sum", 0),
    "max": ("max", None),
    "min": ("min", None),
    "mul": ("product", 1),
}


def source_seeds(
    op: Operation, reduction: Reduction, seeds: Mapping[int, Expr]
) -> dict[int, list[SourceSeed]]:
    """The contributions to the source of a reduction (without init) for given seeds of its outputs.

    Seeds and results are per component. The contributions are expressions in the stage's axes and
    the reduction's own axes; the caller sums them over both.
    """
    around = cache(partial(prefix_suffix, op, reduction))
    return {
        component: _RULES[classify(reduction.combiner, component)](
            Reducing(op, reduction, component, seed, around)
        )
        for component, seed in seeds.items()
    }


def _sum(stage: Reducing) -> list[SourceSeed]:
    return [(stage.component, Contribution(stage.seed, own_condition(stage)))]


_RULES: dict[str, Callable[[Reducing], list[SourceSeed]]] = {
    "sum": _sum,
    "max": lambda stage: extreme(stage, "gt"),
    "min": lambda stage: extreme(stage, "lt"),
    "product": product,
    "selection": selection,
    "rescaled": rescaled_sum,
    "general": general,
}
