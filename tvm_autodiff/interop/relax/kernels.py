"""Emits te tensors as calls of scheduled kernels in a Relax function, with notes about the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from ...codegen.deep import run_deep
from ...codegen.stages.primfunc import StageFunction
from ...codegen.stages.sizes import known_sizes
from ...compile.request import request_of
from ...expr.nodes import Tensor, Var, dtype_of, node_id, tensor_key
from ...graph.free_variables import free_variables
from ...graph.graph import topological
from ...graph.stage import is_placeholder, shape_of
from ...schedule.backends import rules_for
from ...schedule.compilation import compiled
from ...schedule.emit.names import identifier
from ...schedule.emit.program import function_alone
from ...schedule.emit.updates import Step
from ...schedule.machine import Machine
from ...schedule.plan import Plan
from ...zero_elimination.passes.reductions import solve_masks
from .sizes import Sizes
from .trace import shape_of_expr

#: the attributes that prevent TVM from rescheduling a function, and from fusing it with others
_SCHEDULED = {"tirx.is_scheduled": True, "op_pattern": 8}


@dataclass(frozen=True)
class KernelNote:
    """A kernel: the name of its function, the rule that scheduled it, and why no faster rule
    applies.
    """

    name: str
    rule: str
    reasons: tuple[str, ...]


def emit_kernels(
    builder: Any,
    outputs: Sequence[Tensor],
    expression_of: Callable[[Tensor], Any],
    machine: Machine,
    others: Sequence[Tensor] = (),
) -> tuple[list[Any], list[KernelNote]]:
    """The values of computed tensors, by scheduled kernels.

    Parameters
    ----------
    builder : BlockBuilder
        A builder inside a function.
    outputs : sequence of Tensor
    expression_of : callable
        Returns the Relax expression of a placeholder that they read.
    machine : Machine
    others : sequence of Tensor, optional
        Further placeholders, for sizes that are not a dimension of one that is read.

    Raises
    ------
    LoweringError
        If a tensor cannot be lowered, or TVM compiles no schedule of it.
    """
    inputs = _with_sizes(outputs, others)
    expressions = [expression_of(tensor) for tensor in inputs]
    request = request_of(inputs, list(outputs))
    plan = run_deep(
        lambda: Plan(
            request.inputs,
            solve_masks(request.outputs),
            (),
            machine,
            rules_for(machine),
            solve_masks,
        )
    )
    # compiled to see what TVM refuses: then another rule schedules it
    program = run_deep(compiled, plan, direct=False).program
    pairs = list(zip(request.inputs, expressions, strict=True))
    sizes = Sizes.matching([(tensor, shape_of_expr(expr)) for tensor, expr in pairs])
    values = {tensor_key(tensor): expr for tensor, expr in pairs}
    notes = []
    for step in program.steps:
        name = _emit_step(builder, step, values, sizes)
        notes.append(KernelNote(name, step.rule, step.reasons))
    return [values[tensor_key(result)] for result in plan.results], notes


def _with_sizes(outputs: Sequence[Tensor], others: Sequence[Tensor]) -> list[Tensor]:
    """The placeholders that tensors read, and those of `others` that have the other sizes."""
    ops = topological(outputs)
    found = [op.output(0) for op in ops if is_placeholder(op)]
    known = {node_id(var) for var in known_sizes(found)}
    for var in [var for op in ops for var in free_variables(op)]:
        if node_id(var) in known:
            continue
        carrier = next((one for one in others if _has_dimension(one, var)), None)
        if carrier is not None:
            found.append(carrier)
            known |= {node_id(one) for one in known_sizes([carrier])}
    return found


def _has_dimension(tensor: Tensor, var: Var) -> bool:
    return any(
        not isinstance(dim, int) and node_id(dim) == node_id(var) for dim in shape_of(tensor)
    )


def _emit_step(builder: Any, step: Step, values: dict[tuple[int, int], Any], sizes: Sizes) -> str:
    """Call the function of a launch, and return its name in the module."""
    launch: StageFunction = step.launch
    func = function_alone(launch).without_attr("global_symbol").with_attrs(_SCHEDULED)
    called = builder.add_func(func, identifier(step.kernel.name))
    arguments = [values[tensor_key(tensor)] for tensor in launch.inputs]
    types = [relax.TensorType(sizes.shape(one), dtype_of(one)) for one in launch.outputs]
    call = relax.op.call_tir(called, arguments, types[0] if len(types) == 1 else types)
    value = builder.emit(call)
    for number, tensor in enumerate(launch.outputs):
        part = value if len(types) == 1 else builder.emit(relax.TupleGetItem(value, number))
        values[tensor_key(tensor)] = part
    return str(called.name_hint)
