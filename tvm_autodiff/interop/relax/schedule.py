"""`schedule`: replaces te functions of a Relax module by this library's kernels.

Consecutive te calls become one te program, which the library's own fusion cuts into kernels;
repeated computations are done once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...codegen.modules import compiled_module
from ...errors import InvalidArgumentError, LoweringError
from ...expr.nodes import Tensor, is_tensor, tensor_key
from ...graph.stage import is_placeholder
from ...keywords import checked_keywords
from ...runtime.threads import check_threads
from ...schedule.backends import pipelines_for
from ...schedule.machine import Machine, as_target, machine_of
from .kernels import KernelNote, emit_kernels
from .passes import clean
from .trace import Opaque, Trace, Value, leaves

_NOTES = "tvm_autodiff.schedule"  #: the attribute of a module that holds the text of `explain`


@checked_keywords
def schedule(
    module: Any, target: Any = None, *, num_threads: int | None = None, exact_math: bool = False
) -> Any:
    """Schedule the te functions of a module with this library's kernels.

    Operators are legalised first. Calls of functions that were not made from te, and everything
    else that is not te, are unchanged; `explain` lists them with the reason. Run this pass last.
    `build` compiles the module, or ``tvm.compile(..., tir_pipeline="tvm_autodiff")`` for the same
    CPU; only `build` also sets the options without which LLVM 22 compiles some numbers of 16 bits
    wrongly.

    Parameters
    ----------
    module : IRModule
        The module, before or after ``LegalizeOps``.
    target, num_threads, exact_math
        As in `tvm_autodiff.build`.

    Returns
    -------
    IRModule

    Raises
    ------
    InvalidArgumentError
        If it is not a module.

    Examples
    --------
    >>> from tvm import relax
    >>> from tvm_autodiff.interop.relax import explain, schedule
    >>> builder = relax.BlockBuilder()
    >>> x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    >>> with builder.function("main", [x]):
    ...     with builder.dataflow():
    ...         y = builder.emit_output(relax.op.nn.relu(relax.op.nn.softmax(x)))
    ...     _ = builder.emit_func_output(y)
    >>> print(explain(schedule(builder.get(), "llvm")))
    main: 1 kernel for 2 calls
      T_softmax_maxelem_T_softmax_exp_T_softmax_expsum_compute: fused_rows
    """
    if not isinstance(module, ir.IRModule):
        raise InvalidArgumentError(f"schedule takes an IRModule, got {type(module).__name__}")
    machine = machine_of(as_target(target), check_threads(num_threads))
    machine = replace(machine, exact_math=exact_math)
    with machine.target:
        legal = relax.transform.LegalizeOps()(clean(module))
    notes: list[str] = []
    scheduler = _Scheduler(legal, machine)
    for var, function in sorted(legal.functions_items(), key=lambda pair: str(pair[0].name_hint)):
        if isinstance(function, relax.Function):
            scheduler.start(function.params)
            new = scheduler.visit_expr(function)
            scheduler.builder_.update_func(var, new)
            notes += scheduler.report.lines(str(var.name_hint))
    done = relax.transform.DeadCodeElimination()(scheduler.builder_.get())
    done = ir.IRModule(done.functions, attrs=legal.attrs)
    return done.with_attr(_NOTES, "\n".join(notes))


@checked_keywords
def build(
    module: Any, target: Any = None, *, num_threads: int | None = None, exact_math: bool = False
) -> Any:
    """Compile a module with the kernels of this library.

    Parameters
    ----------
    module : IRModule
        A module as in `schedule`, or a result of it.
    target, num_threads, exact_math
        As in `schedule`.

    Returns
    -------
    VMExecutable
        An executable for ``tvm.relax.VirtualMachine`` and ``tvm.relax.training.Trainer``.

    Raises
    ------
    InvalidArgumentError
        If it is not a module.

    Examples
    --------
    >>> import numpy as np
    >>> import tvm
    >>> from tvm import relax
    >>> from tvm_autodiff.interop.relax import build
    >>> builder = relax.BlockBuilder()
    >>> x = relax.Var("x", relax.TensorType((4,), "float32"))
    >>> with builder.function("main", [x]):
    ...     with builder.dataflow():
    ...         y = builder.emit_output(relax.op.add(x, x))
    ...     _ = builder.emit_func_output(y)
    >>> vm = relax.VirtualMachine(build(builder.get()), tvm.cpu())
    >>> vm["main"](tvm.runtime.tensor(np.arange(4, dtype="float32"))).numpy()
    array([0., 2., 4., 6.], dtype=float32)
    """
    done = module
    if not _is_scheduled(module):
        done = schedule(module, target, num_threads=num_threads, exact_math=exact_math)
    machine = machine_of(as_target(target), check_threads(num_threads))
    return compiled_module(done, machine.target, *pipelines_for(machine))


def _is_scheduled(module: Any) -> bool:
    return isinstance(module, ir.IRModule) and bool(module.attrs) and _NOTES in module.attrs


def explain(module: Any) -> str:
    """The report of `schedule`: for each function its kernels and the calls left to TVM.

    Each kernel is listed with its rule and why no faster rule applies, and each remaining call with
    the reason.

    Parameters
    ----------
    module : IRModule
        A result of `schedule`.

    Returns
    -------
    str
        The report.

    Raises
    ------
    InvalidArgumentError
        If it is not such a module.

    Examples
    --------
    >>> from tvm import relax
    >>> from tvm_autodiff.interop.relax import explain, schedule
    >>> builder = relax.BlockBuilder()
    >>> x = relax.Var("x", relax.TensorType((4,), "float32"))
    >>> with builder.function("main", [x]):
    ...     with builder.dataflow():
    ...         y = builder.emit_output(relax.op.nn.relu(x))
    ...     _ = builder.emit_func_output(y)
    >>> print(explain(schedule(builder.get(), "llvm")).splitlines()[0])
    main: 1 kernel for 1 call
    """
    if not _is_scheduled(module):
        raise InvalidArgumentError("explain takes the module that schedule returns")
    return str(module.attrs[_NOTES])


@dataclass
class _Report:
    """The report about a function."""

    calls: int = 0
    kernels: list[KernelNote] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)

    def lines(self, name: str) -> list[str]:
        """Lines of text."""
        kernels = f"{len(self.kernels)} kernel{'s' * (len(self.kernels) != 1)}"
        found = [f"{name}: {kernels} for {self.calls} call{'s' * (self.calls != 1)}"]
        for one in self.kernels:
            because = f" ({'; '.join(one.reasons)})" if one.reasons else ""
            found.append(f"  {one.name}: {one.rule}{because}")
        found += [f"  left to TVM: {what}: {why}" for what, why in self.left]
        return found


@mutator
class _Scheduler(PyExprMutator):
    """Rewrites the dataflow blocks of functions."""

    def __init__(self, module: Any, machine: Machine) -> None:
        super().__init__(module)
        self._module, self._machine = module, machine
        self.start()

    def start(self, params: Sequence[Any] = ()) -> None:
        """Start another function."""
        self._trace = Trace(self._module)
        for param in params:
            self._trace.value(param)  # an input, which may have a size that others need
        self._pending: list[Any] = []
        self.report = _Report()

    def visit_dataflow_block_(self, block: Any) -> Any:
        """Rewrite a block."""
        self.builder_._begin_dataflow_block()
        bindings = list(block.bindings)
        for number, binding in enumerate(bindings):
            value = self._trace.bind(binding)
            opaque = next((one for one in leaves(value) if isinstance(one, Opaque)), None)
            if opaque is None:
                self._pending.append(binding)
                continue
            self._flush(bindings[number:])
            self._trace.forget(binding.var)
            self._told(binding, opaque)
            self.visit_binding(binding)
        self._flush([])
        return self.builder_._end_block()

    def _told(self, binding: Any, opaque: Opaque) -> None:
        """Report a call that is left unchanged."""
        if isinstance(binding, relax.VarBinding) and isinstance(binding.value, ir.Call):
            self.report.calls += 1
            self.report.left.append((str(binding.var.name), opaque.reason))

    def _flush(self, rest: Sequence[Any]) -> None:
        """Emit what was computed as te since the last flush; `rest` is read later."""
        pending, self._pending = self._pending, []
        read = _variables_read(rest)
        wanted = [
            binding.var
            for binding in pending
            if not isinstance(binding.var, relax.DataflowVar) or binding.var in read
        ]
        values = {var: self._trace.known(var) for var in wanted}
        tensors: dict[tuple[int, int], Tensor] = {
            tensor_key(one): one
            for value in values.values()
            for one in leaves(value)
            if is_tensor(one) and not is_placeholder(one.op)
        }
        calls = sum(isinstance(binding.value, ir.Call) for binding in pending)
        emitted: list[Any] = []
        kernels: list[KernelNote] = []
        try:
            if tensors:
                emitted, kernels = emit_kernels(
                    self.builder_,
                    list(tensors.values()),
                    self._expression,
                    self._machine,
                    [tensor for tensor, _ in self._trace.inputs],
                )
        except LoweringError as error:
            self.report.left += [(str(var.name), str(error)) for var in wanted]
            self.report.calls += calls
            for binding in pending:
                self._trace.forget(binding.var)
                self.visit_binding(binding)
            return
        self.report.calls += calls
        self.report.kernels += kernels
        found = dict(zip(tensors, emitted, strict=True))
        for var, value in values.items():
            expr = self._of(value, found)
            output = not isinstance(var, relax.DataflowVar)
            new = self.builder_.emit_output(expr) if output else self.builder_.emit(expr)
            self.set_var_remap(var, new)
            self._trace.forget(var)

    def _expression(self, tensor: Tensor) -> Any:
        """The expression of a placeholder in the written function."""
        return self.visit_expr(self._trace.expression(tensor))

    def _of(self, value: Value, found: Mapping[tuple[int, int], Any]) -> Any:
        """The Relax expression of a value."""
        if isinstance(value, tuple):
            return relax.Tuple([self._of(one, found) for one in value])
        if not is_tensor(value):
            return self._trace.sizes.outer(value)
        known = found.get(tensor_key(value))
        return self._expression(value) if known is None else known


def _variables_read(bindings: Sequence[Any]) -> set[Any]:
    """The variables that bindings read."""
    found: set[Any] = set()

    def visit(node: Any) -> None:
        if isinstance(node, relax.Var):
            found.add(node)

    for binding in bindings:
        relax.analysis.post_order_visit(binding.value, visit)
    return found
