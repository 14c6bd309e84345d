"""Elementwise kernels that share work: what is counted, and how the work of joining them grows."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te

from tests.function_calls import function_calls
from tests.machines import avx512
from tvm_autodiff.codegen.deep import run_deep
from tvm_autodiff.expr.structural import StructuralKeys
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.schedule.backends import rules_for
from tvm_autodiff.schedule.fusion.joined_maps import MapWork, map_work
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.plan import Plan

X = te.placeholder((64,), "float32", name="x")
Z = te.placeholder((64, 3), "float32", name="z")


def shared(i: Any) -> Any:
    """A polynomial of 31 terms."""
    value = X[63 - i]
    for n in range(30):
        value = value * X[i] + te.const(n, "float32")
    return value


def map_of(scale: float, extent: int = 64) -> Any:
    return te.compute((extent,), lambda i: shared(i) * te.const(scale, "float32"), name="u")


def work(tensor: Any, keys: StructuralKeys) -> MapWork | None:
    return map_work(Kernel(tensor.op), keys)


def test_equal_operations_over_equal_places_are_one() -> None:
    keys = StructuralKeys()
    first, second = (work(map_of(scale), keys) for scale in (2.0, 3.0))
    assert first is not None
    assert second is not None
    assert len(first.operations.keys() ^ second.operations.keys()) == 2  # products with the scales
    assert first.shared_with(second)
    assert len(first.joined(second).operations) == len(first.operations) + 1


OTHERS = {
    "another extent": lambda: map_of(2.0, extent=63),
    "little in common": lambda: te.compute((64,), lambda i: te.exp(X[i] * X[i]), name="v"),
    "other places": lambda: te.compute((64,), lambda i: shared((i + 1) % 64), name="v"),
    "another rank": lambda: te.compute((64, 3), lambda i, c: shared(i) * Z[i, c], name="v"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay_apart(name: str) -> None:
    keys = StructuralKeys()
    first, second = work(map_of(2.0), keys), work(OTHERS[name](), keys)
    assert first is not None
    assert second is not None
    assert not first.shared_with(second)


@pytest.mark.parametrize(("count", "expected"), [(1, False), (2, True), (3, True)])
def test_expensive_functions_count_as_many_operations(count: int, expected: bool) -> None:
    keys = StructuralKeys()

    def of_functions(scale: float) -> Any:
        def body(i: Any) -> Any:
            parts = [te.exp(X[i]), te.sin(X[i]), te.tanh(X[i])][:count]
            return sum(parts, te.const(scale, "float32"))

        return te.compute((64,), body, name="u")

    first, second = work(of_functions(2.0), keys), work(of_functions(3.0), keys)
    assert first is not None
    assert second is not None
    assert first.shared_with(second) == expected


def test_reductions_have_no_work_of_maps() -> None:
    k = te.reduce_axis((0, 3), "k")
    total = te.compute((64,), lambda i: te.sum(Z[i, k], axis=k), name="total")
    assert work(total, StructuralKeys()) is None


@pytest.mark.slow
def test_the_work_of_joining_grows_with_the_maps() -> None:
    """Each map is read once, and what they share is visited once for all."""
    machine = avx512(1)

    def calls(count: int) -> int:
        maps = [map_of(float(n + 2)) for n in range(count)]
        inputs = Graph(maps).placeholders()

        def steps() -> None:
            plan = Plan(inputs, maps, (), machine, rules_for(machine))
            assert [step.rule for step in plan.steps()] == ["joined_maps"]

        return function_calls(lambda: run_deep(steps))

    calls(2)  # what is found out once
    few, more, most = (calls(count) for count in (10, 20, 40))
    assert most - more < 2.2 * (more - few)
