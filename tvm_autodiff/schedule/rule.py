"""The protocol of schedule rules, and the order in which they are asked.

In: a kernel and a machine. Out: one or more scheduled functions that compute it, from the first
rule that applies. A rule returns None where it does not apply; one that fails inside TVM's schedule
primitives counts as not applying. The last rule always applies. Rules look at the access pattern of
the loop nest, never at the name of an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm.error import InternalError
from tvm.s_tir.schedule import ScheduleError

from ..ir.primfunc import StageFunction
from .kernels import Kernel
from .machine import Machine

#: what a rule gives back: functions to run in order, the last of which writes the outputs of the
#: kernel
Launches = list[StageFunction]
Rule = Callable[[Kernel, Machine], "Launches | None"]

_PRIMITIVE_ERRORS = (ScheduleError, InternalError, ValueError, TypeError, RuntimeError)


def apply_rules(kernel: Kernel, machine: Machine, rules: Sequence[Rule]) -> tuple[Launches, str]:
    """The launches of the first rule that applies, and that rule's name.

    The last rule is called unguarded: what it raises is an error of the program.
    """
    for rule in rules[:-1]:
        try:
            launches = rule(kernel, machine)
        except _PRIMITIVE_ERRORS:
            continue  # primitives refuse what they cannot transform: the next rule asks for less
        if launches is not None:
            return launches, rule.__name__
    last = rules[-1](kernel, machine)
    assert last is not None, "the last rule always applies"
    return last, rules[-1].__name__
