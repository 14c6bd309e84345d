"""The registers of a thread in a reduction: a value for each component of the reducer.

`row_phases` combines the values of several threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....codegen.loop_nest import Local, Statement, combination, element, sequence, store
from ....codegen.thread_loops import REGISTERS, buffer_in
from ....expr.build import const
from ....expr.nodes import Expr, dtype_of
from ....graph.stage import Combiner, outputs_of
from ...fusion.row_items import Item


def combiner_of(item: Item) -> Combiner:
    """The reducer of an item that reduces."""
    assert item.reduction is not None
    return item.reduction.combiner


def registers_of(name: str, item: Item, found: list[Local]) -> list[Local]:
    """A register for each component of an item's result."""
    mine = [
        buffer_in(REGISTERS, f"{name}_{len(found) + n}", [1], dtype_of(tensor))
        for n, tensor in enumerate(outputs_of(item.op))
    ]
    found += mine
    return mine


def accumulated(
    item: Item, totals: Sequence[Local], values: Sequence[Expr], registers: list[Local]
) -> Statement:
    """``totals = totals ⊕ values``, all components at once."""
    zero = const(0, "int32")
    old = [element(total, [zero]) for total in totals]
    bound, combined = combination(combiner_of(item), old, values)
    if len(totals) == 1:
        return sequence([*bound, store(totals[0], combined[0], [zero])])
    fresh = registers_of("next", item, registers)
    pairs = list(zip(totals, fresh, strict=True))
    return sequence(
        [
            *bound,
            *(store(new, value, [zero]) for new, value in zip(fresh, combined, strict=True)),
            *(store(total, element(new, [zero]), [zero]) for total, new in pairs),
        ]
    )
