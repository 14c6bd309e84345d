"""The packed functions that extern stages call, and those of them that nobody registered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tvm_ffi
from tvm import ir

from ..errors import InvalidArgumentError
from ..expr.nodes import Tensor
from .graph import topological
from .stage import Operation, is_extern

_CALLS = ("tirx.tvm_call_packed", "tirx.tvm_call_cpacked")


def packed_functions(op: Operation) -> list[str]:
    """The names of the packed functions that an extern stage calls, in order.

    Examples
    --------
    >>> from tvm import te, tirx
    >>> x = te.placeholder((4,), name="x")
    >>> call = lambda ins, outs: tirx.call_packed("sort", ins[0], outs[0])
    >>> packed_functions(te.extern((4,), [x], call, name="y").op)
    ['sort']
    """
    calls: list[Any] = []
    tvm_ffi.structural_walk(op.body, (ir.Call, calls.append))
    return list(dict.fromkeys(_names(calls)))


def _names(calls: Sequence[Any]) -> Iterator[str]:
    for call in calls:
        if getattr(call.op, "name", None) in _CALLS and isinstance(call.args[0], ir.StringImm):
            yield str(call.args[0].value)


def refuse_unknown_functions(outputs: Sequence[Tensor]) -> None:
    """Check that the packed functions that stages call are registered in this process.

    Raises
    ------
    InvalidArgumentError
        If one is not.
    """
    for op in topological(outputs):
        for name in packed_functions(op) if is_extern(op) else ():
            if tvm_ffi.get_global_func(name, allow_missing=True) is None:
                raise InvalidArgumentError(
                    f"stage {op.name} calls the packed function {name!r}, which is not registered: "
                    "register it with tvm_ffi.register_global_func before the build"
                )
