"""The protocol of schedule rules, and the order in which they are tried.

A rule returns launches or a `Declined`. What it does not schedule itself, such as copies of
operands, it leaves to all rules as a `Rest`: no rule names another one. Rules use the access
pattern of the loop nest, never the name of an operator. The last rule takes every kernel. An
exception in a rule is a bug in this library, and becomes a `LoweringError` that names the rule and
the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..codegen.stages.primfunc import RefusedStageError, StageFunction, external_reads, with_scalars
from ..errors import AutodiffError, LoweringError
from ..expr.nodes import Tensor
from ..expr.rewrite import contains_load, depends_on
from ..graph.kinds.loop import Loop
from ..graph.kinds.rewind import KeptLoop, Rewind
from ..graph.stage import Operation, axis_vars, bounds_of, is_compute, reduction_of, shape_of
from .declined import (
    EMPTY,
    NO_REDUCTION,
    NOT_COMPUTED,
    REDUCES,
    Declined,
    other_kind,
    refused,
)
from .fusion.added_scatters import AddedScatters
from .fusion.groups import FusionGroup
from .kernel import Kernel, too_large
from .machine import Machine
from .rewrites.merged_axes import merged_axes
from .rewrites.quotient_axes import split_at_quotients, widened_to_quotients
from .rewrites.split_dimensions import split_dimensions

#: functions to run in order, the last of which writes the outputs of the kernel
Launches = list[StageFunction]
#: launches, and kernels that the rules schedule in their places
Made = Sequence["StageFunction | Rest"]
Rule = Callable[[Any, Machine], "Made | Declined"]
#: a rule for loops over time: a stage, what it repeats, and how many kernels a step would call
LoopRule = Callable[[Kernel, Loop | KeptLoop | Rewind, Machine, int], "Launches | Declined"]

RAGGED = Declined("the bounds of a reduce axis vary along the output")


@dataclass(frozen=True)
class KindRule:
    """A rule for kernels of one kind, which its class names.

    Attributes
    ----------
    schedule : callable
    in_statements : bool
        Whether it writes bodies in small statements, so that they may be of any size.
    """

    schedule: Callable[[Any, Machine], Made | Declined]
    in_statements: bool = False

    def __call__(self, kernel: Any, machine: Machine) -> Made | Declined:
        """The launches of a kernel or fusion group, or why the rule does not apply."""
        declined = self.declined(kernel)
        return self.schedule(kernel, machine) if declined is None else declined

    def declined(self, kernel: Any) -> Declined | None:
        """Why a kernel is of another kind; None for the kind of the rule."""
        return None


class GroupRule(KindRule):
    """A rule for fusion groups of rows."""

    def declined(self, group: FusionGroup) -> Declined | None:
        """See `KindRule`."""
        return None if group.members else other_kind("its kernels share no rows")


class MapsRule(GroupRule):
    """A rule for fusion groups of elementwise kernels."""

    def declined(self, group: FusionGroup) -> Declined | None:
        """See `KindRule`."""
        if isinstance(group, AddedScatters):
            return other_kind("its kernels are scatter-adds")
        return other_kind("its kernels share rows") if group.members else None


class AddedScattersRule(GroupRule):
    """A rule for scatter-adds whose results are added up."""

    def declined(self, group: FusionGroup) -> Declined | None:
        """See `KindRule`."""
        if isinstance(group, AddedScatters):
            return None
        return other_kind("its kernels are no scatter-adds")


class RaggedRule(KindRule):
    """A rule for reductions whose bounds vary along the output or are data."""


class ElementwiseRule(KindRule):
    """A rule for kernels of one elementwise stage."""

    def declined(self, kernel: Kernel) -> Declined | None:
        """See `KindRule`."""
        if not is_compute(kernel.root):
            return NOT_COMPUTED
        reduces = kernel.epilogue is not None or reduction_of(kernel.root) is not None
        return REDUCES if reduces else None


class ReductionRule(KindRule):
    """A rule for reductions, with the stages fused with them, whose results have elements."""

    def declined(self, kernel: Kernel) -> Declined | None:
        """See `KindRule`."""
        if not is_compute(kernel.root):
            return NOT_COMPUTED
        if reduction_of(kernel.root) is None:
            return NO_REDUCTION
        return EMPTY if 0 in shape_of(kernel.root.output(0)) else None


@dataclass(frozen=True)
class Rest:
    """A kernel that a rule leaves to the first rule that takes it.

    Attributes
    ----------
    kernel : Kernel or FusionGroup
    changes : tuple of callable
        What its launches become, one after the other.
    """

    kernel: Kernel | FusionGroup
    changes: tuple[Callable[[Launches], Launches], ...] = ()

    @property
    def inputs(self) -> Sequence[Tensor]:
        """The tensors that it reads."""
        return external_reads(self.kernel.ops)


@dataclass(frozen=True)
class Scheduled:
    """A kernel with its schedule.

    Attributes
    ----------
    kernel : Kernel or FusionGroup
    launches : list of StageFunction
    rule : str
        The rule that made them.
    declined : tuple of (str, Declined)
        The rules that were tried before it, each with its reason.
    plain : bool
        Whether the rule is the last one, which makes plain loops.
    runs : int
        How often the kernel runs, which is more than once in a loop.
    """

    kernel: Kernel | FusionGroup
    launches: Launches
    rule: str
    declined: tuple[tuple[str, Declined], ...] = ()
    plain: bool = False
    runs: int = 1


@dataclass
class Refusals:
    """Schedules that TVM could not compile; the next rules are tried instead."""

    _reasons: dict[tuple[int, str], Declined] = field(default_factory=dict)
    # alive, so that ids stay theirs
    _kernels: list[Kernel | FusionGroup] = field(default_factory=list)

    def add(self, kernel: Kernel | FusionGroup, rule: str, reason: str) -> None:
        """Prevent a rule from being tried again for a kernel."""
        self._kernels.append(kernel)
        self._reasons[id(kernel), rule] = refused(reason)

    def of(self, kernel: Kernel | FusionGroup, rule: str) -> Declined | None:
        """The reason why a rule must not be tried for a kernel."""
        return self._reasons.get((id(kernel), rule))


def is_ragged(op: Operation) -> bool:
    """Whether the bounds of a reduce axis depend on other axes or on data: ``k < i``."""
    reduction = reduction_of(op) if is_compute(op) else None
    if reduction is None:
        return False
    bounds = [bound for axis in reduction.axes for bound in bounds_of(axis)]
    axes = [*axis_vars(op), *(axis.var for axis in reduction.axes)]
    return any(contains_load(bound) or depends_on(bound, axes) for bound in bounds)


def apply_rules(
    kernel: Kernel | FusionGroup,
    machine: Machine,
    rules: Sequence[Rule],
    refusals: Refusals | None = None,
) -> list[Scheduled]:
    """A kernel by the first rule that takes it, or the kernels of a fusion group one by one if none
    does.

    Rules treat loop nests as boxes, so reductions whose bounds vary along the output are left to
    special rules and to the last one.
    """
    known = Refusals() if refusals is None else refusals
    if not isinstance(kernel, FusionGroup):
        plain = [rule for rule in rules if not isinstance(rule, GroupRule)]
        return [_by_kernel_rules(kernel, machine, plain, known)]
    declined: list[tuple[str, Declined]] = []
    large = [why for part in kernel.parts if (why := too_large(part)) is not None]
    for rule in rules:
        if isinstance(rule, GroupRule):
            barred = large and not rule.in_statements
            found = large[0] if barred else _tried(rule, kernel, machine, rules, known)
            if not isinstance(found, Declined):
                return [Scheduled(kernel, found, name_of(rule), tuple(declined))]
            declined.append((name_of(rule), found))
    return [
        Scheduled(one.kernel, one.launches, one.rule, (*declined, *one.declined), one.plain)
        for part in kernel.parts
        for one in apply_rules(part, machine, rules, known)
    ]


def _by_kernel_rules(
    kernel: Kernel, machine: Machine, rules: Sequence[Rule], refusals: Refusals
) -> Scheduled:
    ragged, large = any(map(is_ragged, kernel.ops)), too_large(kernel)
    barred = large if large is not None else RAGGED if ragged else None
    declined: list[tuple[str, Declined]] = []
    if barred is not None:
        declined = [("all other rules", barred)]
    for rule in rules[:-1]:
        if large is not None and not (isinstance(rule, KindRule) and rule.in_statements):
            continue
        if isinstance(rule, RaggedRule) != ragged:
            continue
        found = _tried(rule, kernel, machine, rules, refusals)
        if not isinstance(found, Declined):
            return Scheduled(kernel, found, name_of(rule), tuple(declined))
        declined.append((name_of(rule), found))
    last = _tried(rules[-1], kernel, machine, rules, refusals)
    if isinstance(last, Declined):
        raise LoweringError(f"stage {kernel.name} cannot be scheduled: {last.reason}")
    return Scheduled(kernel, last, name_of(rules[-1]), tuple(declined), plain=True)


def name_of(rule: Rule) -> str:
    """The name of a rule, as shown in profiles."""
    return str((rule.schedule if isinstance(rule, KindRule) else rule).__name__)


def _tried(
    rule: Rule,
    kernel: Kernel | FusionGroup,
    machine: Machine,
    rules: Sequence[Rule],
    refusals: Refusals,
) -> Launches | Declined:
    known = refusals.of(kernel, name_of(rule))
    if known is not None:
        return known
    try:
        found = rule(kernel, machine)
        if isinstance(found, Declined):
            return found
        parts = kernel.parts if isinstance(kernel, FusionGroup) else [kernel]
        ops = [op for part in parts for op in part.ops]
        return [
            launch
            for part in found
            for launch in (
                _launches_of(part, machine, rules, refusals)
                if isinstance(part, Rest)
                else [with_scalars(part, ops)]
            )
        ]
    except RefusedStageError as error:
        return refused(str(error))
    except AutodiffError:
        raise
    except Exception as error:
        raise LoweringError(
            f"the schedule rule {name_of(rule)} failed on stage {kernel.name} with "
            f"{type(error).__name__}: {error}. This is a bug in tvm_autodiff: please report it "
            "with the program"
        ) from error


def _launches_of(
    rest: Rest, machine: Machine, rules: Sequence[Rule], refusals: Refusals
) -> Launches:
    scheduled = apply_rules(rest.kernel, machine, rules, refusals)
    launches = [launch for one in scheduled for launch in one.launches]
    for change in rest.changes:
        launches = change(launches)
    return launches


def with_last(made: Made, then: Callable[[StageFunction], StageFunction]) -> Made:
    """What a rule made, with its last launch changed."""
    *before, last = made
    if isinstance(last, StageFunction):
        return [*before, then(last)]
    return [*before, _changed(last, lambda launches: [*launches[:-1], then(launches[-1])])]


def with_each(made: Made, then: Callable[[StageFunction], StageFunction]) -> Made:
    """What a rule made, with each launch changed."""
    return [
        then(part)
        if isinstance(part, StageFunction)
        else _changed(part, lambda launches: list(map(then, launches)))
        for part in made
    ]


def _changed(rest: Rest, change: Callable[[Launches], Launches]) -> Rest:
    return replace(rest, changes=(*rest.changes, change))


def writes_to(made: Made, kernel: Kernel) -> Made:
    """What a rule made, the last of which computes the outputs of `kernel` under another name."""
    return with_last(made, lambda launch: replace(launch, outputs=tuple(kernel.outputs)))


def in_parts(
    made: Made | Declined, partial: Kernel, combined: Kernel, kernel: Kernel
) -> Made | Declined:
    """What a rule made of the parts of a reduction, and their combination, which is left to the
    rules.
    """
    if isinstance(made, Declined):
        return made
    return [*writes_to(made, partial), *writes_to([Rest(combined)], kernel)]


def over_merged_axes(schedule: Rule, kernel: Kernel, machine: Machine) -> Made | Declined:
    """What `schedule` makes of a kernel whose axes are merged where they are neighbours in memory.
    """
    merged = merged_axes(kernel)
    if merged is None:
        return schedule(kernel, machine)
    made = schedule(merged.kernel, machine)
    return made if isinstance(made, Declined) else with_each(made, merged.whole)


def over_split_dimensions(schedule: Rule, kernel: Kernel, machine: Machine) -> Made | Declined:
    """What `schedule` makes of a kernel over tensors whose dimensions of groups are two."""
    split = split_dimensions(kernel)
    if split is None:
        return schedule(kernel, machine)
    made = schedule(split.kernel, machine)
    return made if isinstance(made, Declined) else writes_to(with_each(made, split.whole), kernel)


def over_split_axes(schedule: Rule, kernel: Kernel, machine: Machine) -> Made | Declined:
    """What `schedule` makes of a kernel whose axes are split at quotients, or else of the kernel
    itself.
    """
    split = split_at_quotients(kernel)
    if split is not None:
        made = schedule(split.kernel, machine)
        if not isinstance(made, Declined):
            return with_last(made, lambda launch: split.merged(launch, kernel))
    widened = None if split is not None else widened_to_quotients(kernel)
    if widened is not None:
        whole, reader = widened
        made = over_split_axes(schedule, whole, machine)
        if not isinstance(made, Declined):
            return in_parts(made, whole, reader, kernel)
    return schedule(kernel, machine)
