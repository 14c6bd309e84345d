"""Reverse mode: adjoints of the tensors that an output depends on.

In: an output tensor, the tensors to differentiate by, a cotangent (`head`), and derivatives given
by hand. Out: a `DifferentiationResult` with the adjoints as te tensors, ready to be lowered or
differentiated again. The order of work and the bookkeeping live here; what a single stage
contributes is `zero_elimination`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .arguments import (
    ByHand,
    Manual,
    as_tensor,
    as_tensors,
    check_adjoint,
    check_by_hand,
    prefix_of,
    require_float,
)
from .calculus.product import stand_in
from .errors import InvalidArgumentError
from .ir.build import all_of, compare, const, if_then_else
from .ir.graph import Graph, tensors_read_by
from .ir.nodes import Tensor, dtype_of, is_float, load
from .ir.stage import (
    Extent,
    Operation,
    data_axis,
    is_placeholder,
    make_stage,
    outputs_of,
    renew_axis,
    shape_of,
    tensor_key,
)
from .result import DifferentiationResult, TensorMap
from .zero_elimination.assemble import assemble
from .zero_elimination.gather import Cotangent, Gathered, Target
from .zero_elimination.transpose import target_of, transpose


def differentiate(
    output: Tensor,
    inputs: Tensor | Sequence[Tensor] | None = None,
    head: Tensor | None = None,
    *,
    manual: Mapping[tuple[Tensor, Tensor], Manual] | None = None,
    override: Mapping[Tensor, Any] | None = None,
    fdiff: Manual | None = None,
) -> DifferentiationResult:
    """Differentiate a tensor expression in reverse mode.

    Parameters
    ----------
    output : Tensor
        What is differentiated; floating point.
    inputs : Tensor, sequence of Tensor or None
        What to differentiate by: placeholders or intermediate tensors, floating point. None asks
        for the adjoints of all tensors, in the result's ``.adjoints``.
    head : Tensor or None
        Cotangent of shape ``prefix + output.shape`` and of the output's dtype; the adjoint of `t`
        then has shape ``prefix + t.shape``. None is the identity: the gradient of a scalar, the
        Jacobian of a tensor.
    manual : mapping from (out, inp) to callable, optional
        ``f(out, inp, head)`` gives the adjoint of `inp` by way of `out` in place of the rule of
        this edge; ``head`` is the adjoint of `out`.
    override : mapping from out to (deps, callable), optional
        ``f(out, deps, head)`` gives the adjoints of `deps`, which need not be read by `out`
        directly, in place of everything between.
    fdiff : callable, optional
        ``fdiff(out, inp, head)`` replaces the default rule on every edge; see `pullback`.

    Returns
    -------
    DifferentiationResult
        A sequence of the adjoints of `inputs`, with ``.adjoints`` and ``.adjoint_summands``. An
        input that the output does not depend on has zeros.

    Raises
    ------
    NotDifferentiableError
        A tensor is not floating point, or a stage on the way is opaque or has no rule.
    InvalidArgumentError
        An argument has the wrong form, shape or dtype.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import differentiate, show
    >>> x = te.placeholder((3,), name="x")
    >>> k = te.reduce_axis((0, 3), name="k")
    >>> y = te.compute((), lambda: te.sum(x[k] * x[k], axis=k), name="y")
    >>> [dx] = differentiate(y, [x])
    >>> len(dx.shape)
    1

    References
    ----------
    apache/tvm issue 1996, "Automatic differentiation for tensor expressions".
    """
    output = require_float(as_tensor(output, "output"), "output")
    asked = None if inputs is None else as_tensors(inputs, "inputs")
    for tensor in asked or []:
        require_float(tensor, "inputs")
    prefix = shape_of(output) if head is None else prefix_of(as_tensor(head, "head"), output)
    by_hand = check_by_hand(Graph([output]), manual, override)
    sweep = _Sweep(output, asked, Cotangent(head), prefix, by_hand, fdiff)
    return sweep.result()


def gradient(
    output: Tensor, inputs: Tensor | Sequence[Tensor], head: Tensor | None = None
) -> list[Tensor]:
    """The adjoints of `inputs` as a list: call-compatible with the ``te.gradient`` that TVM
    removed.

    Parameters
    ----------
    output, inputs, head
        As in `differentiate`.

    Returns
    -------
    list of Tensor
        One adjoint for each input, of shape ``prefix + input.shape``.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((3,), name="x")
    >>> y = te.compute((3,), lambda i: te.exp(x[i]), name="y")
    >>> [jacobian] = gradient(y, [x])
    >>> [int(extent) for extent in jacobian.shape]
    [3, 3]
    """
    return list(differentiate(output, as_tensors(inputs, "inputs"), head))


def pullback(output: Tensor, input: Tensor, head: Tensor) -> Tensor:
    """The adjoint of `input` by the reads of `output`'s own stage alone, with the default rule.

    The building block for `manual` and `fdiff`: unlike `differentiate` it follows no other path.

    Parameters
    ----------
    output, input : Tensor
        A compute stage and a tensor that it reads.
    head : Tensor
        Cotangent of shape ``prefix + output.shape``.

    Returns
    -------
    Tensor
        Of shape ``prefix + input.shape``.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((3,), name="x")
    >>> y = te.compute((3,), lambda i: x[2 - i], name="y")
    >>> pullback(y, x, te.placeholder((3,), name="h")).op.name
    'dx'
    """
    prefix = prefix_of(as_tensor(head, "head"), as_tensor(output, "output"))
    target = target_of(as_tensor(input, "input"), prefix)
    terms = transpose(output.op, {output.value_index: Cotangent(head)}, [(input, target)])
    group = [gathered for _, _, gathered in terms]
    return assemble(f"d{input.op.name}", target, [group], dtype=dtype_of(input))


@dataclass
class _Summand:
    """What one consumer contributes to an adjoint: gathered terms, or a tensor given by hand."""

    consumer: Tensor
    terms: list[Gathered] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)


class _Sweep:
    """One reverse sweep over the graph of an output."""

    def __init__(
        self,
        output: Tensor,
        inputs: list[Tensor] | None,
        head: Cotangent,
        prefix: tuple[Extent, ...],
        by_hand: ByHand,
        fdiff: Manual | None,
    ) -> None:
        self.output = output
        self.inputs = inputs
        self.head = head
        self.prefix = prefix
        self.by_hand = by_hand
        self.fdiff = fdiff
        self._stand_ins: dict[int, Tensor | None] = {}
        self.graph = Graph([output], self._reads)
        self._targets: dict[tuple[int, int], Target] = {}
        self._summands: dict[tuple[int, int], dict[tuple[int, int], _Summand]] = {}
        self._cotangents: dict[tuple[int, int], Cotangent] = {tensor_key(output): head}
        self._tensors: dict[tuple[int, int], Tensor] = {tensor_key(output): output}
        self._private: set[tuple[int, int]] = set()
        self._given_out: set[tuple[int, int]] = set()
        self._sweep()

    def _stand_in(self, op: Operation) -> Tensor | None:
        """The tensor of equal value that a stage is differentiated as, if it names one."""
        key = hash(op)
        if key not in self._stand_ins:
            self._stand_ins[key] = stand_in(op)
        return self._stand_ins[key]

    def _reads(self, op: Operation) -> list[Tensor]:
        """The tensors that the derivative of a stage leads to, which by hand may be others."""
        stand_in = self._stand_in(op)
        if stand_in is not None:
            return [stand_in]
        outputs = outputs_of(op)
        overridden = [self.by_hand.override.get(tensor_key(tensor)) for tensor in outputs]
        reads = [] if all(overridden) else tensors_read_by(op)
        return [*reads, *(dep for entry in overridden if entry for dep in entry[0])]

    def _sweep(self) -> None:
        if self.inputs is None:
            on_path = {hash(op) for op in self.graph.ops}
        else:
            on_path = self.graph.depends_on(self.inputs)
        for op in reversed(self.graph.ops):
            if hash(op) not in on_path:
                continue
            arrived = [tensor for tensor in outputs_of(op) if self._cotangent(tensor) is not None]
            if not arrived or is_placeholder(op):
                continue
            wanted = [
                tensor
                for tensor in self.graph.reads(op)
                if is_float(tensor) and hash(tensor.op) in on_path
            ]
            self._push(op, arrived, wanted)

    def _push(self, op: Operation, arrived: list[Tensor], wanted: list[Tensor]) -> None:
        """Send the cotangents that arrived at a stage on to the tensors it reads."""
        by_rule: dict[int, Cotangent] = {}
        for out in arrived:
            entry = self.by_hand.override.get(tensor_key(out))
            stand_in = self._stand_in(op)
            if entry is not None:
                self._push_override(out, *entry)
            elif stand_in is not None:
                self._summand(stand_in, out).tensors.append(self._materialised(out))
            else:
                by_rule[out.value_index] = self._cotangents[tensor_key(out)]
        if not by_rule:
            return
        left: list[Tensor] = []
        for tensor in wanted:
            for out in outputs_of(op):
                if out.value_index not in by_rule:
                    continue
                function = self.by_hand.manual.get(
                    (tensor_key(out), tensor_key(tensor)), self.fdiff
                )
                if function is not None:
                    adjoint = check_adjoint(
                        function(out, tensor, self._materialised(out)),
                        tensor,
                        self.prefix,
                        f"the derivative given by hand of {out.op.name} by {tensor.op.name}",
                    )
                    self._summand(tensor, out).tensors.append(adjoint)
                elif not any(tensor_key(tensor) == tensor_key(known) for known in left):
                    left.append(tensor)
        if not left:
            return
        targets = [(tensor, self._target(tensor)) for tensor in left]
        outputs = outputs_of(op)
        transposed = transpose(op, by_rule, targets)
        if len(transposed) == 1 and len(wanted) == 1 and len(by_rule) == 1:
            self._mark_private(arrived[0])
        for component, tensor, gathered in transposed:
            out = outputs[component]
            by_hand = self.by_hand.manual.get((tensor_key(out), tensor_key(tensor)), self.fdiff)
            if by_hand is None:
                self._summand(tensor, out).terms.append(gathered)

    def _mark_private(self, tensor: Tensor) -> None:
        """Note that the adjoint of a tensor is read once, and nobody asked for it."""
        asked = {tensor_key(t) for t in self.inputs or []}
        adjoint = self._cotangents[tensor_key(tensor)].tensor
        wanted = self.inputs is None or tensor_key(tensor) in asked
        if adjoint is not None and adjoint is not self.head.tensor and not wanted:
            self._private.add(tensor_key(adjoint))

    def _push_override(self, out: Tensor, deps: list[Tensor], function: Any) -> None:
        who = f"override[{out.op.name}]"
        adjoints = function(out, list(deps), self._materialised(out))
        if not isinstance(adjoints, (list, tuple)) or len(adjoints) != len(deps):
            raise InvalidArgumentError(
                f"{who} must return a list of {len(deps)} adjoints, one for each of "
                f"{', '.join(dep.op.name for dep in deps)}"
            )
        for dep, adjoint in zip(deps, adjoints, strict=True):
            checked = check_adjoint(adjoint, dep, self.prefix, who)
            self._summand(dep, out).tensors.append(checked)

    def _summand(self, tensor: Tensor, consumer: Tensor) -> _Summand:
        self._tensors.setdefault(tensor_key(tensor), tensor)
        by_consumer = self._summands.setdefault(tensor_key(tensor), {})
        return by_consumer.setdefault(tensor_key(consumer), _Summand(consumer))

    def _target(self, tensor: Tensor) -> Target:
        key = tensor_key(tensor)
        if key not in self._targets:
            self._targets[key] = target_of(tensor, self.prefix)
        return self._targets[key]

    def _name(self, tensor: Tensor) -> str:
        wrt = f"d{tensor.op.name}"
        return (
            wrt
            if self.head.tensor is not None or not self.prefix
            else (f"d{self.output.op.name}_{wrt}")
        )

    def _cotangent(self, tensor: Tensor) -> Cotangent | None:
        """The cotangent of a tensor, when one arrived; summands are added up at the first call."""
        key = tensor_key(tensor)
        if key not in self._cotangents and key in self._summands:
            summands = self._summands[key].values()
            adjoint = assemble(
                self._name(tensor),
                self._target(tensor),
                [summand.terms for summand in summands],
                [adjoint for summand in summands for adjoint in summand.tensors],
                dtype_of(tensor),
                lambda read: tensor_key(read) in self._private,
            )
            self._cotangents[key] = Cotangent(adjoint)
        return self._cotangents.get(key)

    def _materialised(self, tensor: Tensor) -> Tensor:
        """The adjoint of a tensor as a tensor, the identity included; zeros where nothing
        arrived.
        """
        key = tensor_key(tensor)
        cotangent = self._cotangent(tensor)
        if cotangent is None:
            zeros = assemble(self._name(tensor), self._target(tensor), [], [], dtype_of(tensor))
            cotangent = self._cotangents[key] = Cotangent(zeros)
        if cotangent.tensor is None:
            cotangent = self._cotangents[key] = Cotangent(identity(tensor))
        assert cotangent.tensor is not None
        return cotangent.tensor

    def _adjoint(self, tensor: Tensor) -> Tensor:
        """The adjoint as a result: a stage of its own, also where it equals the head or that of
        another tensor, since `build` takes no placeholder and no tensor twice as output.
        """
        adjoint = self._materialised(tensor)
        if not is_placeholder(adjoint.op) and tensor_key(adjoint) not in self._given_out:
            self._given_out.add(tensor_key(adjoint))
            return adjoint
        target = self._target(tensor)
        axes = [renew_axis(axis) for axis in (*target.prefix, *target.axes)]
        body = load(adjoint, [axis.var for axis in axes])
        return make_stage(self._name(tensor), axes, [body])[0]

    def result(self) -> DifferentiationResult:
        """The adjoints asked for and all that were computed on the way."""
        adjoints: TensorMap[Tensor] = TensorMap("adjoint")
        summands: TensorMap[TensorMap[Tensor]] = TensorMap("adjoint summands")
        asked = [*(self.inputs or []), *self._tensors.values()]
        for tensor in asked:
            if tensor in adjoints:
                continue
            adjoints.define(tensor, lambda tensor=tensor: self._adjoint(tensor))
            summands.define(tensor, lambda tensor=tensor: self._summands_of(tensor))
        result = None if self.inputs is None else [adjoints[tensor] for tensor in self.inputs]
        return DifferentiationResult(result, adjoints, summands)

    def _summands_of(self, tensor: Tensor) -> TensorMap[Tensor]:
        result: TensorMap[Tensor] = TensorMap(f"summand of the adjoint of {tensor.op.name}")
        by_consumer = self._summands.get(tensor_key(tensor), {})
        for summand in by_consumer.values():
            result.define(
                summand.consumer,
                lambda summand=summand: (
                    assemble(
                        f"{self._name(tensor)}_by_{summand.consumer.op.name}",
                        self._target(tensor),
                        [summand.terms],
                        summand.tensors,
                        dtype_of(tensor),
                    )
                    if len(by_consumer) > 1
                    else self._materialised(tensor)
                ),
            )
        return result


def identity(tensor: Tensor) -> Tensor:
    """The identity as a cotangent of `tensor`: shape ``tensor.shape + tensor.shape``, one on the
    diagonal.

    For a scalar it is the number one, of shape ``()``.
    """
    shape = shape_of(tensor)
    rows = [data_axis(f"p{n}", extent) for n, extent in enumerate(shape)]
    columns = [data_axis(f"i{n}", extent) for n, extent in enumerate(shape)]
    equal: Callable[[Any, Any], Any] = lambda p, i: compare("eq", p.var, i.var)  # noqa: E731
    condition = all_of(equal(p, i) for p, i in zip(rows, columns, strict=True))
    dtype = dtype_of(tensor)
    body = if_then_else(condition, const(1, dtype), const(0, dtype))
    return make_stage(f"identity_{tensor.op.name}", [*rows, *columns], [body])[0]
