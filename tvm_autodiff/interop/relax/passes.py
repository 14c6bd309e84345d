"""Passes over modules: functions that came from te made differentiable, and made plain again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...errors import InvalidArgumentError
from .te_gradient import recovered_gradient


@mutator
class _Calls(PyExprMutator):
    """Rewrites calls of operators by their names."""

    def __init__(self, module: Any, rules: dict[str, Callable[[Any], Any]]) -> None:
        super().__init__(module)
        self._rules = rules

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        rule = self._rules.get(str(getattr(call.op, "name", "")))
        return call if rule is None else rule(call)


def differentiable(module: Any) -> Any:
    """Let `relax.transform.Gradient` differentiate the calls of functions that came from te.

    ``call_tir(f, x) → call_tir_with_grad(f, x)``: the function is read back as te when a gradient
    goes through the call. One that did not come from te raises a `NotDifferentiableError` then.

    Parameters
    ----------
    module : IRModule

    Returns
    -------
    IRModule
        `clean` turns the calls that are left into what they were.

    Examples
    --------
    >>> from tvm import relax, topi
    >>> from tvm_autodiff.interop.relax import differentiable
    >>> builder = relax.BlockBuilder()
    >>> x = relax.Var("x", relax.TensorType((4,), "float32"))
    >>> with builder.function("main", [x]):
    ...     with builder.dataflow():
    ...         y = builder.emit_te(topi.erf, x)  # a plain call_tir
    ...         loss = builder.emit_output(relax.op.sum(y))
    ...     _ = builder.emit_func_output(loss)
    >>> module = relax.transform.Gradient("main")(differentiable(builder.get()))
    >>> sorted(f.name_hint for f in module.functions)
    ['erf', 'erf_gradient', 'main', 'main_adjoint']
    """

    def with_gradient(call: Any) -> Any:
        name = recovered_gradient()
        return relax.op.call_tir_with_grad(call.args[0], call.args[1], _types(call), name)

    return _rewritten(module, {"relax.call_tir": with_gradient}, "differentiable")


def clean(module: Any) -> Any:
    """Make calls plain that a gradient has gone through: no pipeline of TVM lowers them.

    ``call_tir_with_grad(f, x) → call_tir(f, x)``, in all functions of a module.

    Parameters
    ----------
    module : IRModule

    Returns
    -------
    IRModule
    """

    def plain(call: Any) -> Any:
        return relax.op.call_tir(call.args[0], call.args[1], _types(call))

    return _rewritten(module, {"relax.call_tir_with_grad": plain}, "clean")


def _types(call: Any) -> list[Any]:
    """The types of the results of a call."""
    [type_] = call.ty_args
    return list(type_.fields) if isinstance(type_, relax.TupleType) else [type_]


def _rewritten(module: Any, rules: dict[str, Callable[[Any], Any]], what: str) -> Any:
    if not isinstance(module, ir.IRModule):
        raise InvalidArgumentError(f"{what} takes an IRModule, got {type(module).__name__}")
    fresh = ir.IRModule(module.functions, attrs=module.attrs)
    for var, function in module.functions_items():
        if isinstance(function, relax.Function):
            fresh[var] = _Calls(module, rules).visit_expr(function)
    return fresh
