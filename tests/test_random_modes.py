"""120 random programs pushed forward and batched, beside the reference of the gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.random_programs.cases import random_case
from tests.random_programs.features import FEATURES
from tests.random_programs.modes import Modes, complaints
from tests.random_programs.workers import run_all

pytestmark = pytest.mark.slow

FEATURES_TRIED = tuple(name for name, feature in FEATURES.items() if not feature.compiled)
COUNT, TASK = 120, 20
BEGIN = 5000  #: other programs than those of `test_random_programs`


@pytest.mark.parametrize("first", range(0, COUNT, 3 * TASK))
def test_other_modes(first: int) -> None:
    starts = range(first, first + 3 * TASK, TASK)
    tasks = [Modes(FEATURES_TRIED, tuple(range(BEGIN + n, BEGIN + n + TASK))) for n in starts]
    for outcome in run_all(tasks, 1):
        assert outcome.complaints == [], outcome.complaints[0]


def test_a_wrong_gradient_is_seen() -> None:
    """Against a reference that is off by a part of itself, tangents are wrong."""
    seen = 0
    for seed in range(40):
        case = random_case(seed, ("basic",))
        labels = [label for label in case.calls[0].wanted if label.startswith("d/d")]
        if case.mode not in ("plain", "backward") or not labels:
            continue
        wanted = dict(case.calls[0].wanted)
        for label in labels:
            wanted[label] = replace(wanted[label], value=wanted[label].value * 1.01)
        call = replace(case.calls[0], wanted=wanted)
        seen += any("tangents" in c for c in complaints(replace(case, calls=(call,))))
        if seen == 20:
            break
    assert seen == 20
