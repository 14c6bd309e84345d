"""`Plan`: the kernels of a program with their schedules, as one module.

A kernel whose code TVM rejects is rescheduled by the next rules; all others keep their schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ..codegen.modules import Module
from ..expr.build import variable
from ..expr.nodes import Tensor, Var, tensor_key
from ..graph.graph import Graph
from ..graph.kinds.custom import without_rules
from ..graph.kinds.kind import kind_of
from ..graph.kinds.loop import Loop, loop_stage
from ..graph.kinds.rewind import KeptLoop, Rewind, loops_in, part_of, with_loops
from ..graph.stage import is_placeholder
from .backends import finished, loop_rules_for
from .cost import SYMBOLIC_SIZE
from .declined import Declined
from .emit import called_parts
from .emit.common_launches import without_common_launches
from .emit.direct import Part, SizeRange
from .emit.known_values import with_known_values
from .emit.loop_carries import StepValues, step_values
from .emit.loop_function import loop_step
from .emit.program import Program, assemble, assemble_parts, is_direct
from .emit.rewind_function import kept_step, rewind_step
from .emit.step_order import in_order_of_memory
from .emit.updates import Step, Update, order_updates
from .fusion.computed_again import with_pairs_computed_again
from .fusion.groups import FusionGroup
from .fusion.kernels import cut
from .fusion.repetition import repeated
from .kernel import Kernel
from .loop_rows import rows_apart, steps_apart
from .machine import Machine
from .rewrites.loops.row_blocks import RowBlocks
from .rewrites.normal_form import copy_of
from .rewrites.sums.shared.stored_functions import with_stored_functions
from .rewrites.sums.shared.stored_summands import with_stored_summands
from .rewrites.table import BEFORE_KERNELS, rewritten
from .rewrites.values.constant_stages import constant_stages
from .rule import Refusals, Rule, Scheduled, apply_rules
from .slow_kernels import reasons_of
from .tiled.choice import with_tiles

Key = tuple[int, int]  #: of a tensor
Compiler: TypeAlias = Callable[[Module], Any]


@dataclass
class Plan:
    """A program between its tensors and its module.

    Attributes
    ----------
    inputs, outputs, updates
        The inputs, outputs and updates of the program.
    machine : Machine
    rules : sequence of Rule
        The schedule rules. The last one takes every kernel.
    prepare : callable
        A rewrite of tensors that is applied to the steps of loops before they are planned.
    refusals : Refusals
        Rules that must not be tried for some kernels, including those of loops.
    times : int
        How often the program runs; in a loop, the number of steps.
    varying : sequence of Tensor
        The inputs that differ from one step to the next.
    tiles : bool
        Whether stages may run tile by tile, for programs whose loops call kernels.
    constants : bool
        Whether stages of constants are computed when the program is built, where its ``main`` calls
        kernels directly.
    kernels : list of Kernel or FusionGroup
        The kernels in order of execution.
    results : list of Tensor
        The tensors that the kernels compute for `outputs`, and then for the new values of
        `updates`.
    scheduled : list of Scheduled
        The kernels of the last `program`, including copies of updated inputs and the kernels of
        loop steps.
    """

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    updates: Sequence[Update]
    machine: Machine
    rules: Sequence[Rule]
    prepare: Callable[[Sequence[Tensor]], list[Tensor]] = list
    refusals: Refusals = field(default_factory=Refusals)
    times: int = 1
    varying: Sequence[Tensor] = ()
    tiles: bool = False
    constants: bool = False
    kernels: list[Kernel | FusionGroup] = field(init=False)
    results: list[Tensor] = field(init=False)
    scheduled: list[Scheduled] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        outputs = [*self.outputs, *(new for _, new in self.updates)]
        kind, exact = self.machine.kind, self.machine.exact_math
        tensors = rewritten(outputs, BEFORE_KERNELS, kind, exact)
        # a sum of one element is that of an input, which nothing would write to the output
        tensors = [copy_of(one) if is_placeholder(one.op) else one for one in tensors]
        tensors = with_pairs_computed_again(tensors, self.machine)
        if kind == "llvm":
            tensors = with_stored_summands(tensors, self.machine)
            tensors = with_stored_functions(tensors, self.machine)
        if self.tiles:
            tensors = with_tiles(tensors, self.machine)
        kernels, self.results = cut(tensors, exact, self.constants)
        wanted = set(map(tensor_key, self.results))
        self._fixed = constant_stages(Graph(self.results), wanted) if self.constants else set()
        self.kernels = repeated(kernels, self.times, self.varying)
        self._calls = True
        self._copies: dict[Key, Kernel] = {}
        self._loops: dict[int, _PlannedLoop] = {}  # of kernels, by id
        self._rewinds: dict[int, _PlannedRewind] = {}

    def steps(self) -> list[Step]:
        """The launches, in order, which write `results`."""
        self.scheduled = []
        steps = [step for kernel in self.kernels for step in self._steps(kernel)]
        kept = {tensor_key(result) for result in self.results}
        return in_order_of_memory(without_common_launches(steps, self.machine), kept)

    def program(self, compiled: Compiler | None = None) -> Program:
        """The module of the program.

        Parameters
        ----------
        compiled : callable, optional
            Compiles a module for this host; given if ``main`` may take more than arrays and call
            kernels directly.
        """
        part = self.part(compiled is not None)
        if compiled is not None and is_direct(part):
            return assemble_parts([self.with_constants(part, compiled)])
        return assemble(part.steps, part.inputs, part.outputs, part.updates)

    def part(self, direct: bool, when: SizeRange | None = None) -> Part:
        """The launches of the program for some calls; with `direct` loops call functions by
        address, otherwise TVM alone compiles them, as plain loop nests.
        """
        self._calls = direct

        def copy(tensor: Tensor) -> tuple[Tensor, list[Step]]:
            kernel = self._copies.setdefault(tensor_key(tensor), Kernel(copy_of(tensor).op))
            return kernel.outputs[0], self._steps(kernel)

        count = len(self.outputs)
        olds = [old for old, _ in self.updates]
        pairs = list(zip(olds, self.results[count:], strict=True))
        ordered, updates = order_updates(self.steps(), pairs, copy)
        return Part(ordered, self.inputs, self.results[:count], updates, when)

    def with_constants(self, part: Part, compiled: Compiler) -> Part:
        """A part of direct calls without the launches of constants, which run now, on this host,
        whatever machine the program is for.
        """
        steps, values = with_known_values(part.steps, self._fixed, compiled)
        return replace(part, steps=steps, constants=values)

    def refuse(self, scheduled: Scheduled, reason: str) -> None:
        """Prevent the next `program` from scheduling a kernel by the same rule."""
        self.refusals.add(scheduled.kernel, scheduled.rule, reason)

    def _steps(self, kernel: Kernel | FusionGroup) -> list[Step]:
        if isinstance(kernel, Kernel) and self._calls:
            loop = kind_of(kernel.root)
            if isinstance(loop, Loop):
                return self._loop(kernel, loop)
            if isinstance(loop, (KeptLoop, Rewind)):
                return self._rewound(kernel, loop)
        found = apply_rules(kernel, self.machine, self.rules, self.refusals)
        self.scheduled += found
        return [
            Step(launch, one.kernel, one.rule, reasons_of(one))
            for one in found
            for launch in finished(one.launches, self.machine)
        ]

    def _loop(self, kernel: Kernel, loop: Loop) -> list[Step]:
        """A loop: one function if its steps are small, else a separate program for a step."""
        if id(kernel) not in self._loops:
            outputs = self.prepare(without_rules(loop.step.outputs))
            self._loops[id(kernel)] = self._planned(
                replace(loop, step=loop.step.with_outputs(outputs))
            )
        found = self._loops[id(kernel)]
        whole = self._without_calls(kernel, found.whole, len(found.inside.kernels))
        if whole is not None:
            return whole
        steps = found.inside.steps()
        length = loop.length if isinstance(loop.length, int) else SYMBOLIC_SIZE
        runs = length if found.blocks is None else length * found.blocks.count
        self.scheduled += [replace(one, runs=one.runs * runs) for one in found.inside.scheduled]
        results = found.inside.results
        return [
            loop_step(kernel, found.part, found.values, results, steps, found.blocks, found.runs)
        ]

    def _without_calls(
        self, kernel: Kernel, kind: Loop | KeptLoop | Rewind, kernels: int
    ) -> list[Step] | None:
        """A loop as one function that calls no kernels, or None where no rule writes one."""
        for rule in loop_rules_for(self.machine):
            name = rule.__name__
            refused = self.refusals.of(kernel, name)
            if refused is not None:  # reported with the slow kernels, without separate launches
                self.scheduled.append(Scheduled(kernel, [], "loop", ((name, refused),)))
                continue
            launches = rule(kernel, kind, self.machine, kernels)
            if not isinstance(launches, Declined):
                self.scheduled.append(Scheduled(kernel, launches, name))
                return [Step(one, kernel, name) for one in finished(launches, self.machine)]
        return None

    def _rewound(self, kernel: Kernel, kind: KeptLoop | Rewind) -> list[Step]:
        """A loop over kept states.

        It is one function if its steps are small, and otherwise one that calls a program for a run
        of steps, and another one for a reverse step.
        """
        if id(kernel) not in self._rewinds:
            loops = [
                replace(
                    loop,
                    step=loop.step.with_outputs(self.prepare(without_rules(loop.step.outputs))),
                )
                for loop in loops_in(kind)
            ]
            prepared = with_loops(kind, loops)
            assert not isinstance(prepared, Loop), "the kind stays the same"
            self._rewinds[id(kernel)] = self._planned_parts(prepared)
        whole, count, plans = self._rewinds[id(kernel)]
        made = self._without_calls(kernel, whole, count)
        if made is not None:
            return made
        parts = []
        length = loops_in(kind)[0].length
        runs = length if isinstance(length, int) else SYMBOLIC_SIZE
        for plan, size in plans:
            parts.append(called_parts.Part(plan.steps(), plan.inputs, plan.results, size))
            self.scheduled += [replace(one, runs=one.runs * runs) for one in plan.scheduled]
        if isinstance(whole, KeptLoop):
            return [kept_step(kernel, whole, *parts)]
        return [rewind_step(kernel, whole, *parts)]

    def _planned_parts(self, kind: KeptLoop | Rewind) -> _PlannedRewind:
        run, *back = loops_in(kind)
        size = variable("steps", "int64")
        parts: list[tuple[Loop, Var | None]] = [(part_of(run, size), size)]
        parts += [(part_of(loop, 1), None) for loop in back]
        plans, kernels = [], 0
        for loop, length in parts:
            kernels += len(self._planned(loop).inside.kernels)
            plan = Plan(
                loop.inputs,
                loop_stage("steps", loop),
                (),
                self.machine,
                self.rules,
                self.prepare,
                self.refusals,
            )
            plans.append((plan, length))
        return kind, kernels, plans

    def _planned(self, whole: Loop) -> _PlannedLoop:
        machine, part, blocks = self.machine, whole, rows_apart(whole, self.machine)
        runs = 1 if blocks is not None else steps_apart(whole, self.machine)
        if blocks is not None or runs > 1:
            machine = replace(machine, threads=1)
        if blocks is not None:
            part = replace(whole, step=blocks.step)
        step = part.step
        values = step_values(step.carries, step.news, step.ys)
        inside = Plan(
            step.inputs,
            values.tensors,
            (),
            machine,
            self.rules,
            self.prepare,
            self.refusals,
            part.length if isinstance(part.length, int) else SYMBOLIC_SIZE,
            [*step.carries, *step.xs],
        )
        return _PlannedLoop(whole, part, blocks, runs, values, inside)


@dataclass(frozen=True)
class _PlannedLoop:
    """A loop, with its step for the rows of a block where these run apart.

    Attributes
    ----------
    whole, part : Loop
        The loop with the step for all rows, and with the step that runs.
    blocks : RowBlocks or None
    runs : int
        In how many runs of steps threads take it.
    values : StepValues
        The values that the step of `part` computes.
    inside : Plan
        The plan of that step.
    """

    whole: Loop
    part: Loop
    blocks: RowBlocks | None
    runs: int
    values: StepValues
    inside: Plan


#: a loop over kept states, how many kernels its steps are, and the programs that it calls, with the
#: number of steps of each
_PlannedRewind: TypeAlias = tuple[KeptLoop | Rewind, int, list[tuple[Plan, Var | None]]]
