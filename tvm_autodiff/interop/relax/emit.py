"""Emits te tensors as calls in a Relax function.

Tensors that share stages become one function. The others become separate functions, so that Relax
removes those whose results are unused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm import relax

from ...codegen.deep import run_deep
from ...codegen.stages.kept_stages import keeping_stages
from ...codegen.stages.primfunc import StageFunction, stage_function
from ...codegen.stages.recovered import UnrecoveredError, recovered
from ...codegen.stages.sizes import with_plain_sizes
from ...expr.nodes import Tensor, dtype_of, tensor_key
from ...graph.graph import topological
from ...graph.kinds.custom import without_rules
from ...graph.stage import is_placeholder
from ...schedule.rewrites.normal_form import normal_form
from ...zero_elimination.passes.reductions import solve_masks
from .sizes import Sizes

Given = Mapping[tuple[int, int], Any]  #: placeholders, by their keys, as Relax expressions


def emit_tensors(
    builder: Any, outputs: Sequence[Tensor], given: Given, name: str, sizes: Sizes
) -> list[Any]:
    """The values of tensors, computed by functions whose names start with `name`.

    Parameters
    ----------
    builder : BlockBuilder
        A builder inside a function.
    outputs : sequence of Tensor
    given : mapping
        The Relax expression of each placeholder that they read.
    name : str
    sizes : Sizes
        The sizes of the function, and the variables of the tensors.
    """
    found: dict[tuple[int, int], Any] = {
        tensor_key(tensor): given[tensor_key(tensor)]
        for tensor in outputs
        if is_placeholder(tensor.op)
    }
    computed = [tensor for tensor in outputs if not is_placeholder(tensor.op)]
    for group in sharing(computed):
        launch = run_deep(function_of, group)
        values = _call(builder, launch, given, name, sizes)
        found |= {tensor_key(old): value for old, value in zip(group, values, strict=True)}
    return [found[tensor_key(tensor)] for tensor in outputs]


def function_of(outputs: Sequence[Tensor]) -> StageFunction:
    """The unscheduled function of tensors, in the form that TVM lowers correctly."""
    plain = without_rules(list(outputs))
    inputs = [op.output(0) for op in topological(plain) if is_placeholder(op)]
    moved, sized = with_plain_sizes(inputs, plain)
    results = normal_form(solve_masks(sized))
    ops = [op for op in topological(results) if not is_placeholder(op)]
    launch = readable(stage_function(ops, results, wide=True))
    old = {tensor_key(new): tensor for new, tensor in zip(moved, inputs, strict=True)}
    read = tuple(old[tensor_key(tensor)] for tensor in launch.inputs)
    return replace(launch, inputs=read, outputs=tuple(plain))


def readable(launch: StageFunction) -> StageFunction:
    """The function of some stages, with the stages as text if its blocks do not determine them."""
    try:
        recovered(launch.func, [*launch.inputs, *launch.scalars])
    except UnrecoveredError:
        return keeping_stages(launch)
    return launch


def sharing(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Groups of tensors, in order; tensors that need the same computed stage are in one group."""
    groups: list[tuple[list[Tensor], set[int]]] = []
    for tensor in tensors:
        needed = {hash(op) for op in topological([tensor]) if not is_placeholder(op)}
        members = [tensor]
        apart = []
        for group, stages in groups:
            if stages & needed:
                members, needed = [*group, *members], needed | stages
            else:
                apart.append((group, stages))
        groups = [*apart, (members, needed)]
    return [members for members, _ in groups]


def tensor_type(tensor: Tensor, sizes: Sizes) -> Any:
    """The type of the values of a tensor."""
    return relax.TensorType(sizes.shape(tensor), dtype_of(tensor))


def _call(builder: Any, launch: StageFunction, given: Given, name: str, sizes: Sizes) -> list[Any]:
    """The results of a function that is called with the values of its inputs."""
    called = builder.add_func(launch.func, name)
    arguments = [given[tensor_key(tensor)] for tensor in launch.inputs]
    arguments += [sizes.outer(var) for var in launch.scalars]
    types = [tensor_type(tensor, sizes) for tensor in launch.outputs]
    if len(types) == 1:
        return [builder.emit(relax.op.call_tir(called, arguments, types[0]))]
    whole = builder.emit(relax.op.call_tir(called, arguments, types))
    return [builder.emit(relax.TupleGetItem(whole, n)) for n in range(len(types))]
