"""Copies of operands that end with zeros where a piece is only partly inside of a tensor.

``p[k, c] = if s + c < n then x[k, s + c] else 0  →  for c < m: p[k, c] = x[k, s + c];
for m <= c < 16: p[k, c] = 0, where m = min(16, max(0, n - s))``
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from .....codegen.loop_nest import (
    PARALLEL,
    SERIAL,
    Places,
    function,
    loop,
    parameter,
    sequence,
    store,
)
from .....codegen.stages.primfunc import StageFunction, external_reads
from .....expr.build import add, cast, const, sub, variable
from .....expr.nodes import Expr, binary, dtype_of, node_id, operands
from .....expr.rewrite import replace_outermost
from .....graph.stage import Extent, axis_range, bodies
from ....kernel import Kernel
from ....machine import Machine

Inside: TypeAlias = tuple[Expr, Expr]  #: a place, and what it has to be below


def ended_copy(copy: Kernel, inside: Sequence[Inside], machine: Machine) -> StageFunction:
    """The function of a copy that is zero unless all conditions hold.

    The places go up by one along the last axis. The body is a choice between a value and zero.
    """
    op = copy.root
    [result] = copy.outputs
    inputs = external_reads([op])
    buffers = [parameter(tensor, f"p{number}") for number, tensor in enumerate(inputs)]
    target = parameter(result, "copy")
    places = Places()
    for tensor, buffer in zip(inputs, buffers, strict=True):
        places.put(tensor, buffer)
    *outer, last = op.axis
    dtype = dtype_of(last.var)
    first = {node_id(last.var): const(0, dtype)}
    width = axis_range(last)[1]
    wide = dtype_of(inside[0][1])
    count = _number(width, wide)
    for place, end in inside:
        count = binary("min", count, sub(end, replace_outermost(place, first)))
    count = binary("max", count, const(0, wide)).astype(dtype)
    _, value, zero = operands(bodies(op)[0])
    at = [axis.var for axis in outer]
    rest = variable("rest", dtype)
    body = sequence(
        [
            loop(last.var, count, store(target, places.read(value), [*at, last.var])),
            loop(
                rest,
                sub(_number(width, dtype), count),
                store(target, zero, [*at, add(count, rest)]),
            ),
        ]
    )
    # pieces are few: the axis after them is the one that threads share
    order = [*outer[1:2], *outer[:1], *outer[2:]]
    for number, axis in reversed(list(enumerate(order))):
        kind = PARALLEL if number == 0 and machine.threads > 1 else SERIAL
        body = loop(axis.var, axis_range(axis)[1], body, kind)
    return StageFunction(function([*buffers, target], body, once=True), tuple(inputs), (result,))


def _number(extent: Extent, dtype: str) -> Expr:
    return const(extent, dtype) if isinstance(extent, int) else cast(dtype, extent)
