"""The kernels of a program with their schedules, as one module.

A kernel whose code TVM refuses is scheduled anew by the next rules; all others keep their schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..expr.nodes import Tensor, tensor_key
from .backends import finished
from .emit.program import Program, assemble
from .emit.repeats import without_repeats
from .emit.step_order import in_order_of_memory
from .emit.updates import Step, Update, order_updates
from .fusion.kernels import Chain, Kernel, cut
from .machine import Machine
from .rewrites.hoisting import without_loop_invariants
from .rewrites.normal_form import copy_of, normal_form
from .rule import Refusals, Rule, Scheduled, apply_rules
from .slow_kernels import reasons_of

Key = tuple[int, int]  #: of a tensor


@dataclass
class Plan:
    """A program between its tensors and its module.

    Attributes
    ----------
    inputs, outputs, updates
        Of the program.
    machine : Machine
    rules : sequence of Rule
        The last one takes every kernel.
    kernels : list of Kernel or Chain
        In order of execution.
    results : list of Tensor
        What the kernels compute for `outputs`, and then for the new values of `updates`.
    scheduled : list of Scheduled
        The kernels of the last `program`, those that copy an updated input among them.
    """

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    updates: Sequence[Update]
    machine: Machine
    rules: Sequence[Rule]
    kernels: list[Kernel | Chain] = field(init=False)
    results: list[Tensor] = field(init=False)
    scheduled: list[Scheduled] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        outputs = [*self.outputs, *(new for _, new in self.updates)]
        self.kernels, self.results = cut(normal_form(without_loop_invariants(outputs)))
        self._refusals = Refusals()
        self._copies: dict[Key, Kernel] = {}

    def program(self, direct: bool) -> Program:
        """The module of the program; `direct` as of `program.assemble`."""
        self.scheduled = []
        steps = [step for kernel in self.kernels for step in self._steps(kernel)]

        def copy(tensor: Tensor) -> tuple[Tensor, list[Step]]:
            kernel = self._copies.setdefault(tensor_key(tensor), Kernel(copy_of(tensor).op))
            return kernel.outputs[0], self._steps(kernel)

        count = len(self.outputs)
        olds = [old for old, _ in self.updates]
        pairs = list(zip(olds, self.results[count:], strict=True))
        kept = {tensor_key(result) for result in self.results}
        steps = in_order_of_memory(without_repeats(steps, kept, self.machine), kept)
        ordered, updates = order_updates(steps, pairs, copy)
        results = self.results[:count]
        return assemble(ordered, self.inputs, results, updates, direct=direct)

    def refuse(self, scheduled: Scheduled, reason: str) -> None:
        """Keep the next `program` from scheduling a kernel by the same rule."""
        self._refusals.add(scheduled.kernel, scheduled.rule, reason)

    def _steps(self, kernel: Kernel | Chain) -> list[Step]:
        found = apply_rules(kernel, self.machine, self.rules, self._refusals)
        self.scheduled += found
        return [
            Step(launch, one.kernel, one.rule, reasons_of(one))
            for one in found
            for launch in finished(one.launches, self.machine)
        ]
