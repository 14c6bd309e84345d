"""A loop over time as one opaque stage: a step, itself a graph of stages, repeated over carries.

The outputs are the final carries and the stacked outputs of the steps. They lower like any stage.
The stage's attributes hold the step, so `loop_of` recovers the computation over its present inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import te
from tvm_ffi.dataclasses import field, py_class

from ...expr.nodes import Tensor, load, tensor_key
from ..bounded_stage import elementwise_stage
from ..stage import (
    Extent,
    Operation,
    bodies,
    is_compute,
    is_extern,
    is_placeholder,
    outputs_of,
    placeholder,
    shape_of,
    whole_tensor,
)
from .checkpoints import Plan
from .embedding import extern_stage, kept, visits_nothing
from .loop_nest import loop_nest

#: attributes of a loop: the step; the inputs for the initial carries, xs and consts; the length;
#: whether it starts with the last element; and what its reverse mode stores
_STEP, _PLACES, _LENGTH, _REVERSE, _CARRIES, _PLAN = (
    f"tvm_autodiff.loop.{name}"
    for name in ("step", "places", "length", "reverse", "carries_only", "plan")
)


@dataclass(frozen=True, eq=False)
class Step:
    """``(carries, xs[t], consts) → (news, ys)``, as te tensors over placeholders.

    All tensors of `news` and `ys` are distinct, and none is a placeholder; `step_of` ensures this.

    Attributes
    ----------
    carries, xs, consts : tuple of Tensor
        Placeholders: the state before the step, the elements of the sequences, and values that are
        the same for all steps. The step reads no other input.
    news : tuple of Tensor
        The state after the step, with the shapes and dtypes of the carries.
    ys : tuple of Tensor
        The outputs that are stacked.
    """

    carries: tuple[Tensor, ...]
    xs: tuple[Tensor, ...]
    consts: tuple[Tensor, ...]
    news: tuple[Tensor, ...]
    ys: tuple[Tensor, ...]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """All placeholders."""
        return (*self.carries, *self.xs, *self.consts)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """All results."""
        return (*self.news, *self.ys)

    def with_outputs(self, outputs: Sequence[Tensor]) -> Step:
        """The step with its results replaced."""
        count = len(self.news)
        return replace(self, news=tuple(outputs[:count]), ys=tuple(outputs[count:]))


@dataclass(frozen=True, eq=False)
class Loop:
    """A step repeated.

    Attributes
    ----------
    step : Step
        The step that is repeated.
    init : tuple of Tensor
        The carries before the first step.
    xs : tuple of Tensor
        The sequences, ``(length, *shape)`` for each placeholder ``step.xs`` of a shape.
    consts : tuple of Tensor
        The tensors that replace ``step.consts``.
    length : int or Expr
        The number of steps; zero is allowed.
    reverse : bool
        Whether the first step takes the last elements of `xs` and writes the last ones of ys.
    carries_only : bool
        Whether reverse mode stacks only carries, and recomputes everything else step by step.
    plan : Recursive, Budget or None
        How many carries reverse mode keeps; None leaves it to `carries_only`.
    """

    step: Step
    init: tuple[Tensor, ...]
    xs: tuple[Tensor, ...]
    consts: tuple[Tensor, ...]
    length: Extent
    reverse: bool = False
    carries_only: bool = False
    plan: Plan | None = None

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors for ``step.inputs``, in the same order."""
        return (*self.init, *self.xs, *self.consts)


@py_class("tvm_autodiff.HeldStep", structural_eq="tree")
class HeldStep(tvm_ffi.Object):
    """A step and further Python objects, as an attribute that TVM's passes ignore.

    Functions are compared by their bodies.
    """

    step: Any = field(structural_eq="ignore")

    __s_visit__ = staticmethod(visits_nothing)
    __s_mutate__ = __s_maybe_inplace_mutate__ = staticmethod(kept)


