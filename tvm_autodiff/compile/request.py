"""A checked build request: the tensors, and the signature of the function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..codegen.deep import run_deep
from ..codegen.stages.sizes import with_plain_sizes
from ..errors import InvalidArgumentError
from ..expr.nodes import Tensor, Var, is_tensor, node_id, op_name, tensor_key
from ..graph.stage import shape_of
from ..runtime.calls.signature import Signature, dim_value, symbols_of
from ..runtime.calls.tensor_signature import signature_of
from ..runtime.files.build_key import build_key
from ..schedule.arguments import check_graph, plain_program, tensors_of, updates_of
from ..schedule.emit.updates import Update
from ..schedule.machine import Machine

Tensors = Tensor | Sequence[Tensor]
Updates = Mapping[Tensor, Tensor] | Sequence[Update]


@dataclass(frozen=True)
class Request:
    """A checked build request."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    updates: list[Update]
    signature: Signature

    def key(self, machine: Machine) -> str | None:
        """The key of the request in the build cache of a machine."""
        old, new = [pair[0] for pair in self.updates], [pair[1] for pair in self.updates]
        groups = [self.inputs, self.outputs, old, new]
        options = {"machine": machine, "single": self.signature.single}
        return run_deep(build_key, groups, options)


    def ones(self) -> list[tuple[Var, int]]:
        """The sizes that follow from a symbol alone, with the value of each where this is 1."""
        found: dict[int, tuple[Var, int]] = {}
        for spec, tensor in zip(self.signature.inputs, self.inputs, strict=True):
            for dim, size in zip(spec.shape, shape_of(tensor), strict=True):
                value = dim_value(dim, dict.fromkeys(set(symbols_of(dim)), 1))
                alone = not isinstance(size, int) and op_name(size) == "var"
                if alone and len(set(symbols_of(dim))) == 1 and value is not None:
                    found.setdefault(node_id(size), (size, value))
        return list(found.values())


def request_of(inputs: Tensors, outputs: Tensors, updates: Updates | None = None) -> Request:
    """Check the arguments of `build` and `lower`."""
    input_list = tensors_of(inputs, "inputs")
    output_list = tensors_of(outputs, "outputs")
    update_list = updates_of(updates, input_list)
    if not output_list and not update_list:
        raise InvalidArgumentError("outputs is empty: pass at least one tensor to compute")
    output_list, update_list = plain_program(output_list, update_list)
    check_graph(input_list, output_list, update_list)
    signature = signature_of(input_list, output_list, is_tensor(outputs))
    fresh = [new for _, new in update_list]
    moved, results = with_plain_sizes(input_list, [*output_list, *fresh])
    places = {tensor_key(old): new for old, new in zip(input_list, moved, strict=True)}
    count = len(output_list)
    pairs = zip((old for old, _ in update_list), results[count:], strict=True)
    update_list = [(places[tensor_key(old)], new) for old, new in pairs]
    return Request(moved, results[:count], update_list, signature)
