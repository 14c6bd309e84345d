"""Stages with a custom derivative: the values of some tensors, and a rule stored in attributes.

The rule travels with the stage, so every rewrite, batch or derivative of any order finds it, and no
table of rules exists beside the graph. The stage is an extern that copies its values: nothing
inlines it or fuses through it, and TVM alone can lower it. `without_rules` removes it before a
program is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm.script.ir_builder import IRBuilder, tirx as T
from tvm_ffi.dataclasses import py_class

from ...errors import InvalidArgumentError
from ...expr.nodes import Tensor, dtype_of, load, node_id, tensor_key
from ..bounded_stage import elementwise_stage
from ..graph import retarget, topological
from ..stage import Operation, is_extern, is_placeholder, outputs_of, shape_of
from .embedding import extern_stage, kept, visits_nothing

#: attributes of such a stage: the rule, [the inputs that are values], [the inputs that the rule
#: differentiates with respect to], whether it replaces its values
_RULE, _VALUES, _INPUTS, _STANDS = (
    f"tvm_autodiff.custom.{name}" for name in ("rule", "values", "inputs", "stands")
)


#: the functions that a rule may have
_FUNCTIONS = ("vjp", "jvp", "transpose", "form", "batch")


@dataclass(frozen=True)
class Rule:
    """A custom derivative of some tensors (outputs) with respect to others (inputs).

    All functions take and return te tensors. Missing ones are derived: `jvp` from `vjp` and `vjp`
    from `jvp` by transposition, both from `transpose` or `form`, and batches from what the
    functions return. `vjp` and `jvp` get placeholders for the outputs and inputs: when they
    differentiate with respect to one of them, the others are constants.

    Attributes
    ----------
    vjp : callable, optional
        ``vjp(outputs, inputs, cotangents)`` returns a list with the cotangent of each input: a
        tensor of its shape and dtype; None where it is zero, and for an input that is not floating
        point; or a function without arguments that returns it, called only where it is needed.
        `cotangents` has one tensor for each output, None for one that is not floating point.
    jvp : callable, optional
        ``jvp(outputs, inputs, tangents)`` returns a list with the tangent of each output, None if
        it is zero. `tangents` has one tensor for each input, or None for an input that is not
        floating point.
    transpose : callable, optional
        For outputs that are linear in the inputs: ``transpose(cotangents)`` returns a list with the
        cotangent of each input. The outputs must be computed from the inputs by stages of te.
    form : callable, optional
        ``form(inputs)`` returns a list of tensors, equal to the outputs for every value of the
        inputs, that are differentiated instead of the outputs. Use it if the derivative of the
        actual computation is wrong or expensive. It excludes `vjp`, `jvp` and `transpose`.
    batch : callable, optional
        ``batch(inputs, batched, size)`` returns the outputs for a batch, each ``(size,) + shape``;
        input n has a leading batch axis if ``batched[n]`` is true. It is needed only if the outputs
        come from a stage that `vmap` cannot batch, such as a `te.extern`.
    prefixed : bool
        Whether `vjp` accepts cotangents with additional leading axes, as they occur in Jacobians.
        Otherwise it gets cotangents of the shape of the outputs, and is batched.

    Examples
    --------
    >>> Rule(vjp=lambda outputs, inputs, cotangents: cotangents).given
    ['vjp']
    """

    vjp: Callable[..., Any] | None = None
    jvp: Callable[..., Any] | None = None
    transpose: Callable[..., Any] | None = None
    form: Callable[..., Any] | None = None
    batch: Callable[..., Any] | None = None
    prefixed: bool = False

    def __post_init__(self) -> None:
        for name in _FUNCTIONS:
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise InvalidArgumentError(
                    f"the {name} of a rule must be a function, got {type(function).__name__}"
                )
        other = [name for name in self.given if name not in ("form", "batch")]
        if self.form is not None and other:
            raise InvalidArgumentError(
                f"a rule with form= cannot have {other[0]}: leave one of them out"
            )

    @property
    def differentiates(self) -> bool:
        """Whether any function defines the derivative."""
        return any(name != "batch" for name in self.given)

    @property
    def given(self) -> list[str]:
        """The names of the functions that are set."""
        return [name for name in _FUNCTIONS if getattr(self, name)]


@dataclass(frozen=True, eq=False)
class Custom:
    """A stage with the values of some tensors and a custom derivative.

    Attributes
    ----------
    name : str
        For messages.
    rule : Rule
        The derivative.
    outputs : tuple of Tensor
        The outputs of the stage.
    values : tuple of Tensor
        The tensors that the outputs equal.
    inputs : tuple of Tensor
        The tensors with respect to which the rule differentiates.
    stands : bool
        Whether an output replaces its value: a derivative with respect to the value is one with
        respect to the output.
    """

    name: str
    rule: Rule
    outputs: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    stands: bool


@py_class("tvm_autodiff.HeldRule", structural_eq="singleton")
class _HeldRule(tvm_ffi.Object):
    """A rule as an attribute that TVM's passes leave alone."""

    rule: Any

    __s_visit__ = staticmethod(visits_nothing)
    __s_mutate__ = __s_maybe_inplace_mutate__ = staticmethod(kept)


