"""Traces Relax bindings as te: the variables of a legalised function as tensors.

Each variable that te functions compute becomes a te tensor; others have a reason why they are not.
TVM's own legalisers turn operators into functions, so this file names no operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tvm import ir, relax

from ...codegen.stages.recovered import UnrecoveredError, recovered
from ...expr.nodes import FLOAT_DTYPES, Tensor, tensor_key
from ...graph.stage import placeholder
from .sizes import Sizes


@dataclass(frozen=True)
class Opaque:
    """A value that is not a te tensor, and the reason."""

    reason: str


#: the value of a variable: a tensor, one value for each field of a tuple, an integer, or opaque
Value: TypeAlias = "Tensor | Opaque | tuple[Value, ...] | Any"


def is_tensor_type(type_: Any) -> bool:
    """Whether values of a type are tensors of known shape, possibly symbolic."""
    return isinstance(type_, relax.TensorType) and isinstance(type_.shape, relax.ShapeExpr)


def dtype_of_type(type_: Any) -> str:
    """The dtype of a tensor type."""
    return str(getattr(type_.dtype, "dtype", type_.dtype))


def shape_of_expr(expr: Any) -> Sequence[Any]:
    """The shape of a Relax tensor whose type contains it."""
    return list(expr.ty.shape.values)


def holds_floats(type_: Any) -> bool:
    """Whether values of a type are floats, or tuples that contain floats."""
    if isinstance(type_, relax.TupleType):
        return any(holds_floats(one) for one in type_.fields)
    return isinstance(type_, relax.TensorType) and dtype_of_type(type_) in FLOAT_DTYPES


@dataclass
class Trace:
    """The variables of a function as te.

    Attributes
    ----------
    module : IRModule
        The module with the functions that bindings call.
    inputs : list of (Tensor, Expr)
        The placeholders that tensors read, and their Relax expressions.
    sizes : Sizes
        The sizes of the function, and the variables of the tensors.
    """

    module: Any
    inputs: list[tuple[Tensor, Any]] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    _values: dict[Any, Value] = field(default_factory=dict)

    def input(self, expr: Any, name: str) -> Value:
        """A placeholder for an expression, or one for each field of a tuple."""
        type_ = expr.ty
        if isinstance(type_, relax.TupleType):
            fields = range(len(type_.fields))
            return tuple(self.input(relax.TupleGetItem(expr, n), f"{name}_{n}") for n in fields)
        if not is_tensor_type(type_):
            return Opaque(f"{name} has the type {type_}, and no known shape")
        shape = [self.sizes.inner(dim) for dim in type_.shape.values]
        tensor = placeholder(shape, dtype_of_type(type_), name)
        self.inputs.append((tensor, expr))
        return tensor

    def known(self, var: Any) -> Value:
        """The value of a bound variable."""
        return self._values[var]

    def forget(self, var: Any) -> None:
        """Treat a variable as an input wherever it is read from now on."""
        self._values.pop(var, None)

    def expression(self, tensor: Tensor) -> Any:
        """The expression of a placeholder."""
        key = tensor_key(tensor)
        return next(expr for known, expr in self.inputs if tensor_key(known) == key)

    def bind(self, binding: Any) -> Value:
        """Process a binding and return the value of its variable."""
        if isinstance(binding, relax.MatchCast):
            value: Value = Opaque("a match_cast")
        else:
            value = self.value(binding.value)
        self._values[binding.var] = value
        return value

    def value(self, expr: Any) -> Value:
        """The value of an expression over known variables."""
        if isinstance(expr, relax.Var) and not ir.is_prim_expr(expr):
            return self._variable(expr)
        if ir.is_prim_expr(expr):
            return self.sizes.inner(expr)
        if isinstance(expr, relax.Tuple):
            return tuple(self.value(one) for one in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            whole = self.value(expr.tuple_value)
            return whole[expr.index] if isinstance(whole, tuple) else whole
        if isinstance(expr, ir.GenericConst):
            known = self._values.get(expr)
            if known is None:
                known = self._values[expr] = self.input(expr, "constant")
            return known
        if isinstance(expr, ir.Call):
            return self._call(expr)
        return Opaque(f"a {type(expr).__name__}")

    def shapes(self, type_: Any) -> list[list[Any]]:
        """The shapes of the results of a call; empty if one is unknown."""
        types = list(type_.fields) if isinstance(type_, relax.TupleType) else [type_]
        if not all(is_tensor_type(one) for one in types):
            return []
        return [[self.sizes.inner(dim) for dim in one.shape.values] for one in types]

    def _variable(self, var: Any) -> Value:
        known = self._values.get(var)
        if known is None:
            known = self._values[var] = self.input(var, var.name)
        return known

    def _call(self, call: Any) -> Value:
        name = str(getattr(call.op, "name", call.op))
        if name not in _CALLS_OF_FUNCTIONS:
            return Opaque(f"a call of {name}")
        func = self.module[call.args[0]]
        given = [self.value(one) for one in call.args[1].fields]
        for one in given:
            if isinstance(one, (Opaque, tuple)):
                return one if isinstance(one, Opaque) else Opaque("an argument that is a tuple")
        try:
            results = recovered(func, given, self.shapes(call.ty))
        except UnrecoveredError as error:
            return Opaque(f"{call.args[0].name_hint}: {error}")
        single = not isinstance(call.ty, relax.TupleType)
        return results[0] if single else tuple(results)


#: calls that compute their results in new tensors with a TIR function
_CALLS_OF_FUNCTIONS = ("relax.call_tir", "relax.call_tir_with_grad")


def leaves(value: Value) -> Iterable[Any]:
    """The tensors and opaque values in nested tuples."""
    if isinstance(value, tuple):
        for one in value:
            yield from leaves(one)
    else:
        yield value


def bindings_of(function: Any) -> Sequence[Any]:
    """The bindings of a function, in order."""
    return [binding for block in function.body.blocks for binding in block.bindings]
