"""Batches tensors stage by stage: the walk behind `vmap`.

A stage with a custom rule becomes a stage of the batch, with a rule that applies the given one to a
member and batches the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgumentError
from ..expr.nodes import Tensor, dtype_of, is_tensor, load, tensor_key
from ..graph.bounded_stage import bounded_stage
from ..graph.graph import Graph, tensors_read_by
from ..graph.kinds.custom import Custom, Rule, custom_of, custom_stage
from ..graph.kinds.kind import kind_of
from ..graph.kinds.loop import Loop
from ..graph.stage import (
    Extent,
    Operation,
    data_axis,
    is_placeholder,
    outputs_of,
    placeholder,
    reduce_axis,
    shape_of,
    sum_over,
)
from ..rules.batching import BatchedOf, batched_stage, repeated
from ..rules.registry import ruled
from .arguments import check_derivative
from .custom_rules.apply_rule import Entry
from .loops.members import batched_loop


def batch_graph(tensors: Sequence[Tensor]) -> Graph:
    """The graph to walk; a stage whose rule has `batch` hides how its values are computed."""
    return Graph(tensors, _reads)


def _reads(op: Operation) -> list[Tensor]:
    stage = ruled(op)
    if stage is None or stage.rule.batch is None:
        return tensors_read_by(op)
    return list(stage.inputs)


def batch_of_tensors(
    outputs: Sequence[Tensor],
    batches: Sequence[tuple[Tensor, Tensor]],
    size: Extent,
    constants: Sequence[Tensor] = (),
) -> list[Tensor]:
    """The outputs for every member, ``(size,) + shape``.

    Parameters
    ----------
    outputs : sequence of Tensor
        The tensors to batch, computed by stages of any kind.
    batches : sequence of (Tensor, Tensor)
        Tensors that differ between members, and their batches with the batch axis in front. An
        output may depend on none of them.
    size : int or Expr
        The size of the batch.
    constants : sequence of Tensor
        Tensors that are the same for all members. The walk stops at them.
    """
    ends = {hash(tensor.op) for tensor in constants}
    known = {tensor_key(x): batch for x, batch in batches}
    graph = Graph(outputs, lambda op: [] if hash(op) in ends else _reads(op))

    def batched_of(tensor: Tensor, alive: object = (graph, batches)) -> Tensor | None:
        # rules use the keys later: they are addresses of tensors, which must stay alive
        return known.get(tensor_key(tensor))

    for op in graph.ops:
        keys = [tensor_key(tensor) for tensor in outputs_of(op)]
        if is_placeholder(op) or all(key in known for key in keys):
            continue
        if any(batched_of(tensor) is not None for tensor in graph.reads(op)):
            stage = ruled(op)
            # a stage with a registered rule computes its values itself: only a rule can batch them
            registered = stage is not None and custom_of(op) is None
            kind = kind_of(op)
            if isinstance(kind, Loop):
                made = batched_loop(op, kind, batched_of, size)
            elif stage is None or (registered and stage.rule.batch is None):
                made = batched_stage(op, batched_of, size)
            else:
                made = _batched_rule(stage, batched_of, size)
            for key, tensor in zip(keys, made, strict=True):
                known.setdefault(key, tensor)
    found = [(output, batched_of(output)) for output in outputs]
    return [repeated(output, size) if many is None else many for output, many in found]


def _batched_rule(stage: Custom, batched_of: BatchedOf, size: Extent) -> list[Tensor]:
    """The stage of a batch, with a rule for a batch."""
    inputs = [batched_of(x) for x in stage.inputs]
    flags = [x is not None for x in inputs]
    read = [x if many is None else many for x, many in zip(stage.inputs, inputs, strict=True)]
    if stage.rule.batch is None:
        values = []
        for value in stage.values:
            many = batched_of(value)
            values.append(repeated(value, size) if many is None else many)
    else:
        values = _by_rule(stage, read, flags, size)
    rule = _Members(stage, flags, batched_of, size).rule()
    return custom_stage(stage.name, values, read, rule, stage.stands)


def _by_rule(
    stage: Custom, inputs: list[Tensor], flags: list[bool], size: Extent
) -> list[Tensor]:
    assert stage.rule.batch is not None
    who = f"the batch of the rule of {stage.name}"
    found = stage.rule.batch(inputs, flags, size)
    if not isinstance(found, Sequence) or len(found) != len(stage.outputs):
        raise InvalidArgumentError(
            f"{who} must return a list of {len(stage.outputs)} tensors, one for each output"
        )
    pairs = zip(found, stage.outputs, strict=True)
    return [check_derivative(value, y, (size,), who, "batch") for value, y in pairs]


class _Members:
    """The rule of a batch: the rule of a member, with batched results.

    Placeholders represent a member. Other tensors that the functions read, such as a tensor of the
    surrounding program, are batched if they depend on the member.
    """

    def __init__(
        self, stage: Custom, flags: Sequence[bool], batched_of: BatchedOf, size: Extent
    ) -> None:
        self._stage, self._flags = stage, flags
        self._batched_of, self._size = batched_of, size

    def rule(self) -> Rule:
        """The functions of the member's rule, for a batch."""
        rule = self._stage.rule
        return Rule(
            vjp=self._vjp if rule.vjp else None,
            jvp=self._jvp if rule.jvp else None,
            transpose=self._transpose if rule.transpose else None,
            form=self._form if rule.form else None,
        )

    def _member(self, tensors: Sequence[Entry], flags: Sequence[bool]) -> list[Entry]:
        return [
            _member_of(t) if flag and t is not None else t
            for t, flag in zip(tensors, flags, strict=True)
        ]

    def _vjp(self, outputs: list[Any], inputs: list[Any], cotangents: list[Entry]) -> list[Any]:
        assert self._stage.rule.vjp is not None
        whole = [True] * len(outputs)
        given = [*outputs, *inputs, *cotangents]
        ones = self._member(given, [*whole, *self._flags, *whole])
        count, end = len(outputs), len(outputs) + len(inputs)
        found = self._stage.rule.vjp(ones[:count], ones[count:end], ones[end:])
        return self._cotangents(found, list(zip(ones, given, strict=True)))

    def _transpose(self, cotangents: list[Entry]) -> list[Any]:
        assert self._stage.rule.transpose is not None
        ones = self._member(cotangents, [True] * len(cotangents))
        found = self._stage.rule.transpose(ones)
        return self._cotangents(found, list(zip(ones, cotangents, strict=True)))

    def _form(self, inputs: list[Any]) -> Any:
        assert self._stage.rule.form is not None
        ones = self._member(inputs, self._flags)
        found = self._stage.rule.form(ones)
        if not isinstance(found, Sequence) or not all(map(is_tensor, found)):
            return found
        return self._batched(list(found), list(zip(ones, inputs, strict=True)))

    def _cotangents(self, found: Any, pairs: list[tuple[Entry, Entry]]) -> Any:
        if not isinstance(found, Sequence) or len(found) != len(self._flags):
            return found  # errors are reported where results are checked
        return [
            self._later(value, flag, pairs) for value, flag in zip(found, self._flags, strict=True)
        ]

    def _later(self, value: Any, flag: bool, pairs: list[tuple[Entry, Entry]]) -> Any:
        if value is None:
            return None

        def made() -> Any:
            result = value if is_tensor(value) or not callable(value) else value()
            if not is_tensor(result):
                return result
            [many] = self._batched([result], pairs)
            return many if flag else _summed_members(many)

        return made

    def _jvp(self, outputs: list[Any], inputs: list[Any], tangents: list[Entry]) -> Any:
        assert self._stage.rule.jvp is not None
        given = [*outputs, *inputs, *tangents]
        flags = [*[True] * len(outputs), *self._flags, *self._flags]
        ones = self._member(given, flags)
        count, end = len(outputs), len(outputs) + len(inputs)
        found = self._stage.rule.jvp(ones[:count], ones[count:end], ones[end:])
        if not isinstance(found, Sequence):
            return found
        pairs = list(zip(ones, given, strict=True))
        return [self._batched([x], pairs)[0] if is_tensor(x) else x for x in found]

    def _batched(
        self, results: list[Tensor], pairs: Sequence[tuple[Entry, Entry]]
    ) -> list[Tensor]:
        table = [
            (one, many)
            for one, many in pairs
            if one is not None and many is not None and tensor_key(one) != tensor_key(many)
        ]
        own = {tensor_key(one) for one, _ in table}
        for op in Graph(results).ops:
            for tensor in outputs_of(op):
                many = self._batched_of(tensor)
                if many is not None and tensor_key(tensor) not in own:
                    table.append((tensor, many))
        return batch_of_tensors(results, table, self._size)


def _member_of(tensor: Tensor) -> Tensor:
    """The placeholder for one member of a batch."""
    return placeholder(list(tensor.shape)[1:], dtype_of(tensor), tensor.op.name)


def _summed_members(tensor: Tensor) -> Tensor:
    """``Σ_b x[b, i]``: the contributions of all members to a tensor that they share."""
    size, *shape = shape_of(tensor)
    axes = [data_axis(f"i{n}", extent) for n, extent in enumerate(shape)]
    member = reduce_axis("b", size)
    body = sum_over(load(tensor, [member.var, *(axis.var for axis in axes)]), [member])
    return bounded_stage(f"{tensor.op.name}_summed", axes, [body])[0]
