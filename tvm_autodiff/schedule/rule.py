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
from ..ir.rewrite import depends_on
from ..ir.stage import Operation, axis_vars, is_compute, reduction_of
from .kernels import Kernel
from .machine import Machine

#: what a rule gives back: functions to run in order, the last of which writes the outputs of the
#: kernel
Launches = list[StageFunction]
Rule = Callable[[Kernel, Machine], "Launches | None"]

_PRIMITIVE_ERRORS = (ScheduleError, InternalError, ValueError, TypeError, RuntimeError)


def _is_ragged(op: Operation) -> bool:
    """Whether the bounds of a reduce axis depend on the axes of the output, as in ``k < i``."""
    reduction = reduction_of(op) if is_compute(op) else None
    if reduction is None:
        return False
    bounds = [bound for axis in reduction.axes for bound in (axis.dom.min, axis.dom.extent)]
    return any(depends_on(bound, axis_vars(op)) for bound in bounds)


def apply_rules(kernel: Kernel, machine: Machine, rules: Sequence[Rule]) -> tuple[Launches, str]:
    """The launches of the first rule that applies, and that rule's name.

    The last rule is called unguarded: what it raises is an error of the program. It is also the
    only one for reductions whose bounds vary along the output: rules take loop nests for boxes.
    """
    for rule in () if any(map(_is_ragged, kernel.ops)) else rules[:-1]:
        try:
            launches = rule(kernel, machine)
        except _PRIMITIVE_ERRORS:
            continue  # primitives refuse what they cannot transform: the next rule asks for less
        if launches is not None:
            return launches, rule.__name__
    last = rules[-1](kernel, machine)
    assert last is not None, "the last rule always applies"
    return last, rules[-1].__name__
