"""Costs of the RFC's cases: recorded, so that no change makes a gradient dearer unseen."""

from __future__ import annotations

import pytest

from benchmarks.rfc_cases import cases
from benchmarks.zero_elimination import measure, table


@pytest.fixture(scope="module")
def rows():
    measured = [measure(case) for case in cases()]
    return measured, table(measured)


def test_costs_are_the_recorded_ones(rows, golden):
    golden("rfc_costs.txt", rows[1])


def test_no_case_costs_much_more_than_the_rfc(rows):
    # the adjoint of an average's division is a stage of its own: 40 iterations against 33
    assert all(row.ours.iterations <= 1.25 * row.rfc[0] for row in rows[0])


def test_solved_cases_are_near_the_floor(rows):
    for row in rows[0]:
        if row.floor is not None and row.way == "gather":
            assert row.ours.iterations <= 2 * row.floor, row.name