def custom_stage(
    name: str,
    values: Sequence[Tensor],
    inputs: Sequence[Tensor],
    rule: Rule,
    stands: bool = False,
) -> list[Tensor]:
    """Tensors equal to `values`, differentiated as functions of `inputs` by a rule."""
    read: dict[tuple[int, int], Tensor] = {}
    for tensor in (*values, *inputs):
        read.setdefault(tensor_key(tensor), tensor)
    places = {key: place for place, key in enumerate(read)}
    attrs = {
        _RULE: _HeldRule(rule),
        _VALUES: [places[tensor_key(tensor)] for tensor in values],
        _INPUTS: [places[tensor_key(tensor)] for tensor in inputs],
        _STANDS: int(stands),
    }
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        sources = [
            T.arg(f"p{n}", T.buffer(tensor.shape, dtype_of(tensor)))
            for n, tensor in enumerate(read.values())
        ]
        results = [
            T.arg(f"out{n}", T.buffer(tensor.shape, dtype_of(tensor)))
            for n, tensor in enumerate(values)
        ]
        for tensor, result in zip(values, results, strict=True):
            source = sources[places[tensor_key(tensor)]]
            with ExitStack() as loops:
                index = [loops.enter_context(T.serial(0, n)) for n in shape_of(tensor)]
                T.buffer_store(result, source[tuple(index)], index)
    return extern_stage(name, list(read.values()), sources, results, builder.get().body, attrs)


def custom_of(op: Operation) -> Custom | None:
    """The rule of a stage made by `custom_stage`, over its present inputs; None for others."""
    if not is_extern(op) or _RULE not in op.attrs:
        return None
    read = list(op.inputs)
    return Custom(
        str(op.name),
        op.attrs[_RULE].rule,
        tuple(outputs_of(op)),
        tuple(read[int(place)] for place in op.attrs[_VALUES]),
        tuple(read[int(place)] for place in op.attrs[_INPUTS]),
        bool(op.attrs[_STANDS]),
    )


def without_rules(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Equal tensors of a graph without custom rules, for computation without further derivatives.

    Stages that were copied for a rule are replaced by the originals. A result that would be an
    input, or another result, is copied.
    """
    ops = topological(tensors)
    if not any(custom_of(op) for op in ops):
        return list(tensors)
    replaced: dict[tuple[int, int], Tensor] = {}
    first: dict[object, Operation] = {}

    def lookup(tensor: Tensor) -> Tensor | None:
        return replaced.get(tensor_key(tensor))

    for op in ops:
        found = custom_of(op)
        if found is None:
            news = retarget(op, lookup)
            if is_extern(op):  # equal compute stages are merged later, these are not
                reads = tuple(tensor_key(tensor) for tensor in news[0].op.inputs)
                news = outputs_of(first.setdefault((node_id(op.body), reads), news[0].op))
        else:
            news = [replaced.get(tensor_key(value), value) for value in found.values]
        for old, new in zip(outputs_of(op), news, strict=True):
            if tensor_key(old) != tensor_key(new):
                replaced[tensor_key(old)] = new
    results: list[Tensor] = []
    seen: set[tuple[int, int]] = set()
    for tensor in tensors:
        new = lookup(tensor)
        if new is None:
            new = tensor
        elif is_placeholder(new.op) or tensor_key(new) in seen:
            new = _copy(new, tensor.op.name)
        seen.add(tensor_key(new))
        results.append(new)
    return results


def _copy(tensor: Tensor, name: str) -> Tensor:
    return elementwise_stage(name, shape_of(tensor), lambda place: load(tensor, place))
