"""The reverse sweep: one walk over the stages, from the outputs back to the inputs.

The rule of each kind (`pull`) gives the contributions of a stage. An adjoint becomes a tensor when
all of its consumers have contributed. Stages that only copy are fused through. Arguments are
already checked, and custom rules are already stages (`marks`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial

from ..expr.build import all_of, compare, const, if_then_else
from ..expr.nodes import Tensor, dtype_of, is_float, load, tensor_key
from ..garbage import collected_later
from ..graph.bounded_stage import bounded_stage
from ..graph.graph import Graph, rebuild
from ..graph.kinds.custom import custom_of
from ..graph.marks.checkpoint import computed_again
from ..graph.stage import (
    Extent,
    Operation,
    data_axis,
    is_placeholder,
    outputs_of,
    renew_axis,
    shape_of,
)
from ..rules.copies import Copies
from ..rules.invariance import unneeded_tensors
from ..zero_elimination.sums.assemble import assemble
from ..zero_elimination.sums.sum import Sum, Target
from ..zero_elimination.transposition.copying import read_through_copies
from ..zero_elimination.transposition.gather import Cotangent
from ..zero_elimination.transposition.transpose import Transposed, target_of
from .custom_rules.marks import Marked
from .pull import NO_PULLBACK, Arrived, Pullback, pullback_of
from .result import DifferentiationResult, TensorMap

Key = tuple[int, int]


@dataclass
class _Summand:
    """The contribution of one consumer to an adjoint: sums, or tensors."""

    consumer: Tensor
    terms: list[Sum] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)


Seed = tuple[Tensor, Cotangent]  #: an output and the cotangent that arrives there


class Sweep:
    """One reverse sweep over the graph of some outputs.

    A single output may have the identity as cotangent. Outputs without a cotangent belong to the
    graph but have no seed. `marks` maps stages that carry rules to the caller's tensors. Tensors in
    `ends` count as inputs: the sweep stops there.
    """

    def __init__(
        self,
        outputs: list[Tensor],
        seeds: list[Seed],
        inputs: list[Tensor] | None,
        prefix: tuple[Extent, ...],
        marks: Marked | None = None,
        ends: Collection[Key] = (),
    ) -> None:
        self.outputs = outputs
        self.seeds = seeds
        self.inputs = inputs
        self.prefix = prefix
        self._marks = marks or Marked(outputs)
        self._ends = ends
        self._pullbacks: dict[int, Pullback] = {}
        self.graph = Graph(outputs, lambda op: self._pullback(op).reads)
        self._forms = self._other_forms()
        self._asked = {tensor_key(form) for x in inputs or [] for form in self._forms_of(x)}
        self._unneeded: set[Key] = set()
        self._on_path = self._path()
        self._targets: dict[Key, Target] = {}
        self._summands: dict[Key, dict[Key, _Summand]] = {}
        self._cotangents: dict[Key, Cotangent] = {}
        self._tensors: dict[Key, Tensor] = {}
        self._copies = Copies(
            lambda tensor: not self._is_kept(tensor),
            lambda tensor: hash(tensor.op) in self._on_path,
        )
        self._full_sweep: Sweep | None = None
        self.sites: list[Transposed] = []
        self.scanned: list[tuple[Operation, Tensor]] = []
        self._given_out: set[Key] = set()
        for output, cotangent in seeds:
            self._seed(output, cotangent)
        self._sweep()
        self._recompute()

    def _pullback(self, op: Operation) -> Pullback:
        """The reverse rule of a stage, made once, because it may hold its own tensors."""
        key = hash(op)
        if key not in self._pullbacks:
            ended = all(tensor_key(tensor) in self._ends for tensor in outputs_of(op))
            rule = NO_PULLBACK if self._ends and ended else pullback_of(op, bool(self.prefix))
            self._pullbacks[key] = rule
        return self._pullbacks[key]

    def _other_forms(self) -> dict[Key, list[Tensor]]:
        """For each tensor, the stages that replace it: with rules, or copies that read such stages.
        """
        forms = {key: [tensor] for key, tensor in self._marks.forms.items()}
        for op in self.graph.ops:
            stage = custom_of(op)
            if stage is not None and stage.stands:
                for value, output in zip(stage.values, stage.outputs, strict=True):
                    known = forms.setdefault(tensor_key(value), [])
                    if tensor_key(output) not in map(tensor_key, known):
                        known.append(output)
        return forms

    def _forms_of(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of the graph whose adjoints add up to that of a tensor.

        These are the tensor itself and its replacements.
        """
        found = [tensor]
        for form in found:
            found += self._forms.get(tensor_key(form), [])
        return found

    def _original(self, tensor: Tensor) -> Tensor:
        """The caller's tensor that a stage replaces, or the tensor itself."""
        return self._marks.originals.get(tensor_key(tensor), tensor)

    def _path(self) -> set[int]:
        """Hashes of the stages between outputs and inputs that a cotangent may pass."""
        if self.inputs is None:
            return {hash(op) for op in self.graph.ops}
        forms = [form for x in self.inputs for form in self._forms_of(x)]
        path = self.graph.depends_on(forms, self._leads_to)
        ends = {tensor_key(output) for output, _ in self.seeds}
        self._unneeded = unneeded_tensors(self.graph, ends, path, self._asked)
        return self.graph.depends_on(forms, self._leads_to) if self._unneeded else path

    def _seed(self, output: Tensor, cotangent: Cotangent) -> None:
        """Add a given cotangent; an output may have several, and may be read by other outputs."""
        if cotangent.tensor is None:
            self._cotangents[tensor_key(output)] = cotangent
        else:
            self._summand(output, output).tensors.append(cotangent.tensor)

    def _leads_to(self, op: Operation) -> list[Tensor]:
        """The tensors that receive cotangents of a stage, without those whose cotangent is zero."""
        found = self._pullback(op).leads_to
        return [tensor for tensor in found if tensor_key(tensor) not in self._unneeded]

    @collected_later()
    def _sweep(self) -> None:
        for op in self.graph.ops:  # from the inputs on, so that no long row of copies recurses
            for tensor in outputs_of(op) if hash(op) in self._on_path else ():
                self._copies.terms(tensor)
        for op in reversed(self.graph.ops):
            if hash(op) not in self._on_path:
                continue
            outputs = outputs_of(op)
            found = {number: self._cotangent(tensor) for number, tensor in enumerate(outputs)}
            arrived = {number: c for number, c in found.items() if c is not None}
            wanted = [
                tensor
                for tensor in self._leads_to(op)
                if is_float(tensor) and hash(tensor.op) in self._on_path
            ]
            if arrived and wanted:
                self._push(op, arrived, wanted)

    def _recompute(self) -> None:
        """Make the adjoints read recomputed checkpoints."""
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

    def _push(self, op: Operation, cotangents: dict[int, Cotangent], wanted: list[Tensor]) -> None:
        """Pass the cotangents that arrived at a stage on to the tensors it leads to."""
        outputs = outputs_of(op)
        arrived = Arrived(
            cotangents, wanted, self.prefix, self._materialised, self._target, self._copies.terms
        )
        pulled = self._pullback(op).pull(arrived)
        for tensor, number, adjoint in pulled.tensors:
            self._summand(tensor, outputs[number]).tensors.append(adjoint)
        for site in pulled.sites:
            source = read_through_copies(site.sum.source, self._is_kept)
            summand = self._summand(site.term.tensor, outputs[site.term.component])
            summand.terms.append(replace(site.sum, source=source))
        self.sites += pulled.sites
        self.scanned += [(op, tensor) for tensor in pulled.scanned]

    def _is_kept(self, tensor: Tensor) -> bool:
        """Whether a tensor must stay in the result because it is differentiated with respect to."""
        return self.inputs is None or tensor_key(tensor) in self._asked

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
        """The cotangent of a tensor if one arrived; the first call sums the contributions."""
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
        """The adjoint of a tensor as a tensor: the identity is expanded, and zeros are made if none
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

    def whole(self, tensor: Tensor) -> Tensor:
        """The adjoint of a tensor, including all stages that replace it."""
        forms = self._forms_of(tensor)
        arrived = [form for form in forms if self._cotangent(form) is not None]
        if len(arrived) <= 1:
            return self._materialised(arrived[0] if arrived else tensor)
        parts = [self._materialised(form) for form in arrived]
        return assemble(self._name(tensor), self._target(tensor), [], parts, dtype_of(tensor))

    def _adjoint(self, tensor: Tensor) -> Tensor:
        """The adjoint as a result: a separate stage, even if it equals the head or another adjoint.

        `build` accepts neither placeholders nor repeated tensors as outputs.
        """
        adjoint = self.whole(tensor)
        taken = tensor_key(adjoint) in self._given_out or self.graph.contains(adjoint)
        if not is_placeholder(adjoint.op) and not taken:
            self._given_out.add(tensor_key(adjoint))
            return adjoint
        target = self._target(tensor)
        axes = [renew_axis(axis) for axis in (*target.prefix, *target.axes)]
        body = load(adjoint, [axis.var for axis in axes])
        return bounded_stage(self._name(tensor), axes, [body])[0]

    def result(self) -> DifferentiationResult:
        """The requested adjoints, and all that were computed."""
        adjoints: TensorMap[Tensor] = TensorMap("adjoint")
        summands: TensorMap[TensorMap[Tensor]] = TensorMap("adjoint summands")
        asked = {tensor_key(tensor) for tensor in self.inputs or []}
        every = [
            self._original(tensor)
            for op in reversed(self.graph.ops)
            if hash(op) in self._on_path
            for tensor in outputs_of(op)
            if is_float(tensor)
        ]
        for tensor in [*(self.inputs or []), *every]:
            if tensor in adjoints:
                continue
            here = tensor_key(tensor) in asked or self.inputs is None
            adjoints.define(tensor, partial(self._adjoint if here else self._full_adjoint, tensor))
            summands.define(tensor, partial(self._full_summands, tensor))
        result = None if self.inputs is None else [adjoints[tensor] for tensor in self.inputs]
        return DifferentiationResult(result, adjoints, summands, self.sites, self.scanned)

    def _full(self) -> Sweep:
        """The sweep over all tensors without fusing through copies, made on access to
        intermediates.
        """
        if self.inputs is None:
            return self
        if self._full_sweep is None:
            self._full_sweep = Sweep(
                self.outputs, self.seeds, None, self.prefix, self._marks, self._ends
            )
        return self._full_sweep

    def _full_adjoint(self, tensor: Tensor) -> Tensor:
        return self._full()._adjoint(tensor)

    def _full_summands(self, tensor: Tensor) -> TensorMap[Tensor]:
        return self._full()._summands_of(tensor)

    def _summands_of(self, tensor: Tensor) -> TensorMap[Tensor]:
        result: TensorMap[Tensor] = TensorMap(f"summand of the adjoint of {tensor.op.name}")
        found = [
            (form, summand)
            for form in self._forms_of(tensor)
            for summand in self._summands.get(tensor_key(form), {}).values()
        ]
        for form, summand in found:
            make = partial(self._summand_tensor, form, summand)
            alone = len(found) == 1  # then it is the adjoint itself
            consumer = self._original(summand.consumer)
            result.define(consumer, partial(self.whole, tensor) if alone else make)
        return result

    def _summand_tensor(self, tensor: Tensor, summand: _Summand) -> Tensor:
        """The contribution of one consumer, as a tensor."""
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
