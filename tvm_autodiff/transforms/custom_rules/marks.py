"""Writes custom rules given for one call into the graph: `manual`, `override`, `fdiff`.

In the new graph each tensor with a rule is a stage that carries the rule, so every transform of the
outputs follows it. The functions get the tensors that the caller knows, and their results are moved
to the new graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...errors import InvalidArgumentError
from ...expr.nodes import Tensor, is_float, tensor_key
from ...graph.graph import Graph, rebuild, replace_tensors, retarget, tensors_read_by
from ...graph.kinds.custom import Rule, custom_stage
from ...graph.marks.stop_gradient import stopped_reads
from ...graph.stage import Extent, is_placeholder, outputs_of, shape_of
from ...rules.equal_forms import equal_forms
from ..arguments import (
    ByHand,
    Manual,
    check_by_hand,
    check_derivative,
    require_function,
    shape_text,
)
from ..local import local_vjp
from .apply_rule import Entry

Key = tuple[int, int]

#: a tensor of equal value that has the derivative of another
_SAME = Rule(
    vjp=lambda outputs, inputs, cotangents: list(cotangents),
    jvp=lambda outputs, inputs, tangents: list(tangents),
    prefixed=True,
)


@dataclass
class Marked:
    """Outputs in whose graph rules are stages.

    Attributes
    ----------
    outputs : list of Tensor
        Equal to the given ones, and the same ones without rules.
    originals : dict from key to Tensor
        For each new tensor, the caller's tensor with the same value.
    forms : dict from key to Tensor
        The new forms of the caller's tensors.
    """

    outputs: list[Tensor]
    originals: dict[Key, Tensor] = field(default_factory=dict)
    forms: dict[Key, Tensor] = field(default_factory=dict)


def marked(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    hand: ByHand,
    fdiff: Manual | None = None,
) -> Marked:
    """The outputs with rules written into their graph.

    Parameters
    ----------
    outputs : sequence of Tensor
        The tensors to differentiate.
    inputs : sequence of Tensor
        The tensors to differentiate with respect to, which stay in the graph.
    hand : ByHand
        Rules of edges (`manual`) and of paths (`override`).
    fdiff : callable, optional
        The rule of all other edges.
    """
    if not hand.manual and not hand.override and fdiff is None:
        return Marked(list(outputs))
    return _Marking({tensor_key(tensor) for tensor in inputs}, hand, fdiff).run(outputs)


def with_hand(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    manual: Mapping[tuple[Tensor, Tensor], Manual] | None,
    override: Mapping[Tensor, Any] | None,
    fdiff: Manual | None,
) -> list[Tensor]:
    """The outputs with the rules of `differentiate` written into their graph.

    Raises
    ------
    InvalidArgumentError
        If a rule has the wrong form, or a tensor does not occur in the graph.
    """
    require_function(fdiff, "fdiff")
    hand = check_by_hand(Graph(outputs), manual, override)
    return marked(outputs, inputs, hand, fdiff).outputs


class _Marking:
    """One walk, producers first; `new` maps tensors of the old graph to the new one."""

    def __init__(self, asked: set[Key], hand: ByHand, fdiff: Manual | None) -> None:
        self._asked, self._hand, self._fdiff = asked, hand, fdiff
        self._edges: dict[Key, list[Key]] = {}
        for out, inp in hand.manual:
            self._edges.setdefault(out, []).append(inp)
        self._new: dict[Key, Tensor] = {}
        self._originals: dict[Key, Tensor] = {}
        self._forms: dict[Key, Tensor] = {}
        self._alive: list[Tensor] = []  # keys are addresses

    def run(self, outputs: Sequence[Tensor]) -> Marked:
        for op in Graph(outputs).ops:
            for old in outputs_of(op):
                self._new[tensor_key(old)] = old
                self._alive.append(old)
            if is_placeholder(op):
                continue
            copies = retarget(op, self._changed)
            for old, copy in zip(outputs_of(op), copies, strict=True):
                self._enter(old, self._of(old, copy))
        news = [self._new[tensor_key(tensor)] for tensor in outputs]
        return Marked(news, self._originals, self._forms)

    def _changed(self, tensor: Tensor) -> Tensor | None:
        new = self._new.get(tensor_key(tensor))
        return None if new is None or tensor_key(new) == tensor_key(tensor) else new

    def _enter(self, old: Tensor, new: Tensor) -> None:
        self._new[tensor_key(old)] = new
        if tensor_key(new) != tensor_key(old):
            self._new[tensor_key(new)] = new  # where what a function returned meets the new graph
            self._forms[tensor_key(old)] = new
            self._named(new, old)

    def _named(self, new: Tensor, old: Tensor) -> None:
        self._originals[tensor_key(new)] = old
        self._alive.append(new)

    def _of(self, old: Tensor, copy: Tensor) -> Tensor:
        """The replacement of a tensor; `copy` is its stage over the new graph."""
        key = tensor_key(old)
        if key in self._hand.override:
            return self._by_override(*self._hand.override[key])
        if not is_float(old):
            return copy
        if key in self._edges or self._fdiff is not None:
            return self._by_edges(old)
        if key in self._asked and tensor_key(copy) != key:
            self._named(copy, old)
            return custom_stage(old.op.name, [old], [copy], _SAME, stands=True)[0]
        return copy

    def _by_override(self, old: Tensor, deps: Sequence[Tensor], function: Any) -> Tensor:
        inputs = [self._new[tensor_key(dep)] for dep in deps]
        rule = self._override(old, deps, function)
        return custom_stage(old.op.name, [old], inputs, rule, stands=True)[0]

    def _by_edges(self, old: Tensor) -> Tensor:
        """Handle a tensor for which some or all reads have rules."""
        out = tensor_key(old)
        known = set(self._edges.get(out, ()))
        forms = None if known else equal_forms(old.op)
        if forms is not None:
            form = self._by_reads(forms[old.value_index], set())
            self._named(form, old)
            return custom_stage(old.op.name, [old], [form], _SAME, stands=True)[0]
        return self._by_reads(old, known)

    def _by_reads(self, old: Tensor, known: set[Key]) -> Tensor:
        out = tensor_key(old)
        ended = stopped_reads(old.op) - known
        reads = [
            x for x in tensors_read_by(old.op) if is_float(x) and tensor_key(x) not in ended
        ]
        edges = [(x, self._hand.manual.get((out, tensor_key(x)), self._fdiff)) for x in reads]
        inputs = [self._new[tensor_key(x)] for x in reads]
        rule = Rule(vjp=partial(self._along_edges, old, edges), prefixed=True)
        return custom_stage(old.op.name, [old], inputs, rule, stands=True)[0]

    def _along_edges(
        self,
        old: Tensor,
        edges: Sequence[tuple[Tensor, Manual | None]],
        outputs: list[Tensor],
        inputs: list[Tensor],
        cotangents: list[Tensor],
    ) -> list[Any]:
        [head] = cotangents
        reads = [x for x, _ in edges]
        moved = self._moved(old, outputs[0], reads, inputs, head)

        def along(x: Tensor, function: Manual) -> Tensor:
            who = f"the custom derivative of {old.op.name} with respect to {x.op.name}"
            found = _called(function, old, x, head, who)
            return moved([check_derivative(found, x, _prefix(head, old), who)])[0]

        present = {tensor_key(x): new for x, new in zip(reads, inputs, strict=True)}

        def replacement(tensor: Tensor) -> Tensor:
            key = tensor_key(tensor)
            return present[key] if key in present else self._new[key]

        def by_default(new: Tensor) -> Tensor:
            copy = retarget(old.op, replacement)[old.value_index]
            [adjoint] = local_vjp([copy], [new], [head], tensors_read_by(copy.op))
            table = [(copy, outputs[0]), (head, head), *((x, x) for x in inputs)]
            return replace_tensors([adjoint], table)[0]

        return [
            partial(by_default, new) if function is None else partial(along, x, function)
            for (x, function), new in zip(edges, inputs, strict=True)
        ]

    def _override(self, old: Tensor, deps: Sequence[Tensor], function: Any) -> Rule:
        if isinstance(function, Rule):
            return function
        if isinstance(function, ForwardOverride):
            return Rule(jvp=partial(self._tangent, old, deps, function.function))
        return Rule(vjp=partial(self._adjoints, old, deps, function), prefixed=True)

    def _adjoints(
        self,
        old: Tensor,
        deps: Sequence[Tensor],
        function: Any,
        outputs: list[Tensor],
        inputs: list[Tensor],
        cotangents: list[Tensor],
    ) -> list[Entry]:
        [head] = cotangents
        who = f"override[{old.op.name}]"
        found = _called(function, old, list(deps), head, who)
        if not isinstance(found, Sequence) or len(found) != len(deps):
            raise InvalidArgumentError(
                f"{who} must return a list of {len(deps)} adjoints, one for each of "
                f"{', '.join(dep.op.name for dep in deps)}"
            )
        checked = [
            check_derivative(adjoint, dep, _prefix(head, old), who)
            for adjoint, dep in zip(found, deps, strict=True)
        ]
        return list(self._moved(old, outputs[0], deps, inputs, head)(checked))

    def _tangent(
        self,
        old: Tensor,
        deps: Sequence[Tensor],
        function: Any,
        outputs: list[Tensor],
        inputs: list[Tensor],
        tangents: list[Tensor],
    ) -> list[Entry]:
        who = f"override[{old.op.name}]"
        found = check_derivative(function(old, list(deps), list(tangents)), old, (), who, "tangent")
        return list(self._moved(old, outputs[0], deps, inputs, *tangents)([found]))

    def _moved(
        self,
        old: Tensor,
        output: Tensor,
        deps: Sequence[Tensor],
        inputs: Sequence[Tensor],
        *given: Tensor,
    ) -> Callable[[Sequence[Tensor]], list[Tensor]]:
        """The result of a function over the new graph, with the present output and inputs."""
        table: dict[Key, Tensor] = {tensor_key(tensor): tensor for tensor in given}
        table[tensor_key(old)] = output
        for dep, new in zip(deps, inputs, strict=False):
            table[tensor_key(dep)] = new
        for new in (output, *inputs):
            table.setdefault(tensor_key(new), new)

        def replacement(tensor: Tensor) -> Tensor | None:
            key = tensor_key(tensor)
            return table[key] if key in table else self._new.get(key)

        return lambda found: rebuild(list(found), replacement)


@dataclass(frozen=True)
class ForwardOverride:
    """An override of `jvp`: ``f(out, deps, tangents) -> tangent of out``."""

    function: Callable[..., Any]


def _prefix(head: Tensor, old: Tensor) -> tuple[Extent, ...]:
    """The extents of a cotangent before those of its tensor."""
    return shape_of(head)[: len(head.shape) - len(old.shape)]


def _called(function: Any, old: Tensor, read: Any, head: Tensor, who: str) -> Any:
    """What a user's function gives for a cotangent, whose prefix it may not expect."""
    try:
        return function(old, read, head)
    except ValueError as error:  # of te, for an index too few
        prefix = _prefix(head, old)
        if not prefix:
            raise
        raise InvalidArgumentError(
            f"{who} failed with: {error}. In a Jacobian its head has shape "
            f"{shape_text(shape_of(head))}, which is {shape_text(prefix)} before the shape of "
            f"{old.op.name}: it must index the head with all of its axes"
        ) from error
