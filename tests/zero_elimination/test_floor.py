"""The floor itself: counted by hand on small cases, and beside the figures on record."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tvm import te, topi

from tests.zero_elimination.cost_cases import CASES, CostCase, reads, summed
from tests.zero_elimination.floor import floor_of

FIGURES = Path(__file__).parents[2] / "benchmarks/data/rfc_costs.json"
FOUR = np.array([0, 1, 1, 9], "int32")

#: name → case, pairs by hand, elements
BY_HAND = {
    "copy": (CostCase("", [(5,)], lambda x: topi.exp(x)), 5, 5),
    "window, stride 2": (
        CostCase("", [(9,)], reads((4,), lambda i, k: (2 * i + k,), (3,))),
        12,
        9,
    ),
    "triangle": (
        CostCase("", [(4,)], summed((4,), (4,), lambda x, i, k: x[k], lambda i, k: k <= i)),
        1 + 2 + 3 + 4,
        4,
    ),
    "equal reads are one": (CostCase("", [(5,)], lambda x: topi.multiply(x, x)), 5, 5),
    "different reads are two": (
        CostCase("", [(3, 3)], summed((3, 3), (), lambda x, i, j: x[i, j] * x[j, i])),
        18,
        9,
    ),
    "each branch where it is taken": (
        CostCase(
            "",
            [(4,), (6,)],
            summed((10,), (), lambda x, w, i: te.if_then_else(i < 4, x[i], w[i - 4])),
        ),
        10,
        10,
    ),
    "both branches of a condition on values": (
        CostCase(
            "", [(4,)], summed((3,), (), lambda x, i: te.if_then_else(x[i] > 0, x[i], x[i + 1]))
        ),
        6,
        4,
    ),
    "padding is followed, its zeros count for nothing": (
        CostCase(
            "",
            [(4,)],
            lambda x: summed((4,), (3,), lambda p, i, k: p[i + k])(topi.nn.pad(x, [1])),
        ),
        10,
        4,
    ),
    "what a slice drops reaches nothing": (
        CostCase("", [(6,)], lambda x: topi.exp(topi.strided_slice(topi.exp(x), [0], [2]))),
        2 + 2,
        6,
    ),
    "rows outside of the table": (
        CostCase("", [(5, 2), FOUR], summed((4, 2), (), lambda x, i, n, j: x[i[n], j])),
        3 * 2,
        10,
    ),
    "identity head": (CostCase("", [(4, 5)], lambda x: topi.sum(x, axis=1), True), 20, 4 * 20),
    "identity head through two stages": (
        CostCase("", [(4,)], lambda x: topi.sum(topi.exp(x)), True),
        4 + 4,
        4,
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_counts_what_one_counts_by_hand(name):
    case, pairs, elements = BY_HAND[name]
    inputs, output, data = case.tensors()
    assert floor_of(output, inputs, data, case.identity) == pairs + elements


@pytest.mark.parametrize(
    ("name", "stride", "dilation", "kernel"),
    [
        ("conv_k1_s2_d1", 2, 1, 1),
        ("conv_k2_s2_d1", 2, 1, 2),
        ("conv_k3_s2_d1", 2, 1, 3),
        ("conv_k3_s1_d2", 1, 2, 3),
        ("conv_k3_s3_d3", 3, 3, 3),
    ],
)
def test_agrees_with_the_pairs_on_record(name, stride, dilation, kernel):
    entries = {entry["name"]: entry for entry in json.loads(FIGURES.read_text("utf-8"))["cases"]}
    x, w = (
        te.placeholder((1, 2, 10, 10), name="x"),
        te.placeholder((2, 2, kernel, kernel), name="w"),
    )
    output = topi.nn.conv2d(x, w, stride, 0, dilation)
    assert floor_of(output, [x, w]) == entries[name]["useful"] + 200 + 4 * kernel**2


def test_there_are_enough_cases():
    assert len(CASES) >= 100
