"""Rules of stages that carry a custom rule. Such stages equal other tensors and are never built."""

from __future__ import annotations

from collections.abc import Hashable

from ....expr.nodes import Expr, Var
from ....expr.printing.text import Printer
from ....expr.structural import StructuralKeys
from ...counting import Cost, Put
from ...stage import Operation
from ..custom import Custom
from .questions import KindRules, left_side, listed


def _key(op: Operation, stage: Custom, keys: StructuralKeys) -> Hashable:
    """Equal for the same values with the same rule with respect to the same inputs."""
    values, inputs = (
        tuple(map(keys.tensor_key_of, part)) for part in (stage.values, stage.inputs)
    )
    return "custom", id(stage.rule), stage.stands, values, inputs


def _cost(op: Operation, stage: Custom, put: Put) -> Cost:
    """Zero, because other stages compute the values."""
    return Cost(0, 0, 0)


def _text(op: Operation, stage: Custom, printer: Printer) -> str:
    """``y_1 = y by custom rule of (x, w)``, ``y_1 = y, differentiated as a form of (x, w)``."""
    values, inputs = (listed(list(part), printer) for part in (stage.values, stage.inputs))
    how = " by custom rule" if stage.rule.form is None else ", differentiated as a form"
    return f"{left_side(op, printer)} = {values}{how} of ({inputs})"


def _exprs(op: Operation, stage: Custom) -> list[Expr]:
    return []


def _bound(op: Operation, stage: Custom) -> list[Var]:
    return []


RULES = KindRules(_key, _cost, _text, _exprs, _bound)
