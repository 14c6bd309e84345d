"""Tests of the checks of CUDA schedules: what TVM refuses is a reason, a fault of ours is not."""

from __future__ import annotations

import pytest

from tests.schedule import cases
from tests.schedule.cuda.scheduled import gpu
from tvm_autodiff.errors import LoweringError
from tvm_autodiff.schedule.cuda.fallback import fallback
from tvm_autodiff.schedule.cuda.reduction import reduction
from tvm_autodiff.schedule.cuda.verify import verified
from tvm_autodiff.schedule.declined import Cause
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.rule import apply_rules

RULES = (verified(reduction), fallback)


def scheduled():
    return apply_rules(Kernel(cases.rows(70, 300)[1].op), gpu(), RULES)


def test_what_tvm_refuses_is_a_reason(monkeypatch):
    def refuses(*_):
        raise ValueError("no such reducer")  # TVM's passes raise Python's own errors, too

    monkeypatch.setattr("tvm.transform.Sequential", lambda passes: refuses)
    [found] = scheduled()
    assert found.rule == "fallback"
    [(rule, reason)] = found.declined
    assert (rule, reason.cause) == ("reduction", Cause.REFUSED)
    assert "no such reducer" in reason.reason


@pytest.mark.parametrize("error", [TypeError, ValueError, RuntimeError])
@pytest.mark.parametrize("place", ["lowered", "has_unbound_write", "fits_device"])
def test_a_fault_is_no_reason(place, error, monkeypatch):
    def fails(*_):
        raise error("a fault")

    monkeypatch.setattr(f"tvm_autodiff.schedule.cuda.verify.{place}", fails)
    with pytest.raises(LoweringError, match=f"rule reduction failed .*{error.__name__}: a fault"):
        scheduled()
