"""Tensors as text, by TVM's own serialisation.

The text contains names and sharing but no addresses, and visits tensors in the order of their
references, so equal programs have equal texts in every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import ir

from ..expr.nodes import Tensor, tensor_key
from .graph import retarget, topological
from .kinds.custom import without_rules
from .kinds.kind import kind_of
from .kinds.loop import Loop, without_step
from .kinds.rewind import KeptLoop, Rewind, loops_in
from .stage import Operation, is_placeholder, outputs_of


def serialized(groups: Sequence[Sequence[Tensor]]) -> str | None:
    """The text of groups of tensors, or None if attributes of a stage hold functions or arrays.

    Examples
    --------
    >>> from tvm import te
    >>> x, z = te.placeholder((3,), name="x"), te.placeholder((3,), name="z")
    >>> serialized([[x]]) == serialized([[x]]), serialized([[x]]) == serialized([[z]])
    (True, False)
    """
    apart = _with_steps_apart(groups)
    held = [value for group in apart for op in topological(group) for value in _attributes(op)]
    if any(isinstance(value, (tvm_ffi.Function, tvm_ffi.Tensor)) for value in held):
        return None
    return str(ir.save_json(apart))


def _attributes(op: Operation) -> list[Any]:
    """The values of a stage's attributes, with containers flattened."""
    found, pending = [], [op.attrs]
    while pending:
        value = pending.pop()
        if isinstance(value, tvm_ffi.Map):
            pending.extend(value.values())
        elif isinstance(value, tvm_ffi.Array):
            pending.extend(value)
        else:
            found.append(value)
    return found


def _with_steps_apart(groups: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
    """The groups with the steps of loops moved from attributes into further groups, as a build
    computes them: without custom rules.

    TVM cannot serialise Python objects.
    """
    done: dict[tuple[int, int], Tensor] = {}
    apart = [list(group) for group in groups]
    for group in apart:  # which grows
        for op in topological(group):
            if is_placeholder(op) or tensor_key(op.output(0)) in done:
                continue
            moved = retarget(op, lambda tensor: done.get(tensor_key(tensor)))
            kind = kind_of(op)
            if isinstance(kind, (Loop, KeptLoop, Rewind)):
                moved = without_step(moved[0].op)
            for loop in loops_in(kind):
                apart += [list(loop.step.inputs), without_rules(loop.step.outputs)]
            for old, new in zip(outputs_of(op), moved, strict=True):
                done[tensor_key(old)] = new
    return [[done.get(tensor_key(tensor), tensor) for tensor in group] for group in apart]
