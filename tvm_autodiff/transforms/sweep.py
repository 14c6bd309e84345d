"""The reverse sweep: one walk over the stages, from the outputs back.

In: outputs, their cotangents, what is asked for and what is given by hand, all checked. Out: a
`DifferentiationResult`. What a single stage contributes is `zero_elimination`'s; an adjoint
becomes a tensor when all of its consumers have contributed. Stages that only copy are passed by.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..errors import InvalidArgumentError
from ..expr.build import all_of, compare, const, if_then_else
from ..expr.nodes import Tensor, dtype_of, is_float, load, tensor_key
from ..graph.bounded_stage import bounded_stage
from ..graph.checkpoint import computed_again
from ..graph.graph import Graph, rebuild, tensors_read_by
from ..graph.kinds.prefix_scan import scan_of
from ..graph.stage import (
    Extent,
    Operation,
    data_axis,
    is_placeholder,
    outputs_of,
    renew_axis,
    shape_of,
)
from ..graph.stop_gradient import stopped_reads
from ..rules.copies import Copies
from ..rules.equal_forms import equal_form
from ..rules.invariance import unneeded_tensors
from ..rules.scans import scan_adjoints
from ..zero_elimination.sums.assemble import assemble
from ..zero_elimination.sums.sum import Sum, Target
from ..zero_elimination.transposition.copying import read_through_copies
from ..zero_elimination.transposition.gather import Cotangent
from ..zero_elimination.transposition.transpose import Transposed, target_of, transpose
from .arguments import (
    ByHand,
    Manual,
    check_derivative,
)
from .result import DifferentiationResult, TensorMap


@dataclass
class _Summand:
    """What one consumer contributes to an adjoint: sums, or a tensor given by hand."""

    consumer: Tensor
    terms: list[Sum] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)


Seed = tuple[Tensor, Cotangent]  #: an output and the cotangent that arrives there


class Sweep:
    """One reverse sweep over the graph of some outputs.

    The identity is the cotangent of an output that is alone. Outputs without a cotangent belong to
    the graph and have no seed.
    """

    def __init__(
        self,
        outputs: list[Tensor],
        seeds: list[Seed],
        inputs: list[Tensor] | None,
        prefix: tuple[Extent, ...],
        by_hand: ByHand,
        fdiff: Manual | None,
    ) -> None:
        self.outputs = outputs
        self.seeds = seeds
        self.inputs = inputs
        self._asked = {tensor_key(tensor) for tensor in inputs or []}
        self.prefix = prefix
        self.by_hand = by_hand
        self.fdiff = fdiff
        self._equal_forms: dict[int, Tensor | None] = {}
        self._touched_by_hand = {
            *(key for edge in by_hand.manual for key in edge),
            *by_hand.override,
            *(tensor_key(dep) for deps, _ in by_hand.override.values() for dep in deps),
        }
        self.graph = Graph(outputs, self._reads)
        self._unneeded: set[tuple[int, int]] = set()
        self._on_path = self._path()
        self._targets: dict[tuple[int, int], Target] = {}
        self._summands: dict[tuple[int, int], dict[tuple[int, int], _Summand]] = {}
        self._cotangents: dict[tuple[int, int], Cotangent] = {}
        self._tensors: dict[tuple[int, int], Tensor] = {}
        self._copies = Copies(self._may_pass, lambda tensor: hash(tensor.op) in self._on_path)
        self._full_sweep: Sweep | None = None
        self.sites: list[Transposed] = []
        self.scanned: list[tuple[Operation, Tensor]] = []
        self._given_out: set[tuple[int, int]] = set()
        for output, cotangent in seeds:
            self._seed(output, cotangent)
        self._sweep()
        self._recompute()

    def _path(self) -> set[int]:
        """Hashes of the stages between outputs and inputs that a cotangent may pass."""
        if self.inputs is None:
            return {hash(op) for op in self.graph.ops}
        path = self.graph.depends_on(self.inputs, self._leads_to)
        if self.fdiff is not None:
            return path
        ends = {tensor_key(output) for output, _ in self.seeds}
        self._unneeded = unneeded_tensors(
            self.graph, ends, path, self._asked, self._touched_by_hand
        )
        return self.graph.depends_on(self.inputs, self._leads_to) if self._unneeded else path

    def _seed(self, output: Tensor, cotangent: Cotangent) -> None:
        """A cotangent that is given; an output may have several, and be read by other outputs."""
        if cotangent.tensor is None:
            self._cotangents[tensor_key(output)] = cotangent
        else:
            self._summand(output, output).tensors.append(cotangent.tensor)

    def _equal_form(self, op: Operation) -> Tensor | None:
        """The tensor of equal value that a stage is differentiated as, made once."""
        key = hash(op)
        if key not in self._equal_forms:
            self._equal_forms[key] = equal_form(op)
        return self._equal_forms[key]

    def _reads(self, op: Operation) -> list[Tensor]:
        """The tensors that the derivative of a stage leads to, which by hand may be others."""
        equal = self._equal_form(op)
        if equal is not None:
            return [equal]
        outputs = outputs_of(op)
        overridden = [self.by_hand.override.get(tensor_key(tensor)) for tensor in outputs]
        reads = [] if all(overridden) else tensors_read_by(op)
        return [*reads, *(dep for entry in overridden if entry for dep in entry[0])]

    def _leads_to(self, op: Operation) -> list[Tensor]:
        """The tensors that cotangents of a stage go to: none whose cotangent is zero; past a
        stopped gradient only by hand.
        """
        reads = self.graph.reads(op)
        if self._unneeded:
            reads = [tensor for tensor in reads if tensor_key(tensor) not in self._unneeded]
        ended = stopped_reads(op)
        if not ended:
            return reads
        outputs = [tensor_key(tensor) for tensor in outputs_of(op)]
        ended -= {inp for out, inp in self.by_hand.manual if out in outputs}
        for out in outputs:
            ended -= {tensor_key(dep) for dep in self.by_hand.override.get(out, ([],))[0]}
        return [tensor for tensor in reads if tensor_key(tensor) not in ended]

    def _sweep(self) -> None:
        for op in self.graph.ops:  # from the inputs on, so that no long row of copies recurses
            for tensor in outputs_of(op) if hash(op) in self._on_path else ():
                self._copies.terms(tensor)
        for op in reversed(self.graph.ops):
            if hash(op) not in self._on_path:
                continue
            arrived = [tensor for tensor in outputs_of(op) if self._cotangent(tensor) is not None]
            if not arrived or is_placeholder(op):
                continue
            wanted = [
                tensor
                for tensor in self._leads_to(op)
                if is_float(tensor) and hash(tensor.op) in self._on_path
            ]
            self._push(op, arrived, wanted)

    def _recompute(self) -> None:
        """Let the adjoints read what a checkpoint computes anew."""
        again = computed_again(self.graph)
        if not again:
            return
        given = {tensor_key(c.tensor) for _, c in self.seeds if c.tensor is not None}

        def other(tensor: Tensor) -> Tensor | None:
            kept = self.graph.contains(tensor) or tensor_key(tensor) in given
            return again.get(tensor_key(tensor), tensor if kept else None)

        found = [(key, c.tensor) for key, c in self._cotangents.items() if c.tensor is not None]
        moved = rebuild([tensor for _, tensor in found], other)
        for (key, _), tensor in zip(found, moved, strict=True):
            self._cotangents[key] = Cotangent(tensor)

    def _push(self, op: Operation, arrived: list[Tensor], wanted: list[Tensor]) -> None:
        """Send the cotangents that arrived at a stage on to the tensors it reads."""
        by_rule: dict[int, Cotangent] = {}
        for out in arrived:
            entry = self.by_hand.override.get(tensor_key(out))
            equal = self._equal_form(op)
            if entry is not None:
                self._push_override(out, *entry)
            elif equal is not None:
                self._summand(equal, out).tensors.append(self._materialised(out))
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
                    adjoint = check_derivative(
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
        outputs = outputs_of(op)
        if scan_of(op) is not None:
            heads = {number: self._materialised(outputs[number]) for number in by_rule}
            for tensor, adjoint in scan_adjoints(op, heads, self.prefix, left):
                self._summand(tensor, outputs[min(by_rule)]).tensors.append(adjoint)
                self.scanned.append((op, tensor))
            return
        for site in transpose(op, by_rule, left, self._target, self._copies.terms):
            tensor, out = site.term.tensor, outputs[site.term.component]
            by_hand = self.by_hand.manual.get((tensor_key(out), tensor_key(tensor)), self.fdiff)
            if by_hand is None:
                source = read_through_copies(site.sum.source, self._is_kept)
                self._summand(tensor, out).terms.append(replace(site.sum, source=source))
                self.sites.append(site)

    def _may_pass(self, tensor: Tensor) -> bool:
        """Whether nobody asked for a tensor, and no derivative by hand is for it."""
        by_hand = self.fdiff is not None or tensor_key(tensor) in self._touched_by_hand
        return not by_hand and not self._is_kept(tensor)

    def _is_kept(self, tensor: Tensor) -> bool:
        """Whether a tensor must stay in the result, since it is differentiated by."""
        return self.inputs is None or tensor_key(tensor) in self._asked

    def _push_override(self, out: Tensor, deps: list[Tensor], function: Any) -> None:
        who = f"override[{out.op.name}]"
        adjoints = function(out, list(deps), self._materialised(out))
        if not isinstance(adjoints, (list, tuple)) or len(adjoints) != len(deps):
            raise InvalidArgumentError(
                f"{who} must return a list of {len(deps)} adjoints, one for each of "
                f"{', '.join(dep.op.name for dep in deps)}"
            )
        for dep, adjoint in zip(deps, adjoints, strict=True):
            checked = check_derivative(adjoint, dep, self.prefix, who)
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
        jacobian = self.prefix and any(cotangent.tensor is None for _, cotangent in self.seeds)
        return f"d{self.outputs[0].op.name}_{wrt}" if jacobian else wrt

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
            )
            self._cotangents[key] = Cotangent(adjoint)
        return self._cotangents.get(key)

    def _materialised(self, tensor: Tensor) -> Tensor:
        """The adjoint of a tensor as a tensor: the identity included, zeros where none arrived."""
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
        taken = tensor_key(adjoint) in self._given_out or self.graph.contains(adjoint)
        if not is_placeholder(adjoint.op) and not taken:
            self._given_out.add(tensor_key(adjoint))
            return adjoint
        target = self._target(tensor)
        axes = [renew_axis(axis) for axis in (*target.prefix, *target.axes)]
        body = load(adjoint, [axis.var for axis in axes])
        return bounded_stage(self._name(tensor), axes, [body])[0]

    def result(self) -> DifferentiationResult:
        """The adjoints asked for and all that were computed on the way."""
        adjoints: TensorMap[Tensor] = TensorMap("adjoint")
        summands: TensorMap[TensorMap[Tensor]] = TensorMap("adjoint summands")
        every = [
            tensor
            for op in reversed(self.graph.ops)
            if hash(op) in self._on_path
            for tensor in outputs_of(op)
            if is_float(tensor)
        ]
        for tensor in [*(self.inputs or []), *every]:
            if tensor in adjoints:
                continue
            here = tensor_key(tensor) in self._asked or self.inputs is None
            adjoints.define(tensor, partial(self._adjoint if here else self._full_adjoint, tensor))
            summands.define(tensor, partial(self._full_summands, tensor))
        result = None if self.inputs is None else [adjoints[tensor] for tensor in self.inputs]
        return DifferentiationResult(result, adjoints, summands, self.sites, self.scanned)

    def _full(self) -> Sweep:
        """The sweep over all tensors, none passed by: made when somebody looks at intermediates."""
        if self.inputs is None:
            return self
        if self._full_sweep is None:
            self._full_sweep = Sweep(
                self.outputs, self.seeds, None, self.prefix, self.by_hand, self.fdiff
            )
        return self._full_sweep

    def _full_adjoint(self, tensor: Tensor) -> Tensor:
        return self._full()._adjoint(tensor)

    def _full_summands(self, tensor: Tensor) -> TensorMap[Tensor]:
        return self._full()._summands_of(tensor)

    def _summands_of(self, tensor: Tensor) -> TensorMap[Tensor]:
        result: TensorMap[Tensor] = TensorMap(f"summand of the adjoint of {tensor.op.name}")
        by_consumer = self._summands.get(tensor_key(tensor), {})
        for summand in by_consumer.values():
            result.define(summand.consumer, partial(self._summand_tensor, tensor, summand))
        return result

    def _summand_tensor(self, tensor: Tensor, summand: _Summand) -> Tensor:
        """What one consumer contributes, as a tensor: the adjoint itself for a single consumer."""
        if len(self._summands[tensor_key(tensor)]) == 1:
            return self._materialised(tensor)
        return assemble(
            f"{self._name(tensor)}_by_{summand.consumer.op.name}",
            self._target(tensor),
            [summand.terms],
            summand.tensors,
            dtype_of(tensor),
        )


def identity(tensor: Tensor) -> Tensor:
    """The identity as a cotangent: ``tensor.shape + tensor.shape``, one on the diagonal.

    For a scalar it is the number one, of shape ``()``.
    """
    shape = shape_of(tensor)
    rows = [data_axis(f"p{n}", extent) for n, extent in enumerate(shape)]
    columns = [data_axis(f"i{n}", extent) for n, extent in enumerate(shape)]
    condition = all_of(
        compare("eq", row.var, column.var) for row, column in zip(rows, columns, strict=True)
    )
    dtype = dtype_of(tensor)
    body = if_then_else(condition, const(1, dtype), const(0, dtype))
    return bounded_stage(f"identity_{tensor.op.name}", [*rows, *columns], [body])[0]
