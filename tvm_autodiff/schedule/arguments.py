"""Checks the arguments of a build before anything is scheduled.

Inputs, outputs and updates become lists of distinct tensors of a graph that can be lowered. Errors
name the tensor and what to do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ..codegen.stages.primfunc import external_symbols
from ..codegen.stages.sizes import known_sizes
from ..errors import InvalidArgumentError, LoweringError
from ..expr.nodes import Tensor, dtype_of, is_expr, is_tensor, node_id, tensor_key
from ..expr.simplify import prove_equal
from ..graph.free_variables import free_variables
from ..graph.graph import Graph
from ..graph.kinds.custom import without_rules
from ..graph.out_of_bounds import refuse_reads_out_of_bounds
from ..graph.stage import is_placeholder, is_scan, shape_of
from .emit.updates import Update
from .rewrites.normal_form import copy_of


def tensors_of(value: Any, what: str) -> list[Tensor]:
    """The tensors of an argument, each once; `what` names it in errors."""
    if is_tensor(value):
        return [value]
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise InvalidArgumentError(
            f"{what} must be a te.Tensor or a sequence of te.Tensors, got {type(value).__name__}"
        )
    tensors = list(value)
    seen: dict[tuple[int, int], int] = {}
    for number, tensor in enumerate(tensors):
        if not is_tensor(tensor):
            hint = ": a number is a te.placeholder of shape ()" if is_expr(tensor) else ""
            raise InvalidArgumentError(
                f"{what}[{number}] must be a te.Tensor (a te.placeholder or a te.compute), "
                f"got {type(tensor).__name__}{hint}"
            )
        first = seen.setdefault(tensor_key(tensor), number)
        if first != number:
            raise InvalidArgumentError(
                f"{what}[{number}] is tensor {tensor.op.name} again, which is already "
                f"{what}[{first}]: pass each tensor once"
            )
    return tensors


def plain_program(
    outputs: Sequence[Tensor], updates: Sequence[Update]
) -> tuple[list[Tensor], list[Update]]:
    """The program without custom rules, which only derivatives need."""
    plain = without_rules([*outputs, *(new for _, new in updates)])
    count = len(outputs)
    olds = [old for old, _ in updates]
    return plain[:count], list(zip(olds, plain[count:], strict=True))


def check_graph(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], updates: Sequence[Update] = ()
) -> None:
    """Raise an error unless the program can be lowered. Inputs may be unused."""
    for tensor in inputs:
        if not is_placeholder(tensor.op):
            raise InvalidArgumentError(
                f"input {tensor.op.name} is computed from other tensors: an input must be a "
                "te.placeholder (to replace an intermediate value, rebuild the graph over a "
                "placeholder)"
            )
    for tensor in outputs:
        if is_placeholder(tensor.op):
            raise InvalidArgumentError(
                f"output {tensor.op.name} is a placeholder: there is nothing to compute; "
                "drop it, or copy it with a te.compute"
            )
    graph = Graph([*outputs, *(new for _, new in updates)])
    for op in graph.ops:
        if is_scan(op):
            raise LoweringError(
                f"stage {op.name} is a te.scan, which TVM cannot lower: "
                "unroll it into compute stages"
            )
    unread = [tensor.op for tensor in inputs if not graph.contains(tensor)]
    refuse_reads_out_of_bounds([*unread, *graph.ops])
    given = {tensor_key(tensor) for tensor in inputs}
    for tensor in graph.placeholders():
        if tensor_key(tensor) not in given:
            raise LoweringError(
                f"placeholder {tensor.op.name} is read by the outputs but is not among the inputs: "
                "add it to inputs"
            )
    for op in graph.ops:
        for name in external_symbols(op):
            if not hasattr(ctypes.CDLL(None), name):
                raise LoweringError(
                    f"stage {op.name} calls the C function {name}, which is not loaded: "
                    "load its library first (ctypes.CDLL(path, ctypes.RTLD_GLOBAL))"
                )
    known = {node_id(var) for var in known_sizes(inputs)}
    for op in [*graph.ops, *unread]:
        for var in free_variables(op):
            if node_id(var) not in known:
                raise LoweringError(
                    f"stage {op.name} uses the variable {var.name}, which is neither an axis nor a "
                    "dimension of an input: pass its value as an input tensor of shape ()"
                )


def updates_of(value: Any, inputs: Sequence[Tensor]) -> list[Update]:
    """Pairs (input, new value) from a mapping or from pairs, in the order of the inputs."""
    if value is None:
        return []
    if not hasattr(value, "items") and (isinstance(value, str) or not hasattr(value, "__iter__")):
        raise InvalidArgumentError(
            f"updates must be a mapping from inputs to their new values, got {type(value).__name__}"
        )
    places = {tensor_key(tensor): number for number, tensor in enumerate(inputs)}
    found: dict[int, Update] = {}
    for pair in value.items() if hasattr(value, "items") else value:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InvalidArgumentError(f"updates contains {pair!r}: pass pairs (input, new value)")
        old, new = pair
        if not is_tensor(old) or not is_tensor(new):
            raise InvalidArgumentError(
                f"updates maps {type(old).__name__} to {type(new).__name__}: both must be tensors"
            )
        number = places.get(tensor_key(old))
        if number is None:
            raise InvalidArgumentError(
                f"updates has a new value for {old.op.name}, which is not among the inputs"
            )
        if number in found:
            raise InvalidArgumentError(f"updates has two new values for input {old.op.name}")
        if tensor_key(old) == tensor_key(new):
            raise InvalidArgumentError(f"input {old.op.name} is its own new value: drop it")
        have, want = (dtype_of(new), shape_of(new)), (dtype_of(old), shape_of(old))
        if have[0] != want[0] or not _same_shape(have[1], want[1]):
            raise InvalidArgumentError(
                f"the new value {new.op.name} of input {old.op.name} has dtype and shape "
                f"{have[0]} {have[1]}, but must have {want[0]} {want[1]}"
            )
        # a placeholder cannot be written, nor one tensor into two places
        found[number] = (old, copy_of(new) if is_placeholder(new.op) else new)
    return [found[number] for number in sorted(found)]


def _same_shape(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(
        prove_equal(a, b) for a, b in zip(left, right, strict=True)
    )
