"""Applies custom rules: calls and checks their functions, and derives missing ones.

A `vjp` is linear in its cotangents, and its transpose with respect to them is the `jvp`; the
reverse holds as well. Cotangents with further leading axes are members of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InvalidArgumentError, NotDifferentiableError
from ...expr.build import const
from ...expr.nodes import Tensor, dtype_of, is_float, is_tensor, tensor_key
from ...graph.bounded_stage import elementwise_stage
from ...graph.graph import Graph, replace_tensors, tensors_read_by, topological
from ...graph.kinds.custom import Custom, Rule, custom_stage
from ...graph.marks.stop_gradient import stopped_reads
from ...graph.stage import (
    Extent,
    Operation,
    is_placeholder,
    placeholder,
    placeholder_like,
    shape_of,
)
from ..arguments import check_derivative
from ..local import local_contains, local_vjp

Entry = Tensor | None  #: None is zero, and what belongs to a tensor that is not floating point
Lazy = Tensor | Callable[[], Any] | None


def pull_through(
    stage: Custom, cotangents: Sequence[Entry], prefix: Sequence[Extent], wanted: Sequence[bool]
) -> list[Entry]:
    """The cotangents of a stage's inputs.

    Parameters
    ----------
    stage : Custom
        The stage.
    cotangents : sequence of Tensor or None
        One for each output, of shape ``prefix + shape``; None for an output that is not floating
        point.
    prefix : sequence of int or Expr
        The leading axes.
    wanted : sequence of bool
        Which inputs need a cotangent.

    Returns
    -------
    list of Tensor or None
        One for each input, of shape ``prefix + shape``; None for zero, and for inputs that are not
        wanted.

    Raises
    ------
    NotDifferentiableError
        If the rule has no suitable function.
    InvalidArgumentError
        If a function returned the wrong number of tensors, or one of the wrong shape or dtype.
    """
    rule = stage.rule
    counts = [want and is_float(x) for want, x in zip(wanted, stage.inputs, strict=True)]
    if rule.vjp is not None:
        if not prefix or rule.prefixed:
            return _called_vjp(stage, cotangents, prefix, counts)
        return _over_prefix(
            stage, lambda given: _called_vjp(stage, given, (), counts), cotangents, prefix
        )
    if rule.transpose is not None:
        return _over_prefix(
            stage, lambda given: _keep(_transposed(stage, given), counts), cotangents, prefix
        )
    if rule.jvp is not None:
        return _vjp_of_jvp(stage, cotangents, counts)
    raise _no_rule(stage, "vjp, jvp or transpose")


def push_through(stage: Custom, tangents: Sequence[Entry]) -> list[Entry]:
    """The tangents of a stage's outputs, from one for each input (None is zero).

    Raises
    ------
    NotDifferentiableError, InvalidArgumentError
        As in `pull_through`.
    """
    moving = [
        (zeros_like(x) if tangent is None else tangent) if is_float(x) else None
        for x, tangent in zip(stage.inputs, tangents, strict=True)
    ]
    rule = stage.rule
    if rule.form is not None:
        return _pushed_forms(stage, tangents)
    if rule.jvp is not None:
        return _called_jvp(stage, moving)
    if rule.transpose is not None:
        return list(_applied(stage, moving))
    if rule.vjp is not None:
        return _jvp_of_vjp(stage, moving)
    raise _no_rule(stage, "jvp, vjp or transpose")


def forms_of(stage: Custom) -> list[Tensor]:
    """The tensors that are differentiated instead of a stage's outputs, by a rule with `form`.

    An output that is not floating point stays.

    Raises
    ------
    InvalidArgumentError
        If there is not one for each output, one has another shape or dtype, or one is computed from
        a tensor that is not an input of the rule.
    """
    assert stage.rule.form is not None
    who = f"the form of the rule of {stage.name}"
    found = _results(who, stage.rule.form, list(stage.inputs))
    every = [True] * len(stage.outputs)
    forms = []
    for form, output in zip(
        _checked(found, stage.outputs, (), who, "form", every), stage.outputs, strict=True
    ):
        if form is None and is_float(output):
            raise InvalidArgumentError(f"{who} must return a tensor for {output.op.name}, not None")
        forms.append(output if form is None else form)
    ends = {hash(x.op) for x in stage.inputs}
    followed = [form for form in forms if is_float(form)]
    for op in topological(followed, lambda op: [] if hash(op) in ends else _followed(op)):
        if is_placeholder(op) and hash(op) not in ends:
            raise InvalidArgumentError(
                f"{who} reads {op.name}, which is not an input of the rule: make it one, as "
                f"stop_gradient({op.name}) if it is a constant"
            )
    return forms


def _followed(op: Operation) -> list[Tensor]:
    stopped = stopped_reads(op)
    return [t for t in tensors_read_by(op) if is_float(t) and tensor_key(t) not in stopped]


def _pushed_forms(stage: Custom, tangents: Sequence[Entry]) -> list[Entry]:
    from ..jvp import ForwardSweep, differentiated_reads  # which push through custom stages, too

    ends = {hash(x.op) for x in stage.inputs}
    graph = Graph(forms_of(stage), lambda op: [] if hash(op) in ends else differentiated_reads(op))
    given = [(x, t) for x, t in zip(stage.inputs, tangents, strict=True) if t is not None]
    sweep = ForwardSweep(graph, given)
    return [sweep.tangent(form) for form in graph.outputs]


def zeros_like(tensor: Tensor, prefix: Sequence[Extent] = (), suffix: str = "dot") -> Tensor:
    """Zeros of the shape ``prefix + shape`` of a tensor."""
    zero = const(0, dtype_of(tensor))
    shape = (*prefix, *shape_of(tensor))
    return elementwise_stage(f"{tensor.op.name}_{suffix}", shape, lambda place: zero)


def _over_prefix(
    stage: Custom,
    function: Callable[[list[Entry]], list[Entry]],
    cotangents: Sequence[Entry],
    prefix: Sequence[Extent],
) -> list[Entry]:
    """Apply a function of cotangents to cotangents with further leading axes, in one call."""
    if not prefix:
        return function(list(cotangents))
    rank = len(prefix)
    members = [
        None if c is None else placeholder(shape_of(c)[rank:], dtype_of(c), c.op.name)
        for c in cotangents
    ]
    results = function(list(members))
    for axis in reversed(range(rank)):
        wider = [
            c if axis == 0 or c is None else placeholder(shape_of(c)[axis:], dtype_of(c), c.op.name)
            for c in cotangents
        ]
        pairs = [(m, w) for m, w in zip(members, wider, strict=True) if m is not None]
        results = _batched(stage, results, pairs, prefix[axis])
        members = wider
    return results


def _batched(
    stage: Custom,
    results: Sequence[Entry],
    pairs: Sequence[tuple[Tensor, Tensor]],
    size: Extent,
) -> list[Entry]:
    """Results of a rule for a batch of cotangents."""
    from ..batch import batch_of_tensors  # which batches stages with rules, too

    given = [result for result in results if result is not None]
    moved = iter(batch_of_tensors(given, pairs, size, [*stage.outputs, *stage.inputs]))
    return [None if result is None else next(moved) for result in results]


def _called_vjp(
    stage: Custom, cotangents: Sequence[Entry], prefix: Sequence[Extent], counts: Sequence[bool]
) -> list[Entry]:
    assert stage.rule.vjp is not None
    who, members = f"the vjp of the rule of {stage.name}", _Members.of(stage)
    found = _results(who, stage.rule.vjp, *members.given, list(cotangents))
    return members.replaced(_checked(found, stage.inputs, prefix, who, "cotangent", counts))


def _called_jvp(stage: Custom, tangents: Sequence[Entry]) -> list[Entry]:
    assert stage.rule.jvp is not None
    who, members = f"the jvp of the rule of {stage.name}", _Members.of(stage)
    found = _results(who, stage.rule.jvp, *members.given, list(tangents))
    every = [True] * len(stage.outputs)
    return members.replaced(_checked(found, stage.outputs, (), who, "tangent", every))


@dataclass(frozen=True)
class _Members:
    """What the functions of a rule get: placeholders for the outputs and inputs of a stage, so that
    they can differentiate with respect to each, and the others are constants.
    """

    stage: Custom
    outputs: list[Tensor]
    inputs: list[Tensor]

    @classmethod
    def of(cls, stage: Custom) -> _Members:
        """The members of a stage."""
        outputs, inputs = (
            list(map(placeholder_like, part)) for part in (stage.outputs, stage.inputs)
        )
        return cls(stage, outputs, inputs)

    @property
    def given(self) -> tuple[list[Tensor], list[Tensor]]:
        """The first arguments of a function."""
        return list(self.outputs), list(self.inputs)

    def replaced(self, found: Sequence[Entry]) -> list[Entry]:
        """Results that read the outputs and inputs themselves."""
        members = [*self.outputs, *self.inputs]
        pairs = list(zip(members, [*self.stage.outputs, *self.stage.inputs], strict=True))
        made = iter(replace_tensors([entry for entry in found if entry is not None], pairs))
        return [None if entry is None else next(made) for entry in found]


def _transposed(stage: Custom, cotangents: Sequence[Entry]) -> list[Entry]:
    """``x̄ = Aᵀ ȳ`` as a linear stage, whose transpose is the original stage."""
    assert stage.rule.transpose is not None
    who = f"the transpose of the rule of {stage.name}"
    entries = _results(who, stage.rule.transpose, list(cotangents))
    every = [is_float(x) for x in stage.inputs]
    found = _checked(entries, stage.inputs, (), who, "cotangent", every)
    given = [number for number, value in enumerate(found) if value is not None]
    moved = [c for c in cotangents if c is not None]
    if not given or not moved:
        return found

    def back(tangents: Sequence[Tensor]) -> list[Entry]:
        moving: list[Entry] = [
            zeros_like(x) if is_float(x) else None for x in stage.inputs
        ]
        for number, tangent in zip(given, tangents, strict=True):
            moving[number] = tangent
        found = zip(_applied(stage, moving), cotangents, strict=True)
        return [y for y, cotangent in found if cotangent is not None]

    marked = custom_stage(
        f"{stage.name}_transpose", [found[n] for n in given], moved, Rule(transpose=back)
    )
    for number, tensor in zip(given, marked, strict=True):
        found[number] = tensor
    return found


def _applied(stage: Custom, tangents: Sequence[Entry]) -> list[Tensor]:
    """``ẏ = A ẋ`` for a linear stage: the same program over the tangents, with the same rule."""
    pairs = [(x, t) for x, t in zip(stage.inputs, tangents, strict=True) if t is not None]
    values = replace_tensors(list(stage.values), pairs)
    inputs = [x if t is None else t for x, t in zip(stage.inputs, tangents, strict=True)]
    return custom_stage(f"{stage.name}_dot", values, inputs, stage.rule)


def _jvp_of_vjp(stage: Custom, tangents: Sequence[Entry]) -> list[Entry]:
    """``ȳ ↦ x̄ = Aᵀȳ``, transposed with respect to its cotangents: ``ẏ = A ẋ``."""
    members = [
        placeholder_like(y) if is_float(y) else None for y in stage.outputs
    ]
    found = _called_vjp(stage, members, (), [is_float(x) for x in stage.inputs])
    pairs = [(f, t) for f, t in zip(found, tangents, strict=True) if f is not None]
    moved = [member for member in members if member is not None]
    if not pairs or not moved:
        return [None] * len(members)
    known = [*stage.outputs, *stage.inputs]
    seeds = [t for _, t in pairs]
    results = local_vjp([f for f, _ in pairs], moved, seeds, known)
    _require_linear(stage, results, moved, [*known, *seeds], "vjp", "cotangents", "jvp")
    each = iter(results)
    return [None if member is None else next(each) for member in members]


def _vjp_of_jvp(
    stage: Custom, cotangents: Sequence[Entry], counts: Sequence[bool]
) -> list[Entry]:
    """``ẋ ↦ ẏ = A ẋ``, transposed with respect to its tangents: ``x̄ = Aᵀȳ``."""
    members = [
        placeholder_like(x) if is_float(x) else None for x in stage.inputs
    ]
    found = _called_jvp(stage, members)
    pairs = [
        (f, c) for f, c in zip(found, cotangents, strict=True) if f is not None and c is not None
    ]
    moved = [m for m, counted in zip(members, counts, strict=True) if counted and m is not None]
    if not pairs or not moved:
        return [None] * len(members)
    known = [*stage.outputs, *stage.inputs]
    seeds = [c for _, c in pairs]
    results = local_vjp([f for f, _ in pairs], moved, seeds, known)
    every_member = [member for member in members if member is not None]
    _require_linear(stage, results, every_member, [*known, *seeds], "jvp", "tangents", "vjp")
    each = iter(results)
    return [next(each) if counted else None for counted in counts]


def _require_linear(
    stage: Custom,
    results: Sequence[Tensor],
    members: Sequence[Tensor],
    constants: Sequence[Tensor],
    *names: str,
) -> None:
    """Tell that results depend on the members that they should be linear in."""
    given, what, lacking = names
    if local_contains(results, members, constants):
        raise NotDifferentiableError(
            f"the {given} of the rule of {stage.name} is not linear in its {what}, so no {lacking} "
            f"follows from it: define a {lacking}"
        )


def _no_rule(stage: Custom, lacking: str) -> NotDifferentiableError:
    given = ", ".join(stage.rule.given) or "nothing"
    return NotDifferentiableError(
        f"the custom rule of {stage.name} has {given}, but no {lacking}: define one of these"
    )


def _results(who: str, function: Callable[..., Any], *arguments: list[Any]) -> list[Any]:
    try:
        found = function(*arguments)
    except Exception as error:
        causes = [error, error.__cause__]  # `inspect` gives a TypeError for it
        if not any(isinstance(cause, RecursionError) for cause in causes):
            raise
        raise InvalidArgumentError(
            f"{who} has no end: it differentiates a tensor with the same rule; let it "
            "differentiate the function without a rule (f.function for a custom_vjp f)"
        ) from None
    if not isinstance(found, Sequence):
        raise InvalidArgumentError(
            f"{who} must return a list of tensors, got {type(found).__name__}"
        )
    return list(found)


def _keep(found: Sequence[Entry], counts: Sequence[bool]) -> list[Entry]:
    return [entry if counted else None for entry, counted in zip(found, counts, strict=True)]


def _checked(
    found: Sequence[Any],
    tensors: Sequence[Tensor],
    prefix: Sequence[Extent],
    who: str,
    what: str,
    counts: Sequence[bool],
) -> list[Entry]:
    """The checked result of a function, without what does not count, and with deferred results
    computed.
    """
    if len(found) != len(tensors):
        names = ", ".join(tensor.op.name for tensor in tensors)
        raise InvalidArgumentError(
            f"{who} returned {len(found)} {what}s; it must return {len(tensors)}, one for each of "
            f"{names}"
        )
    results: list[Entry] = []
    for value, tensor, counted in zip(found, tensors, counts, strict=True):
        if value is not None and not is_float(tensor):
            raise InvalidArgumentError(
                f"{who} must return None as {what} of {tensor.op.name}, which has dtype "
                f"{dtype_of(tensor)} and no derivative"
            )
        if counted and callable(value) and not is_tensor(value):
            value = value()
        keep = counted and value is not None
        results.append(check_derivative(value, tensor, prefix, who, what) if keep else None)
    return results
