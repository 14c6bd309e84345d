"""The work of `differentiate` grows with the number of layers and not faster."""

from __future__ import annotations

import pytest

import tvm_autodiff.zero_elimination.sums.solve as solve_module
from benchmarks.differentiation_time import computation
from tvm_autodiff import differentiate
from tvm_autodiff.graph.graph import topological

pytestmark = pytest.mark.slow


def work(layers: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Systems that are solved, and stages that come out, for a residual network."""
    solved = []
    solve = solve_module.simplify_domain

    def counting(domain):
        solved.append(domain)
        return solve(domain)

    output, inputs, head = computation(f"residual, {layers} layers")
    with monkeypatch.context() as patch:
        patch.setattr(solve_module, "simplify_domain", counting)
        gradients = list(differentiate(output, inputs, head))
    return len(solved), len(topological(gradients))


def test_each_layer_costs_the_same(monkeypatch):
    few, more, most = (work(layers, monkeypatch) for layers in (10, 20, 30))
    for first, second, third in zip(few, more, most, strict=True):
        assert first > 0
        assert third - second <= 1.1 * (second - first)
