"""From tensors to a callable: `lower`, `build` and `load`.

In: te tensors, the placeholders that they read, and a target. Out: a scheduled IRModule, or a
compiled function that is called with arrays. The steps are those of `schedule`: normal form,
kernels, one rule for each kernel, one module; here arguments are checked and TVM's compiler is
called.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import te

from .errors import AutodiffError, InvalidArgumentError, LoweringError
from .ir.deep import run_deep
from .ir.graph import Graph
from .ir.nodes import Tensor, const_value, dtype_of, node_id, op_name, operands
from .ir.primfunc import external_symbols, free_variables
from .ir.stage import is_placeholder, is_scan, shape_of, tensor_key
from .runtime.compiled import CompiledFunction, check_threads, load
from .runtime.device import DeviceFunction
from .runtime.signature import DIM_OPERATORS, Dim, Signature, TensorSpec
from .schedule.backends import finished, relax_pipeline_for, rules_for
from .schedule.kernels import Kernel, cut
from .schedule.machine import Machine, as_target, machine_of
from .schedule.normal_form import normal_form
from .schedule.program import Program, assemble
from .schedule.rule import Rule, apply_rules
from .schedule.updates import Step

__all__ = ["build", "load", "lower"]

Tensors = Tensor | Sequence[Tensor]


def lower(
    inputs: Tensors, outputs: Tensors, target: Any = None, *, exact_math: bool = False
) -> tvm.IRModule:
    """Lower tensors to a scheduled module.

    Parameters
    ----------
    inputs : Tensor or sequence of Tensor
        The placeholders that the outputs read, in the order of the parameters.
    outputs : Tensor or sequence of Tensor
        The tensors to compute.
    target : optional
        An LLVM or a CUDA target; None is this host's CPU with its features, ``"cuda"`` this
        machine's GPU (sm_90 where there is none).
    exact_math : bool
        As of `build`.

    Returns
    -------
    IRModule
        Its ``main`` takes the inputs and then the outputs, and writes these: a PrimFunc when there
        is one kernel, else a Relax function that calls the kernels.

    Raises
    ------
    InvalidArgumentError
        An argument is no tensor, occurs twice, or is an input and an output at once.
    LoweringError
        A placeholder is missing or not used, a variable is free, a stage is a te.scan.

    Examples
    --------
    >>> from tvm import te
    >>> A = te.placeholder((4,), name="A")
    >>> module = lower(A, te.compute((4,), lambda i: A[i] + 1.0, name="B"))
    >>> [var.name_hint for var in module.get_global_vars()]
    ['main']
    """
    machine = replace(machine_of(as_target(target), check_threads(None)), exact_math=exact_math)
    program, _ = _program(inputs, outputs, machine)
    return program.module


def build(
    inputs: Tensors,
    outputs: Tensors,
    target: Any = None,
    *,
    num_threads: int | None = None,
    exact_math: bool = False,
) -> CompiledFunction:
    """Compile tensors into a function of arrays.

    Parameters
    ----------
    inputs : Tensor or sequence of Tensor
        The placeholders that the outputs read, in the order of the arguments.
    outputs : Tensor or sequence of Tensor
        What a call returns: a list for a sequence, one array for a single tensor.
    target : optional
        An LLVM or a CUDA target; None is this host's CPU with its features, ``"cuda"`` this
        machine's GPU (sm_90 where there is none).
    num_threads : int, optional
        CPU threads to use; None is all that this process may use.
    exact_math : bool
        Whether exp, log, tanh and the like of float32 are the C library's on a CPU. By default they
        are computed by arithmetic that vectorises, with an error of a few units in the last place
        (the table is in docs/performance.md) and with C's results for zeros, infinities and NaN.

    Returns
    -------
    CompiledFunction

    Raises
    ------
    InvalidArgumentError
        An argument is no tensor, occurs twice, or is an input and an output at once.
    LoweringError
        A placeholder is missing or not used, a variable is free, a stage is a te.scan.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm import te
    >>> A = te.placeholder((4,), name="A")
    >>> double = build(A, te.compute((4,), lambda i: A[i] * 2.0, name="B"))
    >>> double(np.arange(4, dtype="float32"))
    array([0., 2., 4., 6.], dtype=float32)
    """
    threads = check_threads(num_threads)
    tvm_target = as_target(target)
    machine = replace(machine_of(tvm_target, threads), exact_math=exact_math)
    program, signature, executable = _compiled(inputs, outputs, machine)
    function = DeviceFunction if machine.kind == "cuda" else CompiledFunction
    return function(executable, signature, threads, uses_vm=program.uses_vm, parallel=threads > 1)


def _compiled(
    inputs: Tensors, outputs: Tensors, machine: Machine
) -> tuple[Program, Signature, Any]:
    def attempt(rules: Sequence[Rule]) -> tuple[Program, Signature, Any]:
        program, signature = _program(inputs, outputs, machine, rules)
        pipeline = relax_pipeline_for(machine)
        executable = run_deep(
            tvm.compile, program.module, target=machine.target, relax_pipeline=pipeline
        )
        return program, signature, executable

    try:
        return attempt(rules_for(machine))
    except AutodiffError:
        raise
    except Exception as error:
        failure = error
    try:
        # what no fast schedule compiles for, the plainest may
        return attempt(rules_for(machine)[-1:])
    except Exception:
        pass
    reason = (str(failure).strip().splitlines() or ["no message"])[-1]
    names = ", ".join(tensor.op.name for tensor in _tensors(outputs, "outputs"))
    raise LoweringError(
        f"TVM cannot compile the stages of {names} for {machine.kind}: {reason}"
    ) from failure


def _program(
    inputs: Tensors, outputs: Tensors, machine: Machine, rules: Sequence[Rule] | None = None
) -> tuple[Program, Signature]:
    input_list = _tensors(inputs, "inputs")
    output_list = _tensors(outputs, "outputs")
    if not output_list:
        raise InvalidArgumentError("outputs is empty: name at least one tensor to compute")
    _check_graph(input_list, output_list)
    signature = _signature(input_list, output_list, isinstance(outputs, te.Tensor))
    chosen = rules_for(machine) if rules is None else rules
    return run_deep(_schedule, input_list, output_list, machine, chosen), signature


def _schedule(
    inputs: list[Tensor], outputs: list[Tensor], machine: Machine, rules: Sequence[Rule]
) -> Program:
    kernels, results = cut(normal_form(outputs))
    steps = [step for kernel in kernels for step in _steps(kernel, machine, rules)]
    return assemble(steps, inputs, results)


def _steps(kernel: Kernel, machine: Machine, rules: Sequence[Rule]) -> list[Step]:
    launches, rule = apply_rules(kernel, machine, rules)
    return [Step(launch, kernel.name, rule) for launch in finished(launches, machine)]


def _tensors(value: Any, what: str) -> list[Tensor]:
    if isinstance(value, te.Tensor):
        return [value]
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise InvalidArgumentError(
            f"{what} must be a te.Tensor or a sequence of te.Tensors, got {type(value).__name__}"
        )
    tensors = list(value)
    seen: dict[tuple[int, int], int] = {}
    for number, tensor in enumerate(tensors):
        if not isinstance(tensor, te.Tensor):
            raise InvalidArgumentError(
                f"{what}[{number}] must be a te.Tensor (a te.placeholder or a te.compute), "
                f"got {type(tensor).__name__}"
            )
        first = seen.setdefault(tensor_key(tensor), number)
        if first != number:
            raise InvalidArgumentError(
                f"{what}[{number}] is tensor {tensor.op.name} again, which is {what}[{first}] "
                "already: name each tensor once"
            )
    return tensors


def _check_graph(inputs: list[Tensor], outputs: list[Tensor]) -> None:
    for tensor in inputs:
        if not is_placeholder(tensor.op):
            raise InvalidArgumentError(
                f"input {tensor.op.name} is computed from other tensors: an input must be a "
                "te.placeholder (to feed a value in its place, rebuild the graph over one)"
            )
    for tensor in outputs:
        if is_placeholder(tensor.op):
            raise InvalidArgumentError(
                f"output {tensor.op.name} is a placeholder: there is nothing to compute; "
                "drop it, or copy it with a te.compute"
            )
    graph = Graph(outputs)
    for op in graph.ops:
        if is_scan(op):
            raise LoweringError(
                f"stage {op.name} is a te.scan, which TVM cannot lower: "
                "unroll it into compute stages"
            )
    given = {tensor_key(tensor) for tensor in inputs}
    for tensor in graph.placeholders():
        if tensor_key(tensor) not in given:
            raise LoweringError(
                f"placeholder {tensor.op.name} is read by the outputs but is not among the inputs: "
                "add it to inputs"
            )
    for tensor in inputs:
        if not graph.contains(tensor):
            raise LoweringError(
                f"input {tensor.op.name} is not used by any output: drop it from inputs"
            )
    for op in graph.ops:
        for name in external_symbols(op):
            if not hasattr(ctypes.CDLL(None), name):
                raise LoweringError(
                    f"stage {op.name} calls the C function {name}, which is not loaded: "
                    "load its library first (ctypes.CDLL(path, ctypes.RTLD_GLOBAL))"
                )
    known = {
        node_id(dim)
        for tensor in inputs
        for dim in shape_of(tensor)
        if not isinstance(dim, int) and op_name(dim) == "var"
    }
    for op in graph.ops:
        for var in free_variables(op):
            if node_id(var) not in known:
                raise LoweringError(
                    f"stage {op.name} uses the variable {var.name}, which is neither an axis nor a "
                    "dimension of an input: pass its value as an input tensor of shape ()"
                )


def _signature(inputs: list[Tensor], outputs: list[Tensor], single: bool) -> Signature:
    symbols: dict[int, str] = {}

    def spec(tensor: Tensor) -> TensorSpec:
        shape = tuple(_dim(dim, symbols) for dim in shape_of(tensor))
        return TensorSpec(str(tensor.op.name), shape, dtype_of(tensor))

    return Signature(tuple(map(spec, inputs)), tuple(map(spec, outputs)), single)


def _dim(dim: Any, symbols: dict[int, str]) -> Dim:
    if isinstance(dim, int):
        return dim
    value = const_value(dim)
    if value is not None:
        return int(value)
    name = op_name(dim)
    if name == "var":
        # two variables may share a name: a second one gets a number
        if node_id(dim) not in symbols:
            taken = set(symbols.values())
            candidate, number = dim.name, 1
            while candidate in taken:
                candidate, number = f"{dim.name}_{number}", number + 1
            symbols[node_id(dim)] = candidate
        return symbols[node_id(dim)]
    if name == "cast":
        return _dim(operands(dim)[0], symbols)
    if name in DIM_OPERATORS:
        left, right = operands(dim)
        return [name, _dim(left, symbols), _dim(right, symbols)]
    raise LoweringError(f"a dimension is {dim}: only + - * // % min max of sizes are understood")
