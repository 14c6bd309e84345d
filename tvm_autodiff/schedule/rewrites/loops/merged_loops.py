"""Merges loops that repeat the same step over the same data into one with the results of all.

Reverse mode runs a loop again with more results, because it needs the states; in one program both
loops are the same. One of them may keep some states.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ....expr.nodes import Tensor, tensor_key
from ....graph.graph import replace_tensors, retarget, tensors_read_by, topological
from ....graph.kinds.kind import kind_of
from ....graph.kinds.loop import Loop, loop_stage, step_of
from ....graph.kinds.rewind import KeptLoop, kept_stage
from ....graph.kinds.rules.table import rules_of
from ....graph.marks.checkpoint import generation_of
from ....graph.stage import Operation, is_compute, is_placeholder, outputs_of
from ....graph.structural import StageKeys
from ..normal_form import source_of_copies

Key = tuple[int, int]


def merged_loops(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``(a, ys) = loop step; (b, zs) = loop step  →  (a, ys, zs) = loop step, b = a``."""
    ops = topological(outputs)
    if sum(isinstance(kind_of(op), (Loop, KeptLoop)) for op in ops) < 2:
        return list(outputs)
    groups = _Groups()
    for op in ops:
        groups.show(op)
    if not groups.members:
        return list(outputs)
    done: dict[Key, Tensor] = {}

    def lookup(tensor: Tensor) -> Tensor | None:
        return done.get(tensor_key(tensor))

    for op in ops:
        if is_placeholder(op):
            continue
        group = groups.of(op)
        if group is None:
            news = retarget(op, lookup)
        else:
            if hash(op) == hash(group.base):
                group.made = retarget(group.merged()[0].op, lookup)
            count = len(group.loop.init)
            news = [*group.made[:count]]
            news += [group.made[count + place] for place in group.places[hash(op)]]
            news += group.made[count + len(group.ys) :][: op.num_outputs - len(news)]
        for old, new in zip(outputs_of(op), news, strict=True):
            if tensor_key(old) != tensor_key(new):
                done[tensor_key(old)] = new
    return [done.get(tensor_key(tensor), tensor) for tensor in outputs]


@dataclass
class _Group:
    """Loops merged into one: the first of them, what is stacked, by key, and the loop that keeps
    states.
    """

    base: Operation
    loop: Loop
    kept: KeptLoop | None = None
    ys: dict[Hashable, Tensor] = field(default_factory=dict)
    places: dict[int, list[int]] = field(default_factory=dict)
    made: list[Tensor] = field(default_factory=list)

    def merged(self) -> list[Tensor]:
        """The loop with all results."""
        step = self.loop.step
        whole = step_of(step.carries, step.xs, step.consts, step.news, list(self.ys.values()))
        loop = replace(self.loop, step=whole)
        if self.kept is None:
            return loop_stage(self.base.name, loop)
        return kept_stage(self.base.name, replace(self.kept, loop=replace(loop, plan=None)))


