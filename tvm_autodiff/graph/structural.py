"""Structural keys of stages, and the first of several stages that compute the same thing."""

from __future__ import annotations

from ..expr.structural import StructuralKeys
from .kinds.rules.table import rules_of
from .stage import Operation, is_placeholder, outputs_of


class StageKeys(StructuralKeys):
    """Interned keys of expressions and stages."""

    def stage(self, op: Operation) -> int:
        """The key of a stage; stages of one kind that compute the same in the same way have equal
        keys.
        """
        self.alive.append(op)
        if is_placeholder(op):
            return self.intern(("input", hash(op)))
        kind, rules = rules_of(op)
        return self.intern(rules.key(op, kind, self))


class EqualStages:
    """Maps each stage to the first equal one.

    Stages must be passed producers first, over the tensors of the first equal stages.
    """

    def __init__(self) -> None:
        self._keys = StageKeys()
        self._known: dict[int, Operation] = {}

    def first(self, op: Operation) -> Operation:
        """The first stage equal to this one, or the stage itself if it is new or opaque."""
        first = self._known.setdefault(self._keys.stage(op), op)
        if hash(first) != hash(op):
            for copy, original in zip(outputs_of(op), outputs_of(first), strict=True):
                self._keys.same_tensor(copy, original)
        return first