def step_of(
    carries: Sequence[Tensor],
    xs: Sequence[Tensor],
    consts: Sequence[Tensor],
    news: Sequence[Tensor],
    ys: Sequence[Tensor],
) -> Step:
    """A step whose results are distinct stages: ``new = carry → new[i] = carry[i]``."""
    seen: set[tuple[int, int]] = set()
    results: list[Tensor] = []
    for tensor in (*news, *ys):
        if is_placeholder(tensor.op) or tensor_key(tensor) in seen:
            tensor = copy_of(tensor, tensor.op.name)
        seen.add(tensor_key(tensor))
        results.append(tensor)
    step = Step(tuple(carries), tuple(xs), tuple(consts), tuple(news), tuple(ys))
    return step.with_outputs(results)


def copy_of(tensor: Tensor, name: str) -> Tensor:
    """``name[i] = tensor[i]``."""
    return elementwise_stage(name, shape_of(tensor), lambda place: load(tensor, place))


def source_of(tensor: Tensor) -> Tensor:
    """The tensor that a stage copies, or the tensor itself if its stage is not a copy."""
    body = bodies(tensor.op) if is_compute(tensor.op) else []
    copied = whole_tensor(body[0], list(tensor.op.axis)) if len(body) == 1 else None
    return tensor if copied is None else copied


def slice_of(tensor: Tensor, name: str | None = None) -> Tensor:
    """A placeholder for one element of a sequence: ``xs: (length, *shape) → x: shape``."""
    return placeholder(list(tensor.shape)[1:], str(tensor.dtype), name or tensor.op.name)


def loop_stage(name: str, loop: Loop) -> list[Tensor]:
    """The final carries, then ``ys[t]`` stacked, one tensor each.

    Parameters
    ----------
    name : str
        Name of the stage.
    loop : Loop
        The loop that it computes.
    """
    read: dict[tuple[int, int], Tensor] = {}
    for tensor in loop.inputs:
        read.setdefault(tensor_key(tensor), tensor)
    places = {key: place for place, key in enumerate(read)}
    length = loop.length
    attrs = {
        _STEP: HeldStep(loop.step),
        _PLACES: [
            [places[tensor_key(tensor)] for tensor in part]
            for part in (loop.init, loop.xs, loop.consts)
        ],
        _LENGTH: length,
        _REVERSE: int(loop.reverse),
        _CARRIES: int(loop.carries_only),
        _PLAN: HeldStep(loop.plan),
    }
    sources, results, body = loop_nest(name, loop, list(read.values()))
    return extern_stage(name, list(read.values()), sources, results, body, attrs)


def loop_of(op: Operation) -> Loop | None:
    """What a stage made by `loop_stage` computes; None for other stages."""
    if not is_extern(op) or _STEP not in op.attrs:
        return None
    read = list(op.inputs)
    init, xs, consts = (tuple(read[int(place)] for place in part) for part in op.attrs[_PLACES])
    length = op.attrs[_LENGTH]
    if xs:  # a rewriting may have given the inputs other sizes
        length = shape_of(xs[0])[0]
    elif not isinstance(length, int):
        ys = outputs_of(op)[len(init) :]
        length = shape_of(ys[0])[0] if ys else length
    reverse, carries_only = (bool(op.attrs[name]) for name in (_REVERSE, _CARRIES))
    step, plan = op.attrs[_STEP].step, op.attrs[_PLAN].step
    return Loop(step, init, xs, consts, length, reverse, carries_only, plan)


def without_step(op: Operation) -> list[Tensor]:
    """The results of a stage that keeps its steps only as a loop nest."""
    attrs = {key: value for key, value in op.attrs.items() if not isinstance(value, HeldStep)}
    plain = te._ffi_api.ExternOp(
        op.name, op.tag, attrs, op.inputs, op.input_placeholders, op.output_placeholders, op.body
    )
    return outputs_of(plain)
