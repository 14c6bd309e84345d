"""Gradients of Relax operators, derived from what their own legalisers compute.

TVM's legaliser turns an operator into te, which is differentiated. The cotangents of its arguments
become calls of functions. No operator has its own rule here.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, relax

from ...errors import InvalidArgumentError, NotDifferentiableError
from ...expr.nodes import Tensor, is_tensor, tensor_key
from ...keywords import checked_keywords
from .operator_call import traced_call
from .pullback import pull_back
from .trace import Opaque, Value, holds_floats

_LEGALISER, _GRADIENT = "FLegalize", "FPrimalGradient"
_LEVEL = 10  #: the priority of TVM's own gradients; one that replaces it has a higher one
#: operators that `relax.transform.Gradient` itself reads
_MARKS = ("relax.grad.no_grad", "relax.grad.start_checkpoint", "relax.grad.end_checkpoint")


def operators() -> list[str]:
    """All operators of Relax."""
    return sorted(str(name) for name in ir.Op.list_op_names() if name.startswith("relax."))


def has_legaliser(name: str) -> bool:
    """Whether TVM has functions for an operator."""
    return ir.Op.get(name).get_attr(_LEGALISER) is not None


def gradient_of(name: str) -> Callable[..., Any] | None:
    """The gradient that `relax.transform.Gradient` takes for an operator."""
    return ir.Op.get(name).get_attr(_GRADIENT)


def derived_gradient(var: Any, call: Any, cotangent: Any, builder: Any) -> list[Any]:
    """The cotangents of the arguments of a call.

    Parameters
    ----------
    var : Var
        The variable of the call's result.
    call : Call
        A call of an operator that has a legaliser.
    cotangent : Var
        The cotangent of the result, which is a tuple for a tuple.
    builder : BlockBuilder
        The builder of the function that `relax.transform.Gradient` writes.

    Raises
    ------
    NotDifferentiableError
        If the legaliser calls a function that was not made from te, or a derivative is missing.
    """
    name = str(call.op.name)
    if not holds_floats(var.ty):
        return [relax.op.grad.no_grad(arg) for arg in call.args]
    traced = traced_call(call)
    if isinstance(traced, Opaque):
        raise NotDifferentiableError(
            f"{name} has no gradient: {traced.reason}. Give one to "
            f"tvm.relax.op.base.register_gradient({name!r}, ...)"
        )
    pairs = list(_pairs(traced.arguments, call.args))
    inputs = [*pairs, *traced.constants]
    title = _function_name(name)
    found = pull_back(builder, inputs, traced.results, var, cotangent, title, traced.sizes)
    known = {tensor_key(tensor): one for (tensor, _), one in zip(inputs, found, strict=True)}
    return [_cotangent(*pair, known) for pair in zip(traced.arguments, call.args, strict=True)]


def _pairs(stands: Sequence[Value], args: Sequence[Any]) -> Iterator[tuple[Tensor, Any]]:
    """The placeholders in arguments, and their expressions."""
    for stand, arg in zip(stands, args, strict=True):
        if isinstance(stand, tuple):
            yield from _pairs(stand, [_field(arg, n) for n in range(len(stand))])
        elif stand is not None:
            yield stand, arg


def _field(whole: Any, n: int) -> Any:
    return whole.fields[n] if isinstance(whole, relax.Tuple) else relax.TupleGetItem(whole, n)


def _cotangent(stand: Value, arg: Any, known: Mapping[tuple[int, int], Any]) -> Any:
    """The cotangent of an argument, which `no_grad` marks as having none."""
    if isinstance(stand, tuple) and any(one is not None for one in stand):
        return relax.Tuple([_cotangent(one, _field(arg, n), known) for n, one in enumerate(stand)])
    found = known[tensor_key(stand)] if is_tensor(stand) else None
    return relax.op.grad.no_grad(arg) if found is None else found


def _function_name(operator: str) -> str:
    """``relax.nn.conv1d → conv1d_gradient``."""
    return f"{operator.rpartition('.')[2]}_gradient"


#: a marker object of derived gradients
_DERIVED = tvm_ffi.convert(derived_gradient)


def is_derived(name: str) -> bool:
    """Whether the gradient of an operator is the derived one."""
    return bool(gradient_of(name) == _DERIVED)


@checked_keywords
def register_gradients(
    only: Iterable[str] | None = None, *, override: bool = False
) -> tuple[str, ...]:
    """Register gradients with `relax.transform.Gradient` for operators that have none in TVM.

    The gradients are derived: the legaliser of an operator computes it in te, which is
    differentiated. A call whose legaliser calls anything else raises an error when it is
    differentiated.

    Parameters
    ----------
    only : sequence of str, optional
        The operators to register, such as ``"relax.erf"`` or ``"erf"``. By default, all that have a
        legaliser.
    override : bool
        Whether a derived gradient replaces one that TVM has. Some of TVM's fail: see
        docs/reference/relax_operators.md.

    Returns
    -------
    tuple of str
        The operators whose gradient is now derived. A second call changes nothing.

    Raises
    ------
    InvalidArgumentError
        If an operator is unknown, or has no legaliser.

    Examples
    --------
    >>> from tvm_autodiff.interop.relax import register_gradients
    >>> register_gradients(["erf", "nn.layer_norm"])
    ('relax.erf', 'relax.nn.layer_norm')
    """
    if isinstance(only, str) or not isinstance(only, Iterable | None):
        raise InvalidArgumentError(f"only must be a list of names of operators, got {only!r}")
    names = operators() if only is None else [_known_operator(str(name)) for name in only]
    return tuple(name for name in names if _registered(name, override))


def _registered(name: str, override: bool) -> bool:
    """Register the derived gradient of an operator, and return whether it has it now."""
    if is_derived(name):
        return True
    present = gradient_of(name)
    if not has_legaliser(name) or name in _MARKS or (present is not None and not override):
        return False
    ir.register_op_attr(name, _GRADIENT, _DERIVED, _LEVEL + (present is not None))
    return True


def _known_operator(name: str) -> str:
    """The full name of an operator that has a legaliser."""
    known = operators()
    full = name if name.startswith("relax.") else f"relax.{name}"
    if full not in known:
        close = difflib.get_close_matches(full, known, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InvalidArgumentError(f"only: TVM has no operator {full}{hint}")
    if not has_legaliser(full):
        raise InvalidArgumentError(
            f"only: {full} has no legaliser to derive a gradient from; give one to "
            f"tvm.relax.op.base.register_gradient({full!r}, ...)"
        )
    return full
