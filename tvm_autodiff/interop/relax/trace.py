"""Relax bindings as te: what the variables of a legalised function are, as tensors.

In: a module of Relax, and bindings of a function of it. Out: a te tensor for each variable that is
computed by functions that came from te, or the reason why it is none. Operators become functions by
TVM's own legalisers, so that nothing here knows an operator by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tvm import ir, relax

from ...codegen.recovered import UnrecoveredError, recovered
from ...expr.nodes import FLOAT_DTYPES, Tensor, tensor_key
from ...graph.stage import placeholder
from .sizes import Sizes


@dataclass(frozen=True)
class Opaque:
    """A value that is no te tensor, and why."""

    reason: str


#: what stands for a variable: a tensor, one for each field of a tuple, an integer, or no te
Value: TypeAlias = "Tensor | Opaque | tuple[Value, ...] | Any"


def is_tensor_type(type_: Any) -> bool:
    """Whether values of a type are tensors whose shape is known, with sizes in it or not."""
    return isinstance(type_, relax.TensorType) and isinstance(type_.shape, relax.ShapeExpr)


def dtype_of_type(type_: Any) -> str:
    """The dtype of a tensor type."""
    return str(getattr(type_.dtype, "dtype", type_.dtype))


def shape_of_expr(expr: Any) -> Sequence[Any]:
    """The shape of a Relax tensor whose type tells it."""
    return list(expr.ty.shape.values)


def holds_floats(type_: Any) -> bool:
    """Whether values of a type are floats, or tuples with such in them."""
    if isinstance(type_, relax.TupleType):
        return any(holds_floats(one) for one in type_.fields)
    return isinstance(type_, relax.TensorType) and dtype_of_type(type_) in FLOAT_DTYPES


@dataclass
class Trace:
    """What variables of a function are as te.

    Attributes
    ----------
    module : IRModule
        Holds the functions that bindings call.
    inputs : list of (Tensor, Expr)
        The placeholders that tensors read, and the Relax expressions that they stand for.
    sizes : Sizes
        Of the function, and the variables of the tensors.
    """

    module: Any
    inputs: list[tuple[Tensor, Any]] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    _values: dict[Any, Value] = field(default_factory=dict)

    def input(self, expr: Any, name: str) -> Value:
        """A placeholder in the place of an expression; for a tuple one for each field."""
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
        """What a variable that was bound stands for."""
        return self._values[var]

    def forget(self, var: Any) -> None:
        """Where a variable is read from now on, it is an input."""
        self._values.pop(var, None)

    def expression(self, tensor: Tensor) -> Any:
        """What a placeholder stands for."""
        key = tensor_key(tensor)
        return next(expr for known, expr in self.inputs if tensor_key(known) == key)

    def bind(self, binding: Any) -> Value:
        """Follow a binding; what its variable stands for."""
        if isinstance(binding, relax.MatchCast):
            value: Value = Opaque("a match_cast")
        else:
            value = self.value(binding.value)
        self._values[binding.var] = value
        return value

    def value(self, expr: Any) -> Value:
        """What an expression over known variables stands for."""
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
        """The shapes of the results of a call; none where one is not known."""
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


#: calls that compute their results by a function of loops, in new tensors
_CALLS_OF_FUNCTIONS = ("relax.call_tir", "relax.call_tir_with_grad")


def leaves(value: Value) -> Iterable[Any]:
    """The tensors, and what is none, of nested tuples."""
    if isinstance(value, tuple):
        for one in value:
            yield from leaves(one)
    else:
        yield value


def bindings_of(function: Any) -> Sequence[Any]:
    """The bindings of a function, in order."""
    return [binding for block in function.body.blocks for binding in block.bindings]
