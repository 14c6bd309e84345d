"""Programs over symbolic sizes take the rules that literal sizes take; guard pages check values."""

from __future__ import annotations

import pytest

from tests.machines import avx512
from tests.schedule.symbolic_programs import SYMBOLIC
from tvm_autodiff.schedule.backends import rules_for
from tvm_autodiff.schedule.plan import Plan


@pytest.mark.parametrize("name", SYMBOLIC)
def test_rules(name: str) -> None:
    make, rule = SYMBOLIC[name]
    program, machine = make(), avx512(1)
    plan = Plan(program.inputs, program.outputs, (), machine, rules_for(machine))
    plan.steps()
    assert rule in [one.rule for one in plan.scheduled]
    assert not any(one.plain for one in plan.scheduled)
