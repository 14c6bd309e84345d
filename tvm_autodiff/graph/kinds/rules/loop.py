"""Rules of loops over time: the properties of the step, times the number of steps where this
applies.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from ....expr.build import const
from ....expr.nodes import Expr, Tensor, Var
from ....expr.printing.text import Printer
from ....expr.structural import StructuralKeys
from ...counting import Cost, Put, elements_of, product_of
from ...graph import topological
from ...stage import Operation, index_dtype, is_placeholder, outputs_of, shape_of
from ..custom import without_rules
from ..loop import Loop
from .questions import KindRules, left_side

_INDENT = "    "


def _stages(outputs: Any) -> Iterator[tuple[Operation, Any, KindRules]]:
    """The stages of a step, with their kinds and rules."""
    from .table import rules_of  # which holds the rules of this file, too

    for op in topological(list(outputs)):
        if not is_placeholder(op):
            yield op, *rules_of(op)


def _key(op: Operation, loop: Loop, keys: StructuralKeys) -> Hashable:
    """Equal for loops of equal steps over the same inputs, up to the placeholders of a step."""
    return "loop", key_of_loop(loop, keys)


def key_of_loop(loop: Loop, keys: StructuralKeys) -> Hashable:
    """Equal for equal loops."""
    inner = keys.inner()
    for n, tensor in enumerate(loop.step.inputs):
        inner.name_tensor(tensor, ("of the step", n))
    for stage, kind, rules in _stages(loop.step.outputs):
        key = keys.intern(rules.key(stage, kind, inner))
        for n, tensor in enumerate(outputs_of(stage)):
            inner.name_tensor(tensor, ("in the step", key, n))
    counts = (len(loop.init), len(loop.xs), len(loop.consts))
    read = tuple(map(keys.tensor_key_of, loop.inputs))
    results = tuple(map(inner.tensor_key_of, loop.step.outputs))
    flags = (loop.reverse, loop.carries_only, loop.plan)
    return keys.extents([loop.length]), flags, counts, read, results


def _cost(op: Operation, loop: Loop, put: Put) -> Cost:
    """The work of a step for each step; the memory of the results and of one step's stages."""
    work = cost_of_step(loop, put)
    length = put(loop.length)
    stacked = [product_of([length, elements_of(y, put)]) for y in loop.step.ys]
    memory = work.memory + sum(stacked)
    return Cost(length * work.iterations, length * work.multiplications, memory)


def cost_of_step(loop: Loop, put: Put) -> Cost:
    """The work of one step, and the memory of its stages."""
    work = Cost(0, 0, 0)
    for stage, kind, rules in _stages(without_rules(loop.step.outputs)):
        work = work + rules.cost(stage, kind, put)
    return work


def _text(op: Operation, loop: Loop, printer: Printer) -> str:
    """``(h_1, ys) = loop_{t<9} h = h0, x = xs[t]``, and a line for each stage of the step."""
    return text_of_loop(f"{left_side(op, printer)} = loop", loop, outputs_of(op), printer)


def text_of_loop(
    left: str,
    loop: Loop,
    outputs: Sequence[Tensor],
    printer: Printer,
    note: str = "",
    states: Sequence[Tensor] = (),
) -> str:
    """The text of a loop and of its outputs, under a given name.

    The first of the step's sequences may be the states of another loop.
    """
    step, scope = loop.step, printer.inner()
    length = loop.length
    extent = const(length, index_dtype(length)) if isinstance(length, int) else length
    order = f"t<{printer(extent)}" + (" from last" if loop.reverse else "") + note
    head = [
        f"{scope.tensor(inside)} = {printer.tensor(outside)}{place}"
        for insides, outsides, place in (
            (step.carries, loop.init, ""),
            (step.xs[: len(states)], states, " before t"),
            (step.xs[len(states) :], loop.xs, "[t]"),
            (step.consts, loop.consts, ""),
        )
        for inside, outside in zip(insides, outsides, strict=True)
    ]
    lines = [f"{left}_{{{order}}} {', '.join(head)}"]
    for stage, kind, rules in _stages(step.outputs):
        for tensor in outputs_of(stage):
            scope.tensor(tensor)
        text = rules.text(stage, kind, scope.inner())
        lines += [_INDENT + line for line in text.split("\n")]
    ends = [
        f"{scope.tensor(carry)} ← {scope.tensor(new)}"
        for carry, new in zip(step.carries, step.news, strict=True)
    ]
    ends += [
        f"{printer.tensor(stack)}[t] ← {scope.tensor(y)}"
        for stack, y in zip(outputs[len(step.news) :], step.ys, strict=False)
    ]
    return "\n".join([*lines, _INDENT + ", ".join(ends)])


def _exprs(op: Operation, loop: Loop) -> list[Expr]:
    return exprs_of_loop(loop)


def exprs_of_loop(loop: Loop) -> list[Expr]:
    """The expressions of a loop and of the stages of its step."""
    found = [] if isinstance(loop.length, int) else [loop.length]
    found += [dim for x in loop.step.inputs for dim in shape_of(x) if not isinstance(dim, int)]
    for stage, kind, rules in _stages(loop.step.outputs):
        found += rules.exprs(stage, kind)
        found += [dim for y in outputs_of(stage) for dim in shape_of(y) if not isinstance(dim, int)]
    return found


def _bound(op: Operation, loop: Loop) -> list[Var]:
    return bound_in_loop(loop)


def bound_in_loop(loop: Loop) -> list[Var]:
    """The variables of the stages of a step."""
    stages = _stages(loop.step.outputs)
    return [var for stage, kind, rules in stages for var in rules.bound(stage, kind)]


RULES = KindRules(_key, _cost, _text, _exprs, _bound)