class _Groups:
    """The groups of the loops of a graph, whose stages are added producers first."""

    def __init__(self) -> None:
        self.members = 0  #: loops that another one replaces
        self._keys = StageKeys()
        self._known: dict[Hashable, Operation] = {}
        self._groups: dict[Hashable, _Group] = {}
        self._group_of: dict[int, _Group] = {}
        self._generations: dict[Key, int] = {}

    def of(self, op: Operation) -> _Group | None:
        """The group of a loop, or None for other stages."""
        return self._group_of.get(hash(op))

    def show(self, op: Operation) -> None:
        """Find the stages that a stage equals, up to results that only one of them has."""
        generation = generation_of(op)
        if not is_compute(op):
            reads = map(tensor_key, tensors_read_by(op))
            generation = max((self._generations.get(key, 0) for key in reads), default=0)
        for tensor in outputs_of(op):
            self._generations[tensor_key(tensor)] = generation
        kind = kind_of(op)
        if isinstance(kind, Loop):
            self._loop(op, kind, None, generation)
            return
        if isinstance(kind, KeptLoop):
            self._loop(op, kind.loop, kind, generation)
            return
        first = self._known.setdefault((generation, self._keys.stage(op)), op)
        if hash(first) != hash(op):
            self._same(outputs_of(op), outputs_of(first))

    def _same(self, tensors: Sequence[Tensor], firsts: Sequence[Tensor]) -> None:
        for tensor, first in zip(tensors, firsts, strict=True):
            self._keys.same_tensor(tensor, first)

    def _loop(self, op: Operation, loop: Loop, kept: KeptLoop | None, generation: int) -> None:
        news, ys = self._values(loop)
        keys, step = self._keys, loop.step
        init = tuple(map(keys.tensor_key_of, loop.init))
        length = keys.extents([loop.length])
        key: tuple[Any, ...] = ("loop", generation, length, loop.reverse, init, news)
        if kept is not None:
            own = self._groups.get(key)
            other = None if own is None else own.kept
            if other is not None and (other.slots, other.carries) != (kept.slots, kept.carries):
                key = (*key, kept.slots, kept.carries)  # one loop keeps states in one way
        group = self._groups.get(key)
        given = {self._keys.tensor_key_of(tensor) for tensor in (*loop.xs, *loop.consts)}
        if group is None or not given <= group_inputs(self._keys, group.loop):
            # a loop that reads more cannot stand where the first one does
            group = _Group(op, loop)
            self._groups[key] = group
        else:
            self.members += 1
        group.kept = group.kept or kept
        self._group_of[hash(op)] = group
        places = list(group.ys)
        table = self._inputs_over(group.loop, loop)
        for value, y in zip(ys, step.ys, strict=True):
            if value not in group.ys:
                group.ys[value] = replace_tensors([y], table)[0]
                places.append(value)
        group.places[hash(op)] = [places.index(value) for value in ys]
        if hash(group.base) != hash(op):
            count = len(loop.init)
            self._same(outputs_of(op)[:count], outputs_of(group.base)[:count])
        stacks = outputs_of(op)[len(loop.init) :]
        for value, tensor in zip(ys, stacks[: len(ys)], strict=True):
            self._keys.name_tensor(tensor, (key, value))
        for number, tensor in enumerate(stacks[len(ys) :]):
            self._keys.name_tensor(tensor, (key, "kept", number))

    def _inputs_over(self, base: Loop, loop: Loop) -> list[tuple[Tensor, Tensor]]:
        """Pairs (placeholder of the step of a loop, the one of the base's step for the same)."""
        keys = self._keys
        pairs = list(zip(loop.step.carries, base.step.carries, strict=True))
        for mine, inside, theirs, there in (
            (loop.xs, loop.step.xs, base.xs, base.step.xs),
            (loop.consts, loop.step.consts, base.consts, base.step.consts),
        ):
            known = {keys.tensor_key_of(t): p for t, p in zip(theirs, there, strict=True)}
            pairs += [
                (placeholder, known[keys.tensor_key_of(tensor)])
                for tensor, placeholder in zip(mine, inside, strict=True)
            ]
        return [(old, new) for old, new in pairs if tensor_key(old) != tensor_key(new)]

    def _values(self, loop: Loop) -> tuple[tuple[Any, ...], list[Any]]:
        """Keys of the next carries and of what is stacked, equal for equal values."""
        scope, step = self._keys.inner(), loop.step
        for number, carry in enumerate(step.carries):
            scope.name_tensor(carry, ("carry", number))
        for role, outer, inner in (("x", loop.xs, step.xs), ("const", loop.consts, step.consts)):
            for tensor, inside in zip(outer, inner, strict=True):
                scope.name_tensor(inside, (role, self._keys.tensor_key_of(tensor)))
        for stage in topological(list(step.outputs)):
            if is_placeholder(stage):
                continue
            kind, rules = rules_of(stage)
            # what a derivative computes again is no other name of what was computed before
            own = generation_of(stage)
            key = self._keys.intern((own, rules.key(stage, kind, scope)))
            for number, tensor in enumerate(outputs_of(stage)):
                scope.name_tensor(tensor, ("in the step", key, number))
        values = [scope.tensor_key_of(source_of_copies(tensor)) for tensor in step.outputs]
        return tuple(values[: len(step.news)]), values[len(step.news) :]


def group_inputs(keys: StageKeys, loop: Loop) -> set[Any]:
    """The keys of the inputs of a loop other than its initial carries."""
    return {keys.tensor_key_of(tensor) for tensor in (*loop.xs, *loop.consts)}
