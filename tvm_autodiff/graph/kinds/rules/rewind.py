"""Rules of loops that keep some of their states, and of their reverse loops."""

from __future__ import annotations

from collections.abc import Hashable

from ....expr.nodes import Expr, Var
from ....expr.printing.text import Printer
from ....expr.structural import StructuralKeys
from ...counting import Cost, Put, elements_of
from ...stage import Operation, outputs_of
from ..binomial import extra_steps
from ..rewind import KeptLoop, Rewind
from .loop import bound_in_loop, cost_of_step, exprs_of_loop, key_of_loop, text_of_loop
from .questions import KindRules, left_side


def _kept_key(op: Operation, kept: KeptLoop, keys: StructuralKeys) -> Hashable:
    """Equal for equal loops that keep the same states."""
    return "kept loop", kept.slots, kept.carries, key_of_loop(kept.loop, keys)


def _kept_cost(op: Operation, kept: KeptLoop, put: Put) -> Cost:
    """The cost of the loop, and memory for the kept states."""
    step, length = cost_of_step(kept.loop, put), put(kept.loop.length)
    own = outputs_of(op)[len(kept.loop.init) :]
    memory = step.memory + sum(elements_of(tensor, put) for tensor in own)
    return Cost(length * step.iterations, length * step.multiplications, memory)


def _kept_text(op: Operation, kept: KeptLoop, printer: Printer) -> str:
    """``(h_1, ys, h_kept) = loop_{t<9, 3 states kept} ..``."""
    left, note = f"{left_side(op, printer)} = loop", f", {kept.slots} states kept"
    return text_of_loop(left, kept.loop, outputs_of(op), printer, note)


def _kept_exprs(op: Operation, kept: KeptLoop) -> list[Expr]:
    return exprs_of_loop(kept.loop)


def _kept_bound(op: Operation, kept: KeptLoop) -> list[Var]:
    return bound_in_loop(kept.loop)


def _key(op: Operation, rewind: Rewind, keys: StructuralKeys) -> Hashable:
    """Equal for equal loops over the same kept states."""
    kept = tuple(map(keys.tensor_key_of, rewind.kept))
    loops = (key_of_loop(rewind.ahead, keys), key_of_loop(rewind.back, keys))
    return "rewind", rewind.slots, kept, loops


def _cost(op: Operation, rewind: Rewind, put: Put) -> Cost:
    """One step back for each step, and the recomputed steps ahead; a symbolic length counts as one
    more pass.
    """
    length = put(rewind.ahead.length)
    again = extra_steps(length, rewind.slots) if isinstance(length, int) else length
    back, ahead = (cost_of_step(loop, put) for loop in (rewind.back, rewind.ahead))
    own = outputs_of(op)[len(rewind.back.init) :]
    memory = back.memory + ahead.memory + sum(elements_of(tensor, put) for tensor in own)
    return Cost(
        length * back.iterations + again * ahead.iterations,
        length * back.multiplications + again * ahead.multiplications,
        memory,
    )


def _text(op: Operation, rewind: Rewind, printer: Printer) -> str:
    """``(dh, ..) = loop_{t<9 from last, 3 slots} ..``, and the steps ahead."""
    outputs, slots = outputs_of(op), f", {rewind.slots} slots"
    ahead, back = rewind.ahead, rewind.back
    left = f"{left_side(op, printer)} = loop"
    lines = text_of_loop(left, back, outputs, printer, slots, ahead.init)
    again = text_of_loop("states by loop", ahead, [], printer.inner())
    return "\n".join([lines, *("    " + line for line in again.split("\n"))])


def _exprs(op: Operation, rewind: Rewind) -> list[Expr]:
    return [*exprs_of_loop(rewind.ahead), *exprs_of_loop(rewind.back)]


def _bound(op: Operation, rewind: Rewind) -> list[Var]:
    return [*bound_in_loop(rewind.ahead), *bound_in_loop(rewind.back)]


KEPT_RULES = KindRules(_kept_key, _kept_cost, _kept_text, _kept_exprs, _kept_bound)
RULES = KindRules(_key, _cost, _text, _exprs, _bound)
