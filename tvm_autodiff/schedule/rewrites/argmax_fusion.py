"""Finds a maximum and its index in one pass: the forward pass needs the former, the gradient the
latter.

A maximum or minimum whose index is computed elsewhere in the graph is read from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...expr.build import zero_like
from ...expr.nodes import Tensor, binary, load, op_name, tensor_key
from ...expr.printing.reducer_signs import sign_of
from ...graph.graph import Graph, Replacement, each_original_stage, retarget
from ...graph.stage import (
    Combiner,
    Operation,
    Reduction,
    is_compute,
    make_stage,
    reduction_of,
    reduction_stage,
    renew_axis,
)
from ...graph.structural import StageKeys
from ...rules.reductions.arg_reduction import is_neutral

_EXTREMES = {"argmax": "max", "argmin": "min"}


def with_fused_argmax(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``m = max_k f(k) from c, (v, p) = argmax_k (f(k), k) → m = max(c, v)``.

    Both keep the second of two values unless the first is greater, so NaN is handled alike. An
    output stays a reduction, because one more stage would cost what it saves.
    """
    graph = Graph(outputs)
    wanted = {tensor_key(tensor) for tensor in outputs}
    keys = StageKeys()
    pairs: dict[int, Tensor] = {}
    plain: list[tuple[int, Operation]] = []
    for op in graph.ops:
        found = reduction_of(op) if is_compute(op) else None
        if found is None or found.init:
            continue
        if len(found.sources) == 2:
            alone = _value_alone(op, found)
            if alone is not None:
                pairs.setdefault(keys.stage(alone), op.output(0))
        elif _is_extreme(found) and tensor_key(op.output(0)) not in wanted:
            plain.append((keys.stage(_from_zero(op, found)), op))
    readers = {hash(op): pairs[key] for key, op in plain if key in pairs}
    if not readers:
        return [*outputs]
    made: dict[int, list[Tensor]] = {}

    def change(op: Operation, replacement: Replacement) -> list[Tensor]:
        pair = readers.get(hash(op))
        source = op if pair is None else pair.op  # it reads what the maximum reads
        if hash(source) not in made:
            made[hash(source)] = retarget(source, replacement)
        return made[hash(source)] if pair is None else [_read_from(op, made[hash(source)][0])]

    return each_original_stage(outputs, change)


def _is_extreme(found: Reduction) -> bool:
    return len(found.sources) == 1 and op_name(found.combiner.result[0]) in _EXTREMES.values()


def _from_zero(op: Operation, found: Reduction) -> Operation:
    """The stage with a fixed identity, for comparison."""
    identity = zero_like(found.combiner.identity[0])
    combiner = replace(found.combiner, identity=(identity,))
    return reduction_stage(op.name, list(op.axis), replace(found, combiner=combiner))[0].op


def _read_from(op: Operation, value: Tensor) -> Tensor:
    """The extreme read from the value of an arg-reduction; the identity takes part as the first
    element.
    """
    found = reduction_of(op)
    assert found is not None
    axes = [renew_axis(axis) for axis in op.axis]
    name = op_name(found.combiner.result[0])
    read = load(value, [axis.var for axis in axes])
    return make_stage(op.name, axes, [binary(name, found.combiner.identity[0], read)])[0]


def _value_alone(op: Operation, found: Reduction) -> Operation | None:
    """The maximum of an arg-reduction, as a stage; None for other pairs, and if its own identity
    may be selected.
    """
    combiner = found.combiner
    name = _EXTREMES.get(sign_of(combiner) or "")
    if name is None or not is_neutral(combiner.identity[0], "gt" if name == "max" else "lt"):
        return None
    left, right = combiner.lhs[0], combiner.rhs[0]
    value = Combiner((left,), (right,), (binary(name, left, right),), combiner.identity[:1])
    return _from_zero(op, replace(found, combiner=value, sources=found.sources[:1]))
