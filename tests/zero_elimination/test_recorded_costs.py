"""Costs of the RFC's cases: recorded, so that no change makes a gradient dearer unseen."""

from __future__ import annotations

import pytest

from benchmarks.rfc_cases import cases
from benchmarks.zero_elimination import mean, measure, table


@pytest.fixture(scope="module")
def rows():
    measured = [measure(case) for case in cases()]
    return measured, table(measured)


@pytest.mark.slow
def test_costs_are_the_recorded_ones(rows, golden):
    golden("rfc_costs.txt", rows[1])


def test_no_case_costs_more_than_the_rfc(rows):
    assert all(row.ours.iterations <= row.rfc[0] for row in rows[0])
    assert mean([row.ours.iterations / row.rfc[0] for row in rows[0]]) <= 0.4


def test_no_case_makes_more_memory_than_the_rfc(rows):
    assert all(row.made <= 1.2 * row.rfc[2] for row in rows[0])


def test_all_cases_are_near_the_floor(rows):
    assert all(row.way == "gather" for row in rows[0])
    known = [row for row in rows[0] if row.floor is not None]
    assert all(row.ours.iterations <= 2 * row.floor for row in known)
    assert mean([row.ours.iterations / row.floor for row in known]) <= 1.3
