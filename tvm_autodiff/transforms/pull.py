"""Reverse rules of stages, one for each kind: how cotangents of outputs become cotangents of
inputs.

A rule lists the tensors that cotangents lead to, and maps arrived cotangents to contributions. The
sweep that collects them does not depend on the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..expr.nodes import Tensor, is_float, tensor_key
from ..graph.graph import tensors_read_by
from ..graph.kinds.custom import Custom
from ..graph.kinds.kind import Compute, Input, Kind, Opaque, kind_of
from ..graph.kinds.loop import Loop
from ..graph.kinds.prefix_scan import Scan
from ..graph.kinds.rewind import KeptLoop, Rewind
from ..graph.kinds.scatter_add import ScatterAdd
from ..graph.kinds.update_loops import UpdateLoops
from ..graph.marks.stop_gradient import stopped_reads
from ..graph.stage import Extent, Operation, outputs_of
from ..rules.equal_forms import equal_forms
from ..rules.equal_windows import equal_windows
from ..rules.parts.decided_parts import decided_parts
from ..rules.parts.pair_parts import pair_parts
from ..rules.parts.placed_parts import placed_parts
from ..rules.parts.repeated_parts import repeated_parts
from ..rules.parts.shared_parts import shared_parts
from ..rules.parts.stencil_parts import stencil_parts
from ..rules.reductions.prefix_form import prefix_form
from ..rules.reductions.scans import scan_adjoints
from ..rules.registry import ruled
from ..rules.terms import Term
from ..zero_elimination.passes.reductions import solved_form
from ..zero_elimination.sums.sum import Target
from ..zero_elimination.transposition.gather import Cotangent
from ..zero_elimination.transposition.transpose import Transposed, transpose
from .custom_rules.apply_rule import forms_of, pull_through
from .loops.reverse import pull_loop_over_prefix


@dataclass(frozen=True)
class Arrived:
    """The cotangents that arrived at a stage, and services of the sweep for its rule.

    Attributes
    ----------
    cotangents : mapping from int to Cotangent
        Cotangents by output number; missing ones are zero.
    wanted : list of Tensor
        The tensors that need adjoints, among those that the stage leads to.
    prefix : tuple of int or Expr
        The leading extents of cotangents.
    materialised : callable
        Returns the cotangent of an output as a tensor, including zeros.
    target : callable
        Returns the axes of a tensor's adjoint.
    copies : callable
        Returns the terms of a stage that only copies and may be fused through, or None.
    """

    cotangents: Mapping[int, Cotangent]
    wanted: list[Tensor]
    prefix: tuple[Extent, ...]
    materialised: Callable[[Tensor], Tensor]
    target: Callable[[Tensor], Target]
    copies: Callable[[Tensor], list[Term] | None]


@dataclass
class Pulled:
    """The contributions of a stage.

    Attributes
    ----------
    tensors : list of (Tensor, int, Tensor)
        A tensor, the number of the output, and the contribution.
    sites : list of Transposed
        Contributions of single reads, not yet assembled.
    scanned : list of Tensor
        The tensors that received a contribution from a scan in the opposite direction.
    """

    tensors: list[tuple[Tensor, int, Tensor]] = field(default_factory=list)
    sites: list[Transposed] = field(default_factory=list)
    scanned: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Pullback:
    """The reverse rule of one stage.

    Attributes
    ----------
    reads : list of Tensor
        The tensors with respect to which it is differentiated.
    leads_to : list of Tensor
        The tensors among these that may get a cotangent.
    pull : callable
        Maps arrived cotangents to contributions.
    """

    reads: list[Tensor]
    leads_to: list[Tensor]
    pull: Callable[[Arrived], Pulled]


def pullback_of(op: Operation, of_rows: bool = False) -> Pullback:
    """The reverse rule of a stage; `of_rows` for cotangents with leading axes, as of Jacobians,
    whose zeros are found in one expression only.
    """
    kind = kind_of(op)
    if isinstance(kind, Compute) and not of_rows and not stopped_reads(op):
        forms = (
            *(pair_parts, repeated_parts, placed_parts, decided_parts, stencil_parts),
            *(shared_parts, equal_windows, solved_form),
        )
        parts = next((found for form in forms if (found := form(op)) is not None), None)
        if parts is not None:
            return _equal_to(op, parts)
    return _RULES[type(kind)](op, kind)


#: the rule of a stage that passes nothing on
NO_PULLBACK = Pullback([], [], lambda arrived: Pulled())


def _constant(op: Operation, kind: Kind) -> Pullback:
    return NO_PULLBACK


def _equal(op: Operation, kind: Kind) -> Pullback:
    forms = equal_forms(op)
    assert forms is not None
    return _equal_to(op, forms)


def _equal_to(op: Operation, forms: list[Tensor]) -> Pullback:
    """The rule of a stage that is differentiated as equal tensors, which get the cotangents."""

    def pull(arrived: Arrived) -> Pulled:
        outputs = outputs_of(op)
        return Pulled([(forms[n], n, arrived.materialised(outputs[n])) for n in arrived.cotangents])

    return Pullback(forms, forms, pull)


def _compute(op: Operation, kind: Compute) -> Pullback:
    reads = tensors_read_by(op)
    stopped = stopped_reads(op)
    forms = None if stopped else prefix_form(op)
    if forms is not None:
        return _equal_to(op, forms)
    leads_to = [tensor for tensor in reads if tensor_key(tensor) not in stopped]
    return Pullback(reads, leads_to, partial(_transposed, op))


def _transposed(op: Operation, arrived: Arrived) -> Pulled:
    sites = transpose(op, arrived.cotangents, arrived.wanted, arrived.target, arrived.copies)
    return Pulled(sites=sites)


def _scan(op: Operation, scan: Scan) -> Pullback:
    def pull(arrived: Arrived) -> Pulled:
        outputs = outputs_of(op)
        heads = {n: arrived.materialised(outputs[n]) for n in arrived.cotangents}
        found = scan_adjoints(op, heads, arrived.prefix, arrived.wanted)
        first = min(heads)
        return Pulled([(x, first, adjoint) for x, adjoint in found], [], [x for x, _ in found])

    reads = tensors_read_by(op)
    return Pullback(reads, reads, pull)


def _opaque(op: Operation, kind: Opaque) -> Pullback:
    stage = ruled(op)
    reads = tensors_read_by(op)
    return Pullback(reads, reads, partial(_transposed, op)) if stage is None else _custom(op, stage)


def _custom(op: Operation, stage: Custom) -> Pullback:
    if stage.rule.form is not None:
        return _equal_to(op, forms_of(stage))

    def pull(arrived: Arrived) -> Pulled:
        asked = {tensor_key(tensor) for tensor in arrived.wanted}
        cotangents = [arrived.materialised(y) if is_float(y) else None for y in stage.outputs]
        wanted = [tensor_key(x) in asked for x in stage.inputs]
        found = pull_through(stage, cotangents, arrived.prefix, wanted)
        first = min(arrived.cotangents)
        pairs = zip(stage.inputs, found, strict=True)
        return Pulled([(x, first, adjoint) for x, adjoint in pairs if adjoint is not None])

    reads = _once(stage.inputs)
    return Pullback(reads, reads, pull)


def _loop(op: Operation, loop: Loop) -> Pullback:
    def pull(arrived: Arrived) -> Pulled:
        asked = {tensor_key(tensor) for tensor in arrived.wanted}
        outputs = outputs_of(op)
        cotangents = {n: arrived.materialised(outputs[n]) for n in arrived.cotangents}
        wanted = [tensor_key(x) in asked for x in loop.inputs]
        found = pull_loop_over_prefix(op, loop, cotangents, arrived.prefix, wanted)
        first = min(arrived.cotangents)
        pairs = zip(loop.inputs, found, strict=True)
        return Pulled([(x, first, adjoint) for x, adjoint in pairs if adjoint is not None])

    reads = _once(loop.inputs)
    return Pullback(reads, reads, pull)


def _once(tensors: Sequence[Tensor]) -> list[Tensor]:
    return list({tensor_key(tensor): tensor for tensor in tensors}.values())


_RULES: dict[type, Callable[[Operation, Any], Pullback]] = {
    Input: _constant,
    Compute: _compute,
    Scan: _scan,
    ScatterAdd: _equal,
    UpdateLoops: _equal,
    Loop: _loop,
    Custom: _custom,
    KeptLoop: _opaque,
    Rewind: _opaque,
    Opaque: _opaque,
}
