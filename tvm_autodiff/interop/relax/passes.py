"""Module passes that make calls of te functions differentiable, and plain again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...errors import InvalidArgumentError
from ...expr.nodes import const_value
from .size_arguments import sizes_from_shapes
from .te_gradient import recovered_gradient

#: maps a block builder, a call, and the parameters of its function to the replacement
Rule = Callable[[Any, Any, Sequence[Any]], Any]


@mutator
class _Calls(PyExprMutator):
    """Rewrites calls."""

    def __init__(self, module: Any, rule: Rule) -> None:
        super().__init__(module)
        self._rule = rule
        self._params: list[Any] = []

    def visit_function_(self, function: Any) -> Any:
        self._params = list(function.params)
        return self.visit_expr_post_order(function)

    def visit_call_(self, call: Any) -> Any:
        return self._rule(self.builder_, self.visit_expr_post_order(call), self._params)


def differentiable(module: Any) -> Any:
    """Make calls of functions that were made from te differentiable by `relax.transform.Gradient`.

    ``call_tir(f, x) → call_tir_with_grad(f, x)``: the function is read back as te when the call is
    differentiated. A function that was not made from te then raises a `NotDifferentiableError`.
    Operators with symbolic sizes in their arguments become such calls as well: ``reshape(x, (n, 4))
    → call_tir_with_grad(reshape, x)``. `relax.transform.Gradient` of TVM 0.27 finds no binding of
    such a size and fails with a KeyError.

    Parameters
    ----------
    module : IRModule

    Returns
    -------
    IRModule
        The module. `clean` turns the remaining calls back into plain ones.

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

    _check_module(module, "differentiable")
    return _rewritten(_rewritten(module, _without_shapes), _with_gradient)


def clean(module: Any) -> Any:
    """Turn differentiated calls back into plain ones, because TVM's pipelines cannot lower them.

    ``call_tir_with_grad(f, x) → call_tir(f, x)``, in all functions of a module.

    Parameters
    ----------
    module : IRModule

    Returns
    -------
    IRModule

    Examples
    --------
    >>> from tvm import relax, topi
    >>> from tvm_autodiff.interop.relax import clean, differentiable
    >>> builder = relax.BlockBuilder()
    >>> x = relax.Var("x", relax.TensorType((4,), "float32"))
    >>> with builder.function("main", [x]):
    ...     with builder.dataflow():
    ...         y = builder.emit_output(builder.emit_te(topi.erf, x))
    ...     _ = builder.emit_func_output(y)
    >>> module = differentiable(builder.get())
    >>> "call_tir_with_grad" in str(module), "call_tir_with_grad" in str(clean(module))
    (True, False)
    """

    _check_module(module, "clean")
    return _rewritten(module, _plain)


def _with_gradient(builder: Any, call: Any, params: Sequence[Any]) -> Any:
    if _operator(call) != "relax.call_tir":
        return call
    called, arguments = sizes_from_shapes(builder, call, params).args
    return relax.op.call_tir_with_grad(called, arguments, _types(call), recovered_gradient())


def _plain(_: Any, call: Any, __: Sequence[Any]) -> Any:
    if _operator(call) != "relax.call_tir_with_grad":
        return call
    return relax.op.call_tir(call.args[0], call.args[1], _types(call))


def _without_shapes(builder: Any, call: Any, _: Sequence[Any]) -> Any:
    """``reshape(x, (n, 4)) → call_tir(reshape, x)``, by the operator's legaliser."""
    if not isinstance(call.op, ir.Op) or not any(map(_holds_sizes, call.args)):
        return call
    legalise = call.op.get_attr("FLegalize")
    return call if legalise is None else legalise(builder, builder.normalize(call))


def _holds_sizes(argument: Any) -> bool:
    """Whether an argument is a shape with a non-constant size."""
    if not isinstance(argument, relax.ShapeExpr):
        return False
    return any(const_value(dim) is None for dim in argument.values)


def _operator(call: Any) -> str:
    """The name of the called operator, or an empty string for a call of a function."""
    return str(call.op.name) if isinstance(call.op, ir.Op) else ""


def _types(call: Any) -> list[Any]:
    """The types of the results of a call."""
    [type_] = call.ty_args
    return list(type_.fields) if isinstance(type_, relax.TupleType) else [type_]


def _check_module(module: Any, what: str) -> None:
    if not isinstance(module, ir.IRModule):
        raise InvalidArgumentError(f"{what} takes an IRModule, got {type(module).__name__}")


def _rewritten(module: Any, rule: Rule) -> Any:
    """A module with a rule applied to the calls in its Relax functions."""
    calls = _Calls(module, rule)
    for var, function in module.functions_items():
        if isinstance(function, relax.Function):
            calls.builder_.update_func(var, calls.visit_expr(function))
    return ir.IRModule(calls.builder_.get().functions, attrs=module.attrs)
