"""The protocol of schedule rules, and the order in which they are asked.

In: a kernel and a machine. Out: one or more scheduled functions that compute it, from the first
rule that applies. A rule returns None where it does not apply; one that fails inside TVM's schedule
primitives counts as not applying. The last rule always applies. Rules look at the access pattern of
the loop nest, never at the name of an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.error import InternalError
from tvm.s_tir.schedule import ScheduleError

from ..ir.primfunc import StageFunction
from ..ir.rewrite import depends_on
from ..ir.stage import Operation, axis_vars, is_compute, reduction_of
from .chains import Chain
from .kernel import Kernel
from .machine import Machine

#: what a rule gives back: functions to run in order, the last of which writes the outputs of the
#: kernel
Launches = list[StageFunction]
Rule = Callable[[Any, Machine], "Launches | None"]


@dataclass(frozen=True)
class ChainRule:
    """A rule for kernels that run as one."""

    schedule: Callable[[Chain, Machine], Launches | None]

    def __call__(self, chain: Chain, machine: Machine) -> Launches | None:
        """The launches of a chain, or None."""
        return self.schedule(chain, machine)


_PRIMITIVE_ERRORS = (ScheduleError, InternalError, ValueError, TypeError, RuntimeError)


def is_ragged(op: Operation) -> bool:
    """Whether the bounds of a reduce axis depend on the axes of the output, as in ``k < i``."""
    reduction = reduction_of(op) if is_compute(op) else None
    if reduction is None:
        return False
    bounds = [bound for axis in reduction.axes for bound in (axis.dom.min, axis.dom.extent)]
    return any(depends_on(bound, axis_vars(op)) for bound in bounds)


def apply_rules(
    kernel: Kernel | Chain, machine: Machine, rules: Sequence[Rule]
) -> tuple[Launches, str]:
    """The launches of the first rule that applies, and that rule's name.

    The last rule is called unguarded: what it raises is an error of the program. It is also the
    only one for reductions whose bounds vary along the output: rules take loop nests for boxes.
    A chain that no rule takes is scheduled kernel by kernel.
    """
    if isinstance(kernel, Chain):
        for rule in rules:
            if isinstance(rule, ChainRule):
                launches = _asked(rule, kernel, machine)
                if launches is not None:
                    return launches, rule.schedule.__name__
        parts = [apply_rules(part, machine, rules) for part in kernel.parts]
        return [launch for part, _ in parts for launch in part], ", ".join(
            name for _, name in parts
        )
    plain = [rule for rule in rules if not isinstance(rule, ChainRule)]
    for rule in () if any(map(is_ragged, kernel.ops)) else plain[:-1]:
        launches = _asked(rule, kernel, machine)
        if launches is not None:
            return launches, rule.__name__
    last = plain[-1](kernel, machine)
    assert last is not None, "the last rule always applies"
    return last, plain[-1].__name__


def _asked(rule: Callable[[Any, Machine], Launches | None], kernel: Any, machine: Machine) -> Any:
    try:
        return rule(kernel, machine)
    except _PRIMITIVE_ERRORS:
        return None  # primitives refuse what they cannot transform: the next rule asks for less
