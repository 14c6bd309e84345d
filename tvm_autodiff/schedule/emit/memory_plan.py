"""Reads the memory plan of a program's temporaries from Relax while it compiles.

Each storage has a size in bytes and the tensors that use it, one after the other. A program of one
kernel has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tvm
from tvm import relax
from tvm.ir import GlobalVar

from ...codegen.host.workspace import PlannedStorage
from ...expr.nodes import Expr, const_value, node_id
from .updates import Step

Result = TypeVar("Result")

_PLANNED = "StaticPlanBlockMemory"


@tvm.instrument.pass_instrument
class _Watch:
    """Records the module after memory has been planned."""

    planned: Any = None

    def run_after_pass(self, module: Any, info: Any) -> None:
        if info.name == _PLANNED:
            self.planned = module["main"]


def compile_watched(
    compile_module: Callable[[], Result], steps: Sequence[Step]
) -> tuple[Result, list[PlannedStorage], list[list[Expr]]]:
    """The result of a compilation, the storages that were planned, and the shapes of the
    parameters.
    """
    watch = _Watch()
    with tvm.transform.PassContext(instruments=[watch]):
        result = compile_module()
    if watch.planned is None:
        return result, [], []
    shapes = [list(param.ty.shape) for param in watch.planned.params]
    return result, _storages(watch.planned, steps), shapes


def _storages(function: Any, steps: Sequence[Step]) -> list[PlannedStorage]:
    storages: dict[int, PlannedStorage] = {}
    places: dict[int, PlannedStorage] = {}  # tensor variable → its storage
    calls = iter(steps)
    for block in function.body.blocks:
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if not isinstance(value, relax.Call):
                continue
            name = getattr(value.op, "name", "")
            if name == "relax.memory.alloc_storage":
                size = value.args[0].values[0]
                known = const_value(size)
                storages[node_id(binding.var)] = PlannedStorage(
                    size if known is None else int(known)
                )
            elif name == "relax.memory.alloc_tensor":
                places[node_id(binding.var)] = storages[node_id(value.args[0])]
            elif isinstance(value.op, GlobalVar):
                step = next(calls)
                written = [places.pop(node_id(arg)) for arg in value.args if node_id(arg) in places]
                for storage, tensor in zip(written, _names(step, len(written)), strict=True):
                    storage.tensors.append(tensor)
    return list(storages.values())


def _names(step: Step, count: int) -> list[str]:
    names = [str(tensor.op.name) for tensor in step.launch.outputs]
    return names if len(names) == count else [step.kernel.name] * count
