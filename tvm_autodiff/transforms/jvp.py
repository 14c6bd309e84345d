"""`jvp`: forward mode, which computes tangents of outputs from tangents of inputs in one walk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import InvalidArgumentError
from ..expr.nodes import Tensor, load, tensor_key
from ..graph.bounded_stage import elementwise_stage
from ..graph.graph import Graph, tensors_read_by, topological
from ..graph.kinds.custom import Custom, Rule
from ..graph.kinds.kind import kind_of
from ..graph.kinds.loop import Loop
from ..graph.out_of_bounds import refuse_reads_out_of_bounds
from ..graph.stage import Operation, is_placeholder, outputs_of, shape_of
from ..keywords import checked_keywords
from ..rules.pushforward import pushforward
from ..rules.registry import ruled
from ..zero_elimination.passes.reductions import solved_form
from .arguments import (
    ByHand,
    Manual,
    as_tensor,
    as_tensors,
    check_by_hand,
    checked_entry,
    listed,
    require_float,
    require_function,
    require_like,
)
from .custom_rules.apply_rule import push_through, zeros_like
from .custom_rules.marks import ForwardOverride, marked
from .loops.forward import push_loop

Pushforward = Callable[[Tensor, list[Tensor], list[Tensor]], Tensor]
_Key = tuple[int, int]


@checked_keywords
def jvp(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    tangents: Tensor | Sequence[Tensor],
    *,
    manual: Mapping[tuple[Tensor, Tensor], Manual] | None = None,
    override: Mapping[Tensor, tuple[Sequence[Tensor], Pushforward | Rule]] | None = None,
    fdiff: Manual | None = None,
) -> list[Tensor]:
    """Forward mode: push tangents of inputs forward to outputs, in one sweep.

    ``d outputs[o] = Σ_i (∂ outputs[o] / ∂ inputs[i]) · tangents[i]``: the derivative of the outputs
    along a direction. The cost does not depend on the number of inputs.

    Parameters
    ----------
    outputs : Tensor or sequence of Tensor
        The tensors to differentiate. An output may be read by another one, be repeated, or be an
        input.
    inputs : Tensor or sequence of Tensor
        Placeholders or intermediate tensors, of a floating point dtype. An intermediate tensor is
        treated as independent: its tangent is the given one.
    tangents : Tensor or sequence of Tensor
        One tangent for each input, of its shape and dtype.
    override : mapping from Tensor to (deps, function), optional
        ``{out: (deps, f)}`` with ``f(out, deps, tangents) -> tangent of out`` replaces everything
        between `out` and `deps`. f may be a `Rule`.
    manual, fdiff : optional
        As in `differentiate`: functions that return adjoints, and are linear in the cotangent.
        Tangents are their transpose.

    Returns
    -------
    list of Tensor
        The tangent of each output, of its shape and dtype. It is zero if an output depends on no
        input.

    Raises
    ------
    NotDifferentiableError
        If an input or output is not floating point, or a stage is opaque or has no rule.
    InvalidArgumentError
        If an argument has the wrong form, number, shape or dtype.
    OutOfBoundsError
        If a stage certainly reads outside a tensor.

    References
    ----------
    A. Griewank, A. Walther, "Evaluating Derivatives", 2nd edition, SIAM 2008, chapter 3.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import jvp, show
    >>> x, k = te.placeholder((5,), name="x"), te.reduce_axis((0, 3), "k")
    >>> s = te.compute((3,), lambda i: te.sum(x[i + k] * x[i + k], axis=k), name="s")
    >>> y = te.compute((3,), lambda i: te.sqrt(s[i]), name="y")
    >>> dx = te.placeholder((5,), name="dx")
    >>> print(show(jvp(y, x, dx)))
    inputs  dx: float32[5], x: float32[5]
    s_dot[i] = Σ_{k<3} 2.0*dx[i + k]*x[i + k]  float32[3]
    s[i] = Σ_{k<3} x[i + k]*x[i + k]           float32[3]
    y[i] = sqrt(s[i])                          float32[3]
    y_dot[i] = s_dot[i]*0.5/y[i]               float32[3]
    """
    wanted = [
        as_tensor(value, f"outputs[{n}]") for n, value in enumerate(listed(outputs, "outputs"))
    ]
    if not wanted:
        raise InvalidArgumentError("outputs is empty: pass at least one tensor to differentiate")
    for tensor in wanted:
        require_float(tensor, "outputs")
    asked = as_tensors(inputs, "inputs")
    for tensor in asked:
        require_float(tensor, "inputs")
    given = _checked_tangents(asked, listed(tangents, "tangents"))
    graph = Graph(wanted)
    refuse_reads_out_of_bounds(graph.ops)
    edges = check_by_hand(graph, manual, None).manual
    require_function(fdiff, "fdiff")
    hand = ByHand(edges, _checked_override(graph, override))
    marks = marked(wanted, asked, hand, fdiff)
    sweep = ForwardSweep(Graph(marks.outputs, differentiated_reads), given)
    return [sweep.result(tensor) for tensor in marks.outputs]


class ForwardSweep:
    """The tangents of all tensors that depend on the inputs, stage by stage."""

    def __init__(
        self,
        graph: Graph,
        given: Sequence[tuple[Tensor, Tensor]],
    ) -> None:
        self._tangents: dict[_Key, Tensor] = {tensor_key(x): tangent for x, tangent in given}
        self._given = set(self._tangents)
        self._results: set[_Key] = {tensor_key(tangent) for _, tangent in given}
        self._graph = graph
        for op in graph.ops:
            if not is_placeholder(op):
                self._visit(op)

    def _visit(self, op: Operation) -> None:
        stage = ruled(op)
        if stage is not None and stage.stands:
            self._take_over(stage)
        keys = [tensor_key(tensor) for tensor in outputs_of(op)]
        if all(key in self._given for key in keys):
            return
        if any(tensor_key(t) in self._tangents for t in self._graph.reads(op)):
            if stage is not None:
                found = self._by_rule(stage)
            elif isinstance(kind := kind_of(op), Loop):
                found = push_loop(op, kind, self.tangent)
            else:
                forms = solved_form(op)
                found = pushforward(op, self.tangent) if forms is None else self._through(forms)
            self._tangents |= {keys[n]: found[n] for n in found if keys[n] not in self._given}

    def _take_over(self, stage: Custom) -> None:
        """Give a stage that replaces a tensor the tangent of that tensor, if it has one."""
        for value, output in zip(stage.values, stage.outputs, strict=True):
            if tensor_key(value) in self._given:
                self._given.add(tensor_key(output))
                self._tangents[tensor_key(output)] = self._tangents[tensor_key(value)]

    def _by_rule(self, stage: Custom) -> dict[int, Tensor]:
        found = push_through(stage, [self.tangent(x) for x in stage.inputs])
        return {number: tangent for number, tangent in enumerate(found) if tangent is not None}

    def _through(self, forms: Sequence[Tensor]) -> dict[int, Tensor]:
        """The tangents of equal tensors, by number, from stages that the graph does not have."""

        def reads(op: Operation) -> list[Tensor]:
            return [] if self._graph.contains(op.output(0)) else tensors_read_by(op)

        for op in topological(forms, reads):
            if not self._graph.contains(op.output(0)):
                found = pushforward(op, self.tangent)
                self._tangents |= {tensor_key(op.output(n)): found[n] for n in found}
        tangents = enumerate(map(self.tangent, forms))
        return {number: tangent for number, tangent in tangents if tangent is not None}

    def tangent(self, tensor: Tensor) -> Tensor | None:
        """The tangent of a tensor, or None if it is zero."""
        return self._tangents.get(tensor_key(tensor))

    def result(self, tensor: Tensor) -> Tensor:
        """The tangent of an output as a separate stage.

        `build` accepts neither placeholders nor repeated tensors as outputs.
        """
        tangent = self.tangent(tensor)
        if tangent is None:
            return zeros_like(tensor)
        key = tensor_key(tangent)
        if key in self._results or self._graph.contains(tangent):
            name, shape = f"{tensor.op.name}_dot", shape_of(tensor)
            return elementwise_stage(name, shape, lambda place: load(tangent, place))
        self._results.add(key)
        return tangent


def differentiated_reads(op: Operation) -> list[Tensor]:
    """The tensors that a stage is differentiated with respect to; for a stage with a rule, not its
    values.
    """
    stage = ruled(op)
    return tensors_read_by(op) if stage is None else list(stage.inputs)


def _checked_tangents(
    inputs: Sequence[Tensor], tangents: Sequence[Any]
) -> list[tuple[Tensor, Tensor]]:
    if len(tangents) != len(inputs):
        names = ", ".join(tensor.op.name for tensor in inputs)
        raise InvalidArgumentError(
            f"tangents: there are {len(inputs)} inputs ({names}) and {len(tangents)} tangents; "
            "pass one for each input"
        )
    pairs = []
    for number, (tensor, value) in enumerate(zip(inputs, tangents, strict=True)):
        place = f"tangents[{number}]"
        if value is None:
            raise InvalidArgumentError(
                f"{place} is None: pass the tangent of {tensor.op.name}, or omit the input, which "
                "means a zero tangent"
            )
        pairs.append((tensor, require_like(value, tensor, place)))
    return pairs


def _checked_override(
    graph: Graph, override: Mapping[Any, Any] | None
) -> dict[_Key, tuple[Tensor, list[Tensor], Any]]:
    if override is not None and not isinstance(override, Mapping):
        raise InvalidArgumentError(f"override must be a dictionary, got {type(override).__name__}")
    form = "a pair (deps, f) with f(out, deps, tangents) -> tangent of out"
    checked: dict[_Key, tuple[Tensor, list[Tensor], Any]] = {}
    for key, value in (override or {}).items():
        out = as_tensor(key, "a key of override")
        deps, function = checked_entry(graph, out, value, form)
        rule = function if isinstance(function, Rule) else ForwardOverride(function)
        checked[tensor_key(out)] = (out, deps, rule)
    return checked
